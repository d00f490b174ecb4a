// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

// A packed model file: weights that a codec has packed ahead of time. Integers are little-endian, offsets count bytes from the start.
//
//     0   8 bytes  magic: 89 52 53 50 4b 0d 0a 1a
//     8   u32      version: 1
//     12  u32      zero
//     16  u64      offset of the index
//     24  u64      bytes of the index
//     32  u64      bytes of the whole file
//     40  u64      StableHash of the bytes before
//     4096         the packed parts, each at a multiple of 512
//     …            the index, at a multiple of 512, up to the end of the file: a container (model/container.hpp) of kind `packed`
//
// Sections of the index, version 1:
//
//     MODL  text: format of the model that was packed; then its metadata: count, and a key and a value each, as texts
//     STOR  arrays by storage: raw bytes (u64), number of parts (u32), is mutable (u8)
//     PART  arrays by part, in the order of the storages: form (u32, PackedForm), raw bytes, packed bytes, offset, checksum, rows, columns
//           (u64 each); the fields of PackedPart
//     WGHT  count, then by weight: name (text), dtype as that format spells it (text), name of the type (text), bits and elements of
//           its block (u32 each), storage (u32), offset in the storage (u64), extents (array of u64), strides (array of u64; none
//           where dense)
//
// A model whose index and header are intact is refused part by part: where the packed bytes were changed, the load that reads them fails.

namespace detail {

inline constexpr char packed_magic[8] = {'\x89', 'R', 'S', 'P', 'K', '\r', '\n', '\x1a'};
inline constexpr std::uint32_t packed_version = 1, packed_index_version = 1;
inline constexpr std::uint64_t packed_front_bytes = 48, packed_first_part = 4096;
inline constexpr std::uint64_t packed_most_index_bytes = std::uint64_t{1} << 30;

}  // namespace detail

/// Blocks. Reads the index of a packed model file. Errors: malformed, with the place; unsupported for a later version.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_packed(const Input& input);

/// How far packing has come.
struct PackProgress {
    std::uint64_t raw_bytes = 0;         ///< read and packed so far
    std::uint64_t packed_bytes = 0;      ///< written so far
    std::uint64_t total_bytes = 0;       ///< raw bytes of the model
    std::chrono::nanoseconds elapsed{};  ///< since the start
};

/// How a model is packed.
struct PackOptions {
    /// The form of a weight. Empty: codec::chunk_form() of its type. A form that does not take the weight's type, and bf16_tiles for a part
    /// of a storage, are refused.
    std::function<PackedForm(const ModelFile::WeightEntry&)> form = nullptr;
    unsigned threads = 0;  ///< that read and pack; 0: as many as the machine has
    /// Called now and then, by the caller's thread. False cancels. Must not throw.
    std::function<bool(const PackProgress&)> progress = nullptr;
};

/// What was packed.
struct PackReport {
    /// What the parts of one form add up to.
    struct Form {
        std::uint64_t parts = 0;         ///< how many
        std::uint64_t raw_bytes = 0;     ///< that they stand for
        std::uint64_t packed_bytes = 0;  ///< that they take
    };
    std::map<PackedForm, Form> forms;    ///< those that occur
    std::uint64_t raw_bytes = 0;         ///< of the model
    std::uint64_t packed_bytes = 0;      ///< of its parts
    std::uint64_t file_bytes = 0;        ///< of the file, index included
    std::chrono::nanoseconds elapsed{};  ///< of the whole
};

/// Blocks. Packs the weights of a model into one file (packed.hpp describes it): reads, packs, unpacks again to compare, and writes, part
/// by part. The file appears under `path` when it is whole; until then, and after any error, what was there stays. Errors: those of
/// reading; io; cancelled; invalid_argument for a form that a weight cannot have.
[[nodiscard]] RESIDENCY_INLINE Result<PackReport> try_write_packed(const ModelFile& model, const std::string& path,
                                                                   const PackOptions& options = {});

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/packed.ipp"
#endif

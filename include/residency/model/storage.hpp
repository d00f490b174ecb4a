// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "residency/model/file_identity.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Where kernels read a storage.
enum class Placement : std::uint8_t {
    streamed,  ///< in device memory, brought there when a step needs it
    resident,  ///< in device memory from construction to the end
    host,      ///< in pinned host memory, read over the link; costs no budget
};

/// A file that holds bytes of storages, or the pieces of one that was cut.
struct SourceFile {
    std::string path{};       ///< as the program gave it
    std::uint64_t bytes = 0;  ///< its size
    /// The identity of the file that the catalog was read from; a file with another one is refused later. None: only the size is compared.
    std::optional<FileIdentity> identity{};
    /// The files whose bytes one after another are those of this one; its path is that of the first then, and it has no identity of
    /// its own. Empty: it is one file. A piece has no pieces.
    std::vector<SourceFile> pieces{};
};

/// Bytes in host memory. Shares the ownership of them.
struct HostSource {
    std::shared_ptr<const HostBytes> host{};                                          ///< the memory; never null
    std::uint64_t offset_bytes = 0;                                                   ///< of the storage in `host`
    friend bool operator==(const HostSource&, const HostSource&) noexcept = default;  ///< compares all members
};

/// Bytes in a file.
struct FileSource {
    std::shared_ptr<const SourceFile> file{};                                         ///< never null
    std::uint64_t offset_bytes = 0;                                                   ///< of the storage in the file
    friend bool operator==(const FileSource&, const FileSource&) noexcept = default;  ///< compares all members
};

/// A part of a storage's bytes, packed by a codec (codec/codec.hpp).
struct PackedPart {
    PackedForm form = PackedForm::raw;  ///< how it is packed
    std::uint64_t raw_bytes = 0;        ///< that it stands for
    std::uint64_t packed_bytes = 0;     ///< that it takes
    std::uint64_t offset_bytes = 0;     ///< of the packed bytes in the file
    std::uint64_t checksum = 0;         ///< of the packed bytes (codec/checksum.hpp)
    std::uint64_t rows = 1;             ///< of the matrix, where the form packs whole weights; else 1
    std::uint64_t columns = 0;          ///< the same; else 0
    friend bool operator==(const PackedPart&, const PackedPart&) noexcept = default;  ///< compares all members
};

/// Packed bytes in a file: the parts of the storage in order, without gaps in its raw bytes.
struct PackedSource {
    std::shared_ptr<const SourceFile> file{};                                             ///< never null
    std::shared_ptr<const std::vector<PackedPart>> parts{};                               ///< never null
    friend bool operator==(const PackedSource&, const PackedSource&) noexcept = default;  ///< compares all members
};

/// Packed bytes in host memory, which travel packed: the parts of the storage in order, without gaps in its raw bytes. Shares the
/// ownership of them. Kernels trust these bytes: codec::check_part() has accepted each part, as those of packed::pack() and packed::load().
struct PackedHostSource {
    std::shared_ptr<const HostBytes> host{};                 ///< the memory; never null
    std::uint64_t offset_bytes = 0;                          ///< of the first part in `host`
    std::uint64_t bytes = 0;                                 ///< from there to the end of the last part
    std::shared_ptr<const std::vector<PackedPart>> parts{};  ///< never null
    friend bool operator==(const PackedHostSource&,
                           const PackedHostSource&) noexcept = default;  ///< compares all members
};

/// Where a storage's bytes come from. monostate: from nowhere yet, which is enough to plan.
using StorageSource = std::variant<std::monostate, HostSource, FileSource, PackedSource, PackedHostSource>;

/// The bytes behind one or more weights: they are copied and evicted together.
struct Storage {
    static constexpr std::uint64_t default_alignment_bytes = 256;  ///< what every driver gives

    std::uint64_t bytes = 0;  ///< 0 is allowed
    /// The alignment of its address on the device: a power of two, up to 2 MiB.
    std::uint64_t alignment_bytes = default_alignment_bytes;
    Placement placement = Placement::streamed;  ///< where it is kept
    bool is_mutable = false;                    ///< kernels write it; then it is resident
    StorageSource source{};                     ///< where its bytes come from
};

}}  // namespace residency::RESIDENCY_ABI

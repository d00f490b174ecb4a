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
#include "residency/format/model_file.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

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
#include "residency/format/impl/packed_writer.ipp"
#endif

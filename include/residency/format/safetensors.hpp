// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// How safetensors files are read.
struct SafetensorsOptions {
    /// PyTorch's save_model stores one of several tied tensors and names the others in the metadata, dropped name → kept name:
    /// list them as weights on the same storage. An entry counts where its key names no tensor and its value does.
    bool ties_from_metadata = true;
};

/// The limit of the format on the bytes of a header; here of an index too.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// Reads one safetensors file's header, from a file or from memory; see the format's specification. Weights are listed in the
/// order of their data, each with a storage of its own. Errors: malformed with a FileLocation; io. Blocks.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const Input& input,
                                                                      const SafetensorsOptions& options = {});

/// Reads a sharded model by its index (model.safetensors.index.json) and the headers of all its files, which lie in or below
/// the index's folder. Every tensor is in the file that the index names and in no other, and none is left out.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors_index(const Input& input,
                                                                            const SafetensorsOptions& options = {});

/// The same for a path: an index where it ends in ".json", one file otherwise.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const std::string& path,
                                                                      const SafetensorsOptions& options = {});

#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_safetensors(const std::string& path, const SafetensorsOptions& options = {}) {
    return unwrap(try_read_safetensors(path, options));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/safetensors.ipp"
#endif

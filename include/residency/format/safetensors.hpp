// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// The format's limit on the bytes of a header; here of an index too.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// Blocks. Reads the header of one safetensors file, from a file or from memory. Lists the weights in the order of their data,
/// each with a storage of its own. Errors: malformed, with a FileLocation; io.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const Input& input,
                                                                      const ReadOptions& options = {});

/// Blocks. Reads a sharded model by its index (model.safetensors.index.json) and the headers of all its files, which lie in or
/// below the folder of the index. The index says which file a tensor comes from: what another file holds too, or what the index
/// does not list, is passed over. Error malformed: a tensor is not in the file that the index names, or the index lists nothing.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors_index(const Input& input,
                                                                            const ReadOptions& options = {});

/// Blocks. Reads an index where the path ends in ".json", one file otherwise; a note says if an index beside the file lists it.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const std::string& path,
                                                                      const ReadOptions& options = {});

#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_safetensors(const std::string& path, const ReadOptions& options = {}) {
    return unwrap(try_read_safetensors(path, options));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/safetensors.ipp"
#endif

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

/// Blocks. Reads a model file of any format but AOTInductor's, for which there is try_read_model_or_aoti. The first bytes and the
/// name tell the format. Errors: those of the reader; unsupported where the file looks like none of the formats.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_model(const std::string& path);
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_model(const std::string& path) { return unwrap(try_read_model(path)); }
#endif

namespace detail {

/// What a file looks like.
enum class FileFormat : std::uint8_t {
    gguf,
    packed,
    safetensors,
    safetensors_index,
    torch,          ///< of a PyTorch before 1.6; it is refused with advice
    torch_archive,  ///< a zip archive with PyTorch's pickle in it
    torch_index,
    manifest,
    aoti_package,  ///< another zip archive
    aoti_config,   ///< another JSON file
    unknown,
};

/// Blocks. Tells the format by the name, the first bytes and, if these do not tell, more of the file. `start` is given the first
/// bytes.
[[nodiscard]] RESIDENCY_INLINE Result<FileFormat> format_of(const Input& input, std::string& start);

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/open.ipp"
#endif

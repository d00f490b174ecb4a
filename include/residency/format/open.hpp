// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Blocks. Reads a model file of any format but AOTInductor's, for which there is try_read_model_or_aoti. The first bytes and the
/// name tell the format. In a folder it reads the one model there: model.safetensors.index.json, else model.safetensors, else
/// *.gguf, else pytorch_model*.bin, else the only other file of tensors, or the only program of ExecuTorch with its data. A file
/// NAME goes before an index NAME.index.json that does not list it, as in transformers, and a note says so. In the cache of
/// Hugging Face's hub, models--ORGANISATION--NAME is the snapshot that refs/main names, else the only one. Errors: those of the
/// reader; unsupported where the file looks like none of the formats, and says what it looks like, or where a folder holds no
/// model, or several, and names the paths to give; invalid_argument where options.key is set and the file is not PyTorch's.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_model(const std::string& path,
                                                                const ReadOptions& options = {});

/// Blocks. Reads files under any names as one model: its parts, each with tensors of its own, or in order the pieces of one file
/// that was cut, as by split, or a program of ExecuTorch and its data. The first bytes tell which. Parts of a split GGUF say
/// their number and may come in any order. A part may be PREFIX=PATH, where nothing lies at this whole text and PREFIX has no
/// slash: then each part is a model of its own, and the names of its tensors and metadata begin with "PREFIX.".
/// ModelFile::try_tie says which tensors they share. Errors: those of the readers; malformed where two parts have a tensor of the
/// same name, or the list has both parts and pieces; invalid_argument where options.key is set and no part is PyTorch's.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_model_parts(const std::vector<std::string>& paths,
                                                                      const ReadOptions& options = {});
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_model(const std::string& path, const ReadOptions& options = {}) {
    return unwrap(try_read_model(path, options));
}
[[nodiscard]] inline ModelFile read_model_parts(const std::vector<std::string>& paths,
                                                const ReadOptions& options = {}) {
    return unwrap(try_read_model_parts(paths, options));
}
#endif

namespace detail {

/// What a file looks like.
enum class FileFormat : std::uint8_t {
    gguf,
    packed,
    safetensors,
    safetensors_index,
    torch,          ///< of a PyTorch before 1.6
    torch_archive,  ///< a zip archive with PyTorch's pickle in it
    torch_index,
    manifest,
    executorch,    ///< a program, or its data
    aoti_package,  ///< another zip archive
    aoti_config,   ///< another JSON file
    unknown,
};

/// Blocks. Tells the format by the name, the first bytes and, if these do not tell, more of the file. `start` is given the first
/// bytes. Error unsupported: it is something else that often lies in the place of a model file.
[[nodiscard]] RESIDENCY_INLINE Result<FileFormat> format_of(const Input& input, std::string& start);

/// The model that was read from there. Error invalid_argument: options.key is set, and nothing of it is PyTorch's.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> with_key_used(Result<ModelFile> model, const std::string& path,
                                                               const ReadOptions& options);

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/open.ipp"
#endif

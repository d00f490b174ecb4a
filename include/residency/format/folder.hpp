// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Blocks. Whether there is a folder of that name.
[[nodiscard]] RESIDENCY_INLINE bool is_folder(const std::string& path) noexcept;

/// Blocks. The names in a folder, in natural order, without those that begin with a dot. Error io: it cannot be read, or has more
/// than 100,000 entries.
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<std::string>> try_list_folder(const std::string& path);

/// Blocks. The folder that holds the files of a model. In the cache of Hugging Face's hub, models--ORGANISATION--NAME has its
/// files in snapshots: the one that refs/main names, else the only one. Any other folder is the folder itself. Error unsupported,
/// which names the snapshots: there is none, or several of which none is named.
[[nodiscard]] RESIDENCY_INLINE Result<std::string> try_folder_of_model(const std::string& folder);

/// Blocks. The files of the one model in a folder: model.safetensors.index.json, model.safetensors, *.gguf, pytorch_model*.bin;
/// where there is none of these the only other index or file of tensors. The first of these kinds that is there decides. Error
/// unsupported, which names the candidates: there is none, but perhaps in folders in it, or several for which `are_parts`, given
/// their paths, does not say that they are all the parts of one model.
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<std::string>> try_find_model_in(
    const std::string& folder, const std::function<bool(const std::vector<std::string>&)>& are_parts);

/// Blocks. Appends the files of an index, which lie beside it, each by `append(input)`, a Status. Keeps the tensors that the index
/// gives to that file, and those that it does not list and that are tied to one of them; passes the others over. Errors: malformed
/// where the index lists nothing, or a tensor that its file does not have; with options.strict where anything is passed over.
[[nodiscard]] RESIDENCY_INLINE Status append_shards(ModelFile& model, const Input& input, const ReadOptions& options,
                                                    const std::function<Status(const Input&)>& append);

/// Blocks. The whole file NAME beside an index NAME.index.json that does not list it, or that cannot be read; empty where there
/// is none. transformers takes it before the index.
[[nodiscard]] RESIDENCY_INLINE std::string whole_file_beside(const std::string& index_path);

/// Adds a weight on the same storage for each tie that the metadata name; see ReadOptions::ties_from_metadata.
RESIDENCY_INLINE void tie_by_metadata(ModelFile& model);

/// Blocks. Notes in the model, which was read from the file at `path` alone, if an index in the same folder lists this file among
/// others.
RESIDENCY_INLINE void note_index_beside(ModelFile& model, const std::string& path);

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/folder.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/format/gguf_type.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// How model files are read. Each reader takes what concerns its format.
struct ReadOptions {
    /// Whatever would be passed over is an error: tensors that the index gives to another file or to none, entries that are no
    /// tensor, bytes after the last tensor.
    bool strict = false;
    /// safetensors. PyTorch's save_model stores one of several tied tensors and names the others in the metadata, dropped name →
    /// kept name. True: list them as weights on the same storage. An entry counts if no tensor of any file has its key as name and
    /// one has its value, and if its key is none of the keys that metadata have by convention, such as "format".
    bool ties_from_metadata = true;
    /// PyTorch. Which part of what was saved holds the tensors, such as "state_dict" or "ema.model"; "." are those of the outermost
    /// dictionary alone. Several with commas, "model,generator", whose tensors then have the part's name before theirs; "*": all there
    /// are. Empty: the only part that holds any. An error where no file is PyTorch's.
    std::string key{};
    /// GGUF. Types of the caller, which go before those of ggml_types.
    std::vector<GgmlType> ggml_types{};
};

}}}  // namespace residency::RESIDENCY_ABI::format

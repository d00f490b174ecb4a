// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Blocks. Reads a manifest: JSON text that describes weights in files of raw bytes, such as a weights blob of AOTInductor.
///
///     {"format": "aotinductor",
///      "alignment": 64,                                    optional: of storages without an offset; 1
///      "storages": [{"bytes": 96, "offset": 0, "file": "weights.blob", "mutable": false}],
///      "weights": [{"name": "w", "dtype": "float32", "shape": [2, 6], "strides": [6, 1],
///                   "storage": 0, "offset_bytes": 0, "bytes": 48}]}
///
/// residency-inspect --json prints one. "file" may be a list of paths: the pieces of one file, in order. Paths are relative to the folder of the manifest unless they begin with '/'. A storage
/// without an offset follows the one before it in the same file, padded to the alignment. A weight's strides, offset_bytes (0) and
/// bytes, and a storage's mutable, may be missing; bytes is checked where it is given. dtype is a name of PyTorch, safetensors or
/// ggml. Other members are ignored. Storages may overlap only if they are the same range. Errors: malformed, with a FileLocation;
/// io.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_manifest(const Input& input);
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_manifest(const std::string& path);
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_manifest(const std::string& path) { return unwrap(try_read_manifest(path)); }
#endif

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/manifest.ipp"
#endif

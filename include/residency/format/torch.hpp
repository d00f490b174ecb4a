// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Blocks. Reads what torch.save and torch.jit.save wrote: a pickle, of which nothing is executed, and the bytes of each storage,
/// in a ZIP archive or, before PyTorch 1.6, one after another. Tensors that are views of one storage share it. Those in lists,
/// nested dictionaries, modules and other objects are named by what leads to them, with dots: "layers.0.weight". Entries that are no
/// tensor are passed over. Where tensors lie in a dictionary or module inside the saved dictionary, such as "state_dict" of a
/// training's checkpoint, that one is read if it is the only one; see ReadOptions::key. Errors: malformed; io; unsupported where the
/// file holds no tensors, or several parts with some.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch(const Input& input, const ReadOptions& options = {});

/// Blocks. Reads the index of a model in several such files, as Hugging Face writes it: pytorch_model.bin.index.json.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch_index(const Input& input,
                                                                      const ReadOptions& options = {});

/// Blocks. Reads an index where the path ends in ".json", one file otherwise; a note says if an index beside the file lists it.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch(const std::string& path,
                                                                const ReadOptions& options = {});
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_torch(const std::string& path, const ReadOptions& options = {}) {
    return unwrap(try_read_torch(path, options));
}
#endif

namespace detail {

/// A file of a PyTorch before 1.6 has its magic number in its first bytes, this many at most, after the pickle's protocol and frame.
inline constexpr std::size_t torch_magic_end = 23;
[[nodiscard]] inline bool is_torch_before_archives(std::string_view start) noexcept {
    constexpr std::string_view magic{"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12};
    return start.starts_with('\x80') && start.substr(0, torch_magic_end).find(magic) != std::string_view::npos;
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/torch.ipp"
#endif

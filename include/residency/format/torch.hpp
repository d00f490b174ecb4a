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

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Blocks. Reads what torch.save wrote of a state_dict(), in PyTorch 1.6 and later: a ZIP archive with a pickle, of which nothing
/// is executed, and a record for each storage. Tensors that are views of one storage share it. Errors: malformed; io; unsupported
/// where the file is older, or holds more than tensors by name.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch(const Input& input);

/// Blocks. Reads the index of a model in several such files, as Hugging Face writes it: pytorch_model.bin.index.json.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch_index(const Input& input);

/// Blocks. Reads an index where the path ends in ".json", one file otherwise.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_torch(const std::string& path);
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_torch(const std::string& path) { return unwrap(try_read_torch(path)); }
#endif

namespace detail {

/// The magic number of a file of a PyTorch before 1.6 lies within so many bytes, after the pickle's protocol and frame.
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

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Blocks. Error unsupported, which names the kind of the file and says what to give instead: it is none of a model's files but
/// something that often lies in their place, such as a Git LFS pointer, a web page, text, an archive, or nothing. `is_json`: JSON and other text pass.
[[nodiscard]] RESIDENCY_INLINE Status refuse_other_kinds(const Input& input, bool is_json = false);

/// Whether a safetensors file may begin so: a length of 8 bytes that a header may have, and its first character.
[[nodiscard]] inline bool has_safetensors_header(std::string_view start) noexcept {
    constexpr std::size_t zeros_from = 4;
    return start.size() > 8 && start[8] == '{' &&
           start.substr(zeros_from, 8 - zeros_from).find_first_not_of('\0') == std::string_view::npos;
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/other_kinds.ipp"
#endif

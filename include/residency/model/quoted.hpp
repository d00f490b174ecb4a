// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// The bytes of the character at the front of `text`, where it is well-formed UTF-8 (Unicode 15, table 3-7): no overlong form, no
/// surrogate, nothing above U+10FFFF. 0: it is not, or `text` is empty.
[[nodiscard]] RESIDENCY_INLINE std::size_t utf8_bytes(std::string_view text) noexcept;

/// `text` as a terminal may show it, in one line: each byte of what it would obey (control characters, ends of lines, changes of the
/// direction of writing) and of what is not UTF-8 becomes \xNN. Everything else stays.
[[nodiscard]] RESIDENCY_INLINE std::string escaped(std::string_view text);

/// escaped() of at most `longest` bytes of `text`; leaves out the middle of a longer one.
[[nodiscard]] RESIDENCY_INLINE std::string shortened(std::string_view text, std::size_t longest);

/// `text` in double quotes, for a message: shortened, with \ before quotes and backslashes.
[[nodiscard]] RESIDENCY_INLINE std::string quoted(std::string_view text);

}}}  // namespace residency::RESIDENCY_ABI::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/quoted.ipp"
#endif

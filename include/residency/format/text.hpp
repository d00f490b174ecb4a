// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Whether `text` is well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] RESIDENCY_INLINE bool is_utf8(std::string_view text) noexcept;

/// `text` in quotes, for a message of one line; the hexadecimal bytes of what is not UTF-8.
[[nodiscard]] RESIDENCY_INLINE std::string shown(std::string_view text);

/// An error at byte `offset` of `source`, with what is wrong and, if given, what was found and expected.
[[nodiscard]] RESIDENCY_INLINE Error error_at(ErrorKind kind, const std::string& source, std::uint64_t offset,
                                              const std::string& what, std::string found, std::string expected);
/// The error of a broken file.
[[nodiscard]] inline Error malformed(const std::string& source, std::uint64_t offset, const std::string& what,
                                     std::string found = {}, std::string expected = {}) {
    return error_at(ErrorKind::malformed, source, offset, what, std::move(found), std::move(expected));
}
/// The error of a whole file of a kind that no reader takes.
[[nodiscard]] inline Error unsupported(const std::string& source, std::uint64_t offset, const std::string& what,
                                       std::string found = {}, std::string expected = {}) {
    return error_at(ErrorKind::unsupported, source, offset, what, std::move(found), std::move(expected));
}

/// What the error of a file says that ends before its time.
inline constexpr const char* cut_off = "the file is cut off: download it again";

/// The folder of a path, with its slash; empty where the path has none.
[[nodiscard]] inline std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string{} : path.substr(0, slash + 1);
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/text.ipp"
#endif

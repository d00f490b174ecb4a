// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// `text` in double quotes, for a message. Escapes control bytes, quotes and backslashes; leaves out the middle of a long text.
[[nodiscard]] RESIDENCY_INLINE std::string quoted(std::string_view text);

}}}  // namespace residency::RESIDENCY_ABI::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/quoted.ipp"
#endif

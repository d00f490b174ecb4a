// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "residency/error.hpp"

namespace examples {

/// The value; or its error thrown, followed by what the user can do about it.
template <class T>
[[nodiscard]] T unwrap_with(std::string_view advice, residency::Result<T> result) {
    if (!result) {
        residency::throw_error({result.error().kind(), result.error().message() + ": " + std::string{advice}});
    }
    return std::move(*result);
}

}  // namespace examples

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "residency/error.hpp"

namespace examples {

/// What `read` returns; or its exception, followed by what the user can do about it.
template <class Read>
[[nodiscard]] auto with_advice(std::string_view advice, Read&& read) {
    try {
        return read();
    } catch (const residency::Exception& problem) {
        residency::throw_error({problem.kind(), problem.what() + (": " + std::string{advice})});
    }
}
/// The value; or its error thrown, with advice.
template <class T>
[[nodiscard]] T unwrap_with(std::string_view advice, residency::Result<T> result) {
    return with_advice(advice, [&] { return residency::unwrap(std::move(result)); });
}

}  // namespace examples

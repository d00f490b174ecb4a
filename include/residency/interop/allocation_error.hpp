// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

#if RESIDENCY_EXCEPTIONS
/// Thrown by allocators if there is no room; its error has the numbers.
class AllocationError : public std::bad_alloc {
public:
    /// Its what() is the message of `error`.
    explicit AllocationError(Error error) noexcept : error_{std::move(error)} {}
    /// Valid as long as the exception.
    [[nodiscard]] const char* what() const noexcept override { return error_.message().c_str(); }
    /// What failed.
    [[nodiscard]] const Error& error() const noexcept { return error_; }

private:
    Error error_;
};
#endif

}}  // namespace residency::RESIDENCY_ABI

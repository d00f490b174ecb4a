// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A leased weight under Thrust's algorithms. Empty where Thrust is not on the include path, and without exceptions, which Thrust needs.

#include "residency/config.hpp"

#if RESIDENCY_EXCEPTIONS && __has_include(<thrust/device_ptr.h>)
#include <thrust/device_ptr.h>

#include <cstddef>
#include <span>

#include "residency/core/engine/lease.hpp"
#include "residency/device/device.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Elements on the device, as Thrust's algorithms take them: `thrust::reduce(policy, range.begin(), range.end())`.
template <class T>
class ThrustRange {
public:
    ThrustRange() = default;
    explicit ThrustRange(std::span<T> elements) noexcept
        : begin_{elements.data()}, size_{static_cast<std::ptrdiff_t>(elements.size())} {}

    [[nodiscard]] ::thrust::device_ptr<T> begin() const noexcept { return begin_; }
    [[nodiscard]] ::thrust::device_ptr<T> end() const noexcept { return begin_ + size_; }
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }

private:
    ::thrust::device_ptr<T> begin_{};
    std::ptrdiff_t size_ = 0;
};

/// All elements of a leased weight, in the order of memory. Run the algorithm on a stream of the lease: thrust::cuda::par_nosync.on(stream).
/// Valid until the lease ends. Preconditions: those of Lease::span.
template <class T, Device D>
[[nodiscard]] ThrustRange<const T> thrust_range(const Lease<D>& lease, WeightId weight) noexcept {
    return ThrustRange<const T>{lease.template span<T>(weight)};
}
template <class T, Device D>
ThrustRange<const T> thrust_range(const Lease<D>&& lease, WeightId weight) = delete;

}}  // namespace residency::RESIDENCY_ABI
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// A weight of one catalog. Ids are dense: 0 … weights − 1.
enum class WeightId : std::uint32_t {};
/// A storage of one catalog. Ids are dense: 0 … storages − 1.
enum class StorageId : std::uint32_t {};

/// The number of a step counted across passes: step i of pass p of a schedule of n steps is p · n + i. Without a schedule, and in a
/// plain trace, the number of the access.
using StepIndex = std::uint64_t;

/// Ids that no catalog has.
inline constexpr WeightId no_weight{UINT32_MAX};
inline constexpr StorageId no_storage{UINT32_MAX};

/// The id as an array index.
[[nodiscard]] constexpr std::uint32_t index(WeightId id) noexcept { return static_cast<std::uint32_t>(id); }
[[nodiscard]] constexpr std::uint32_t index(StorageId id) noexcept { return static_cast<std::uint32_t>(id); }

/// Consecutive steps of a schedule: [first, last).
struct StepRange {
    std::uint32_t first = 0;                                               ///< position of the first step
    std::uint32_t last = 0;                                                ///< one past the end
    friend bool operator==(const StepRange&, const StepRange&) = default;  ///< compares all members
};

/// A vector with one element for each weight or storage of a catalog, read by the id instead of by a plain number.
template <class Id, class T>
class IdVector : public std::vector<T> {
public:
    using std::vector<T>::vector;
    using std::vector<T>::operator[];

    /// The element of that id. Precondition: there is one.
    /// @{
    [[nodiscard]] decltype(auto) operator[](Id id) noexcept { return (*this)[index(id)]; }
    [[nodiscard]] decltype(auto) operator[](Id id) const noexcept { return (*this)[index(id)]; }
    /// @}
};

}}  // namespace residency::RESIDENCY_ABI

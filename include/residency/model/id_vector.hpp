// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "residency/config.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

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

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The storages of a catalog in the order in which a model probably reads them, each once: a guess for where there is no schedule.
///
/// That is the order of the catalog, unless it is alphabetical, as that of a safetensors file is (layers.1, layers.10, layers.11,
/// layers.2, …). Then it is the natural order of the names: that of their characters, with runs of digits compared as numbers. A
/// storage of several weights stands where the first of their names stands. An order counts as alphabetical where, of names that
/// differ in numbers only, more neighbours are in alphabetical order against their numbers than in neither order.
[[nodiscard]] RESIDENCY_INLINE std::vector<StorageId> natural_order(const Catalog& catalog);

namespace detail {

/// Less than, equal to or greater than 0 as `a` comes before, is, or comes after `b` in natural order. Numbers that differ in
/// leading zeros only come in the order of their characters.
[[nodiscard]] RESIDENCY_INLINE int compare_natural(std::string_view a, std::string_view b) noexcept;

}  // namespace detail

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/natural_order.ipp"
#endif

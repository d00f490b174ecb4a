// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Finds weights by name: every weight that was inserted lies in the first slots after the one of its name's hash, with no free
/// slot before it. At most half of the slots are taken. Holds ids only; the weights are passed to each call.
class NameIndex {
public:
    /// Makes room for `names` weights in all.
    void reserve(std::size_t names, std::span<const Weight> weights);
    /// The weight of that name. O(1). Allocates nothing.
    [[nodiscard]] std::optional<WeightId> find(std::string_view name, std::span<const Weight> weights) const noexcept;
    /// Adds weights[id] under its name. A weight whose name has changed is added again; nothing finds it under the old name.
    /// Precondition: no other weight has that name.
    void insert(WeightId id, std::span<const Weight> weights);

private:
    [[nodiscard]] std::size_t first_slot(std::string_view name) const noexcept;
    void place(WeightId id, std::span<const Weight> weights) noexcept;

    std::vector<WeightId> slots_;  // no_weight: free; none at all, or a power of two
    std::size_t taken_ = 0;        // slots
};

/// The weight whose name takes the fewest changes of one character to become `name`; none where that is more than a third of it. A
/// name that differs in leading parts only, such as "model.", is taken at once. O(weights · length²): for messages.
[[nodiscard]] RESIDENCY_INLINE std::optional<WeightId> nearest_name(std::string_view name,
                                                                    std::span<const Weight> weights);
/// `"; the nearest name is \"…\""`, or nothing where no name is near.
[[nodiscard]] RESIDENCY_INLINE std::string nearest_name_hint(std::string_view name, std::span<const Weight> weights);

}}}  // namespace residency::RESIDENCY_ABI::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/name_index.ipp"
#endif

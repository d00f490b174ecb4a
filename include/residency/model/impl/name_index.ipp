// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/model/name_index.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/stable_hash.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

RESIDENCY_INLINE std::size_t NameIndex::first_slot(std::string_view name) const noexcept {
    StableHash hash;
    hash.text(name);
    const std::uint64_t value = hash.value();
    return static_cast<std::size_t>(value ^ value >> 32) & (slots_.size() - 1);
}

RESIDENCY_INLINE void NameIndex::place(WeightId id, std::span<const Weight> weights) noexcept {
    std::size_t slot = first_slot(weights[index(id)].name);
    while (slots_[slot] != no_weight) { slot = (slot + 1) & (slots_.size() - 1); }
    slots_[slot] = id;
    ++taken_;
}

RESIDENCY_INLINE void NameIndex::reserve(std::size_t names, std::span<const Weight> weights) {
    std::size_t slots = slots_.empty() ? 16 : slots_.size();
    while (slots / 2 < names) { slots *= 2; }
    if (slots == slots_.size()) { return; }
    std::vector<WeightId> before(slots, no_weight);
    before.swap(slots_);
    taken_ = 0;
    // A weight with two slots, after a change of its name, is found by its present name in either.
    for (const WeightId id : before) {
        if (id != no_weight) { place(id, weights); }
    }
}

RESIDENCY_INLINE std::optional<WeightId> NameIndex::find(std::string_view name,
                                                         std::span<const Weight> weights) const noexcept {
    if (slots_.empty()) { return std::nullopt; }
    for (std::size_t slot = first_slot(name); slots_[slot] != no_weight; slot = (slot + 1) & (slots_.size() - 1)) {
        if (weights[index(slots_[slot])].name == name) { return slots_[slot]; }
    }
    return std::nullopt;
}

RESIDENCY_INLINE void NameIndex::insert(WeightId id, std::span<const Weight> weights) {
    if (taken_ + 1 > slots_.size() / 2) { reserve(2 * (taken_ + 1), weights); }
    place(id, weights);
}

RESIDENCY_INLINE std::optional<WeightId> nearest_name(std::string_view name, std::span<const Weight> weights) {
    constexpr std::size_t longest = 1024;  // of the names compared
    const auto differs_in_prefix = [](std::string_view a, std::string_view b) {
        const std::string_view shorter = a.size() < b.size() ? a : b, longer = a.size() < b.size() ? b : a;
        return longer.size() > shorter.size() && longer.ends_with(shorter) &&
               longer[longer.size() - shorter.size() - 1] == '.';
    };
    if (name.empty() || name.size() > longest) { return std::nullopt; }
    std::optional<WeightId> nearest;
    std::size_t limit = name.size() / 3 + 1;  // fewer changes than this
    std::vector<std::size_t> row(name.size() + 1);
    for (std::size_t i = 0; i < weights.size() && limit > 1; ++i) {
        const std::string_view other = weights[i].name;
        if (differs_in_prefix(name, other)) { return WeightId{static_cast<std::uint32_t>(i)}; }
        const std::size_t shorter = other.size() < name.size() ? other.size() : name.size();
        if (other.size() + name.size() - 2 * shorter >= limit) { continue; }
        // Levenshtein's distance, by rows: row[k] is that of the characters of `other` so far to the first k of `name`.
        for (std::size_t k = 0; k < row.size(); ++k) { row[k] = k; }
        std::size_t least = 0;  // of the row
        for (std::size_t j = 0; j < other.size() && least < limit; ++j) {
            std::size_t diagonal = row[0];
            least = row[0] = j + 1;
            for (std::size_t k = 1; k < row.size(); ++k) {
                const std::size_t replaced = diagonal + (other[j] == name[k - 1] ? 0 : 1);
                const std::size_t inserted = row[k - 1] + 1;
                diagonal = row[k];
                row[k] = replaced < inserted ? replaced : inserted;
                if (diagonal + 1 < row[k]) { row[k] = diagonal + 1; }
                if (row[k] < least) { least = row[k]; }
            }
        }
        if (least < limit && row.back() < limit) {
            limit = row.back();
            nearest = WeightId{static_cast<std::uint32_t>(i)};
        }
    }
    return nearest;
}

RESIDENCY_INLINE std::string nearest_name_hint(std::string_view name, std::span<const Weight> weights) {
    const auto nearest = nearest_name(name, weights);
    return nearest ? "; the nearest name is " + detail::quoted(weights[index(*nearest)].name) : std::string{};
}

}}}  // namespace residency::RESIDENCY_ABI::detail

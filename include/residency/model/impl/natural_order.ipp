// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "residency/model/natural_order.hpp"
#include "residency/model/sort.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

namespace detail {

[[nodiscard]] constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

RESIDENCY_INLINE int compare_natural(std::string_view a, std::string_view b) noexcept {
    std::size_t i = 0, k = 0;
    while (i < a.size() && k < b.size()) {
        if (is_digit(a[i]) && is_digit(b[k])) {
            while (i < a.size() && a[i] == '0') { ++i; }
            while (k < b.size() && b[k] == '0') { ++k; }
            std::size_t a_end = i, b_end = k;
            while (a_end < a.size() && is_digit(a[a_end])) { ++a_end; }
            while (b_end < b.size() && is_digit(b[b_end])) { ++b_end; }
            if (a_end - i != b_end - k) { return a_end - i < b_end - k ? -1 : 1; }
            if (const int digits = a.substr(i, a_end - i).compare(b.substr(k, b_end - k)); digits != 0) {
                return digits;
            }
            i = a_end;
            k = b_end;
        } else if (a[i] != b[k]) {
            return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]) ? -1 : 1;
        } else {
            ++i;
            ++k;
        }
    }
    if (i != a.size() || k != b.size()) { return k != b.size() ? -1 : 1; }
    return a.compare(b);
}

/// Whether the names of the catalog, in its order, are in alphabetical order against their numbers.
[[nodiscard]] inline bool is_alphabetical(const Catalog& catalog) {
    std::vector<std::pair<std::string, std::uint32_t>> patterns;  // the name with # for each number; the weight
    for (std::uint32_t i = 0; i < catalog.weights().size(); ++i) {
        const std::string& name = catalog.weights()[i].name;
        std::string pattern;
        for (std::size_t at = 0; at < name.size(); ++at) {
            if (!is_digit(name[at])) {
                pattern += name[at];
            } else if (at == 0 || !is_digit(name[at - 1])) {
                pattern += '#';
            }
        }
        patterns.emplace_back(std::move(pattern), i);
    }
    residency::detail::sort(patterns);
    std::size_t alphabetical = 0, neither = 0;
    for (std::size_t k = 1; k < patterns.size(); ++k) {
        if (patterns[k - 1].first != patterns[k].first) { continue; }
        const std::string& first = catalog.weights()[patterns[k - 1].second].name;
        const std::string& second = catalog.weights()[patterns[k].second].name;
        if (compare_natural(first, second) > 0) { ++(first < second ? alphabetical : neither); }
    }
    return alphabetical > neither;
}

}  // namespace detail

RESIDENCY_INLINE std::vector<StorageId> natural_order(const Catalog& catalog) {
    std::vector<StorageId> order;
    order.reserve(catalog.storages().size());
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) { order.push_back(StorageId{i}); }
    if (!detail::is_alphabetical(catalog)) { return order; }
    std::vector<std::string_view> names(order.size());  // by storage: the first of its weights' names
    for (const StorageId id : order) {
        for (const WeightId weight : catalog.weights_of(id)) {
            const std::string_view name = catalog.weight(weight).name;
            std::string_view& first = names[index(id)];
            if (first.empty() || detail::compare_natural(name, first) < 0) { first = name; }
        }
    }
    residency::detail::sort(order, [&](StorageId a, StorageId b) {
        const int compared = detail::compare_natural(names[index(a)], names[index(b)]);
        return compared != 0 ? compared < 0 : index(a) < index(b);
    });
    return order;
}

}}  // namespace residency::RESIDENCY_ABI

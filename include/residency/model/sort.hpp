// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Sorts `items` in place by heapsort, without allocating. `less` is a strict total order: items that compare equal would come in no
/// particular order. A call compiles to one function, where std::sort compiles to twenty.
template <class T, class Less = std::less<>>
void sort(std::vector<T>& items, Less less = {}) {
    std::size_t root = items.size() / 2;
    for (std::size_t end = items.size(); end > 1;) {
        if (root > 0) {  // the heap is being built, from its leaves
            --root;
        } else {  // the greatest item of the heap goes behind it
            --end;
            std::swap(items[0], items[end]);
        }
        T item = std::move(items[root]);
        std::size_t hole = root;
        for (std::size_t child = 2 * hole + 1; child < end; child = 2 * hole + 1) {
            if (child + 1 < end && less(items[child], items[child + 1])) { ++child; }
            if (!less(item, items[child])) { break; }
            items[hole] = std::move(items[child]);
            hole = child;
        }
        items[hole] = std::move(item);
    }
}

}}}  // namespace residency::RESIDENCY_ABI::detail

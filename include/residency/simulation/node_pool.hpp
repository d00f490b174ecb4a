// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Objects that are used again instead of destroyed, so that their buffers stay; addresses are stable.
template <class T>
class NodePool {
public:
    [[nodiscard]] T* take() {
        if (free_.empty()) { return &nodes_.emplace_back(); }
        T* node = free_.back();
        free_.pop_back();
        return node;
    }
    /// The caller has reset it.
    void give(T* node) { free_.push_back(node); }

private:
    std::deque<T> nodes_;
    std::vector<T*> free_;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

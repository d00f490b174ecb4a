// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Objects that are used again instead of destroyed, so that their buffers stay. An object is in use or free; its address never
/// changes.
template <class T>
class ObjectPool {
public:
    /// An object that is blank: new, or as give() got it.
    [[nodiscard]] T* take() {
        if (free_.empty()) { return &nodes_.emplace_back(); }
        T* node = free_.back();
        free_.pop_back();
        return node;
    }
    /// Takes back an object that the caller has reset.
    void give(T* node) { free_.push_back(node); }

private:
    std::deque<T> nodes_;
    std::vector<T*> free_;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

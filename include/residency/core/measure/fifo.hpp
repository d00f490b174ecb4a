// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// A queue that allocates only while it holds more than ever before.
template <class T>
class Fifo {
public:
    void reserve(std::size_t size) { items_.reserve(size); }
    [[nodiscard]] bool empty() const noexcept { return first_ == items_.size(); }
    [[nodiscard]] std::size_t size() const noexcept { return items_.size() - first_; }
    /// Precondition: not empty.
    [[nodiscard]] const T& front() const noexcept { return items_[first_]; }
    /// From front(). Precondition: number < size().
    [[nodiscard]] const T& operator[](std::size_t number) const noexcept { return items_[first_ + number]; }
    void push(const T& item) {
        if (items_.size() == items_.capacity() && first_ > items_.size() / 2) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
            first_ = 0;
        }
        items_.push_back(item);
    }
    /// Precondition: not empty.
    void pop() noexcept {
        if (++first_ == items_.size()) { clear(); }
    }
    void clear() noexcept {
        items_.clear();
        first_ = 0;
    }

private:
    std::vector<T> items_;
    std::size_t first_ = 0;  // those before it have left
};

}}}  // namespace residency::RESIDENCY_ABI::core

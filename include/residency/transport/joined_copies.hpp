// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// The copies of one call, or out of one slot of a ring. Each copy lies in one allocation on each side (D11); fetches that are
/// neighbours on both sides become one copy where that allows it.
class JoinedCopies {
public:
    void clear() noexcept { copies_.clear(); }
    void reserve(std::size_t copies) { copies_.reserve(copies); }
    /// Adds a copy of `fetch` from `from`, which lies in `memory`. Null: all copies come from one allocation.
    void add(const Fetch& fetch, const std::byte* from, const HostBytes* memory) {
        if (!copies_.empty() && !fetch.begins_allocation && memory == memory_) {
            Copy& last = copies_.back();
            if (static_cast<const std::byte*>(last.from) + last.bytes == from &&
                static_cast<std::byte*>(last.to) + last.bytes == fetch.to) {
                last.bytes += fetch.bytes;
                return;
            }
        }
        copies_.push_back({fetch.to, from, fetch.bytes});
        memory_ = memory;
    }
    [[nodiscard]] std::span<const Copy> copies() const noexcept { return copies_; }

private:
    std::vector<Copy> copies_;
    const HostBytes* memory_ = nullptr;  // where the last copy comes from
};

}}}  // namespace residency::RESIDENCY_ABI::transport

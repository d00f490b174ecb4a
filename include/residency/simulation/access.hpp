// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Accesses of the simulated device, and what orders them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// For each actor (0: the host; then the streams), the sequence number of its last operation that is known to lie before. Values
/// never decrease between two calls of clear() or set().
class VectorClock {
public:
    [[nodiscard]] std::uint64_t of(std::uint32_t actor) const noexcept {
        return actor < last_.size() ? last_[actor] : 0;
    }
    [[nodiscard]] bool covers(std::uint32_t actor, std::uint64_t sequence) const noexcept {
        return sequence <= of(actor);
    }
    void set(std::uint32_t actor, std::uint64_t sequence) {
        if (actor >= last_.size()) { last_.resize(actor + std::size_t{1}); }
        last_[actor] = sequence;
    }
    /// From now on, all that lies before `other` lies before this one too.
    void join(const VectorClock& other) {
        if (other.last_.size() > last_.size()) { last_.resize(other.last_.size()); }
        for (std::size_t i = 0; i < other.last_.size(); ++i) { last_[i] = (std::max)(last_[i], other.last_[i]); }
    }
    void clear() noexcept { last_.clear(); }

private:
    std::vector<std::uint64_t> last_;  // by actor; beyond the end: 0
};

/// Names what a stream executes, and what the host does to memory.
enum class OperationKind : std::uint8_t {
    kernel,
    copy_to_device,
    copy_to_host,
    copy_on_device,
    copy_on_host,
    copy_from_peer,  ///< from the memory of another GPU
    fill,
    allocate,
    deallocate,
    record,
    wait,
    wait_flag,
    host_read,
    host_write,
    host_memory,  ///< allocated, freed, pinned or unpinned
    mapping,      ///< created or destroyed, mapped or unmapped
};

[[nodiscard]] constexpr std::string_view name(OperationKind kind) noexcept {
    constexpr std::array<std::string_view, 16> names{"kernel",       "copy to device", "copy to host", "copy on device",
                                                     "copy on host", "copy from peer", "fill",         "allocation",
                                                     "deallocation", "record",         "wait",         "flag wait",
                                                     "read by host", "write by host",  "host memory",  "mapping"};
    return names[static_cast<std::size_t>(kind)];
}

/// Names one operation that touched memory. Small, since it is kept for every range of bytes.
struct Access {
    std::uint64_t sequence = 0;  ///< position in the order of all calls; 0: no operation
    std::uint32_t actor = 0;     ///< number of the stream that it ran on; 0: the host
    std::uint32_t stream = 0;    ///< number of the stream's name
    std::uint32_t label = 0;     ///< number of the kernel's name
    OperationKind kind = OperationKind::host_memory;
    std::uint16_t gpu = 0;  ///< number of the GPU that it ran on

    /// Whether it is known to be over where `clock` is.
    [[nodiscard]] bool before(const VectorClock& clock) const noexcept { return clock.covers(actor, sequence); }
};

/// Linked lists of accesses in one arena. Every node is in exactly one list, or free; a list is the index of its first node, 0 if
/// it is empty.
class AccessLists {
public:
    using List = std::uint32_t;

    /// Adds `access`, which takes place at `clock`. Drops the accesses that lie before it: whatever follows `access` follows them.
    void add(List& list, const Access& access, const VectorClock& clock) {
        List* link = &list;
        while (*link != 0) {
            if (nodes_[*link].access.before(clock)) {
                release(*link);
            } else {
                link = &nodes_[*link].next;
            }
        }
        const List node = make();
        nodes_[node] = {access, list};
        list = node;
    }
    void clear(List& list) noexcept {
        while (list != 0) { release(list); }
    }
    [[nodiscard]] List copy(List list) {
        List result = 0;
        for (; list != 0; list = nodes_[list].next) {
            const List node = make();
            nodes_[node] = {nodes_[list].access, result};
            result = node;
        }
        return result;
    }
    template <class F>
    void for_each(List list, F&& f) const {
        for (; list != 0; list = nodes_[list].next) { f(nodes_[list].access); }
    }
    /// Drops the accesses for which `keep` is false.
    template <class F>
    void filter(List& list, F&& keep) {
        List* link = &list;
        while (*link != 0) {
            if (keep(nodes_[*link].access)) {
                link = &nodes_[*link].next;
            } else {
                release(*link);
            }
        }
    }
    /// Whether both are empty or hold one and the same access.
    [[nodiscard]] bool same(List a, List b) const noexcept {
        if (a == 0 || b == 0) { return a == b; }
        return nodes_[a].next == 0 && nodes_[b].next == 0 && nodes_[a].access.sequence == nodes_[b].access.sequence;
    }

private:
    struct Node {
        Access access;
        List next = 0;
    };
    List make() {
        if (free_ != 0) { return std::exchange(free_, nodes_[free_].next); }
        nodes_.emplace_back();
        return static_cast<List>(nodes_.size() - 1);
    }
    /// Frees the first node of `link`, which then names the next one.
    void release(List& link) noexcept {
        const List node = link;
        link = nodes_[node].next;
        nodes_[node].next = free_;
        free_ = node;
    }
    std::vector<Node> nodes_ = std::vector<Node>(1);
    List free_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

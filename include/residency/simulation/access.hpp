// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "residency/simulation/operation_kind.hpp"
#include "residency/simulation/vector_clock.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Names one operation that touched memory. Small, since it is kept for every range of bytes.
struct Access {
    std::uint64_t sequence = 0;  ///< position in the order of all calls; 0: no operation
    std::uint32_t actor = 0;     ///< number of the stream that it ran on; 0: the host
    std::uint32_t stream = 0;    ///< number of the stream's name
    std::uint32_t label = 0;     ///< number of the kernel's name
    OperationKind kind = OperationKind::host_memory;

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

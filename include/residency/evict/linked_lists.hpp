// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Doubly linked lists over the items 0 … items − 1, each item in one list or in none. Two 32-bit links per item; every operation
/// is O(1); nothing is allocated after attach(). The end of a list stands before its front and after its back.
class LinkedLists {
public:
    using Item = std::uint32_t;

    void attach(std::size_t items, std::uint32_t lists = 1) {
        RESIDENCY_ASSERT(items < none - std::size_t{lists}, "use fewer storages");
        items_ = static_cast<std::uint32_t>(items);
        nodes_.assign(items + lists, Node{none, none});
        for (std::uint32_t list = 0; list < lists; ++list) { nodes_[end(list)] = {end(list), end(list)}; }
    }

    [[nodiscard]] Item end(std::uint32_t list = 0) const noexcept { return items_ + list; }
    [[nodiscard]] Item front(std::uint32_t list = 0) const noexcept { return nodes_[end(list)].next; }
    [[nodiscard]] Item back(std::uint32_t list = 0) const noexcept { return nodes_[end(list)].previous; }
    [[nodiscard]] Item next(Item item) const noexcept { return nodes_[item].next; }
    [[nodiscard]] Item previous(Item item) const noexcept { return nodes_[item].previous; }
    [[nodiscard]] bool is_empty(std::uint32_t list = 0) const noexcept { return front(list) == end(list); }
    [[nodiscard]] bool is_linked(Item item) const noexcept { return nodes_[item].next != none; }

    /// Inserts an item before another one or before an end. Precondition: it is in no list.
    void insert_before(Item at, Item item) noexcept {
        RESIDENCY_ASSERT(!is_linked(item), "insert a storage only once");
        const Item previous = nodes_[at].previous;
        nodes_[item] = {at, previous};
        nodes_[previous].next = item;
        nodes_[at].previous = item;
    }
    void push_front(Item item, std::uint32_t list = 0) noexcept { insert_before(front(list), item); }
    void push_back(Item item, std::uint32_t list = 0) noexcept { insert_before(end(list), item); }
    void unlink(Item item) noexcept {
        RESIDENCY_ASSERT(is_linked(item), "remove only a storage that was inserted");
        const Node node = nodes_[item];
        nodes_[node.previous].next = node.next;
        nodes_[node.next].previous = node.previous;
        nodes_[item] = {none, none};
    }
    void move_front(Item item, std::uint32_t list = 0) noexcept {
        unlink(item);
        push_front(item, list);
    }
    void move_back(Item item, std::uint32_t list = 0) noexcept {
        unlink(item);
        push_back(item, list);
    }

private:
    static constexpr Item none = UINT32_MAX;
    struct Node {
        Item next, previous;
    };

    std::uint32_t items_ = 0;
    std::vector<Node> nodes_;  // the items, then the ends
};

}}}  // namespace residency::RESIDENCY_ABI::evict

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/simulation/access.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Addresses of this process that belong to the simulated devices of one host, and the memory under them (Linux: mmap, memfd_create).
/// A range that was given back is inaccessible, and is handed out again only after 4096 later ones, so that a stray access is
/// recognised. Not thread safe. No function throws but for the bookkeeping's own memory.
class AddressSpace {
public:
    AddressSpace() = default;
    AddressSpace(const AddressSpace&) = delete;
    AddressSpace& operator=(const AddressSpace&) = delete;
    ~AddressSpace();

    [[nodiscard]] static std::uint64_t page_bytes() noexcept;

    /// Returns `bytes` bytes of inaccessible addresses, aligned to `alignment` (a power of two). Null: the process has none left.
    [[nodiscard]] std::byte* reserve(std::uint64_t bytes, std::uint64_t alignment);
    /// Takes back the range that reserve() returned for the same `bytes`.
    void give_back(std::byte* at, std::uint64_t bytes);

    /// Puts fresh memory of the process under [at, at + bytes). False: there is none.
    [[nodiscard]] static bool commit(std::byte* at, std::uint64_t bytes) noexcept;
    /// Takes the memory away; the addresses stay reserved. False: the process has too many mappings, and the memory stays.
    static bool revoke(std::byte* at, std::uint64_t bytes) noexcept;

    /// Makes physical memory that map() can put under several addresses, and fills it with `value`. `offset` receives where it
    /// lies in the file of this space. False: there is none.
    [[nodiscard]] bool create(std::uint64_t bytes, std::uint64_t& offset, std::byte value);
    /// Gives the physical memory [offset, offset + bytes) back to the system.
    void destroy(std::uint64_t offset, std::uint64_t bytes) noexcept;
    /// Puts physical memory under [at, at + bytes). False: the process has no mappings left.
    [[nodiscard]] bool map(std::byte* at, std::uint64_t offset, std::uint64_t bytes) const noexcept;

    /// Whether `at` is an address of this space, in use or not.
    [[nodiscard]] bool owns(const void* at) const noexcept;

    [[nodiscard]] static constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) noexcept {
        return (bytes + to - 1) / to * to;
    }

private:
    struct Range {
        std::byte* at = nullptr;
        std::uint64_t bytes = 0;
    };
    /// Cuts a range from the last arena. Null: it is full.
    [[nodiscard]] std::byte* take(std::uint64_t bytes, std::uint64_t alignment) noexcept;

    std::vector<Range> arenas_;                            // owned; the last one is being handed out
    std::uint64_t used_bytes_ = 0;                         // of the last arena
    std::uint64_t arena_bytes_ = std::uint64_t{1} << 30U;  // of the next arena, at least
    std::vector<Range> given_back_;                        // in the order of give_back()
    int file_ = -1;                                        // owned; the physical memory of create()
    std::uint64_t file_bytes_ = 0;                         // ever created in file_
};

/// Which physical memory lies under which addresses. Its entries are sorted by address and do not overlap. A lookup takes O(log n);
/// one in the same entry as the last takes O(1).
class AddressMap {
public:
    struct Entry {
        std::uintptr_t begin = 0, end = 0;
        std::uint32_t region = 0;    ///< number of the physical memory
        std::uint64_t offset = 0;    ///< bytes; of `begin` in it
        bool on_device = true;       ///< otherwise pinned host memory
        bool mapped = false;         ///< put there by map(), so that `uses` is kept
        AccessLists::List uses = 0;  ///< accesses through this address
        std::uint16_t gpu = 0;       ///< number of the GPU whose memory it is
        bool for_peers = false;      ///< by allocate(): copies of peers may read it
    };

    /// The entry that holds `at`; null: nothing is mapped there.
    [[nodiscard]] Entry* find(const void* at) noexcept {
        const auto address = reinterpret_cast<std::uintptr_t>(at);
        if (hint_ < entries_.size() && holds(entries_[hint_], address)) { return &entries_[hint_]; }
        const std::size_t index = upper(address);
        if (index == 0 || !holds(entries_[index - 1], address)) { return nullptr; }
        hint_ = index - 1;
        return &entries_[hint_];
    }
    /// Whether every byte of [at, at + bytes) is mapped.
    [[nodiscard]] bool holds(const void* at, std::uint64_t bytes) noexcept {
        return for_each(at, bytes, [](Entry&, std::uintptr_t, std::uint64_t) {});
    }
    /// Whether map() mapped every byte of [at, at + bytes). Neighbouring allocations are not one range (D11).
    [[nodiscard]] bool is_one_range(const void* at, std::uint64_t bytes) noexcept {
        const Entry* first = find(at);
        bool are_mapped = true;
        return for_each(at, bytes,
                        [&](Entry& entry, std::uintptr_t, std::uint64_t) {
                            are_mapped &= entry.mapped && entry.gpu == first->gpu;
                        }) &&
               are_mapped;
    }
    /// Whether any byte of [at, at + bytes) is mapped.
    [[nodiscard]] bool touches(const void* at, std::uint64_t bytes) const noexcept {
        const auto address = reinterpret_cast<std::uintptr_t>(at);
        const std::size_t index = upper(address);
        return (index > 0 && entries_[index - 1].end > address) ||
               (index < entries_.size() && entries_[index].begin - address < bytes);
    }
    /// Calls f(entry, address, bytes) for each entry under the range, in order. Stops and returns false where nothing is mapped.
    template <class F>
    bool for_each(const void* at, std::uint64_t bytes, F&& f) {
        auto address = reinterpret_cast<std::uintptr_t>(at);
        Entry* entry = find(at);
        while (true) {
            if (entry == nullptr) { return false; }
            const std::uint64_t here = std::min<std::uint64_t>(bytes, entry->end - address);
            f(*entry, address, here);
            bytes -= here;
            if (bytes == 0) { return true; }
            address += here;
            const auto next = static_cast<std::size_t>(entry - entries_.data()) + 1;
            entry = next < entries_.size() && entries_[next].begin == address ? &entries_[next] : nullptr;
        }
    }
    void insert(const Entry& entry) {
        entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(upper(entry.begin)), entry);
    }
    /// Removes every entry that begins in [at, at + bytes).
    void erase(const void* at, std::uint64_t bytes) {
        const auto address = reinterpret_cast<std::uintptr_t>(at);
        const auto begins_before = [](const Entry& entry, std::uintptr_t value) { return entry.begin < value; };
        const auto first = std::lower_bound(entries_.begin(), entries_.end(), address, begins_before);
        const auto last = std::lower_bound(first, entries_.end(), address + bytes, begins_before);
        entries_.erase(first, last);
        ++generation_;
    }
    /// Changes whenever a mapping ends.
    [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

private:
    static bool holds(const Entry& entry, std::uintptr_t address) noexcept {
        return entry.begin <= address && address < entry.end;
    }
    /// The number of entries that begin at or before `address`.
    [[nodiscard]] std::size_t upper(std::uintptr_t address) const noexcept {
        const auto after =
            std::upper_bound(entries_.begin(), entries_.end(), address,
                             [](std::uintptr_t value, const Entry& entry) { return value < entry.begin; });
        return static_cast<std::size_t>(after - entries_.begin());
    }

    std::vector<Entry> entries_;
    std::size_t hint_ = 0;
    std::uint64_t generation_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

#if RESIDENCY_HEADER_ONLY
#include "residency/simulation/impl/address_space.ipp"
#endif

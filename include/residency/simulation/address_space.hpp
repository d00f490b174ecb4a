// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Addresses of this process that belong to one simulated device, and the memory under them (Linux: mmap, memfd_create).
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

}}}  // namespace residency::RESIDENCY_ABI::simulation

#if RESIDENCY_HEADER_ONLY
#include "residency/simulation/impl/address_space.ipp"
#endif

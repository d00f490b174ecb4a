// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Addresses of this process that belong to the simulated device, and memory under them (Linux: mmap, memfd_create).
/// A range that is given back stays inaccessible and is not handed out again before 4096 later ones, so that a stray access
/// is recognised.
class AddressSpace {
public:
    AddressSpace() = default;
    AddressSpace(const AddressSpace&) = delete;
    AddressSpace& operator=(const AddressSpace&) = delete;
    ~AddressSpace() {
        for (const Range& arena : arenas_) { ::munmap(arena.at, arena.bytes); }
        if (file_ >= 0) { ::close(file_); }
    }

    [[nodiscard]] static std::uint64_t page_bytes() noexcept {
        return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    }

    /// `bytes` of inaccessible addresses, aligned to `alignment` (a power of two); null where there are none.
    [[nodiscard]] std::byte* reserve(std::uint64_t bytes, std::uint64_t alignment) {
        bytes = round_up(bytes, page_bytes());
        if (given_back_.size() > 4096) {
            const auto found = std::find_if(given_back_.begin(), given_back_.end(), [&](const Range& range) {
                return range.bytes == bytes && reinterpret_cast<std::uintptr_t>(range.at) % alignment == 0;
            });
            if (found != given_back_.end()) {
                std::byte* at = found->at;
                given_back_.erase(found);
                return at;
            }
        }
        if (std::byte* at = take(bytes, alignment); at != nullptr) { return at; }
        const std::uint64_t arena_bytes = (std::max)(bytes + alignment, arena_bytes_);
        void* at = ::mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) { return nullptr; }
        arenas_.push_back({static_cast<std::byte*>(at), arena_bytes});
        used_bytes_ = 0;
        arena_bytes_ = std::min<std::uint64_t>(arena_bytes_ * 2, std::uint64_t{1} << 36U);
        return take(bytes, alignment);
    }
    /// The range of an earlier reserve().
    void give_back(std::byte* at, std::uint64_t bytes) {
        bytes = round_up(bytes, page_bytes());
        revoke(at, bytes);
        given_back_.push_back({at, bytes});
    }

    /// Fresh memory under [at, at + bytes); false where there is none.
    [[nodiscard]] static bool commit(std::byte* at, std::uint64_t bytes) noexcept {
        return ::mmap(at, round_up(bytes, page_bytes()), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    /// Takes the memory, leaves the addresses; false where the process has too many mappings, and the memory stays.
    static bool revoke(std::byte* at, std::uint64_t bytes) noexcept {
        return ::mmap(at, round_up(bytes, page_bytes()), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
    }

    /// Physical memory that can be mapped at several addresses, filled with `value`: its offset, or false.
    [[nodiscard]] bool create(std::uint64_t bytes, std::uint64_t& offset, std::byte value) {
        if (file_ < 0) { file_ = ::memfd_create("residency-simulated-device", MFD_CLOEXEC); }
        if (file_ < 0) { return false; }
        offset = file_bytes_;
        if (::ftruncate(file_, static_cast<off_t>(file_bytes_ + bytes)) != 0) { return false; }
        file_bytes_ += bytes;
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(offset));
        if (at == MAP_FAILED) { return false; }
        std::memset(at, std::to_integer<int>(value), bytes);
        ::munmap(at, bytes);
        return true;
    }
    void destroy(std::uint64_t offset, std::uint64_t bytes) noexcept {
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(offset));
        if (at == MAP_FAILED) { return; }
        ::madvise(at, bytes, MADV_REMOVE);
        ::munmap(at, bytes);
    }
    [[nodiscard]] bool map(std::byte* at, std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(offset)) !=
               MAP_FAILED;
    }

    /// Whether `at` is an address of this space, in use or not.
    [[nodiscard]] bool owns(const void* at) const noexcept {
        return std::any_of(arenas_.begin(), arenas_.end(), [&](const Range& arena) {
            return reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(arena.at) < arena.bytes;
        });
    }

    [[nodiscard]] static constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) noexcept {
        return (bytes + to - 1) / to * to;
    }

private:
    struct Range {
        std::byte* at = nullptr;
        std::uint64_t bytes = 0;
    };
    std::byte* take(std::uint64_t bytes, std::uint64_t alignment) noexcept {
        if (arenas_.empty()) { return nullptr; }
        const Range& arena = arenas_.back();
        const auto base = reinterpret_cast<std::uintptr_t>(arena.at);
        const std::uint64_t offset = round_up(base + used_bytes_, alignment) - base;
        if (offset > arena.bytes || bytes > arena.bytes - offset) { return nullptr; }
        used_bytes_ = offset + bytes;
        return arena.at + offset;
    }

    std::vector<Range> arenas_;  ///< the last one is being handed out
    std::uint64_t used_bytes_ = 0;
    std::uint64_t arena_bytes_ = std::uint64_t{1} << 30U;
    std::vector<Range> given_back_;
    int file_ = -1;
    std::uint64_t file_bytes_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

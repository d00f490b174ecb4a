// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "residency/simulation/address_space.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

RESIDENCY_INLINE AddressSpace::~AddressSpace() {
    for (const Range& arena : arenas_) { ::munmap(arena.at, arena.bytes); }
    if (file_ >= 0) { ::close(file_); }
}

RESIDENCY_INLINE std::uint64_t AddressSpace::page_bytes() noexcept {
    return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

RESIDENCY_INLINE std::byte* AddressSpace::reserve(std::uint64_t bytes, std::uint64_t alignment) {
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

RESIDENCY_INLINE void AddressSpace::give_back(std::byte* at, std::uint64_t bytes) {
    bytes = round_up(bytes, page_bytes());
    revoke(at, bytes);
    given_back_.push_back({at, bytes});
}

RESIDENCY_INLINE bool AddressSpace::commit(std::byte* at, std::uint64_t bytes) noexcept {
    return ::mmap(at, round_up(bytes, page_bytes()), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

RESIDENCY_INLINE bool AddressSpace::revoke(std::byte* at, std::uint64_t bytes) noexcept {
    return ::mmap(at, round_up(bytes, page_bytes()), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                  -1, 0) != MAP_FAILED;
}

RESIDENCY_INLINE bool AddressSpace::create(std::uint64_t bytes, std::uint64_t& offset, std::byte value) {
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

RESIDENCY_INLINE void AddressSpace::destroy(std::uint64_t offset, std::uint64_t bytes) noexcept {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(offset));
    if (at == MAP_FAILED) { return; }
    ::madvise(at, bytes, MADV_REMOVE);
    ::munmap(at, bytes);
}

RESIDENCY_INLINE bool AddressSpace::map(std::byte* at, std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(offset)) !=
           MAP_FAILED;
}

RESIDENCY_INLINE bool AddressSpace::owns(const void* at) const noexcept {
    return std::any_of(arenas_.begin(), arenas_.end(), [&](const Range& arena) {
        return reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(arena.at) < arena.bytes;
    });
}

RESIDENCY_INLINE std::byte* AddressSpace::take(std::uint64_t bytes, std::uint64_t alignment) noexcept {
    if (arenas_.empty()) { return nullptr; }
    const Range& arena = arenas_.back();
    const auto base = reinterpret_cast<std::uintptr_t>(arena.at);
    const std::uint64_t offset = round_up(base + used_bytes_, alignment) - base;
    if (offset > arena.bytes || bytes > arena.bytes - offset) { return nullptr; }
    used_bytes_ = offset + bytes;
    return arena.at + offset;
}

}}}  // namespace residency::RESIDENCY_ABI::simulation

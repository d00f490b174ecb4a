// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <system_error>

#include "residency/device/memory_node.hpp"
#include "residency/host/region.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

RESIDENCY_INLINE Result<std::shared_ptr<Region>> Region::try_map(std::uint64_t bytes, bool huge_pages,
                                                                 std::optional<unsigned> node) {
    if (bytes == 0) { return std::make_shared<Region>(Key{}, nullptr, 0, 0); }
    const auto refused = [&] {
        return Error{ErrorKind::out_of_memory,
                     "the host has no " + residency::detail::in_bytes(bytes) + " of memory left",
                     DeviceFailure{0, "mmap", bytes}};
    };
    if (bytes > (std::uint64_t{1} << 62)) { return refused(); }
    const std::size_t mapped = (static_cast<std::size_t>(bytes) + page_bytes - 1) / page_bytes * page_bytes;
    const std::size_t reserved = mapped + alignment_bytes + page_bytes;
    void* const base =
        ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) { return refused(); }
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    const std::size_t before = (alignment_bytes - address % alignment_bytes) % alignment_bytes;
    std::byte* const at = static_cast<std::byte*>(base) + before;
    if (before != 0) { ::munmap(base, before); }
    if (const std::size_t after = reserved - before - mapped - page_bytes; after != 0) {
        ::munmap(at + mapped + page_bytes, after);
    }
    ::mprotect(at + mapped, page_bytes, PROT_NONE);
    ::madvise(at, mapped, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);  // a wish: refusal costs speed only
    auto region = std::make_shared<Region>(Key{}, at, static_cast<std::size_t>(bytes), mapped + page_bytes);
    if (node && residency::detail::prefer_memory_node(at, mapped, *node)) { region->node_ = node; }  // the same
    return region;
}

RESIDENCY_INLINE Result<std::shared_ptr<Region>> Region::try_map_shared(int descriptor, std::uint64_t offset,
                                                                        std::uint64_t bytes) {
    auto region = try_map(bytes, false);
    if (!region || bytes == 0) { return region; }
    std::byte* const at = (*region)->at_;
    if (::mmap(at, (*region)->mapped_bytes_ - page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor,
               static_cast<off_t>(offset)) == MAP_FAILED) {
        return Error{ErrorKind::out_of_memory,
                     "the system does not map " + residency::detail::in_bytes(bytes) +
                         " of a file: " + std::generic_category().message(errno),
                     DeviceFailure{0, "mmap", bytes}};
    }
    return region;
}

RESIDENCY_INLINE void Region::set_writable(bool is_writable) noexcept {
    ::mprotect(at_, mapped_bytes_ - page_bytes, is_writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

RESIDENCY_INLINE void Region::cut(std::size_t bytes) noexcept {
    RESIDENCY_ASSERT(bytes <= bytes_ && !unpin_, "a region is cut to fewer bytes, before it is pinned");
    bytes_ = bytes;
    const std::size_t mapped = (bytes + page_bytes - 1) / page_bytes * page_bytes + page_bytes;
    if (mapped >= mapped_bytes_) { return; }
    ::mprotect(at_ + mapped - page_bytes, page_bytes, PROT_NONE);
    ::munmap(at_ + mapped, mapped_bytes_ - mapped);
    mapped_bytes_ = mapped;
}

}}}  // namespace residency::RESIDENCY_ABI::host

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// Owns memory in whole pages, aligned to 2 MiB: unpins and unmaps it. Anonymous memory is untouched: the first access makes
/// each page, a huge one where the system allows. An inaccessible page follows it, so that no copy is joined with one of the next
/// region. Not copyable; held by shared_ptr.
class Region {
    struct Key {};

public:
    static constexpr std::size_t alignment_bytes = std::size_t{2} << 20;  ///< of its first byte: a huge page
    static constexpr std::size_t page_bytes = 4096;                       ///< of the system

    /// Made by try_map().
    Region(Key, std::byte* at, std::size_t bytes, std::size_t mapped_bytes) noexcept
        : at_{at}, bytes_{bytes}, mapped_bytes_{mapped_bytes} {}
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region() {
        if (unpin_) { static_cast<void>(unpin_(at_)); }
        if (mapped_bytes_ != 0) { ::munmap(at_, mapped_bytes_); }
    }

    /// `node`: where its pages are asked for. Error out_of_memory.
    [[nodiscard]] static Result<std::shared_ptr<Region>> try_map(std::uint64_t bytes, bool huge_pages,
                                                                 std::optional<unsigned> node = std::nullopt);
    /// Maps the bytes of a file in memory (tmpfs) from `offset` on, a multiple of a page: every process that maps them has the same. The
    /// file goes on to the end of the last page. The descriptor may be closed afterwards. Error out_of_memory.
    [[nodiscard]] static Result<std::shared_ptr<Region>> try_map_shared(int descriptor, std::uint64_t offset,
                                                                        std::uint64_t bytes);
    /// The node that the system was asked for, and did not refuse.
    [[nodiscard]] std::optional<unsigned> node() const noexcept { return node_; }

    /// Its first byte.
    [[nodiscard]] std::byte* data() const noexcept { return at_; }
    /// Its size.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// All of it.
    [[nodiscard]] std::span<std::byte> span() const noexcept { return {at_, bytes_}; }
    /// Gives back what lies behind the first `bytes`, which are up to bytes(). It is not pinned yet.
    void cut(std::size_t bytes) noexcept;
    /// Whether this process may write it, which it may at first.
    void set_writable(bool is_writable) noexcept;
    /// Pins all of it, which was not pinned, until it is unmapped: the device must outlive this object. Errors: the device's.
    template <Device D>
    [[nodiscard]] Status try_pin(D& device) {
        if (Status pinned = device.pin(at_, bytes_); !pinned) { return pinned; }
        if constexpr (requires { device.users(); }) { device.users().add(); }
        set_pinned([&device](void* at) {
            if constexpr (requires { device.users(); }) { device.users().remove(); }
            return device.unpin(at);
        });
        return {};
    }
    /// Says that all of it is pinned: `unpin` is called before it is unmapped.
    void set_pinned(std::function<Status(void*)> unpin) { unpin_ = std::move(unpin); }

private:
    std::byte* at_;
    std::size_t bytes_;                   // without the inaccessible page
    std::size_t mapped_bytes_;            // with it; 0: nothing is mapped
    std::function<Status(void*)> unpin_;  // empty: not pinned
    std::optional<unsigned> node_;
};

}}}  // namespace residency::RESIDENCY_ABI::host

#if RESIDENCY_HEADER_ONLY
#include "residency/host/impl/region.ipp"
#endif

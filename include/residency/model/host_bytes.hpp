// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// How the operating system holds host memory.
enum class HostMemory : std::uint8_t {
    pageable,  ///< ordinary memory: a device copies it through a staging buffer
    pinned,    ///< page-locked and known to the device driver: a device copies it by itself
};

struct HostAllocation;

/// A read-only range of host memory that stays valid and unchanged as long as this object. Held by shared_ptr<const HostBytes>;
/// whoever copies from it holds a reference. Immutable, so any number of threads may share one.
class HostBytes {
    struct Key {};

public:
    static constexpr std::size_t default_alignment_bytes = std::size_t{2} << 20;  ///< a huge page

    /// Made by borrow(), own() and adopt().
    HostBytes(Key, const std::byte* data, std::uint64_t bytes, HostMemory kind,
              std::shared_ptr<const void> owner) noexcept
        : data_{data}, bytes_{bytes}, kind_{kind}, owner_{std::move(owner)} {}

    /// The caller's bytes; pinned ones must belong to one allocation or registration. They must stay valid and unchanged until the
    /// last reference to the result is gone: destroy every catalog and residency that uses them first. The result holds
    /// `keep_alive` until then.
    [[nodiscard]] static std::shared_ptr<const HostBytes> borrow(std::span<const std::byte> bytes, HostMemory kind,
                                                                 std::shared_ptr<const void> keep_alive = nullptr) {
        return std::make_shared<const HostBytes>(Key{}, bytes.data(), bytes.size(), kind, std::move(keep_alive));
    }
    /// Takes over the vector.
    [[nodiscard]] static std::shared_ptr<const HostBytes> own(std::vector<std::byte> bytes) {
        auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
        const std::span<const std::byte> view{*owner};
        return borrow(view, HostMemory::pageable, std::move(owner));
    }
    /// Takes over `bytes` bytes at `data`. `deleter(data)` runs once, when the last reference is gone.
    template <class Deleter>
        requires requires(Deleter& deleter, std::byte* data) { deleter(data); }
    [[nodiscard]] static std::shared_ptr<const HostBytes> adopt(std::byte* data, std::uint64_t bytes, HostMemory kind,
                                                                Deleter deleter) {
        std::shared_ptr<std::byte> owner{data, std::move(deleter)};
        return std::make_shared<const HostBytes>(Key{}, data, bytes, kind, std::move(owner));
    }
    /// Pageable memory, not zeroed, for the caller to fill before others see it. `alignment_bytes`: a power of two; the default
    /// suits huge pages and a later registration with a driver. Error out_of_memory.
    [[nodiscard]] static Result<HostAllocation> try_allocate(std::uint64_t bytes,
                                                             std::size_t alignment_bytes = default_alignment_bytes);

    /// May be null where bytes() is 0.
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    /// The number of bytes.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    /// Pinned or pageable.
    [[nodiscard]] HostMemory kind() const noexcept { return kind_; }
    /// All of them.
    [[nodiscard]] std::span<const std::byte> span() const noexcept { return {data_, static_cast<std::size_t>(bytes_)}; }

private:
    const std::byte* data_;
    std::uint64_t bytes_;
    HostMemory kind_;
    std::shared_ptr<const void> owner_;
};

/// New host memory and the right to write it.
struct HostAllocation {
    std::shared_ptr<const HostBytes> bytes;  ///< owns the memory
    std::span<std::byte> writable;           ///< the same range; valid while `bytes` is held
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/host_bytes.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// Brings bytes [offset_bytes, offset_bytes + bytes) of a storage to an address on the device. bytes > 0.
struct Fetch {
    StorageId storage = no_storage;  ///< which one
    std::uint64_t offset_bytes = 0;  ///< in the storage
    std::uint64_t bytes = 0;         ///< more than 0
    void* to = nullptr;              ///< device memory
    /// Whether an allocation begins at `to`. A copy across two allocations is refused, even if they are neighbours (D11).
    bool begins_allocation = false;
    friend bool operator==(const Fetch&, const Fetch&) = default;  ///< compares all members
};

/// What calls cost that bring a part from nearer than the host.
struct CallRate {
    double bytes_per_second = 0;  ///< of its bytes, without latency
    double latency_seconds = 0;   ///< per call; 0: not measured
};

/// Of all of them.
[[nodiscard]] inline std::uint64_t bytes_of(std::span<const Fetch> fetches) noexcept {
    std::uint64_t bytes = 0;
    for (const Fetch& fetch : fetches) { bytes += fetch.bytes; }
    return bytes;
}

/// How bytes travel to the device: a transport enqueues their copies on the copy stream.
///
/// Required expressions, with `t` a transport of a device `D`, `s` the copy stream. None is thread safe.
///  1. `T::Config`                    an aggregate of its knobs; `T` is constructible from it
///  2. `t.open(device, catalog)`      may block, allocate and start threads; fails if it cannot reach the bytes of a storage.
///                                    The transport keeps a copy of the catalog, which owns the host bytes
///  3. `t.enqueue(fetches, s)`        they start together; later work of s starts after the last byte has arrived; does not block
///  4. `t.capturable`                 constexpr bool: enqueue works in a stream capture
///  5. `t.close()`                    noexcept; the caller has drained s; may block
///  6. `t.read_ahead(fetches)`        optional: announces what a later call of enqueue will bring, in the order of those calls;
///     `t.forget_ahead()`             false: not now. The second withdraws all that was announced. Neither blocks
///  7. `t.status()`                   optional, const: the first failure of the transport's threads. No pass begins or ends without it
///     `t.take_failure(storages)`     optional, goes with status(): forgets the failure, and appends the storages of which bytes did not
///                                    arrive, which are then brought again; the caller has drained s. Without it, a failure is for good
///  8. `t.pause(storages)`            optional, for a transport whose threads read sources; goes with `t.sources_changed(storages)`. Blocks
///                                    until no thread reads these sources, and none does before the next call of enqueue or read_ahead;
///                                    withdraws what was announced. The second says that their bytes were replaced, in memory or in
///                                    files; the caller has drained s
///  9. `t.abandon()`                  optional, noexcept; called before close() if s could not be drained: what the device may still
///                                    use is never given back
///
/// A transport that uses several links says so by `t.links()`, const: a LinkUse for each. With it go `t.copy(copies, s)`, by which they are
/// measured together, and neighbours(), neighbour(i), uses(i), set_own_rate(rate), set_rate(i, rate, reason), close_unused(), rate() and
/// check_neighbours(): see Links. One that holds bytes of the model nearer than the host
/// does says so by `t.holds()`. With it go `t.hold(calls)`, a span of Fetches for each call of the plan in force; `t.release_held()`; the
/// CallRate `t.rate_of(bytes)` of a plan that brings so many different bytes; and memory() and copy_sample(copies, share, s), by which it is
/// measured: see Links. One that shares what it brings with others, where these have the same plan, has `t.common_plan(problem, budget_bytes,
/// is_captured)`, `t.tell_plan(problem, budget_bytes, plan)` and `t.has_newer_plan()`, const: see Replicas.
///
/// Semantic rules; the conformance suite cites them.
///  T1 After a failed enqueue, nothing more of it reaches the device; what did reach it is ordered on s; of several links, where calls
///     that order it failed too, only once the device is drained.
///  T2 enqueue allocates nothing in steady state.
template <class T, class D>
concept TransportPolicy =
    Device<D> && std::default_initializable<typename T::Config> && std::constructible_from<T, typename T::Config> &&
    requires(T t, D& device, const Catalog& catalog, std::span<const Fetch> fetches, typename D::Stream s) {
        { t.open(device, catalog) } -> std::same_as<Status>;
        { t.enqueue(fetches, s) } -> std::same_as<Status>;
        { std::bool_constant<T::capturable>{} };
        { t.close() } noexcept;
    };

namespace detail {

/// Packed bytes are moved by who unpacks them.
[[nodiscard]] inline Error is_packed(const Catalog& catalog, StorageId id) {
    return {ErrorKind::unsupported,
            catalog.describe(id) +
                " is packed in host memory: the presets Packed (residency/packed.hpp) and, without a "
                "fixed order, PackedExperts (residency/packed_experts.hpp) unpack it"};
}

}  // namespace detail

/// The copies of one call, or out of one slot of a ring. Each copy lies in one allocation on each side (D11); fetches that are
/// neighbours on both sides become one copy where that allows it.
class JoinedCopies {
public:
    void clear() noexcept { copies_.clear(); }
    void reserve(std::size_t copies) { copies_.reserve(copies); }
    /// Adds a copy of `fetch` from `from`, which lies in `memory`. Null: all copies come from one allocation.
    void add(const Fetch& fetch, const std::byte* from, const HostBytes* memory) {
        if (!copies_.empty() && !fetch.begins_allocation && memory == memory_) {
            Copy& last = copies_.back();
            if (static_cast<const std::byte*>(last.from) + last.bytes == from &&
                static_cast<std::byte*>(last.to) + last.bytes == fetch.to) {
                last.bytes += fetch.bytes;
                return;
            }
        }
        copies_.push_back({fetch.to, from, fetch.bytes});
        memory_ = memory;
    }
    [[nodiscard]] std::span<const Copy> copies() const noexcept { return copies_; }

private:
    std::vector<Copy> copies_;
    const HostBytes* memory_ = nullptr;  // where the last copy comes from
};

}}}  // namespace residency::RESIDENCY_ABI::transport

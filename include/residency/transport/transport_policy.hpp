// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// Bytes [offset, offset + bytes) of a storage, to an address on the device. bytes > 0.
struct Fetch {
    StorageId storage = no_storage;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
    void* to = nullptr;
    /// An allocation begins there. CUDA refuses a copy across two allocations, even where they are neighbours.
    bool begins_allocation = false;
    friend bool operator==(const Fetch&, const Fetch&) = default;
};

/// How the bytes travel: enqueues them on the copy stream.
///
/// Required expressions, with `t` a transport of a device `D`, `s` the copy stream. None is thread safe.
///  1. `T::Config`                    an aggregate of its knobs; `T` is constructible from it
///  2. `t.open(device, catalog)`      may allocate and start threads; fails if a storage has no bytes that it can reach. The
///                                    catalog holds the host bytes; the transport keeps a copy of it
///  3. `t.enqueue(fetches, s)`        they start together; later work of s starts after the last byte is there. Does not block
///  4. `t.capturable`                 constexpr bool: enqueue works in a stream capture
///  5. `t.close()`                    noexcept; the caller drained s
///  6. `t.read_ahead(fetches)`, `t.forget_ahead()`    optional: exactly what the next calls of enqueue will bring, one call at a
///                                    time (false: not now), and that this will not come. Neither blocks
///  7. `t.status()`                   optional, const: what threads of its own failed at. A pass neither begins nor ends well after
///  8. `t.abandon()`                  optional, noexcept, before close() where s could not be drained: what the device may still use is
///                                    never given back
///
/// Semantic rules; the conformance suite cites them.
///  T1 After a failed enqueue nothing more of it reaches the device, and what did is ordered on s.
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

}}}  // namespace residency::RESIDENCY_ABI::transport

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model whose host bytes all processes of a machine share.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/device/memory_limits.hpp"
#include "residency/device/memory_node.hpp"
#include "residency/error.hpp"
#include "residency/host/shared_bytes.hpp"
#include "residency/host/tier.hpp"
#include "residency/model/catalog.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// A model in host memory that processes share.
struct Shared {
    Catalog catalog;           ///< whose storages have their bytes
    Tier tier = Tier::pinned;  ///< pinned or pageable
    std::string reason;        ///< why it is not pinned where the options leave that open; empty where it is
    bool is_maker = false;     ///< this process read the weights from their sources
    /// The node of memory on which they begin, wherever the process that read them asked for it. None: the system does not say.
    std::optional<unsigned> memory_node;
    SharedState state;  ///< who else uses them
};

namespace detail {

/// Where each storage begins in the shared bytes, and what they are for. Storages lie in their order, each at a multiple of its alignment
/// and of 256 bytes, as on the device.
struct SharedLayout {
    std::vector<std::uint64_t> offsets;
    SharedContents contents;
};
[[nodiscard]] RESIDENCY_INLINE SharedLayout lay_out(const Catalog& catalog);
/// Reads, copies or unpacks every storage to its place. Errors: io and mismatch for files that are not what the catalog says;
/// malformed for packed bytes that were changed; unsupported for a storage without a source.
[[nodiscard]] RESIDENCY_INLINE Status fill_shared(const Catalog& catalog, const SharedLayout& layout, unsigned threads,
                                                  std::span<std::byte> to);
/// The catalog with its bytes there.
[[nodiscard]] RESIDENCY_INLINE Catalog with_shared(const Catalog& catalog, const SharedLayout& layout,
                                                   const SharedHostBytes& bytes);

}  // namespace detail

/// Blocks. A model in host memory that all processes of the machine share by this name: the first of them reads every weight from its
/// source, unpacks what is packed, and the others map the bytes. The catalog's hash tells models apart. So do its files, by their inodes,
/// sizes and times, where every storage lies in files whose identity is known; the caller's own bytes are told apart by the name
/// alone. Pins the bytes; the device must outlive every catalog with them. The bytes stay when all processes have ended:
/// SharedHostBytes::try_remove() ends them. Errors: those of SharedHostBytes::try_open(); io, mismatch, malformed and unsupported
/// for sources that are not what the catalog says; out_of_memory where the tier has to be pinned and the device refuses;
/// invalid_argument for Tier::file.
template <Device D>
[[nodiscard]] Result<Shared> try_share(D& device, const Catalog& catalog, const std::string& name,
                                       SharedOptions options = {}) {
    if (options.tier == Tier::file) {
        return Error{ErrorKind::invalid_argument,
                     "host bytes that processes share are in memory: ask for another tier"};
    }
    if (!options.memory_node) { options.memory_node = residency::detail::memory_node_of(device); }
    const detail::SharedLayout layout = detail::lay_out(catalog);
    const auto fill = [&](std::span<std::byte> to) {
        return detail::fill_shared(catalog, layout, options.threads, to);
    };
    auto bytes = SharedHostBytes::try_open(name, layout.contents, fill, options);
    if (!bytes) { return bytes.error(); }
    Shared shared;
    shared.tier = Tier::pageable;
    shared.is_maker = bytes->is_maker();
    shared.state = bytes->state();
    shared.memory_node = residency::detail::memory_node_at(bytes->bytes()->data());
    if (options.tier != Tier::pageable) {
        if (Status pinned = bytes->try_pin(device); pinned) {
            shared.tier = Tier::pinned;
        } else {
            const MemoryLimits limits = options.limits ? *options.limits : read_memory_limits();
            shared.reason = limits.not_pinned(pinned.error());
            if (options.tier == Tier::pinned) {
                return Error{ErrorKind::out_of_memory, shared.reason, DeviceFailure{0, "pin", layout.contents.bytes}};
            }
        }
    }
    shared.catalog = detail::with_shared(catalog, layout, *bytes);
    return shared;
}
#if RESIDENCY_EXCEPTIONS
template <Device D>
[[nodiscard]] Shared share(D& device, const Catalog& catalog, const std::string& name, SharedOptions options = {}) {
    return unwrap(try_share(device, catalog, name, std::move(options)));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::host

#if RESIDENCY_HEADER_ONLY
#include "residency/host/impl/share.ipp"
#endif

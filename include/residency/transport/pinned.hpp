// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "residency/model/host_bytes.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// Copies straight from host memory; pieces that start together are one call. Meant for pinned bytes: pageable ones arrive too, but
/// the driver copies them at a fifth of the speed and may block.
template <Device D>
class Pinned {
public:
    struct Config {};
    static constexpr bool capturable = true;  ///< copies from pinned memory work in a capture

    Pinned() : Pinned(Config{}) {}
    /// Has no options.
    explicit Pinned(Config) noexcept {}

    /// Does not block. ErrorKind::unsupported: a storage is not in host memory.
    [[nodiscard]] Status open(D& device, const Catalog& catalog);

    /// The copies that bring these bytes; valid until the next call.
    [[nodiscard]] std::span<const Copy> join(std::span<const Fetch> fetches);
    /// Does not block, if the bytes are pinned.
    [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
        return device_->copy(join(fetches), stream);
    }

    void close() noexcept;  ///< what TransportPolicy asks for

private:
    struct Source {
        const std::byte* at = nullptr;
        const HostBytes* memory = nullptr;  // owned by catalog_
    };

    D* device_ = nullptr;          // while open
    Catalog catalog_;              // keeps the host bytes
    std::vector<Source> sources_;  // by storage
    JoinedCopies copies_;          // of the call being made
};

template <Device D>
Status Pinned<D>::open(D& device, const Catalog& catalog) {
    sources_.clear();
    sources_.reserve(catalog.storages().size());
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        const Storage& storage = catalog.storages()[i];
        const auto* source = std::get_if<HostSource>(&storage.source);
        if (std::holds_alternative<PackedHostSource>(storage.source)) {
            return detail::is_packed(catalog, StorageId{i});
        }
        if (source == nullptr && storage.bytes > 0) {
            return Error{ErrorKind::unsupported, catalog.describe(StorageId{i}) +
                                                     " has no bytes in host memory: load the catalog first, or "
                                                     "let transport::Staged read its file"};
        }
        sources_.push_back({catalog.host_bytes(StorageId{i}), source != nullptr ? source->host.get() : nullptr});
    }
    device_ = &device;
    catalog_ = catalog;
    copies_.reserve(64);
    return {};
}

template <Device D>
std::span<const Copy> Pinned<D>::join(std::span<const Fetch> fetches) {
    copies_.clear();
    for (const Fetch& fetch : fetches) {
        const Source& source = sources_[index(fetch.storage)];
        copies_.add(fetch, source.at + fetch.offset_bytes, source.memory);
    }
    return copies_.copies();
}

template <Device D>
void Pinned<D>::close() noexcept {
    sources_.clear();
    catalog_ = {};
    device_ = nullptr;
}

}}}  // namespace residency::RESIDENCY_ABI::transport

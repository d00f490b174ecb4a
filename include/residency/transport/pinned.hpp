// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/transport/transport_policy.hpp"

namespace residency::inline RESIDENCY_ABI::transport {

/// Straight from host memory, one call for all pieces that start together. Meant for pinned bytes: pageable ones are correct,
/// but the driver copies them at a fifth of the speed and may block.
template <Device D>
class Pinned {
public:
    struct Config {};
    static constexpr bool capturable = true;

    Pinned() : Pinned(Config{}) {}
    explicit Pinned(Config) noexcept {}

    /// ErrorKind::unsupported: a streamed or resident storage is not in host memory.
    [[nodiscard]] Status open(D& device, const Catalog& catalog) {
        host_.clear();
        host_.reserve(catalog.storages().size());
        for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
            const Storage& storage = catalog.storages()[i];
            const std::byte* host = catalog.host_bytes(StorageId{i});
            if (host == nullptr && storage.bytes > 0) {
                return Error{ErrorKind::unsupported, catalog.describe(StorageId{i}) +
                                                         " has no bytes in host memory: load the catalog first, or "
                                                         "let transport::Staged read its file"};
            }
            host_.push_back(host);
        }
        device_ = &device;
        catalog_ = catalog;
        copies_.reserve(64);
        return {};
    }

    [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
        copies_.clear();
        for (const Fetch& fetch : fetches) {
            const std::byte* from = host_[index(fetch.storage)] + fetch.offset_bytes;
            if (!copies_.empty() && !fetch.begins_allocation) {
                Copy& last = copies_.back();
                if (static_cast<const std::byte*>(last.from) + last.bytes == from &&
                    static_cast<std::byte*>(last.to) + last.bytes == fetch.to) {
                    last.bytes += fetch.bytes;
                    continue;
                }
            }
            copies_.push_back({fetch.to, from, fetch.bytes});
        }
        return device_->copy(copies_, stream);
    }

    void close() noexcept {
        host_.clear();
        catalog_ = {};
        device_ = nullptr;
    }

private:
    D* device_ = nullptr;
    Catalog catalog_;
    std::vector<const std::byte*> host_;
    std::vector<Copy> copies_;
};

}  // namespace residency::inline RESIDENCY_ABI::transport

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/engine/requirements_of.hpp"
#include "residency/core/online/online_decider.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/use_order.hpp"
#include "residency/packed/packer.hpp"
#include "residency/packed/pool.hpp"
#include "residency/packed/stored_catalog.hpp"
#include "residency/packed/unpack_layout.hpp"
#include "residency/packed/unpack_memory.hpp"
#include "residency/packed/unpacking_decider.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Decides access by access, for weights that are packed in host memory: an OnlineDecider that knows storages by their packed bytes, which
/// travel and lie in the pool, and beside it memory for what open leases read unpacked. A lease unpacks its storages first, on its own
/// stream, with one launch for each 240 parts. Residents are unpacked once, when the memory is taken.
///
/// Storages whose kernels read packed bytes as they are (a form that the unpacker does not take) are never unpacked.
template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, class Pool>
class OnlineDecider<Evictor, Prefetcher, pool::PackedStorages<Pool>> final
    : public UnpackingDecider<typename Pool::Device, OnlineDecider<Evictor, Prefetcher, Pool>> {
    using Inner = OnlineDecider<Evictor, Prefetcher, Pool>;
    using Shared = UnpackingDecider<typename Pool::Device, Inner>;

public:
    using Device = typename Pool::Device;
    struct Config {
        Evictor evictor{};
        Prefetcher prefetcher{};
        typename Pool::Config pool{};
        /// See OnlineDecider::Config. There is room to unpack this number of the largest storages together.
        std::uint32_t storages_at_once = 0;
        /// Unpacks on the device; the caller's, and outlives the Residency. Null: fine where no weight is packed.
        const Unpacker<Device>* unpacker = nullptr;
        /// The number of leases that are open together. There is room for what they ask for, packed and unpacked: each for storages_at_once
        /// storages, or for one if that is 0. More leases need room where a storage lies that two of them share.
        std::uint32_t leases_at_once = 1;
    };

    explicit OnlineDecider(Config config)
        : unpacker_{config.unpacker},
          storages_at_once_{config.storages_at_once},
          leases_at_once_{config.leases_at_once} {
        inner_ = std::make_unique<Inner>(typename Inner::Config{
            std::move(config.evictor), std::move(config.prefetcher), std::move(config.pool),
            config.leases_at_once > 1 ? (std::max)(config.storages_at_once, 1U) * config.leases_at_once
                                      : config.storages_at_once});
    }

    [[nodiscard]] Status prepare(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Requirements& requirements) override;
    [[nodiscard]] Status open(const DeciderContext<Device>& context, const pool::Requirements&,
                              std::uint64_t cap_bytes) override {
        context_ = context;
        context_.catalog = stored_.catalog;
        return this->put_in_force(layout_, cap_bytes, [&](std::uint64_t rest_bytes) {
            return inner_->open(context_, requirements_, rest_bytes);
        });
    }
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> groups, StepIndex now,
                                   std::uint64_t cap_bytes) override {
        context_.order = order;
        context_.first_steps = groups;
        is_consistent_ = false;
        return this->put_in_force(layout_, cap_bytes, [&](std::uint64_t rest_bytes) {
            const bool is_same_cap = inner_->cap_bytes() == rest_bytes;
            auto changed = inner_->set_order(order, groups, now, rest_bytes);
            return changed && !is_same_cap ? inner_->set_cap(rest_bytes, now) : std::move(changed);
        });
    }
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, StepIndex now) override {
        if (!is_consistent_) { return set_order(context_.order, context_.first_steps, now, cap_bytes); }
        if (auto taken = memory_.take(); !taken) { return taken; }
        auto changed = inner_->set_cap(cap_bytes - memory_.layout().bytes, now);
        if (changed) { cap_bytes_ = cap_bytes; }
        return changed;
    }
    [[nodiscard]] Status resume(std::uint64_t cap_bytes, StepIndex now) override {
        if (!is_consistent_) { return set_order(context_.order, context_.first_steps, now, cap_bytes); }
        return this->put_in_force(memory_.layout(), cap_bytes,
                                  [&](std::uint64_t rest_bytes) { return inner_->resume(rest_bytes, now); });
    }

    [[nodiscard]] Evictor& evictor() noexcept { return inner_->evictor(); }
    [[nodiscard]] Prefetcher& prefetcher() noexcept { return inner_->prefetcher(); }

private:
    using Shared::cap_bytes_;
    using Shared::catalog_;
    using Shared::context_;
    using Shared::inner_;
    using Shared::is_consistent_;
    using Shared::limits_;
    using Shared::memory_;
    using Shared::stored_;

    /// The memory beside the pool, for a schedule: residents, then room for what leases unpack.
    [[nodiscard]] packed::UnpackLayout lay_out(const Device& device, const Schedule& schedule) const;

    const Unpacker<Device>* unpacker_;
    std::uint32_t storages_at_once_, leases_at_once_;
    std::vector<std::uint64_t> sizes_;  // of the storages that stream
    pool::Requirements requirements_;   // spans over it, for the schedule that was prepared last
    packed::UnpackLayout layout_;       // prepared last
};

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, class Pool>
packed::UnpackLayout OnlineDecider<Evictor, Prefetcher, pool::PackedStorages<Pool>>::lay_out(
    const Device& device, const Schedule& schedule) const {
    using packed::UnpackLayout;
    const auto place_bytes = [&](std::size_t s) {
        return stored_.forms[s].unpacks ? UnpackLayout::place_bytes(stored_.forms[s].raw_bytes) : 0;
    };
    const std::size_t storages = stored_.forms.size();
    UnpackLayout layout;
    layout.finds_places = true;
    layout.offset.assign(storages, UnpackLayout::none);
    layout.stays.assign(storages, false);
    std::uint64_t all_bytes = 0;
    std::vector<std::uint64_t> sizes;
    sizes.reserve(storages);
    for (std::size_t s = 0; s < storages; ++s) {
        if (!stored_.forms[s].unpacks) { continue; }
        if (catalog_.storages()[s].placement == Placement::resident) {
            layout.stays[s] = true;
            layout.offset[s] = std::exchange(layout.shared_at, layout.shared_at + place_bytes(s));
        } else {
            sizes.push_back(place_bytes(s));
            all_bytes += place_bytes(s);
        }
    }
    residency::detail::sort(sizes, std::greater<>{});
    const std::size_t at_once = schedule.empty() ? (std::max)(storages_at_once_, 1U) : storages_at_once_;
    sizes.resize((std::min)(sizes.size(), at_once));
    std::uint64_t lease_bytes = 0;
    for (const std::uint64_t bytes : sizes) { lease_bytes += bytes; }
    for (const Schedule::Step& step : schedule) {
        std::uint64_t step_bytes = 0;
        for (const StorageId id : step.storages) { step_bytes += layout.stays[index(id)] ? 0 : place_bytes(index(id)); }
        lease_bytes = (std::max)(lease_bytes, step_bytes);
    }
    const bool holds_all = lease_bytes > 0 && all_bytes / lease_bytes < leases_at_once_;
    const std::uint64_t shared_bytes = holds_all ? all_bytes : lease_bytes * leases_at_once_;
    if (!holds_all) { layout.lane_bytes = lease_bytes; }
    std::uint64_t next = layout.shared_at;
    for (std::size_t s = 0; holds_all && s < storages; ++s) {
        if (!stored_.forms[s].unpacks || layout.stays[s]) { continue; }
        layout.offset[s] = std::exchange(next, next + place_bytes(s));
    }
    layout.bytes = pool::round_up(layout.shared_at + shared_bytes, device.allocation_granularity());
    layout.table_at = layout.bytes;
    return layout;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, class Pool>
Status OnlineDecider<Evictor, Prefetcher, pool::PackedStorages<Pool>>::prepare(const Device& device,
                                                                               const Catalog& catalog,
                                                                               const Schedule& schedule,
                                                                               const pool::Requirements&) {
    if (leases_at_once_ == 0) { return no_leases_at_once(); }
    const auto is_new = this->store(catalog, unpacker_, packed::StoredIn::pool);
    if (!is_new) { return is_new.error(); }
    if (*is_new) { requirements_ = requirements_of(stored_.catalog, sizes_); }
    requirements_.largest_scheduled_bytes = largest_scheduled_bytes(stored_.catalog, schedule);
    if (auto prepared = inner_->prepare(device, stored_.catalog, schedule, requirements_); !prepared) {
        return prepared;
    }
    layout_ = lay_out(device, schedule);
    limits_ = inner_->limits();
    limits_.leases_at_once = leases_at_once_;
    limits_.floor_bytes += layout_.bytes;
    limits_.resident_from_bytes += layout_.bytes;
    limits_.ceiling_bytes += layout_.bytes;
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core

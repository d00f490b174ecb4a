// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/linked_lists.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// A part of the storages stays, chosen once; the rest share what is left, the least recently used leaving. What stays leaves
/// only if nothing else may. Without an order the storages count in the order of their ids, each used once.
class StaticSplit {
public:
    enum class Choice : std::uint8_t {
        spread,  ///< over the pass in proportion to the bytes read, as compute time is where memory bounds it
        prefix,  ///< the first ones of the pass
    };
    struct Config {
        Choice choice = Choice::spread;
        std::uint32_t ring_steps = 2;  ///< bytes left to the rest: this many times the largest step, or everything
    };

    StaticSplit() noexcept : StaticSplit{Config{}} {}
    explicit StaticSplit(Config config) noexcept : config_{config} {}

    [[nodiscard]] Status attach(const Context& context) {
        lists_.attach(context.bytes.size(), 2);
        stays_.assign(context.bytes.size(), 0);
        choose(context, context.order != nullptr && context.order->steps() > 0 ? context.order : nullptr);
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { lists_.push_front(index(id), stays_[index(id)]); }
    void used(StorageId id, StepIndex) noexcept { lists_.move_front(index(id), stays_[index(id)]); }
    void removed(StorageId id) noexcept { lists_.unlink(index(id)); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        for (const std::uint32_t list : {0U, 1U}) {
            for (auto item = lists_.back(list); item != lists_.end(list); item = lists_.previous(item)) {
                if (may_leave(StorageId{item})) { return StorageId{item}; }
            }
        }
        return std::nullopt;
    }

    /// Whether a storage is one of those that stay. Precondition: attached, and it has the storage.
    [[nodiscard]] bool stays(StorageId id) const noexcept { return stays_[index(id)] != 0; }

private:
    struct Candidate {
        std::uint32_t item;
        std::uint32_t uses;   // a pass
        std::uint32_t first;  // step
    };

    void choose(const Context& context, const UseOrder* order) {
        const std::span<const std::uint64_t> bytes = context.bytes;
        std::vector<Candidate> candidates;
        for (std::uint32_t item = 0; item < bytes.size(); ++item) {
            if (bytes[item] == 0) { continue; }
            if (order == nullptr) {
                candidates.push_back({item, 1, item});
            } else if (item < order->storage_count() && !order->uses(StorageId{item}).empty()) {
                const auto uses = order->uses(StorageId{item});
                candidates.push_back({item, static_cast<std::uint32_t>(uses.size()), uses.front()});
            }
        }
        std::uint64_t left = context.capacity_bytes;
        const std::uint64_t ring = keep_what_widens_the_ring(context, order, left);
        left -= (std::min)(left, ring);
        std::erase_if(candidates, [&](const Candidate& candidate) { return stays_[candidate.item] != 0; });
        // What is read more often in a pass saves more by staying.
        std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
            if (a.uses != b.uses) { return a.uses > b.uses; }
            return a.first != b.first ? a.first < b.first : a.item < b.item;
        });
        for (auto begin = candidates.begin(); begin != candidates.end();) {
            const auto end =
                std::find_if(begin, candidates.end(), [&](const Candidate& c) { return c.uses != begin->uses; });
            const auto total = std::accumulate(begin, end, 0.0, [&](double sum, const Candidate& candidate) {
                return sum + static_cast<double>(bytes[candidate.item]);
            });
            const double share =
                config_.choice == Choice::prefix ? 1.0 : (std::min)(1.0, static_cast<double>(left) / total);
            double credit = 0;
            for (; begin != end; ++begin) {
                const std::uint64_t own = bytes[begin->item];
                credit += share * static_cast<double>(own);
                if (own <= left && credit >= static_cast<double>(own) / 2) {
                    stays_[begin->item] = 1;
                    left -= own;
                    credit -= static_cast<double>(own);
                }
            }
        }
    }

    /// The ring is as many times the largest step as asked for. A step so large that its storages cost less than the ring would
    /// grow for it stays. Returns the bytes of the ring; what stays is taken from `left`.
    [[nodiscard]] std::uint64_t keep_what_widens_the_ring(const Context& context, const UseOrder* order,
                                                          std::uint64_t& left) {
        struct Step {
            std::uint64_t bytes;
            std::uint32_t number;
        };
        const std::span<const std::uint64_t> bytes = context.bytes;
        const auto storages = [&](std::uint32_t step) {
            return order != nullptr ? order->storages_at(step) : std::span<const StorageId>{};
        };
        std::vector<Step> steps;
        const std::uint32_t count = order != nullptr ? order->steps() : static_cast<std::uint32_t>(bytes.size());
        for (std::uint32_t step = 0; step < count; ++step) {
            std::uint64_t sum = order == nullptr ? bytes[step] : 0;
            for (const StorageId id : storages(step)) { sum += index(id) < bytes.size() ? bytes[index(id)] : 0; }
            steps.push_back({sum, step});
        }
        std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
            return a.bytes != b.bytes ? a.bytes > b.bytes : a.number < b.number;
        });
        for (std::size_t i = 0; i < steps.size(); ++i) {
            const std::uint64_t next = i + 1 < steps.size() ? steps[i + 1].bytes : 0;
            const std::uint64_t narrower = saturating_ring(steps[i].bytes - next);
            if (steps[i].bytes > narrower || steps[i].bytes + saturating_ring(next) > left) {
                return saturating_ring(steps[i].bytes);
            }
            if (order == nullptr) { stays_[steps[i].number] = 1; }
            for (const StorageId id : storages(steps[i].number)) {
                if (index(id) < bytes.size()) { stays_[index(id)] = 1; }
            }
            left -= steps[i].bytes;
        }
        return 0;
    }
    [[nodiscard]] std::uint64_t saturating_ring(std::uint64_t step_bytes) const noexcept {
        const std::uint64_t times = (std::max)(config_.ring_steps, 1U);
        return step_bytes > UINT64_MAX / 4 / times ? UINT64_MAX / 4 : step_bytes * times;
    }

    Config config_;
    LinkedLists lists_;                // 0: those that come and go, 1: those that stay; the most recently used first
    std::vector<std::uint8_t> stays_;  // by storage
};
static_assert(EvictionPolicy<StaticSplit>);

}}}  // namespace residency::RESIDENCY_ABI::evict

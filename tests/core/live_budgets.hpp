// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Budgets that change while the program runs: what leaves, what stays, what leases keep, and what is said of it.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/core/compositions.hpp"

namespace live_budgets {

using namespace streaming;
using residency::Budget;
using residency::ErrorKind;

template <class Weights>
inline constexpr bool is_planned = requires(const Weights& weights) { weights.plan(); };

inline constexpr std::uint64_t page = 4096;

inline Budget pages(std::uint64_t count) { return Budget::bytes(count * page); }
template <class Weights>
Weights open(Device& device, const Model& model, std::uint64_t count) {
    auto chosen = options<Weights>(count * page, in_order(model));
    if constexpr (requires { chosen.policies.pool.chunk_bytes; }) {
        chosen.policies.pool.chunk_bytes = page;
        chosen.policies.link = residency::plan::Link{};  // nothing is measured on a virtual clock
        chosen.learn = false;                            // a plan stays in force until the budget changes
    }
    return must(Weights::try_create(device, model.catalog, std::move(chosen)));
}
inline std::uint64_t used_bytes(Device& device) {
    const auto memory = must(device.memory());
    return memory.total_bytes - memory.free_bytes;
}
/// Leases and reads weights, one after another; how many of them had to be brought.
template <class Weights>
std::uint64_t misses_of(Weights& weights, const Model& model, const std::vector<std::uint32_t>& ids, Stream stream) {
    const std::uint64_t before = weights.statistics().total.demand_misses;
    auto pass = must(weights.try_begin(stream));
    for (const std::uint32_t id : ids) {
        auto lease = must(pass.try_acquire(weight(id)));
        verify(weights.device(), model, lease, weight(id), stream);
    }
    must(pass.try_end());
    return weights.statistics().total.demand_misses - before;
}

/// A smaller budget evicts just enough, by the evictor's order, and a larger one nothing.
template <class Weights>
void evicts_just_enough() {
    CheckedDevice device;
    const Model model = uniform_model(device, 16, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = open<Weights>(device, model, 8);
        CHECK(misses_of(weights, model, {0, 1, 2, 3, 4, 5, 6, 7}, stream) == 8);
        CHECK(misses_of(weights, model, {2, 0}, stream) == 0);  // the least recently used are 1, 3, 4, 5 now
        const auto sent = [&] { return device.statistics().bytes_to_device; };
        std::uint64_t before = sent();
        auto change = must(weights.try_set_budget(pages(4)));
        CHECK(change.given_back_bytes() == 4 * page);
        CHECK(change.held_bytes == 4 * page);
        CHECK(change.evicted_bytes == 4 * page);
        CHECK(change.moved_bytes <= 4 * page);
        CHECK(change.pending_bytes == 0);
        CHECK(change.complete_at == change.returned_at);
        CHECK(used_bytes(device) == 4 * page);
        CHECK(sent() == before);
        CHECK(misses_of(weights, model, {6, 7, 2, 0}, stream) == 0);
        CHECK(sent() == before);
        CHECK(weights.budget().bytes == 4 * page);

        change = must(weights.try_set_budget(pages(7)));
        CHECK(change.given_back_bytes() == 0);
        CHECK(change.evicted_bytes == 0);
        CHECK(change.moved_bytes == 0);
        CHECK(misses_of(weights, model, {6, 7, 2, 0}, stream) == 0);
        CHECK(misses_of(weights, model, {8, 9, 10}, stream) == 3);
        CHECK(misses_of(weights, model, {6, 7, 2, 0, 8, 9, 10}, stream) == 0);  // seven are there
        CHECK(sent() == before + 3 * page);

        // The order in which they would leave outlives a change.
        before = sent();
        must(weights.try_set_budget(pages(8)));
        must(weights.try_set_budget(pages(3)));
        CHECK(misses_of(weights, model, {8, 9, 10}, stream) == 0);

        // Everything, and back.
        change = must(weights.try_set_budget(Budget::bytes(1000 * page)));
        CHECK(change.evicted_bytes == 0);
        CHECK_FALSE(weights.statistics().streaming);
        const std::uint64_t total = weights.budget().total_bytes;
        CHECK(misses_of(weights, model, {8, 9, 10}, stream) == 0);
        std::vector<std::uint32_t> all(16);
        for (std::uint32_t i = 0; i < 16; ++i) { all[i] = i; }
        CHECK(misses_of(weights, model, all, stream) == 13);
        CHECK(misses_of(weights, model, all, stream) == 0);
        change = must(weights.try_set_budget(pages(15)));
        CHECK(change.evicted_bytes == page);
        CHECK(weights.statistics().streaming);
        change = must(weights.try_set_budget(pages(15)));
        CHECK(change.evicted_bytes == 0);
        CHECK(change.given_back_bytes() == 0);
        CHECK(*model.wrong == 0);
        must(weights.try_drain());
        CHECK(device.peak_used_bytes() <= total);
    }
    must(device.destroy_stream(stream));
}

/// Leases stay where they are and count, and what they keep comes later.
template <class Weights>
void change_under_leases() {
    CheckedDevice device;
    const Model model = uniform_model(device, 16, page);
    const Stream stream = must(device.create_stream());
    const Stream side = must(device.create_stream());
    {
        auto weights = open<Weights>(device, model, 12);
        run_pass(weights, model, stream);
        std::vector<typename Weights::Lease> leases;
        std::vector<const std::byte*> addresses;
        {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t w = 0; w < 6; ++w) {
                leases.push_back(must(pass.try_acquire(weight(w))));
                addresses.push_back(leases.back().data(weight(w)));
            }
        }
        const auto intact = [&] {
            for (std::uint32_t w = 0; w < leases.size(); ++w) {
                CHECK(leases[w].data(weight(w)) == addresses[w]);
                verify(device, model, leases[w], weight(w), w % 2 == 0 ? stream : side);
            }
            CHECK(*model.wrong == 0);
        };
        for (auto& lease : leases) { must(lease.try_use_on(side)); }
        intact();

        // Room for what is leased: all else is given back at once.
        auto change = must(weights.try_set_budget(pages(8)));
        CHECK(change.held_bytes == 8 * page);
        CHECK(change.pending_bytes == 0);
        CHECK(used_bytes(device) == 8 * page);
        intact();

        // Less than what is leased.
        change = must(weights.try_set_budget(pages(2)));
        CHECK(weights.budget().bytes == 2 * page);
        CHECK(change.budget_before_bytes == 8 * page);
        CHECK(change.held_bytes == 6 * page);
        CHECK(change.pending_bytes == 4 * page);
        CHECK(change.given_back_bytes() == 2 * page);
        CHECK_FALSE(change.complete_at.has_value());
        CHECK(weights.statistics().pending_bytes == 4 * page);
        CHECK(used_bytes(device) == 6 * page);
        intact();
        {
            // Nothing is brought in the place of what has to be given back.
            auto pass = must(weights.try_begin(stream));
            const auto refused = pass.try_acquire(weight(9));
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::budget);
            static_cast<void>(must(pass.try_acquire(weight(3))));
        }
        CHECK(used_bytes(device) == 6 * page);

        // Larger again, with the leases still open.
        change = must(weights.try_set_budget(pages(7)));
        CHECK(change.pending_bytes == 0);
        CHECK(used_bytes(device) <= 7 * page);
        intact();
        CHECK(misses_of(weights, model, {9}, stream) + misses_of(weights, model, {9}, stream) >= 1);
        intact();
        change = must(weights.try_set_budget(pages(3)));
        CHECK(change.pending_bytes == 3 * page);

        // The leases end; their kernels go on for a while.
        for (std::uint32_t w = 0; w < 6; ++w) {
            verify(device, model, leases[w], weight(w), side, std::chrono::milliseconds{1});
        }
        leases.clear();
        CHECK(must(weights.try_reclaim_pending()).pending_bytes == 3 * page);
        CHECK(used_bytes(device) == 6 * page);
        must(device.synchronize(side));
        must(device.synchronize(stream));
        const auto now = device.host_time();
        must(weights.try_reclaim_pending());
        must(device.synchronize());
        change = must(weights.try_reclaim_pending());
        CHECK(change.pending_bytes == 0);
        CHECK(change.given_back_later_bytes == 3 * page);
        CHECK(change.held_bytes == 6 * page);
        REQUIRE(change.complete_at.has_value());
        CHECK(*change.complete_at >= now);
        CHECK(change.returned_at < now);
        CHECK(weights.budget_change() == change);
        CHECK(used_bytes(device) <= 3 * page);
        for (int p = 0; p < 3; ++p) {
            run_pass(weights, model, stream);
            CHECK(used_bytes(device) <= 3 * page);
        }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(device.peak_used_bytes() <= 12 * page);
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(side));
}

/// Leases end in any order, after many changes.
template <class Weights>
void change_over_many_passes() {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = open<Weights>(device, model, 12);
        for (const std::uint64_t kept : {1U, 3U, 5U}) {
            std::vector<typename Weights::Lease> leases;
            std::vector<typename Weights::Ticket> tickets;
            for (std::uint32_t w = 0; w < kept; ++w) {
                auto pass = must(weights.try_begin(stream));
                leases.push_back(must(pass.try_acquire(weight(2 * w))));
                tickets.push_back(must(pass.try_request(weight(2 * w + 1))));
            }
            for (const std::uint64_t count : {11U, 4U, 12U, 6U, 100U, 12U}) {
                CAPTURE(kept);
                CAPTURE(count);
                const std::uint64_t before = used_bytes(device);
                const auto change = must(weights.try_set_budget(pages(count)));
                CHECK(change.pending_bytes == (count < 2 * kept ? (2 * kept - count) * page : 0));
                CHECK(used_bytes(device) <= std::max(before, weights.budget().bytes));
                CHECK(used_bytes(device) <= weights.budget().bytes + change.pending_bytes);
                if (count > (is_planned<Weights> ? 11 : 2 * kept)) { run_pass(weights, model, stream); }
                for (std::uint32_t w = 0; w < leases.size(); ++w) {
                    verify(device, model, leases[w], weight(2 * w), stream);
                }
                CHECK(*model.wrong == 0);
            }
            {
                auto pass = must(weights.try_begin(stream));
                for (std::uint32_t w = 0; w < kept; w += 2) {
                    auto lease = must(tickets[w].try_lease());
                    verify(device, model, lease, weight(2 * w + 1), stream);
                }
            }
            must(weights.try_set_budget(pages(2)));
            std::uint64_t pending = weights.pending_bytes();
            CHECK(pending == (2 * kept - (kept + 1) / 2 < 2 ? 0 : 2 * kept - (kept + 1) / 2 - 2) * page);
            while (!leases.empty()) {
                leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(leases.size() / 2));
                tickets.erase(tickets.begin() + static_cast<std::ptrdiff_t>(tickets.size() / 2));
                must(device.synchronize(stream));
                CHECK(must(weights.try_reclaim_pending()).pending_bytes <= pending);
                pending = weights.pending_bytes();
            }
            must(weights.try_drain());
            CHECK(weights.pending_bytes() == 0);
            CHECK(used_bytes(device) <= 2 * page);
            for (int p = 0; p < 2; ++p) { run_pass(weights, model, stream); }
            must(weights.try_set_budget(pages(12)));
            CHECK(*model.wrong == 0);
        }
    }
    must(device.destroy_stream(stream));
}

}  // namespace live_budgets

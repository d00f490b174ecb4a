// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// From one steady state to the next: what a change of the budget and a divergence cost, in bytes and in time, until passes move what
// their plan says again.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"
#include "tests/support/sanitized.hpp"

namespace transient_test {

using namespace planned;

namespace {

/// Chunks of 4 KiB take as long as 2 MiB on a real link; the host takes no time.
Device::Config slow_link() {
    auto config = small_config();
    config.link.to_device_bytes_per_second /= 512;
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = std::chrono::nanoseconds{0};
    return config;
}

/// A stack of layers of four storages, small and large, and tiny ones (`norms`) after each; a step reads one of them
/// and takes `ratio` times what its copy takes.
class Rig {
public:
    Rig(std::uint32_t percent, double ratio, int norms = 0) : model_{make_model(device_, specs(norms))} {
        const double seconds_a_byte = ratio / slow_link().link.to_device_bytes_per_second;
        residency::ScheduleBuilder builder{model_.catalog};
        std::uint32_t i = 0;
        for (const Spec& spec : specs(norms)) {
            const WeightId id{i++};
            compute_.emplace_back(1 +
                                  static_cast<std::int64_t>(1e9 * seconds_a_byte * static_cast<double>(spec.bytes)));
            builder.step(std::span<const WeightId>{&id, 1}, compute_.back());
            total_ += spec.bytes;
        }
        auto chosen = options(bytes(percent), must(builder.try_build()));
        chosen.policies.link = link_of(slow_link().link);
        chosen.policies.options.effort = residency::plan::Effort::full;
        weights_ = must(Weights::try_create(device_, model_.catalog, std::move(chosen)));
        stream_ = must(device_.create_stream());
        device_.observe([this](const Device::ExecutedOperation& operation) {
            if (operation.name == std::string_view{"step"}) { end_ns_ = operation.end_ns; }
        });
        for (int p = 0; p < 4; ++p) { pass(); }
    }
    ~Rig() {
        weights_.reset();
        device_.observe({});
        must(device_.destroy_stream(stream_));
    }
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;

    [[nodiscard]] std::uint64_t bytes(std::uint32_t percent) const { return total_ / 100 * percent; }
    [[nodiscard]] std::uint32_t steps() const { return static_cast<std::uint32_t>(compute_.size()); }
    [[nodiscard]] Weights& weights() { return *weights_; }

    /// What a pass moved and took.
    struct Cost {
        std::uint64_t fetched = 0, missed = 0;
        double seconds = 0;
    };
    /// A pass in the order of the schedule, or in another one.
    Cost pass(std::vector<std::uint32_t> order = {}) {
        if (order.empty()) {
            for (std::uint32_t i = 0; i < steps(); ++i) { order.push_back(i); }
        }
        const std::int64_t begin = end_ns_;
        {
            auto running = must(weights_->try_begin(stream_));
            for (const std::uint32_t i : order) {
                auto lease = must(running.try_acquire(weights_->schedule()[i]));
                Device::Kernel kernel;
                kernel.name = "step";
                kernel.duration = compute_[i];
                const auto range = lease.bytes(WeightId{i});
                kernel.reads.push_back({range.data(), range.size()});
                must(device_.launch(stream_, std::move(kernel)));
            }
            must(running.try_end());
        }
        must(device_.synchronize(stream_));
        const auto& last = weights_->statistics().last_pass;
        return {last.fetched_bytes, last.demand_misses, 1e-9 * static_cast<double>(end_ns_ - begin)};
    }
    /// Passes until two in a row move what the plan says and miss nothing, without those two.
    int passes_until_steady() {
        int quiet = 0, passes = 0;
        for (; quiet < 2 && passes < 8; ++passes) {
            const Cost one = pass();
            quiet = one.missed == 0 && one.fetched == bytes_of(weights_->plan()) ? quiet + 1 : 0;
        }
        return quiet == 2 ? passes - 2 : 8;
    }

private:
    static std::vector<Spec> specs(int norms) {
        std::vector<Spec> all;
        for (int layer = 0; layer < 12; ++layer) {
            for (const std::uint64_t chunks : {8U, 2U, 8U, 27U}) {
                all.push_back({chunks * chunk});
                for (int k = 0; k < norms; ++k) { all.push_back({64}); }
            }
        }
        return all;
    }

    CheckedDevice device_{slow_link()};
    Model model_;
    std::vector<std::chrono::nanoseconds> compute_;
    std::uint64_t total_ = 0;
    std::optional<Weights> weights_;
    Stream stream_{};
    std::int64_t end_ns_ = 0;  ///< of the last step that ended
};

}  // namespace

TEST_SUITE_BEGIN("planned transient");

TEST_CASE(
    "after a change of the budget one pass brings what is new, and a tenth of a pass besides, no slower than the link "
    "brings it; "
    "then the plan holds") {
    std::uint64_t besides = 0, passes = 0;
    for (const double ratio : {0.05, 0.5, 0.75, 1.0}) {
        for (const auto& [from, to] : {std::pair{50U, 60U},
                                       {60U, 50U},
                                       {25U, 75U},
                                       {75U, 25U},
                                       {90U, 50U},
                                       {10U, 90U},
                                       {50U, 51U},
                                       {51U, 50U},
                                       {79U, 80U},
                                       {80U, 79U}}) {
            CAPTURE(ratio);
            CAPTURE(from);
            CAPTURE(to);
            Rig rig{from, ratio};
            const auto old = rig.weights().plan();
            const auto before = held_between_passes(old);
            const auto change = must(rig.weights().try_set_budget(residency::Budget::bytes(rig.bytes(to))));
            const auto& now = rig.weights().plan();
            REQUIRE(now.data().storage_offsets == old.data().storage_offsets);
            const auto after = first_of_slots(now);
            const std::uint64_t both = in_both(before, after);
            CHECK(change.evicted_bytes == (in_both(before, before) - both) * chunk);
            const std::uint64_t prefetched = in_both(after, after) - both;
            const std::uint64_t grown = now.slots_held() > old.slots_held() ? now.slots_held() - old.slots_held() : 0;
            const auto first = rig.pass();
            const auto steady = rig.pass();
            CHECK(first.missed == 0);
            CHECK(first.fetched <= steady.fetched + prefetched * chunk);
            CHECK(prefetched * chunk <= grown * chunk + steady.fetched / 10);
            const double link = static_cast<double>(first.fetched) / slow_link().link.to_device_bytes_per_second;
            CHECK(first.seconds <= 1.15 * std::max(steady.seconds, link));
            CHECK(rig.passes_until_steady() == 0);
            besides += (prefetched - grown) * chunk;
            passes += steady.fetched;
        }
    }
    CHECK(besides <= passes / 50);
}

TEST_CASE(
    "the first pass fills the link while calls wait for steps to end: with time to spare it takes little longer") {
    // All that is new takes the link three quarters of a pass. With many short steps, no few of them are far enough ahead.
    for (const int norms : {0, 12}) {
        CAPTURE(norms);
        Rig rig{25, 1.0, norms};
        must(rig.weights().try_set_budget(residency::Budget::bytes(rig.bytes(75))));
        const auto first = rig.pass();
        const auto steady = rig.pass();
        CHECK(static_cast<double>(first.fetched) > 0.7 * static_cast<double>(rig.bytes(100)));
        CHECK(first.seconds <= (norms == 0 ? 1.06 : 1.15) * steady.seconds);
    }
}

TEST_CASE("a plan of a budget that is left and comes back takes as long as before") {
    for (const double ratio : {0.05, 0.5, 1.0}) {
        CAPTURE(ratio);
        Rig rig{50, ratio};
        const double alone = rig.weights().plan().predicted_seconds();
        // A cache of another kind grows and shrinks.
        for (std::uint32_t percent = 51; percent < 60; ++percent) {
            must(rig.weights().try_set_budget(residency::Budget::bytes(rig.bytes(percent))));
            rig.pass();
        }
        for (std::uint32_t percent = 59; percent >= 50; --percent) {
            must(rig.weights().try_set_budget(residency::Budget::bytes(rig.bytes(percent))));
            rig.pass();
        }
        CHECK(rig.weights().plan().predicted_seconds() <= alone * 1.0011);
        CHECK(rig.passes_until_steady() == 0);
    }
}

TEST_CASE("what is kept over a change is what the kernels read: random models and budgets, one change after another") {
    std::uint64_t kept = 0, ring_kept = 0, changes = 0;
    for (std::uint64_t seed = 1; seed <= support::random_cases(120); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        CheckedDevice device;
        const auto drawn = random_model(random, 20);
        const Model model = make_model(device, drawn.specs);
        const Stream stream = must(device.create_stream());
        {
            const auto cycle = seed % 5 == 0 ? residency::Cycle::one_shot : residency::Cycle::cyclic;
            auto weights = make(device, model, 0, schedule_of(model, drawn.steps, cycle));
            const std::uint64_t floor = weights.statistics().budget_bytes;
            std::uint64_t all = floor;
            for (const Spec& spec : drawn.specs) { all += spec.bytes; }
            for (int round = 0; round < 6; ++round) {
                for (std::uint64_t p = random() % 3; p > 0; --p) { run_pass(weights, model, stream); }
                const auto old = weights.plan();
                const auto missed = weights.statistics().total.demand_misses;
                must(weights.try_set_budget(residency::Budget::bytes(floor + random() % (all - floor + 1))));
                const auto& now = weights.plan();
                ++changes;
                if (cycle == residency::Cycle::cyclic && now.data().storage_offsets == old.data().storage_offsets) {
                    const auto before = held_between_passes(old), after = first_of_slots(now);
                    kept += in_both(before, after);
                    for (const auto& copy : now.copies()) {
                        const auto c = static_cast<std::size_t>(copy.image_begin / chunk);
                        ring_kept += before[c] && after[c] ? 1 : 0;
                    }
                }
                const auto first = counted_pass(weights, model, stream);
                if (cycle == residency::Cycle::cyclic) {
                    CHECK(weights.statistics().total.demand_misses == missed);
                    CHECK(first.divergences == 0);
                    if (seed % 2 == 0) { CHECK(counted_pass(weights, model, stream).fetched_bytes == bytes_of(now)); }
                }
                CHECK(*model.wrong == 0);
            }
        }
        must(device.destroy_stream(stream));
    }
    MESSAGE(changes << " changes, " << kept << " chunks kept, " << ring_kept << " copies begin with one that is kept");
    CHECK(kept > support::random_cases(1000));
    CHECK(ring_kept > support::random_cases(100));
}

TEST_CASE("a divergence costs the bytes that it asks for again, little besides, and at most one pass to get over") {
    for (const double ratio : {0.05, 0.5, 1.0}) {
        for (const std::uint32_t percent : {25U, 50U, 90U}) {
            CAPTURE(ratio);
            CAPTURE(percent);
            Rig rig{percent, ratio};
            const std::uint32_t n = rig.steps();
            const auto steady = rig.pass();
            // Costs of a pass that reads `again` passes' worth of storages a second time.
            const auto expect = [&](const Rig::Cost& odd, double again, int most_passes) {
                CHECK(static_cast<double>(odd.fetched) <= (1.15 + again) * static_cast<double>(steady.fetched));
                CHECK(odd.seconds <= (1 + again) * 1.5 * steady.seconds);
                CHECK(rig.passes_until_steady() <= most_passes);
            };
            std::vector<std::uint32_t> whole(n);
            for (std::uint32_t i = 0; i < n; ++i) { whole[i] = i; }
            const std::vector<std::uint32_t> half{whole.begin(), whole.begin() + n / 2};
            INFO("broken off in the middle");
            expect(rig.pass(half), 0, 0);
            INFO("from the middle back to the start");
            std::vector<std::uint32_t> order = half;
            order.insert(order.end(), whole.begin(), whole.end());
            expect(rig.pass(order), 0.5, 0);
            INFO("one step out of turn");
            order = whole;
            order.insert(order.begin() + n / 2, 3);
            expect(rig.pass(order), 0, 0);
            INFO("the second half before the first");
            order = whole;
            std::rotate(order.begin(), order.begin() + n / 2, order.end());
            expect(rig.pass(order), 0.5, 1);
        }
    }
}

TEST_SUITE_END();

}  // namespace transient_test

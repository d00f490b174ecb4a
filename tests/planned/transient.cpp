// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// From one steady state to the next: what a change of the budget and a divergence cost, in bytes and in time, until passes move what
// their plan says again.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

using namespace planned;

namespace {

/// Chunks of 4 KiB take as long as 2 MiB on a real link; the host takes no time.
Device::Config slow_link() {
    auto config = small_config();
    config.link.to_device_bytes_per_second /= 512;
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = std::chrono::nanoseconds{0};
    return config;
}

/// A stack of layers of four storages, small and large; a step reads one of them and takes `ratio` times what its copy takes.
class Rig {
public:
    Rig(std::uint32_t percent, double ratio) : model_{make_model(device_, specs())} {
        const double seconds_a_byte = ratio / slow_link().link.to_device_bytes_per_second;
        residency::ScheduleBuilder builder{model_.catalog};
        std::uint32_t i = 0;
        for (const Spec& spec : specs()) {
            const WeightId id{i++};
            compute_.emplace_back(1 +
                                  static_cast<std::int64_t>(1e9 * seconds_a_byte * static_cast<double>(spec.bytes)));
            builder.step(std::span<const WeightId>{&id, 1}, compute_.back());
            total_ += spec.bytes;
        }
        auto chosen = options(bytes(percent), must(builder.try_build()));
        chosen.policies.link = link_of(slow_link().link);
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
    [[nodiscard]] std::uint64_t resident_chunks() const {
        std::uint64_t sum = 0;
        for (const auto& copy : weights_->plan().residents()) { sum += (copy.bytes() + chunk - 1) / chunk; }
        return sum;
    }

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
    static std::vector<Spec> specs() {
        std::vector<Spec> all;
        for (int layer = 0; layer < 12; ++layer) {
            for (const std::uint64_t chunks : {8U, 2U, 8U, 27U}) { all.push_back({chunks * chunk}); }
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
    "after a change of the budget one pass brings what is new, and less than half a pass besides; then the plan "
    "holds") {
    for (const double ratio : {0.05, 0.5, 1.0}) {
        for (const auto& [from, to] : {std::pair{50U, 60U}, {60U, 50U}, {25U, 75U}, {90U, 50U}, {50U, 51U}}) {
            CAPTURE(ratio);
            CAPTURE(from);
            CAPTURE(to);
            Rig rig{from, ratio};
            const std::uint64_t before = rig.resident_chunks(), pass_before = rig.pass().fetched;
            must(rig.weights().try_set_budget(residency::Budget::bytes(rig.bytes(to))));
            const std::uint64_t after = rig.resident_chunks();
            const auto first = rig.pass();
            const auto steady = rig.pass();
            const std::uint64_t least = after > before ? (after - before) * chunk : 0;
            CHECK(first.missed == 0);
            CHECK(first.fetched <= steady.fetched + least + std::max(pass_before, steady.fetched) / 2);
            // No slower than its bytes: what is new does not keep the steps waiting that do not need it.
            CHECK(first.seconds <=
                  steady.seconds * 1.1 * static_cast<double>(first.fetched) / static_cast<double>(steady.fetched));
            CHECK(rig.passes_until_steady() == 0);
        }
    }
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

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Two models on one device under one total: a small one that drafts and a large one that checks. What the small one does not need
// goes to the large one, between passes. Exits with 0 if every byte that was read was right and the total was never exceeded.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace {

using namespace residency;

/// A model of equal layers, with bytes of its own, and its weights on the device.
class Model {
public:
    Model(SimulatedDevice& device, const std::string& name, std::uint32_t layers, std::uint64_t layer_bytes,
          std::uint64_t budget_bytes)
        : device_{device}, host_(layers * layer_bytes), stream_{unwrap(device.create_stream(name))} {
        std::mt19937 random{static_cast<std::uint32_t>(layers)};
        std::generate(host_.begin(), host_.end(), [&] { return static_cast<std::byte>(random()); });
        unwrap(device.pin(host_.data(), host_.size()));
        const auto held = HostBytes::borrow(host_, HostMemory::pinned);
        CatalogBuilder weights;
        for (std::uint32_t i = 0; i < layers; ++i) {
            weights.add(name + "." + std::to_string(i), dtype::u8, {layer_bytes}, HostSource{held, i * layer_bytes});
        }
        const Catalog catalog = weights.build();
        ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < layers; ++i) { steps.step({WeightId{i}}, std::chrono::microseconds{20}); }
        weights_.emplace(
            device, catalog,
            Planned<SimulatedDevice>::Options{.budget = Budget::bytes(budget_bytes), .schedule = steps.build()});
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() {
        weights_.reset();
        static_cast<void>(device_.unpin(host_.data()).has_value());
    }

    /// One token: enqueued, not waited for.
    void forward() {
        auto pass = weights_->begin(stream_);
        for (const auto& step : weights_->schedule()) {
            const auto lease = pass.acquire(step);
            const auto there = lease.bytes(step.weights.front());
            const std::byte* expected = weights_->catalog().host_bytes(step.storages.front());
            unwrap(device_.launch(stream_, {.name = "layer",
                                            .duration = std::chrono::microseconds{20},
                                            .reads = {{there.data(), there.size()}},
                                            .writes = {},
                                            .body = [this, there, expected] {
                                                wrong_ += std::memcmp(there.data(), expected, there.size()) != 0;
                                            }}));
        }
    }
    [[nodiscard]] Planned<SimulatedDevice>& weights() noexcept { return *weights_; }
    [[nodiscard]] std::uint64_t wrong() const noexcept { return wrong_; }

private:
    SimulatedDevice& device_;
    std::vector<std::byte> host_;
    SimulatedDevice::Stream stream_;
    std::optional<Planned<SimulatedDevice>> weights_;
    std::uint64_t wrong_ = 0;
};

}  // namespace

int main() try {
    constexpr std::uint64_t mib = std::uint64_t{1} << 20, total = 32 * mib;
    SimulatedDevice device;
    Model draft{device, "draft", 8, 1 * mib, 8 * mib};         // all of it
    Model main{device, "main", 24, 4 * mib, total - 8 * mib};  // a quarter of it
    bool kept = true;
    const auto report = [&](const char* when) {
        unwrap(device.synchronize());
        const Statistics small = draft.weights().statistics(), large = main.weights().statistics();
        kept = kept && small.held_bytes + large.held_bytes <= total;
        std::printf(
            "%-28s draft holds %4.0f MiB, copied %3.0f MiB a pass   main holds %4.0f MiB, copied %3.0f MiB a pass\n",
            when, double(small.held_bytes) / mib, double(small.last_pass.fetched_bytes) / mib,
            double(large.held_bytes) / mib, double(large.last_pass.fetched_bytes) / mib);
    };

    for (int token = 0; token < 4;
         ++token) {  // four drafted tokens, checked by one pass of the large model beside them
        for (int i = 0; i < 4; ++i) { draft.forward(); }
        main.forward();
    }
    report("drafting and checking:");

    // No drafts for a while: the small model keeps the least that works, the large one gets the rest. Give before taking.
    const BudgetChange given = draft.weights().set_budget(Budget::bytes(0));
    main.weights().set_budget(Budget::bytes(total - given.held_bytes));
    for (int token = 0; token < 4; ++token) { main.forward(); }
    draft.forward();
    report("checking only:");

    main.weights().set_budget(Budget::bytes(total - 8 * mib));
    draft.weights().set_budget(Budget::bytes(8 * mib));
    for (int token = 0; token < 4; ++token) {
        draft.forward();
        main.forward();
    }
    report("drafting again:");

    const std::uint64_t wrong = draft.wrong() + main.wrong();
    std::printf("wrong layers: %llu; reports of the checker: %llu; the total of %llu MiB was %s\n",
                static_cast<unsigned long long>(wrong), static_cast<unsigned long long>(device.report_count()),
                static_cast<unsigned long long>(total / mib), kept ? "kept" : "EXCEEDED");
    return wrong == 0 && device.report_count() == 0 && kept ? 0 : 1;
} catch (const residency::Exception& error) { return std::fprintf(stderr, "several_models: %s\n", error.what()), 2; }

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Three models, and memory for one of them and a third of another. Requests come in turn: the model of the next one wakes while the one that
// was used least recently falls asleep. Eager passes, and captured ones, which stay valid over every switch. Exits with 0 if every byte that
// was read was right and the total was never exceeded.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/broker/model_group.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace {

using namespace residency;
using Group = ModelGroup<SimulatedDevice>;
using Weights = Planned<SimulatedDevice>;
using Graph = decltype(std::declval<Weights&>().capture({}, std::declval<void (&)(Weights::Pass&)>()));

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint32_t layers = 12;
constexpr std::uint64_t layer_bytes = 2 * mib;

/// A model with bytes of its own, and its place in the group.
class Model {
public:
    Model(SimulatedDevice& device, Group& group, const std::string& name)
        : name_{name}, device_{device}, host_(layers * layer_bytes), stream_{unwrap(device.create_stream(name))} {
        std::mt19937 random{static_cast<std::uint32_t>(name.size())};
        std::generate(host_.begin(), host_.end(), [&] { return static_cast<std::byte>(random()); });
        unwrap(device.pin(host_.data(), host_.size()));
        const auto held = HostBytes::borrow(host_, HostMemory::pinned);
        CatalogBuilder weights;
        for (std::uint32_t i = 0; i < layers; ++i) {
            weights.add(name + "." + std::to_string(i), dtype::u8, {layer_bytes}, HostSource{held, i * layer_bytes});
        }
        const Catalog catalog = weights.build();
        ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < layers; ++i) { steps.step({WeightId{i}}, std::chrono::microseconds{5}); }
        Weights::Options options{.budget = Budget::bytes(layers * layer_bytes), .schedule = steps.build()};
        options.policies.pool.stock = &group.stock();
        group.make_room(layers * layer_bytes);
        weights_.emplace(device, catalog, std::move(options));
        member_ = group.add(*weights_, {.name = name});
        const auto use = group.activate(member_);
        graph_.emplace(weights_->capture(stream_, [&](auto& pass) { run(pass); }));
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() {
        graph_.reset();
        member_ = {};
        weights_.reset();
        static_cast<void>(device_.unpin(host_.data()).has_value());
    }

    /// One request. Returns the milliseconds from its begin to the end of the first pass.
    double answer(Group& group, bool as_graph, const Model& next) {
        const auto begin = device_.host_time();
        const auto use = group.activate(member_);
        double first = 0;
        for (int token = 0; token < 4; ++token) {
            if (as_graph) {
                graph_->launch(stream_);
            } else {
                auto pass = weights_->begin(stream_);
                run(pass);
            }
            group.prepare(next.member_);  // what fits beside this one
            unwrap(device_.synchronize(stream_));
            if (token == 0) { first = std::chrono::duration<double, std::milli>(device_.host_time() - begin).count(); }
        }
        return first;
    }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] std::uint64_t wrong() const noexcept { return wrong_; }
    [[nodiscard]] bool is_graph_valid() const { return !graph_->is_stale(); }

private:
    template <class Pass>
    void run(Pass& pass) {
        for (const auto& step : weights_->schedule()) {
            const auto lease = pass.acquire(step);
            const auto there = lease.bytes(step.weights.front());
            const std::byte* expected = weights_->catalog().host_bytes(step.storages.front());
            unwrap(device_.launch(stream_, {.name = "layer",
                                            .duration = std::chrono::microseconds{5},
                                            .reads = {{there.data(), there.size()}},
                                            .writes = {},
                                            .body = [this, there, expected] {
                                                wrong_ += std::memcmp(there.data(), expected, there.size()) != 0;
                                            }}));
        }
    }

    std::string name_;
    SimulatedDevice& device_;
    std::vector<std::byte> host_;
    SimulatedDevice::Stream stream_;
    std::optional<Weights> weights_;
    Group::Member member_;
    std::optional<Graph> graph_;
    std::uint64_t wrong_ = 0;
};

}  // namespace

int main() try {
    SimulatedDevice device;
    BudgetBroker broker{{.total_bytes = layers * layer_bytes / 3 * 4}};
    Group group{device, broker};
    std::vector<std::unique_ptr<Model>> models;
    for (const char* name : {"draft", "target", "re-ranker"}) {
        models.push_back(std::make_unique<Model>(device, group, name));
    }
    bool is_right = true;
    for (int request = 0; request < 9; ++request) {
        Model& model = *models[static_cast<std::size_t>(request) % models.size()];
        const Model& next = *models[static_cast<std::size_t>(request + 1) % models.size()];
        const bool as_graph = request % 2 == 1;
        const double first = model.answer(group, as_graph, next);
        std::string awake;
        std::uint64_t held = 0;
        for (const auto& each : group.accounts()) {
            awake += each.is_awake ? " " + each.name : "";
            held += each.held_bytes;
        }
        is_right = is_right && held <= broker.statistics().total_bytes && model.is_graph_valid();
        std::printf("request %d: %-9s %s first pass after %5.2f ms; awake:%s; held %2.0f MiB\n", request,
                    model.name().c_str(), as_graph ? "as a graph," : "eager,     ", first, awake.c_str(),
                    static_cast<double>(held) / mib);
    }
    std::uint64_t wrong = 0;
    for (const auto& model : models) { wrong += model->wrong(); }
    std::printf("wrong layers: %llu; reports of the checker: %llu; total and graphs: %s\n",
                static_cast<unsigned long long>(wrong), static_cast<unsigned long long>(device.report_count()),
                is_right ? "kept" : "NOT kept");
    return wrong == 0 && device.report_count() == 0 && is_right ? 0 : 1;
} catch (const residency::Exception& error) { return std::fprintf(stderr, "switch_models: %s\n", error.what()), 2; }

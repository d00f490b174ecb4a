// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Models that take turns in a group, on a simulated device. Passes compare every byte.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/broker/model_group.hpp"
#include "residency/planned.hpp"
#include "tests/support/streaming.hpp"

namespace group_of_models {

using namespace streaming;
using residency::Budget;
using residency::BudgetBroker;
using residency::ErrorKind;
using CallKind = Device::CallKind;
using Group = residency::ModelGroup<Device>;
using Weights = residency::Planned<Device>;
using Graph = decltype(std::declval<Weights&>().capture(Stream{}, std::declval<void (&)(Weights::Pass&)>()));

inline constexpr std::uint64_t chunk = 4096;
inline constexpr std::uint32_t steps = 20;  // of a model, with a chunk each
inline constexpr std::uint64_t whole = steps * chunk;

inline std::uint64_t used(Device& device) {
    const auto memory = must(device.memory());
    return memory.total_bytes - memory.free_bytes;
}

/// A model in the group.
struct Sleeper {
    streaming::Model model;
    std::optional<Weights> weights{};
    Group::Member member{};
    std::optional<Graph> graph{};
};

struct Fixture {
    explicit Fixture(std::uint64_t total = whole * 13 / 10)
        : broker{{.total_bytes = total}}, group{device, broker, {.chunk_bytes = chunk}} {}
    ~Fixture() {
        for (auto& each : all) {
            each->graph.reset();
            each->member = {};
        }
        all.clear();
        CHECK(group.stock().used_bytes() == 0);
        if (!device.leaks_expected) { must(device.destroy_stream(stream)); }
    }
    Weights::Options options(const streaming::Model& model, std::uint64_t budget) {
        Weights::Options options;
        options.budget = Budget::bytes(budget);
        options.schedule = in_order(model);
        options.learn = learns;
        options.policies.link = residency::plan::Link{};
        options.policies.options.effort = residency::plan::Effort::quick;  // switches are what is looked at
        options.policies.memory_bytes_per_second = 1e12;
        options.policies.pool.stock = &group.stock();
        return options;
    }
    Sleeper& add(std::uint64_t budget, Group::MemberOptions how = {}) {
        return add(uniform_model(device, steps, chunk), budget, std::move(how));
    }
    Sleeper& add(streaming::Model model, std::uint64_t budget, Group::MemberOptions how = {},
                 residency::Schedule schedule = {}) {
        all.push_back(std::make_unique<Sleeper>(Sleeper{std::move(model)}));
        Sleeper& each = *all.back();
        must(group.try_make_room(budget));
        auto chosen = options(each.model, budget);
        if (!schedule.empty()) { chosen.schedule = std::move(schedule); }
        each.weights.emplace(must(Weights::try_create(device, each.model.catalog, std::move(chosen))));
        if (how.name.empty()) { how.name = "model " + std::to_string(all.size()); }
        each.member = must(group.try_add(*each.weights, how));
        return each;
    }
    void capture(Sleeper& each) {
        const auto use = must(group.try_activate(each.member));
        each.graph.emplace(must(each.weights->try_capture(stream, [&](auto& pass) {
            for (const auto& step : each.weights->schedule()) {
                auto lease = must(pass.try_acquire(step));
                verify(device, each.model, lease, step.weights.front(), stream);
            }
        })));
    }
    void run(Sleeper& each, bool as_graph = false) {
        const auto before = *each.model.verified;
        if (as_graph) {
            must(each.graph->try_launch(stream));
        } else {
            run_pass(*each.weights, each.model, stream);
        }
        must(device.synchronize(stream));
        std::uint64_t bytes = 0;
        for (const auto& step : each.weights->schedule()) {
            for (const auto id : step.weights) { bytes += each.model.catalog.weight(id).bytes; }
        }
        CHECK(*each.model.verified == before + bytes);
        CHECK(*each.model.wrong == 0);
    }
    bool is_awake(const Sleeper& each) const { return !each.weights->is_suspended(); }

    CheckedDevice device;
    Stream stream = must(device.create_stream());
    BudgetBroker broker;
    Group group;
    std::vector<std::unique_ptr<Sleeper>> all;
    bool learns = false;  // so that plans stay in force
};

}  // namespace group_of_models

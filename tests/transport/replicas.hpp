// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "residency/packed.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/transport/replicas.hpp"
#include "tests/packed/support.hpp"
#include "tests/transport/gpus_of_host.hpp"

namespace replicas_test {

using gpus_of_host::Device;
using gpus_of_host::mib;
using gpus_of_host::named;
using packed_tests::must;
using residency::Budget;
using residency::Copy;
using residency::ErrorKind;
using residency::Schedule;
using residency::WeightId;
using residency::simulation::CallKind;
using Stream = Device::Stream;
using Replicas = residency::transport::Replicas<Device>;
using Group = residency::transport::ReplicaGroup<Device>;
using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                     residency::pool::Virtual<Device>, Replicas>;
using PackedWeights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                           residency::pool::Packed<Device>, Replicas>;

inline constexpr std::uint32_t layers = 16;

/// GPUs of a host, and a model of which each may run a replica.
struct Host {
    explicit Host(std::size_t count = 2, const Device::Config& last = named("last"), bool is_noise = true) {
        for (std::size_t i = 0; i < count; ++i) {
            auto config = i + 1 == count && count > 1 ? last : named("GPU " + std::to_string(i));
            gpus.push_back(i == 0 ? std::make_unique<Device>(config) : std::make_unique<Device>(config, *gpus[0]));
            streams.push_back(must(gpus.back()->create_stream("compute")));
        }
        model = std::make_unique<packed_tests::Model>(
            *gpus[0], std::vector<packed_tests::Model::Spec>(layers, {mib, is_noise}), 1, !is_noise);
    }

    [[nodiscard]] Schedule schedule() const {
        packed_tests::Steps steps(layers);
        for (std::uint32_t i = 0; i < layers; ++i) { steps[i] = {i}; }
        return packed_tests::schedule_of(model->raw, steps, std::chrono::microseconds{2});
    }
    template <class W = Weights>
    [[nodiscard]] typename W::Options options(std::uint64_t budget) {
        typename W::Options result;
        result.budget = Budget::bytes(budget);
        result.schedule = schedule();
        result.learn = false;
        result.policies.pool.chunk_bytes = 65536;
        if constexpr (requires { result.transport.group; }) {
            result.transport.group = group;
            result.transport.lent_bytes = lent_bytes;
        }
        if constexpr (requires { result.policies.unpacker; }) { result.policies.unpacker = &unpacker; }
        return result;
    }
    [[nodiscard]] Weights member(std::size_t i, double share) {
        return must(
            Weights::try_create(*gpus[i], model->raw,
                                options(static_cast<std::uint64_t>(static_cast<double>(model->raw_bytes()) * share))));
    }
    template <class Lease>
    void verify(std::size_t i, const Schedule::Step& step, const Lease& lease, std::uint64_t& wrong) {
        packed_tests::verify(*gpus[i], *model, lease, step.weights, streams[i], wrong, std::chrono::microseconds{2});
    }
    /// One pass of each of some members, step by step in turns. How many weights were wrong.
    template <class W>
    std::uint64_t run_in_step(std::vector<std::pair<std::size_t, W*>> members) {
        std::uint64_t wrong = 0;
        std::vector<typename W::Pass> passes;
        for (auto& [i, weights] : members) { passes.push_back(must(weights->try_begin(streams[i]))); }
        for (std::uint32_t step = 0; step < layers; ++step) {
            for (std::size_t m = 0; m < members.size(); ++m) {
                const auto& at = members[m].second->schedule()[step];
                const auto lease = must(passes[m].try_acquire(at));
                verify(members[m].first, at, lease, wrong);
            }
        }
        for (auto& pass : passes) { must(pass.try_end()); }
        for (auto& [i, weights] : members) { must(weights->try_drain()); }
        return wrong;
    }
    std::uint64_t run(std::size_t i, Weights& weights) { return run_in_step<Weights>({{i, &weights}}); }
    [[nodiscard]] static std::vector<std::pair<std::size_t, Weights*>> all_of(std::vector<Weights>& weights) {
        std::vector<std::pair<std::size_t, Weights*>> members;
        for (std::size_t i = 0; i < weights.size(); ++i) { members.emplace_back(i, &weights[i]); }
        return members;
    }
    [[nodiscard]] std::uint64_t host_bytes() const {
        return std::accumulate(gpus.begin(), gpus.end(), std::uint64_t{0}, [](std::uint64_t sum, const auto& gpu) {
            return sum + gpu->statistics().bytes_to_device;
        });
    }
    void expect_no_reports() const {
        for (const auto& gpu : gpus) {
            for (const auto& report : gpu->reports()) { FAIL_CHECK(report.text); }
        }
    }

    std::vector<std::unique_ptr<Device>> gpus;
    std::vector<Stream> streams;
    std::unique_ptr<packed_tests::Model> model;
    std::shared_ptr<Group> group = std::make_shared<Group>();
    std::uint64_t lent_bytes = 4 * mib;  // an eighth of the model
    residency::SimulatedUnpacker unpacker;
};

}  // namespace replicas_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Two simulated GPUs of a host, for tests of what one does for the other.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/packed.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/transport/links.hpp"
#include "tests/packed/support.hpp"
#include "tests/transport/gpus_of_host.hpp"

namespace links_test {

using gpus_of_host::Device;
using gpus_of_host::mib;
using gpus_of_host::named;
using packed_tests::must;
using residency::Budget;
using residency::ErrorKind;
using residency::Schedule;
using residency::WeightId;
using residency::simulation::CallKind;
using Stream = Device::Stream;
using Links = residency::transport::Links<Device>;
using Two = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                 residency::pool::Virtual<Device>, Links>;
using TwoPacked = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                       residency::pool::Packed<Device>, Links>;

/// Two GPUs of a host, and weights of a few MiB each.
struct Host {
    explicit Host(Device::Config second = named("the second GPU")) : neighbour{std::move(second), device} {}

    Device device{named("the first GPU")};
    Device neighbour;
    packed_tests::Model model{device, std::vector<packed_tests::Model::Spec>(12, {2 * mib}), 1, false};
    Stream stream = must(device.create_stream("compute"));

    [[nodiscard]] Schedule schedule() const {
        packed_tests::Steps steps(12);
        for (std::uint32_t i = 0; i < 12; ++i) { steps[i] = {i}; }
        return packed_tests::schedule_of(model.raw, steps, std::chrono::microseconds{2});
    }
    template <class Weights>
    [[nodiscard]] typename Weights::Options options(std::uint64_t budget) {
        typename Weights::Options result;
        result.budget = Budget::bytes(budget);
        result.schedule = schedule();
        result.learn = false;
        result.policies.pool.chunk_bytes = 65536;
        if constexpr (requires { result.transport.neighbours; }) { result.transport.neighbours = {&neighbour}; }
        if constexpr (requires { result.policies.unpacker; }) { result.policies.unpacker = &unpacker; }
        return result;
    }
    template <class Weights>
    std::uint64_t run(Weights& weights) {
        std::uint64_t wrong = 0;
        auto pass = must(weights.try_begin(stream));
        for (const Schedule::Step& step : weights.schedule()) {
            const auto lease = must(pass.try_acquire(step));
            verify(step, lease, wrong);
        }
        must(pass.try_end());
        must(weights.try_drain());
        return wrong;
    }
    template <class Lease>
    void verify(const Schedule::Step& step, const Lease& lease, std::uint64_t& wrong) {
        packed_tests::verify(device, model, lease, step.weights, stream, wrong, std::chrono::microseconds{2});
    }
    void expect_no_reports() const {
        for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
    }

    residency::SimulatedUnpacker unpacker;
};

}  // namespace links_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/connect.md quotes.
#include <doctest/doctest.h>

#include <chrono>
#include <utility>
#include <vector>

#include "residency/interop/dlpack.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_connect {

using namespace residency;
using docs::Model;
using Gpu = SimulatedDevice;
using Weights = Planned<Gpu>;

TEST_CASE("docs/connect.md: events") {
    Model model;
    Gpu& gpu = model.gpu;
    Weights weights{gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    const Gpu::Stream theirs = unwrap(gpu.create_stream());
    const Gpu::Event weights_are_there = unwrap(gpu.create_event(Timing::off));
    const Gpu::Event they_have_read = unwrap(gpu.create_event(Timing::off));
    const auto run_their_kernels = [&](WeightId weight, const void* at) {
        unwrap(gpu.wait(theirs, weights_are_there));
        model.launch(weight, at, theirs);
        unwrap(gpu.record(they_have_read, theirs));
    };
    for (int i = 0; i < 3; ++i) {
        auto pass = weights.begin(model.stream);
        for (const auto& step : weights.schedule()) {
            const WeightId weight = step.weights.front();
            auto lease = pass.acquire(step);
            lease.record(weights_are_there);                // whoever waits for it may read
            run_their_kernels(weight, lease.data(weight));  // on a stream that the library never hears of
            lease.wait_for(they_have_read);                 // before the end of the lease
        }
    }
    unwrap(gpu.synchronize());
    CHECK(model.is_right());
    unwrap(gpu.destroy_event(weights_are_there));
    unwrap(gpu.destroy_event(they_have_read));
    unwrap(gpu.destroy_stream(theirs));
}

namespace {

/// A framework that reads a tensor on a stream of its own, and drops it later.
struct Framework {
    Model& model;
    Gpu::Stream stream = unwrap(model.gpu.create_stream());
    std::vector<dlpack::VersionedTensor*> tensors;

    explicit Framework(Model& with) : model{with} {}
    Framework(const Framework&) = delete;
    Framework& operator=(const Framework&) = delete;
    ~Framework() {
        drop_all();
        unwrap(model.gpu.destroy_stream(stream));
    }
    [[nodiscard]] Gpu::Stream current_stream() const { return stream; }
    void take(dlpack::VersionedTensor* tensor, WeightId weight) {
        model.launch(weight, tensor->tensor.data, stream);
        tensors.push_back(tensor);
    }
    void drop_all() {
        for (dlpack::VersionedTensor* const tensor : std::exchange(tensors, {})) { tensor->deleter(tensor); }
    }
};

}  // namespace

TEST_CASE("docs/connect.md: tensors") {
    Model model;
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    Framework framework{model};
    dlpack::Exporter<Gpu> exporter;  // after `weights`, and on the same thread
    auto pass = weights.begin(model.stream);
    for (const auto& step : weights.schedule()) {
        const WeightId weight = step.weights.front();
        framework.drop_all();
        auto lease = exporter.share(pass.acquire(step));
        auto tensor = lease.tensor(weight, framework.current_stream());  // which waits for the bytes
        framework.take(tensor.release(), weight);  // and calls the tensor's deleter when it is done
    }
    framework.drop_all();
    CHECK(exporter.open_leases() == 0);
    unwrap(pass.try_end());
    CHECK(model.is_right());
}

}  // namespace docs_connect

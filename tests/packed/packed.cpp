// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The preset Packed on the simulated device: every lease gives the raw bytes, at every budget, however weights are held.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/measure/stall_report.hpp"
#include "residency/interop/check_readable.hpp"
#include "tests/packed/support.hpp"

namespace packed_test {

using namespace packed_tests;
using residency::Budget;
using residency::ErrorKind;

TEST_CASE("packed bytes are fewer than raw ones, and the catalog has the same weights") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    CHECK(layers.model.packed.packed_bytes < layers.model.packed.raw_bytes * 72 / 100);
    CHECK(layers.model.packed.catalog.hash() == layers.model.raw.hash());
}

TEST_CASE("every lease gives the raw bytes, from the floor to everything") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream("compute"));
    const auto floor = must(Weights::try_resolve_budget(
        device, layers.model.packed.catalog, options(unpacker, layers.model.raw_bytes() * 2, layers.schedule())));
    std::uint64_t last_moved = UINT64_MAX;
    for (const std::uint64_t percent : {0U, 40U, 50U, 60U, 75U, 90U, 110U}) {
        const std::uint64_t budget =
            percent == 0 ? floor.floor_bytes : std::max(floor.floor_bytes, layers.share(percent));
        CAPTURE(percent);
        CAPTURE(budget);
        const std::uint64_t before = used_bytes(device);
        auto weights = must(
            Weights::try_create(device, layers.model.packed.catalog, options(unpacker, budget, layers.schedule())));
        std::uint64_t wrong = 0;
        for (int turn = 0; turn < 3; ++turn) { run_pass(device, layers.model, weights, stream, wrong); }
        must(weights.try_drain());
        CHECK(wrong == 0);
        expect_no_reports(device);
        const auto statistics = weights.statistics();
        CHECK(statistics.held_bytes <= budget);
        CHECK(used_bytes(device) - before == statistics.held_bytes);
        const std::uint64_t moved = statistics.last_pass.fetched_bytes;
        CHECK(moved <= last_moved);
        last_moved = moved;
        if (percent == 110) { CHECK(moved == 0); }
        if (percent <= 50) { CHECK(moved > 0); }
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a storage of no bytes that kernels write changes no floor, and the floor works") {
    const residency::SimulatedUnpacker unpacker;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Device device{device_config()};
        std::mt19937_64 random{seed};
        std::vector<Model::Spec> specs;
        for (int i = 0; i < 7; ++i) { specs.push_back({200 + random() % 4'000}); }
        Layers without{device, specs};
        specs.push_back({0, true, residency::dtype::bf16, residency::Placement::streamed, 1, true});
        Layers with{device, specs};
        with.steps.clear();
        for (std::uint32_t i = 0; i < 7; ++i) {
            with.steps.push_back(
                {i, static_cast<std::uint32_t>(random() % 7), static_cast<std::uint32_t>(random() % 7)});
        }
        without.steps = with.steps;
        const auto floor_of = [&](const Layers& layers) {
            return must(Weights::try_resolve_budget(device, layers.model.packed.catalog,
                                                    options(unpacker, layers.model.raw_bytes() * 2, layers.schedule())))
                .floor_bytes;
        };
        const std::uint64_t floor = floor_of(with);
        CHECK(floor == floor_of(without));
        const Stream stream = must(device.create_stream());
        std::uint64_t wrong = 0;
        {
            auto weights =
                must(Weights::try_create(device, with.model.packed.catalog, options(unpacker, floor, with.schedule())));
            run_pass(device, with.model, weights, stream, wrong);
            must(weights.try_drain());
        }
        CHECK(wrong == 0);
        expect_no_reports(device);
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("with room for everything raw, nothing is unpacked in a pass") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream("compute"));
    std::uint64_t unpacked = 0, wrong = 0;
    device.observe([&](const residency::simulation::ExecutedOperation& operation) {
        if (operation.name == "unpack") { ++unpacked; }
    });
    {
        auto weights = must(Weights::try_create(device, layers.model.packed.catalog,
                                                options(unpacker, layers.model.raw_bytes() * 2, layers.schedule())));
        must(weights.try_drain());
        unpacked = 0;
        run_pass(device, layers.model, weights, stream, wrong);
        must(weights.try_drain());
        CHECK(unpacked == 0);
        must(weights.try_set_budget(Budget::bytes(layers.model.raw_bytes() * 8 / 10)));
        unpacked = 0;
        run_pass(device, layers.model, weights, stream, wrong);
        must(weights.try_drain());
        CHECK(unpacked > 0);
        CHECK(unpacked <= layers.steps.size());  // one launch a step
    }
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "what stays unpacked comes by copies through the end of the memory, and only that end straight from host memory") {
    Device device{device_config()};
    // Parts that share a copy, one that is larger than the stage, and noise, which is copied as it is.
    std::vector<Model::Spec> specs(60, {16384});
    specs[39] = {200000};
    specs[20] = {16384, true};
    const Model model{device, specs};
    Steps steps(specs.size());
    for (std::uint32_t i = 0; i < steps.size(); ++i) { steps[i] = {i}; }
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream("compute"));
    std::uint64_t copied = 0, calls = 0;
    device.observe([&](const residency::simulation::ExecutedOperation& operation) {
        if (operation.copies.empty()) { return; }
        ++calls;
        copied += operation.bytes;
    });
    Weights::Options everything = options(unpacker, model.raw_bytes() * 2, schedule_of(model.raw, steps));
    everything.policies.link = residency::plan::Link{};  // nothing is measured
    everything.policies.memory_bytes_per_second = 1e12;
    everything.policies.unpack_rate = residency::packed::UnpackRate{};
    auto weights = must(Weights::try_create(device, model.packed.catalog, everything));
    CHECK(copied > model.packed.packed_bytes * 6 / 10);
    CHECK(copied <= model.packed.packed_bytes + model.raw_bytes() - model.packed.raw_bytes + specs.size() * 512);
    CHECK(calls < 16);
    std::uint64_t wrong = 0;
    run_pass(device, model, weights, stream, wrong);
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("a captured pass unpacks, replay after replay, between eager passes") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream("compute"));
    const Stream other = must(device.create_stream("other"));
    for (const std::uint64_t percent : {50U, 75U, 110U}) {
        CAPTURE(percent);
        auto weights = must(Weights::try_create(device, layers.model.packed.catalog,
                                                options(unpacker, layers.share(percent), layers.schedule())));
        std::uint64_t wrong = 0;
        run_pass(device, layers.model, weights, stream, wrong);
        auto captured = must(weights.try_capture(stream, [&](Weights::Pass& pass) {
            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                verify(device, layers.model, lease, step.weights, stream, wrong);
            }
        }));
        for (int turn = 0; turn < 3; ++turn) { must(captured.try_launch(stream)); }
        run_pass(device, layers.model, weights, other, wrong);
        must(captured.try_launch(other));
        must(weights.try_drain());
        CHECK(wrong == 0);
        expect_no_reports(device);
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(other));
}

TEST_CASE("budgets up and down, and suspension, lose nothing") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream("compute"));
    const std::uint64_t before = used_bytes(device);
    auto weights = must(Weights::try_create(device, layers.model.packed.catalog,
                                            options(unpacker, layers.model.raw_bytes() / 2, layers.schedule())));
    std::uint64_t wrong = 0;
    for (const std::uint64_t percent : {90U, 45U, 75U, 110U, 60U, 61U, 50U}) {
        CAPTURE(percent);
        const std::uint64_t budget = layers.share(percent);
        must(weights.try_set_budget(Budget::bytes(budget)));
        run_pass(device, layers.model, weights, stream, wrong);
        CHECK(used_bytes(device) - before <= budget);
        if (percent == 75 || percent == 110) {
            must(weights.try_suspend());
            CHECK(used_bytes(device) == before);
            if (percent == 110) { must(weights.try_set_budget(Budget::bytes(budget * 8 / 10))); }
            must(weights.try_resume());
            run_pass(device, layers.model, weights, stream, wrong);
        }
    }
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("budgets that come again are planned once, and so is what stays unpacked") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream("compute"));
    auto chosen = options(unpacker, layers.share(90), layers.schedule());
    chosen.learn = false;
    auto weights = must(Weights::try_create(device, layers.model.packed.catalog, std::move(chosen)));
    std::uint64_t wrong = 0;
    const auto round = [&] {
        for (const std::uint64_t percent : {45U, 75U, 110U, 60U}) {
            must(weights.try_set_budget(Budget::bytes(layers.share(percent))));
            run_pass(device, layers.model, weights, stream, wrong);
        }
    };
    round();
    round();
    const std::uint64_t plans = weights.statistics().total.plans_made;
    CHECK(plans >= 8);  // of each budget one that chooses what stays, and one of what travels
    for (int i = 0; i < 3; ++i) { round(); }
    CHECK(weights.statistics().total.plans_made == plans);
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("leases on two streams, leases that overlap, and tickets") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    const Stream a = must(device.create_stream("a"));
    const Stream b = must(device.create_stream("b"));
    auto made = options(unpacker, layers.model.raw_bytes() * 7 / 10, layers.schedule());
    made.policies.leases_at_once = 2;
    auto weights = must(Weights::try_create(device, layers.model.packed.catalog, std::move(made)));
    std::uint64_t wrong = 0;
    const auto& schedule = weights.schedule();
    for (int turn = 0; turn < 2; ++turn) {
        auto pass = must(weights.try_begin(a));
        std::optional<residency::Lease<Device>> last;
        for (std::uint32_t i = 0; i < schedule.size(); ++i) {
            const Stream on = i % 3 == 1 ? b : a;
            auto ticket = must(pass.try_request(schedule[i]));
            auto lease = must(ticket.try_lease(on));
            verify(device, layers.model, lease, schedule[i].weights, on, wrong);
            if (i % 4 == 2) {
                const Stream also = i % 3 == 1 ? a : b;
                must(lease.try_use_on(also));
                verify(device, layers.model, lease, schedule[i].weights, also, wrong);
            }
            last = std::move(lease);  // the lease before ends after this one began
        }
        last.reset();
        must(pass.try_end());
    }
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(a));
    must(device.destroy_stream(b));
}

TEST_CASE("random models: noise, other types, residents, shared weights") {
    std::mt19937_64 random{38};
    for (int turn = 0; turn < 40; ++turn) {
        CAPTURE(turn);
        Device device{device_config()};
        const std::size_t storages = 2 + random() % 10;
        std::vector<Model::Spec> specs;
        for (std::size_t i = 0; i < storages; ++i) {
            Model::Spec spec;
            spec.elements = random() % 8 == 0 ? random() % 400 : 500 + random() % 30'000;
            spec.is_noise = random() % 6 == 0;
            if (random() % 3 == 0) { spec.type = other_type(random, spec.elements); }
            if (random() % 9 == 0) { spec.placement = residency::Placement::resident; }
            specs.push_back(spec);
        }
        const Model model{device, specs, random()};
        Steps steps;
        for (std::size_t i = 0, count = 1 + random() % 10; i < count; ++i) {
            std::vector<std::uint32_t> step;
            for (std::uint64_t k = 1 + random() % 3; k > 0; --k) {
                const auto next = random() % 4 == 0 ? random() % storages : (i + k) % storages;
                step.push_back(static_cast<std::uint32_t>(next));
            }
            steps.push_back(std::move(step));
        }
        const residency::SimulatedUnpacker unpacker;
        const auto schedule = schedule_of(model.packed.catalog, steps);
        const std::uint64_t plenty = model.raw_bytes() * 2 + (std::uint64_t{1} << 20U);
        const auto resolved =
            must(Weights::try_resolve_budget(device, model.packed.catalog, options(unpacker, plenty, schedule)));
        const Stream stream = must(device.create_stream("compute"));
        const std::uint64_t before = used_bytes(device);
        auto weights =
            must(Weights::try_create(device, model.packed.catalog, options(unpacker, resolved.floor_bytes, schedule)));
        std::uint64_t wrong = 0;
        for (int change = 0; change < 4; ++change) {
            run_pass(device, model, weights, stream, wrong);
            run_pass(device, model, weights, stream, wrong);
            CHECK(used_bytes(device) - before <= weights.statistics().budget_bytes);
            const std::uint64_t budget = resolved.floor_bytes + random() % (plenty - resolved.floor_bytes);
            must(weights.try_set_budget(Budget::bytes(budget)));
        }
        must(weights.try_drain());
        CHECK(wrong == 0);
        expect_no_reports(device);
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("kernels that read packed weights get them packed, beside weights that are unpacked") {
    Device device{device_config()};
    residency::packed::PackOptions form;
    form.threads = 1;
    form.form = [](const residency::Weight& weight) {
        return weight.name == "w1" || weight.name == "w3" ? residency::PackedForm::bf16_tiles
                                                          : residency::PackedForm::bf16_tiers;
    };
    Model::Spec matrix{128 * 256};
    matrix.rows = 128;
    const Model model{device, std::vector<Model::Spec>(5, matrix)};
    const auto packed = must(residency::packed::try_pack(device, model.raw, form));
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t percent : {60U, 200U}) {
        CAPTURE(percent);
        auto weights = must(Weights::try_create(device, packed.catalog,
                                                options(unpacker, model.raw_bytes() * percent / 100,
                                                        schedule_of(packed.catalog, {{0}, {1}, {2, 3}, {4}}))));
        std::uint64_t wrong = 0, read_packed = 0;
        for (int turn = 0; turn < 2; ++turn) {
            auto pass = must(weights.try_begin(stream));
            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                for (const WeightId id : step.weights) {
                    const residency::PackedWeight view = lease.packed(id);
                    CHECK((view.data != nullptr) == (index(id) == 1 || index(id) == 3));
                    const auto readable = residency::detail::check_readable(lease, id);  // by other libraries
                    CHECK(readable.has_value() == (view.data == nullptr));
                    if (!readable) { CHECK(readable.error().kind() == residency::ErrorKind::unsupported); }
                    if (view.data == nullptr) {
                        verify(device, model, lease, std::span{&id, 1}, stream, wrong);
                        continue;
                    }
                    ++read_packed;
                    CHECK(view.form == residency::PackedForm::bf16_tiles);
                    Device::Kernel kernel;
                    kernel.reads = {{view.data, view.bytes}};
                    kernel.body = [view, expected = model.contents[index(id)], &wrong, &packed, id] {
                        const auto& source = std::get<residency::PackedHostSource>(
                            packed.catalog.storage(packed.catalog.weight(id).storage).source);
                        std::vector<std::byte> raw(expected.size());
                        const auto done = residency::codec::unpack_part(
                            source.parts->front(), {view.data, static_cast<std::size_t>(view.bytes)}, raw);
                        wrong += done && std::equal(raw.begin(), raw.end(), expected.begin()) ? 0 : 1;
                    };
                    must(device.launch(stream, std::move(kernel)));
                }
            }
            must(pass.try_end());
        }
        must(weights.try_drain());
        CHECK(wrong == 0);
        CHECK(read_packed == 4);
        expect_no_reports(device);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a catalog of which nothing is packed streams raw, and the report of stalls says so") {
    Device device{device_config()};
    const Layers layers{device};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream("compute"));
    const auto told = [&](const residency::Catalog& catalog, std::uint64_t budget) {
        auto with = options(unpacker, budget, schedule_of(catalog, layers.steps));
        with.time_stalls = true;
        auto weights = must(Weights::try_create(device, catalog, std::move(with)));
        std::uint64_t wrong = 0;
        for (int turn = 0; turn < 3; ++turn) { run_pass(device, layers.model, weights, stream, wrong); }
        CHECK(wrong == 0);
        return must(residency::try_report_stalls(weights));
    };
    const residency::StallReport raw = told(layers.model.raw, layers.share(60));
    CHECK(raw.unpacked ==
          "no weight of the catalog is packed, so that raw bytes stream and nothing is gained over Planned or Experts: "
          "give "
          "the catalog of packed::pack or packed::load (PackedModel::catalog), whose kept_raw says what stays raw and "
          "why");
    CHECK(raw.text().find(raw.unpacked) != std::string::npos);
    CHECK(told(layers.model.raw, layers.share(300)).unpacked.empty());  // nothing streams
    CHECK(told(layers.model.packed.catalog, layers.share(60)).unpacked.empty());
    must(device.destroy_stream(stream));
}

TEST_CASE("what cannot be is refused, and says what to do") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    auto lacks = options(unpacker, layers.model.raw_bytes(), layers.schedule());
    lacks.policies.unpacker = nullptr;
    const auto without = Weights::try_create(device, layers.model.packed.catalog, std::move(lacks));
    REQUIRE(!without);
    CHECK(without.error().kind() == ErrorKind::invalid_argument);
    CHECK(says(without.error(), "policies.unpacker"));

    using Raw = residency::Planned<Device>;
    Raw::Options raw;
    raw.budget = Budget::bytes(std::uint64_t{8} << 20U);
    const auto planned = Raw::try_create(device, layers.model.packed.catalog, std::move(raw));
    REQUIRE(!planned);
    CAPTURE(planned.error().message());
    CHECK(says(planned.error(), "residency/packed.hpp"));

    const auto small =
        Weights::try_create(device, layers.model.packed.catalog, options(unpacker, 8192, layers.schedule()));
    REQUIRE(!small);
    CHECK(small.error().kind() == ErrorKind::budget);
    CAPTURE(small.error().message());
    CHECK(says(small.error(), "is below the smallest that works"));
    CHECK(says(small.error(), "step 12 needs 144,000 bytes (140.6 KiB) at once"));
    CHECK(says(small.error(), "with its packed bytes"));

    const Stream stream = must(device.create_stream());
    auto weights = must(Weights::try_create(device, layers.model.packed.catalog,
                                            options(unpacker, layers.model.raw_bytes() * 6 / 10, layers.schedule())));
    const auto refreshed = weights.try_refresh(WeightId{0}, [] {});
    REQUIRE(!refreshed);
    CHECK(refreshed.error().kind() == ErrorKind::unsupported);
    {
        auto pass = must(weights.try_begin(stream));
        auto first = must(pass.try_acquire(weights.schedule()[0]));
        auto second = pass.try_acquire(weights.schedule()[1]);
        if (!second) { CHECK(says(second.error(), "leases_at_once")); }
        { const auto ended = std::move(first); }
        must(pass.try_end());
    }
    must(weights.try_drain());
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("a rate of unpacking that no machine has, and no leases at once, are refused by their names") {
    Device device{device_config()};
    const Layers layers = Layers::with_wide_one(device);
    const residency::SimulatedUnpacker unpacker;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto refused = [&](const residency::packed::UnpackRate& rate, const char* name, const char* range) {
        auto with = options(unpacker, layers.model.raw_bytes(), layers.schedule());
        with.policies.unpack_rate = rate;
        const auto made = Weights::try_create(device, layers.model.packed.catalog, std::move(with));
        REQUIRE(!made);
        CAPTURE(made.error().message());
        CHECK(made.error().kind() == ErrorKind::invalid_argument);
        CHECK(says(made.error(), name));
        CHECK(says(made.error(), range));
    };
    for (const double rate : {-1.0, 0.0, nan, 1300.0}) {
        refused({rate, 3e-6}, "policies.unpack_rate.bytes_per_second is ", "1e6 to 1e15 bytes per second");
    }
    for (const double latency : {-1.0, nan}) {
        refused({1.3e12, latency}, "policies.unpack_rate.launch_seconds is ", "0 to 1 seconds");
    }
    auto none = options(unpacker, layers.model.raw_bytes(), layers.schedule());
    none.policies.leases_at_once = 0;
    const auto made = Weights::try_create(device, layers.model.packed.catalog, std::move(none));
    REQUIRE(!made);
    CHECK(made.error().kind() == ErrorKind::invalid_argument);
    CHECK(says(made.error(), "policies.leases_at_once is 0"));
}

}  // namespace packed_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The preset Packed where leases, budgets, ranges and captures meet: what works gives the raw bytes, what does not is refused and says what
// to do.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/packed/support.hpp"

namespace leases_test {

using namespace packed_tests;
using residency::Budget;
using residency::ErrorKind;
using residency::StepRange;
using CallKind = Device::CallKind;

TEST_CASE("a pass in ranges reads the raw bytes, and a wider range is refused with the one that fits") {
    Device device{device_config()};
    const Layers rows{device};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t percent : {50U, 80U, 90U, 200U}) {
        for (const std::uint32_t leases : {1U, 2U}) {
            CAPTURE(percent);
            CAPTURE(leases);
            auto made = options(unpacker, rows.share(percent), rows.schedule());
            made.policies.leases_at_once = leases;
            auto weights = must(Weights::try_create(device, rows.model.packed.catalog, std::move(made)));
            std::uint64_t wrong = 0;
            for (int turn = 0; turn < 2; ++turn) {
                auto pass = must(weights.try_begin(stream));
                std::uint32_t next = 0;
                for (const StepRange& range : weights.ranges()) {
                    CHECK(range.first == next);
                    next = range.last;
                    const auto lease = must(pass.try_acquire(range.first, range.last));
                    std::vector<WeightId> ids;
                    for (std::uint32_t i = range.first; i < range.last; ++i) { ids.push_back(WeightId{i}); }
                    verify(device, rows.model, lease, ids, stream, wrong);
                }
                CHECK(next == rows.steps.size());
                must(pass.try_end());
            }
            if (percent == 200) { CHECK(weights.ranges().size() == 1); }
            if (percent == 90) {
                auto pass = must(weights.try_begin(stream));
                const auto all = pass.try_acquire(0, static_cast<std::uint32_t>(rows.steps.size()));
                REQUIRE(!all);
                CHECK(all.error().kind() == ErrorKind::budget);
                CHECK(says(all.error(), "unpacked to the same place"));
                CHECK(says(all.error(), "ranges()"));
                const auto* numbers = all.error().detail<residency::BudgetNumbers>();
                REQUIRE(numbers != nullptr);
                REQUIRE(numbers->step >= 1);
                const auto some = must(pass.try_acquire(0, numbers->step));
                verify(device, rows.model, some, std::vector{WeightId{0}}, stream, wrong);
                must(pass.try_end());
            }
            must(weights.try_drain());
            CHECK(wrong == 0);
            expect_no_reports(device);
        }
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a budget that changes places is refused under a lease, and everything is as before") {
    Device device{device_config()};
    const Layers rows{device};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t percent : {80U, 200U}) {  // unpacked by the lease; stays
        CAPTURE(percent);
        auto weights = must(Weights::try_create(device, rows.model.packed.catalog,
                                                options(unpacker, rows.share(percent), rows.schedule())));
        std::uint64_t wrong = 0;
        run_pass(device, rows.model, weights, stream, wrong);
        std::optional<residency::Lease<Device>> lease;
        {
            auto pass = must(weights.try_begin(stream));
            lease = must(pass.try_acquire(weights.schedule()[3]));
            must(pass.try_end());
        }
        const auto held = weights.statistics().held_bytes;
        const auto budget = weights.budget().bytes;
        const auto refused = weights.try_set_budget(Budget::bytes(rows.share(percent == 80 ? 200 : 55)));
        REQUIRE(!refused);
        CHECK(refused.error().kind() == ErrorKind::wrong_state);
        CHECK(weights.statistics().held_bytes == held);
        CHECK(weights.budget().bytes == budget);
        verify(device, rows.model, *lease, std::vector{WeightId{3}}, stream, wrong);
        lease.reset();
        run_pass(device, rows.model, weights, stream, wrong);
        must(weights.try_set_budget(Budget::bytes(rows.share(percent == 80 ? 200 : 55))));
        run_pass(device, rows.model, weights, stream, wrong);
        must(weights.try_drain());
        CHECK(wrong == 0);
        expect_no_reports(device);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("times that are learned while a lease is open do not move what it covers") {
    Device device{device_config()};
    const Layers rows{device};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{rows.model.packed.catalog};
    for (std::uint32_t i = 0; i < rows.steps.size(); ++i) { builder.step({WeightId{i}}); }
    auto made = options(unpacker, rows.share(75), must(builder.try_build()));
    made.learn = true;
    auto weights = must(Weights::try_create(device, rows.model.packed.catalog, std::move(made)));
    std::uint64_t wrong = 0;
    std::optional<residency::Lease<Device>> kept;
    for (int turn = 0; turn < 2; ++turn) {
        CAPTURE(turn);
        auto pass = must(weights.try_begin(stream));
        for (const Schedule::Step& step : weights.schedule()) {
            auto lease = must(pass.try_acquire(step));
            verify(device, rows.model, lease, step.weights, stream, wrong);
            if (turn == 1 && &step == &weights.schedule()[weights.schedule().size() - 1]) { kept = std::move(lease); }
        }
        must(pass.try_end());
    }
    for (int turn = 0; turn < 8; ++turn) {
        auto pass = must(weights.try_begin(stream));  // learning plans again here
        must(pass.try_end());
    }
    if (kept) { verify(device, rows.model, *kept, std::vector{WeightId{9}}, stream, wrong); }
    kept.reset();
    for (int turn = 0; turn < 4; ++turn) { run_pass(device, rows.model, weights, stream, wrong); }
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("a capture of the caller's is refused where leases unpack, and works where everything stays") {
    Device device{device_config()};
    const Layers rows{device};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    std::uint64_t wrong = 0;
    bool was_refused = false;
    for (const std::uint64_t percent : {76U, 80U, 84U, 88U, 92U, 96U, 200U}) {  // 200: everything stays unpacked
        CAPTURE(percent);
        auto made = options(unpacker, rows.share(percent), rows.schedule());
        made.policies.link = residency::plan::Link{1e8};  // nothing streams that has room
        auto weights = must(Weights::try_create(device, rows.model.packed.catalog, std::move(made)));
        if (percent != 200) { run_pass(device, rows.model, weights, stream, wrong); }
        must(weights.try_drain());
        if (weights.statistics().streaming) { continue; }
        must(device.begin_capture(stream));
        auto pass = weights.try_begin(stream);
        if (percent != 200) {
            REQUIRE(!pass);
            CHECK(pass.error().kind() == ErrorKind::unsupported);
            CHECK(says(pass.error(), "Residency::capture"));
            was_refused = true;
            must(device.destroy_graph(must(device.end_capture(stream))));
        } else {
            REQUIRE(pass);

            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass->try_acquire(step));
                verify(device, rows.model, lease, step.weights, stream, wrong);
            }
            must(pass->try_end());
            const auto graph = must(device.end_capture(stream));
            must(device.launch(graph, stream));
            must(device.synchronize());
            must(device.destroy_graph(graph));
        }
        run_pass(device, rows.model, weights, stream, wrong);
        must(weights.try_drain());
    }
    CHECK(was_refused);
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("three leases at once, and one more than the layout has room for") {
    Device device{device_config()};
    const Layers rows{device};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    auto made = options(unpacker, rows.share(75), rows.schedule());
    made.policies.leases_at_once = 3;
    auto weights = must(Weights::try_create(device, rows.model.packed.catalog, std::move(made)));
    std::uint64_t wrong = 0, refused = 0;
    for (int turn = 0; turn < 2; ++turn) {
        auto pass = must(weights.try_begin(stream));
        std::vector<residency::Lease<Device>> open;
        for (const Schedule::Step& step : weights.schedule()) {
            auto lease = pass.try_acquire(step);
            if (open.size() < 3) { must(lease.has_value() ? residency::Status{} : residency::Status{lease.error()}); }
            if (!lease) {
                CHECK(says(lease.error(), "leases_at_once"));
                ++refused;
                open.clear();
                lease = pass.try_acquire(step);
            }
            verify(device, rows.model, must(std::move(lease)), step.weights, stream, wrong);
            if (turn == 0) { continue; }
            open.push_back(must(pass.try_acquire(step)));
        }
        open.clear();
        must(pass.try_end());
    }
    CHECK(refused > 0);
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "what no step reads is leased where it fits among the shared places; one-shot, unscheduled and short passes") {
    Device device{device_config()};
    const Layers rows{device};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    std::uint64_t wrong = 0;
    {
        auto weights = must(Weights::try_create(
            device, rows.model.packed.catalog,
            options(unpacker, rows.share(60), schedule_of(rows.model.packed.catalog, {{0}, {1}, {2}, {3}, {4}}))));
        run_pass(device, rows.model, weights, stream, wrong);
        auto pass = must(weights.try_begin(stream));
        for (const std::uint32_t other : {7U, 8U}) {
            const WeightId id{other};
            const auto lease = pass.try_acquire({id});
            if (!lease) {
                CHECK(says(lease.error(), "let a step of the schedule read it"));
                continue;
            }
            verify(device, rows.model, *lease, std::span{&id, 1}, stream, wrong);
        }
        must(pass.try_end());
        run_pass(device, rows.model, weights, stream, wrong);
    }
    {
        residency::ScheduleBuilder builder{rows.model.packed.catalog};
        for (std::uint32_t i = 0; i < rows.steps.size(); ++i) { builder.step({WeightId{i}}); }
        auto weights = must(Weights::try_create(
            device, rows.model.packed.catalog,
            options(unpacker, rows.share(60), must(builder.try_build(residency::Cycle::one_shot)))));
        for (int turn = 0; turn < 3; ++turn) { run_pass(device, rows.model, weights, stream, wrong); }
    }
    {
        auto made = options(unpacker, rows.share(60), {});
        made.learn = true;
        auto weights = must(Weights::try_create(device, rows.model.packed.catalog, std::move(made)));
        for (int turn = 0; turn < 5; ++turn) {
            auto pass = must(weights.try_begin(stream));
            for (const std::uint32_t i : {9U, 3U, 1U, 0U, 4U, 2U}) {
                const WeightId id{i};
                const auto lease = must(pass.try_acquire({id}));
                verify(device, rows.model, lease, std::span{&id, 1}, stream, wrong);
            }
            must(pass.try_end());
        }
        Weights moved = std::move(weights);
        auto pass = must(moved.try_begin(stream));
        const WeightId id{7};  // which the learned order does not have
        {
            const auto lease = must(pass.try_acquire({id}));
            verify(device, rows.model, lease, std::span{&id, 1}, stream, wrong);
        }
        must(pass.try_end());
    }
    {
        auto first = must(
            Weights::try_create(device, rows.model.packed.catalog, options(unpacker, rows.share(60), rows.schedule())));
        auto second = must(
            Weights::try_create(device, rows.model.packed.catalog, options(unpacker, rows.share(80), rows.schedule())));
        const Stream other = must(device.create_stream());
        for (int turn = 0; turn < 6; ++turn) {
            run_pass(device, rows.model, first, stream, wrong, turn % 2 == 0 ? 4 : UINT32_MAX);
            run_pass(device, rows.model, second, other, wrong, turn > 2 ? 7 : UINT32_MAX);
        }
        must(first.try_drain());
        must(second.try_drain());
        must(device.destroy_stream(other));
    }
    must(device.synchronize());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
    must(device.synchronize());
}

TEST_CASE("what kernels wrote survives other budgets and other schedules") {
    Device device{device_config()};
    std::vector<Model::Spec> specs(8, {12'000});
    specs.push_back({2000, false, residency::dtype::bf16, residency::Placement::resident, 1, true});
    const Model model{device, specs};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    Steps steps, backwards;
    for (std::uint32_t i = 0; i < 8; ++i) { steps.push_back({i, 8}); }
    backwards.assign(steps.rbegin(), steps.rend());
    auto weights = must(
        Weights::try_create(device, model.packed.catalog,
                            options(unpacker, model.raw_bytes() * 9 / 10, schedule_of(model.packed.catalog, steps))));
    std::uint64_t wrong = 0;
    bool is_written = false;
    const auto pass_of = [&] {
        auto pass = must(weights.try_begin(stream));
        for (const Schedule::Step& step : weights.schedule()) {
            const auto lease = must(pass.try_acquire(step));
            const WeightId first = step.weights.front();
            verify(device, model, lease, std::span{&first, 1}, stream, wrong);
            auto* const cache = const_cast<std::byte*>(lease.data(WeightId{8}));
            Device::Kernel kernel;
            kernel.reads = kernel.writes = {{cache, 4000}};
            kernel.body = [&wrong, cache, was = std::exchange(is_written, true)] {
                const auto is_kept = [](std::byte b) { return b == std::byte{0x77}; };
                if (was && !std::all_of(cache, cache + 4000, is_kept)) { ++wrong; }
                std::memset(cache, 0x77, 4000);
            };
            must(device.launch(stream, std::move(kernel)));
        }
        must(pass.try_end());
    };
    pass_of();
    std::uint64_t changed = 0;
    for (const std::uint64_t percent : {70U, 95U, 60U, 200U, 90U}) {
        CAPTURE(percent);
        const auto set = weights.try_set_budget(Budget::bytes(model.raw_bytes() * percent / 100));
        if (!set) {
            CHECK(set.error().kind() == ErrorKind::budget);
            CHECK(says(set.error(), "suspend()"));
            must(weights.try_suspend());
            must(weights.try_set_budget(Budget::bytes(model.raw_bytes() * percent / 100)));
            must(weights.try_resume());
        }
        ++changed;
        pass_of();
        must(weights.try_set_schedule(schedule_of(model.packed.catalog, percent == 95 ? backwards : steps)));
        pass_of();
        CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
    }
    CHECK(changed == 5);
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("packing: what cannot be packed stays raw, and a call that fails leaves nothing behind") {
    Device device{device_config()};
    const Layers rows{device, 3};
    const auto before = device.leaks().size();
    device.fail(CallKind::allocate_host, 1, ErrorKind::out_of_memory);
    const auto failed = residency::packed::try_pack(device, rows.model.raw);
    REQUIRE(!failed);
    CHECK(failed.error().kind() == ErrorKind::out_of_memory);
    CHECK(device.leaks().size() == before);
    { CHECK(must(residency::packed::try_pack(device, rows.model.raw, {{}, 7})).packed_bytes > 0); }
    CHECK(device.leaks().size() == before);

    residency::packed::PackOptions unknown;
    unknown.form = [](const residency::Weight&) { return static_cast<residency::PackedForm>(77); };
    const auto strange = residency::packed::try_pack(device, rows.model.raw, unknown);
    REQUIRE(!strange);
    CHECK(strange.error().kind() == ErrorKind::unsupported);
    CHECK(says(strange.error(), "w0"));

    residency::CatalogBuilder builder;
    builder.add_weight("a", residency::dtype::bf16, {1000},
                       builder.add_storage(2000, {residency::Placement::streamed, false, 256, {}}));
    const auto host = residency::HostBytes::borrow(rows.model.memory->bytes(), residency::HostMemory::pinned);
    builder.add_weight(
        "b", residency::dtype::bf16, {1000},
        builder.add_storage(2001, {residency::Placement::streamed, false, 256, residency::HostSource{host, 0}}));
    builder.add_weight("c", residency::dtype::bf16, {0},
                       builder.add_storage(0, {residency::Placement::streamed, false, 256, {}}));
    const Catalog mixed = must(builder.try_build());
    const auto packed = must(residency::packed::try_pack(device, mixed));
    CHECK(packed.raw_bytes == 0);
    CHECK(packed.packed_bytes == 0);
    CHECK(std::holds_alternative<std::monostate>(packed.catalog.storages()[0].source));
    REQUIRE(packed.kept_raw.size() == 2);
    CHECK(packed.kept_raw[0].why == "its raw bytes are neither in host memory nor in a file");
    CHECK(packed.kept_raw[1].why == "it does not get smaller");
    const auto again = must(residency::packed::try_pack(device, rows.model.packed.catalog));
    CHECK(again.packed_bytes == 0);
    REQUIRE(!again.kept_raw.empty());
    CHECK(again.kept_raw[0].why == "it is packed already");
    const residency::SimulatedUnpacker unpacker;
    const auto made = Weights::try_create(device, packed.catalog,
                                          options(unpacker, 1 << 20, schedule_of(packed.catalog, {{0}, {1}, {2}})));
    REQUIRE(!made);
    CHECK(says(made.error(), "load the catalog first"));
}

TEST_CASE("packing: which weights stay raw, and why") {
    Device device{device_config()};
    std::vector<Model::Spec> specs(9, {12'000});
    specs[1].is_noise = true;
    specs[2].type = residency::dtype::u8;
    specs[3].is_written = true;
    specs[3].placement = residency::Placement::resident;
    specs[4].placement = residency::Placement::host;
    specs[7].type = residency::dtype::f32;
    specs[8].type = residency::dtype::f8_e4m3fn;
    const Model model{device, specs};
    residency::packed::PackOptions form;
    form.form = [](const residency::Weight& weight) {
        return weight.name == "w5"   ? residency::PackedForm::raw
               : weight.name == "w8" ? residency::PackedForm::f8_e4m3_tiers
                                     : residency::PackedForm::bf16_tiers;
    };
    const auto packed = must(residency::packed::try_pack(device, model.raw, form));
    const std::vector<std::pair<std::uint32_t, std::string>> expected{{1, "it does not get smaller"},
                                                                      {2, "its type is \"u8\", which no form takes"},
                                                                      {3, "kernels write it"},
                                                                      {4, "kernels read it from host memory"},
                                                                      {5, "raw is the form that was asked for"},
                                                                      {7,
                                                                       "its type is \"f32\", which the form bf16_tiers "
                                                                       "does not take"}};
    REQUIRE(packed.kept_raw.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(residency::index(packed.kept_raw[i].storage) == expected[i].first);
        CHECK(packed.kept_raw[i].why == expected[i].second);
    }
    CHECK(packed.raw_bytes == 3 * 24'000);
}

TEST_CASE("packed bytes that kernels could not be given are refused, each with its message") {
    Device device{device_config()};
    Model::Spec matrix{64 * 128};
    matrix.rows = 64;
    const Model model{device, {matrix}};
    residency::packed::PackOptions form;
    form.form = [](const residency::Weight&) { return residency::PackedForm::bf16_tiles; };
    const auto tiles = must(residency::packed::try_pack(device, model.raw, form));
    const auto source_of = [](const residency::packed::PackedModel& packed) {
        return std::get<residency::PackedHostSource>(packed.catalog.storages()[0].source);
    };
    /// The error of a Packed over a weight of that shape, whose storage has that source.
    const auto refused = [&](const residency::PackedHostSource& source, const residency::Shape& shape) {
        residency::StorageOptions options;
        options.source = source;
        residency::CatalogBuilder builder;
        builder.add_weight("w", residency::dtype::bf16, shape, builder.add_storage(64 * 128 * 2, options));
        const residency::SimulatedUnpacker unpacker;
        auto catalog = builder.try_build();
        if (!catalog) { return catalog.error().message(); }
        const auto made = Weights::try_create(
            device, *catalog, packed_tests::options(unpacker, std::uint64_t{1} << 20U, schedule_of(*catalog, {{0}})));
        return made ? std::string{} : made.error().message();
    };
    const auto changed = [&](residency::PackedHostSource source, const auto& change) {
        auto parts = std::make_shared<std::vector<residency::PackedPart>>(*source.parts);
        change(parts->front());
        source.parts = std::move(parts);
        return source;
    };
    const auto has = [](const std::string& text, const char* what) { return text.find(what) != std::string::npos; };

    CHECK(refused(source_of(tiles), {64, 128}).empty());
    CHECK(
        has(refused(source_of(tiles), {128, 64}), "packed as a matrix of 64 × 128, which is not the whole of weight"));
    CHECK(has(refused(source_of(tiles), {32, 128}), "is not the whole of weight"));
    CHECK(refused(source_of(model.packed), {64, 128}).empty());
    for (const auto& packed : {tiles, model.packed}) {
        const auto shifted = changed(source_of(packed), [](residency::PackedPart& part) {
            part.offset_bytes = 16;
            part.packed_bytes -= 16;
        });
        CHECK(has(refused(shifted, {64, 128}), "kernels need multiples of 512 and of 16"));
        const auto raw =
            changed(source_of(packed), [](residency::PackedPart& part) { part.form = residency::PackedForm::raw; });
        CHECK(has(refused(raw, {64, 128}), "stands for 16,384 bytes"));
    }
}

}  // namespace leases_test

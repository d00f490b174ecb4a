// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// With room for all raw bytes: the first pass runs behind what unpacks them, and a model that sleeps is unpacked ahead of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/broker/model_group.hpp"
#include "residency/pool/chunk_stock.hpp"
#include "tests/packed/support.hpp"
#include "tests/support/sanitized.hpp"

namespace filling_test {

using namespace packed_tests;
using residency::Budget;
using residency::ErrorKind;
using CallKind = Device::CallKind;
using Graph = residency::CapturedPass<Device>;
using Group = residency::ModelGroup<Device>;

namespace {

constexpr std::uint64_t chunk = 4096, everything = std::uint64_t{1} << 40;

/// Of a slow link, so that copies take longer than the calls of the host.
Device::Config slow_config() {
    Device::Config config = device_config();
    config.link.to_device_bytes_per_second = 1e9;
    return config;
}

/// Matrices of several sizes, noise, and weights that are not packed.
std::vector<Model::Spec> mixed_specs(std::uint32_t count) {
    std::vector<Model::Spec> specs;
    for (std::uint32_t i = 0; i < count; ++i) {
        Model::Spec spec{4'000 + i * 2'731 % 20'000};
        spec.is_noise = i % 9 == 4;
        if (i % 7 == 3) { spec = {1'000, false, residency::dtype::u8}; }
        specs.push_back(spec);
    }
    return specs;
}

/// A model with room for its raw bytes, on chunks of a stock.
struct Sleeper {
    Sleeper(Device& device, residency::pool::ChunkStock<Device>& stock, const std::vector<Model::Spec>& specs,
            bool reverses = false)
        : layers{device, specs} {
        if (reverses) { std::reverse(layers.steps.begin(), layers.steps.end()); }
        auto chosen = options(unpacker, layers.share(120), layers.schedule());
        chosen.policies.link = residency::plan::Link{};  // nothing is measured
        chosen.policies.memory_bytes_per_second = 1e12;
        chosen.policies.unpack_rate = residency::packed::UnpackRate{};
        chosen.policies.pool.stock = &stock;
        weights.emplace(must(Weights::try_create(device, layers.model.packed.catalog, std::move(chosen))));
    }
    void pass(Device& device, Stream stream) { run_pass(device, layers.model, *weights, stream, wrong); }
    void capture(Device& device, Stream stream) {
        graph.emplace(must(weights->try_capture(stream, [&](Weights::Pass& pass) {
            for (const Schedule::Step& step : weights->schedule()) {
                const auto lease = must(pass.try_acquire(step));
                verify(device, layers.model, lease, step.weights, stream, wrong);
            }
        })));
    }
    /// What comes while it sleeps, in calls of `most` bytes.
    std::uint64_t bring(std::uint64_t most) {
        std::uint64_t sum = 0;
        while (const std::uint64_t more = must(weights->try_bring_asleep(most))) {
            CHECK(more < most + (std::uint64_t{64} << 10));  // weights that are not packed come as a whole
            sum += more;
        }
        return sum;
    }
    [[nodiscard]] std::uint64_t fetched() const { return weights->statistics().total.fetched_bytes; }

    Layers layers;
    residency::SimulatedUnpacker unpacker;
    std::optional<Weights> weights;
    std::optional<Graph> graph;
    std::uint64_t wrong = 0;
};

struct Fixture {
    explicit Fixture(const std::vector<Model::Spec>& specs = mixed_specs(24), bool reverses = false) {
        device.observe([this](const residency::simulation::ExecutedOperation& operation) {
            if (operation.name == "unpack" || operation.name == "reader") { order.emplace_back(operation.name); }
        });
        sleeper.emplace(device, stock, specs, reverses);
        // Others that take chunks soon take those that it had.
        must(stock.try_set_limit(stock.held_bytes()));
    }
    Fixture(const Fixture&) = delete;
    Fixture& operator=(const Fixture&) = delete;
    ~Fixture() {
        give_back();
        sleeper.reset();
        CHECK(stock.used_bytes() == 0);
        device.observe(nullptr);
        must(device.destroy_stream(stream));
        expect_no_reports(device);
    }
    /// Others have these chunks, and some that are free.
    void take(std::uint64_t count) {
        for (; count > 0; --count) { others.push_back(must(stock.take())); }
    }
    void give_back() {
        for (const std::uint32_t number : std::exchange(others, {})) { stock.give_back(number); }
    }
    void end() {
        must(sleeper->weights->try_drain());
        REQUIRE(sleeper->wrong == 0);
        expect_no_reports(device);
    }

    Device device{slow_config()};
    const Stream stream = must(device.create_stream("compute"));
    residency::pool::ChunkStock<Device> stock{device, std::uint64_t{4} << 20, chunk};
    std::vector<std::uint32_t> others;
    std::vector<std::string> order;  // of kernels
    std::optional<Sleeper> sleeper;
};

}  // namespace

TEST_CASE("the first pass begins before all is unpacked, whatever the order of its steps, and the host does not wait") {
    for (const bool reverses : {false, true}) {
        CAPTURE(reverses);
        Fixture f{mixed_specs(60), reverses};
        Sleeper& it = *f.sleeper;
        for (const bool is_new : {true, false}) {
            CAPTURE(is_new);
            if (!is_new) {
                must(it.weights->try_suspend());
                f.order.clear();
            }
            const std::uint64_t waits = it.weights->statistics().total.host_waits;
            if (!is_new) { must(it.weights->try_resume()); }
            it.pass(f.device, f.stream);
            CHECK(it.weights->statistics().total.host_waits == waits);
            f.end();
            const auto unpacked = std::count(f.order.begin(), f.order.end(), "unpack");
            const auto first = std::find(f.order.begin(), f.order.end(), "reader");
            CHECK(unpacked > 10);
            CHECK(std::count(f.order.begin(), first, "unpack") <= 2);
            CHECK(std::count(f.order.begin(), first + 30, "unpack") < unpacked);
        }
    }
}

TEST_CASE("a graph that is launched at once after a wake sees everything, and stays valid") {
    Fixture f;
    Sleeper& it = *f.sleeper;
    it.capture(f.device, f.stream);  // of a model that is not unpacked yet
    must(it.graph->try_launch(f.stream));
    f.end();
    for (const bool is_brought : {false, true}) {
        must(it.weights->try_suspend());
        if (is_brought) { CHECK(it.bring(everything) > 0); }
        must(it.weights->try_resume());
        CHECK_FALSE(it.graph->is_stale());
        must(it.graph->try_launch(f.stream));
        it.pass(f.device, f.stream);
        f.end();
    }
}

TEST_CASE("a caller's capture waits for what is on its way by drain()") {
    Fixture f;
    Sleeper& it = *f.sleeper;
    const auto capture = [&] {
        must(f.device.begin_capture(f.stream));
        residency::Status captured;
        {
            auto pass = must(it.weights->try_begin(f.stream));
            auto lease = pass.try_acquire(it.weights->schedule()[0]);
            if (!lease) { captured = lease.error(); }
        }
        const auto graph = f.device.end_capture(f.stream);
        if (graph) { must(f.device.destroy_graph(*graph)); }
        return captured;
    };
    const auto refused = capture();
    REQUIRE_FALSE(refused);
    CHECK(says(refused.error(), "by drain() of a planned composition"));
    must(it.weights->try_drain());
    must(capture());
}

TEST_CASE("what was unpacked ahead does not come again") {
    for (const bool as_graph : {false, true}) {
        for (const std::uint64_t taken : {0U, 10U, 40U, 80U, 100U}) {  // percent
            CAPTURE(as_graph);
            CAPTURE(taken);
            Fixture f;
            Sleeper& it = *f.sleeper;
            if (as_graph) { it.capture(f.device, f.stream); }
            it.pass(f.device, f.stream);
            f.end();
            const std::uint64_t whole = it.fetched(), held = it.weights->statistics().held_bytes;
            must(it.weights->try_suspend());
            f.take(f.stock.free_bytes() / chunk * taken / 100);
            const std::uint64_t brought = it.bring(std::uint64_t{100} << 10);
            if (taken <= 40) { CHECK(brought > (taken == 0 ? whole * 2 / 3 : whole / 5)); }
            CHECK(it.weights->statistics().held_bytes >= brought);
            CHECK(it.weights->statistics().held_bytes <= held);
            f.give_back();
            const std::uint64_t more = it.bring(std::uint64_t{200} << 10);  // what has become free
            CHECK((more > 0) == (taken > 0));
            CHECK(it.fetched() == whole + brought + more);
            must(it.weights->try_resume());
            if (as_graph) {
                CHECK_FALSE(it.graph->is_stale());
                must(it.graph->try_launch(f.stream));
            } else {
                it.pass(f.device, f.stream);
            }
            f.end();
            CHECK(it.fetched() >= 2 * whole);  // what is brought ahead to where the stage lies then comes again
            CHECK(it.fetched() <= 2 * whole + (taken > 0 ? whole / 4 : 0));
        }
    }
}

TEST_CASE("others have taken what was unpacked ahead, or some of it: all comes anew, or the rest") {
    Fixture f;
    Sleeper& it = *f.sleeper;
    it.pass(f.device, f.stream);
    must(it.weights->try_suspend());
    CHECK(it.bring(everything) > 0);
    must(it.weights->try_suspend());  // gives it back
    CHECK(it.weights->statistics().held_bytes == 0);
    f.take(f.stock.free_bytes() / chunk);
    CHECK(it.bring(everything) == 0);
    const auto refused = it.weights->try_resume();
    REQUIRE_FALSE(refused);
    CHECK(it.weights->is_suspended());
    f.give_back();
    CHECK(it.bring(std::uint64_t{64} << 10) > 0);
    must(it.weights->try_resume());
    it.pass(f.device, f.stream);
    f.end();
}

TEST_CASE("a chunk is missing where packed parts arrive when it wakes: what was unpacked ahead around it comes again") {
    Fixture f{std::vector<Model::Spec>(60, {4'000})};
    Sleeper& it = *f.sleeper;
    it.pass(f.device, f.stream);
    f.end();
    const std::uint64_t whole = it.fetched();
    must(it.weights->try_suspend());
    f.take(f.stock.free_bytes() / chunk);
    std::sort(f.others.begin(), f.others.end());
    const std::uint32_t missing = f.others[f.others.size() - 10];  // the last ones are the end of the memory
    for (const std::uint32_t number : std::exchange(f.others, {missing})) {
        if (number != missing) { f.stock.give_back(number); }
    }
    const std::uint64_t ahead = it.bring(std::uint64_t{50} << 10);
    CHECK(ahead > whole / 2);
    f.give_back();
    must(it.weights->try_resume());
    it.pass(f.device, f.stream);
    f.end();
    CHECK(it.fetched() > 2 * whole);
    CHECK(it.fetched() < 2 * whole + whole / 8);
}

TEST_CASE("packed parts arrive elsewhere with each call while it sleeps: what was unpacked there comes again") {
    for (const std::uint64_t first : {10U, 13U, 16U, 19U}) {  // chunks from the end that are not to be had
        for (const std::uint64_t second : {22U, 25U, 28U, 31U}) {
            for (const std::uint64_t more : {20'000U, 30'000U, 60'000U}) {
                CAPTURE(first);
                CAPTURE(second);
                CAPTURE(more);
                Fixture f{std::vector<Model::Spec>(60, {4'000})};
                Sleeper& it = *f.sleeper;
                it.pass(f.device, f.stream);
                f.end();
                must(it.weights->try_suspend());
                f.take(f.stock.free_bytes() / chunk);
                std::sort(f.others.begin(), f.others.end());
                const std::uint32_t one = f.others[f.others.size() - first], two = f.others[f.others.size() - second];
                for (const std::uint32_t number : std::exchange(f.others, {one})) {
                    if (number != one && number != two) { f.stock.give_back(number); }
                }
                static_cast<void>(it.bring(std::uint64_t{50} << 10));
                f.stock.give_back(two);
                static_cast<void>(must(it.weights->try_bring_asleep(more)));
                f.give_back();
                must(it.weights->try_resume());
                it.pass(f.device, f.stream);
                must(it.weights->try_drain());
                CHECK(it.wrong == 0);
            }
        }
    }
}

TEST_CASE("another budget while it sleeps: nothing is held that came ahead, and nothing comes") {
    Fixture f;
    Sleeper& it = *f.sleeper;
    it.pass(f.device, f.stream);
    f.end();
    must(it.weights->try_suspend());
    CHECK(must(it.weights->try_bring_asleep(everything)) > 0);
    CHECK(it.weights->statistics().held_bytes > 0);
    const Budget before = Budget::bytes(it.weights->budget().bytes);
    must(it.weights->try_set_budget(Budget::bytes(it.layers.share(50))));
    CHECK(it.weights->statistics().held_bytes == 0);
    CHECK(must(it.weights->try_bring_asleep(everything)) == 0);
    must(it.weights->try_set_budget(before));
    CHECK(must(it.weights->try_bring_asleep(everything)) > 0);
    must(it.weights->try_resume());
    it.pass(f.device, f.stream);
    must(it.weights->try_drain());
    CHECK(it.wrong == 0);
}

TEST_CASE("a budget that changes while it is unpacked ahead, and one that is destroyed meanwhile") {
    for (const std::uint64_t percent : {60U, 85U, 119U, 0U}) {
        CAPTURE(percent);
        Fixture f;
        Sleeper& it = *f.sleeper;
        it.pass(f.device, f.stream);
        for (int turn = 0; turn < 2; ++turn) {
            must(it.weights->try_suspend());
            CHECK((it.bring(everything) > 0 || turn > 0));
            if (percent == 0) { break; }
            must(it.weights->try_set_budget(Budget::bytes(it.layers.share(turn == 0 ? percent : 120))));
            must(it.weights->try_resume());
            CHECK(it.weights->statistics().held_bytes <= it.weights->budget().bytes);
            it.pass(f.device, f.stream);
            it.pass(f.device, f.stream);
            f.end();
        }
    }
}

TEST_CASE("a weight that is replaced after it came ahead is not stale; a packed one is not replaced") {
    Fixture f;
    Sleeper& it = *f.sleeper;
    const Catalog& catalog = it.layers.model.packed.catalog;
    it.pass(f.device, f.stream);
    must(it.weights->try_suspend());
    CHECK(it.bring(everything) > 0);
    CHECK(it.weights->try_refresh(WeightId{0}, [] {}).error().kind() == ErrorKind::unsupported);
    must(it.weights->try_refresh(WeightId{3}, [&] {
        auto* const bytes = const_cast<std::byte*>(catalog.host_bytes(StorageId{3}));
        const auto expected = it.layers.model.contents[3];
        std::memset(bytes, 0x21, expected.size());
        std::memset(const_cast<std::byte*>(expected.data()), 0x21, expected.size());
    }));
    must(it.weights->try_resume());
    it.pass(f.device, f.stream);
    f.end();
}

TEST_CASE("random programs: others take and give back chunks while it is unpacked ahead") {
    std::uint64_t brought = 0, resumed = 0, launched = 0;
    for (std::uint64_t seed = 1; seed <= (support::is_sanitized ? 6 : 25); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        Fixture f{mixed_specs(8 + static_cast<std::uint32_t>(random() % 30)), random() % 2 == 0};
        Sleeper& it = *f.sleeper;
        it.capture(f.device, f.stream);
        for (int turn = 0; turn < 12; ++turn) {
            must(it.weights->try_suspend());
            for (std::uint64_t i = random() % 5; i > 0; --i) {
                if (random() % 3 == 0) { f.give_back(); }
                f.take(random() % (f.stock.free_bytes() / chunk + 1) / 2);
                std::shuffle(f.others.begin(), f.others.end(), random);
                for (std::uint64_t n = random() % (f.others.size() + 1); n > 0; --n) {
                    f.stock.give_back(f.others.back());
                    f.others.pop_back();
                }
                brought += must(it.weights->try_bring_asleep(random() % (std::uint64_t{200} << 10)));
            }
            if (random() % 4 == 0) { f.give_back(); }
            if (!it.weights->try_resume()) {
                REQUIRE(it.weights->is_suspended());
                f.give_back();
                must(it.weights->try_resume());
            }
            ++resumed;
            if (it.graph->is_stale()) { it.capture(f.device, f.stream); }
            if (random() % 2 == 0) {
                must(it.graph->try_launch(f.stream));
                ++launched;
            } else {
                it.pass(f.device, f.stream);
            }
            if (random() % 2 == 0) { f.end(); }
        }
        f.end();
    }
    MESSAGE(brought << " bytes ahead, " << resumed << " wakes, " << launched << " launches");
    CHECK(brought > 1'000'000);
    CHECK(launched > 20);
}

TEST_CASE("any call fails once while it is unpacked ahead or wakes: it is asleep or awake, and every byte is right") {
    std::uint64_t failed = 0;
    for (const bool is_asleep : {true, false}) {
        for (const auto kind : {CallKind::copy, CallKind::launch_kernel, CallKind::record, CallKind::wait,
                                CallKind::device_view, CallKind::map, CallKind::synchronize_stream, CallKind::any}) {
            for (std::uint64_t nth = 1; nth <= (support::is_sanitized ? 6 : 24); ++nth) {
                CAPTURE(is_asleep);
                CAPTURE(kind);
                CAPTURE(nth);
                Fixture f{mixed_specs(12)};
                Sleeper& it = *f.sleeper;
                it.pass(f.device, f.stream);
                must(it.weights->try_suspend());
                f.take(10);
                if (!is_asleep) { it.bring(std::uint64_t{60} << 10); }
                if (!is_asleep) { f.give_back(); }
                f.device.fail(kind, nth);
                if (is_asleep) {
                    for (int i = 0; i < 3; ++i) {
                        failed += it.weights->try_bring_asleep(std::uint64_t{60} << 10) ? 0U : 1U;
                    }
                } else {
                    failed += it.weights->try_resume() ? 0U : 1U;
                }
                f.device.clear_failures();
                if (it.weights->is_suspended()) { must(it.weights->try_bring_asleep(std::uint64_t{80} << 10)); }
                f.give_back();
                if (it.weights->is_suspended()) { must(it.weights->try_resume()); }
                it.pass(f.device, f.stream);
                f.end();
            }
        }
    }
    CHECK(failed > 30);
}

TEST_CASE(
    "a group of packed models: what prepare() has unpacked does not come again, and memory stays below the total") {
    Device device{slow_config()};
    const Stream stream = must(device.create_stream("compute"));
    residency::BudgetBroker broker{{.total_bytes = std::uint64_t{1200} << 10}};
    {
        Group group{device, broker, {.chunk_bytes = chunk}};
        std::vector<std::unique_ptr<Sleeper>> models;
        std::vector<Group::Member> members;
        for (int i = 0; i < 3; ++i) {
            must(group.try_make_room(std::uint64_t{950} << 10));
            models.push_back(std::make_unique<Sleeper>(device, group.stock(), mixed_specs(30)));
            members.push_back(must(group.try_add(*models.back()->weights, {})));
            const auto use = must(group.try_activate(members.back()));
            models.back()->capture(device, stream);
        }
        std::mt19937 random{3};
        std::uint64_t prepared = 0, maps = 0;
        for (int i = 0; i < 60; ++i) {
            if (i == 20) { maps = device.statistics().of(CallKind::map); }
            const std::size_t now = random() % 3, next = random() % 3;
            {
                const auto use = must(group.try_activate(members[now]));
                const std::uint64_t most = (1 + random() % 8) * (std::uint64_t{50} << 10);
                if (random() % 2 == 0) {
                    must(models[now]->graph->try_launch(stream));
                } else {
                    models[now]->pass(device, stream);
                }
                const std::uint64_t ahead = must(group.try_prepare(members[next], most));
                CHECK((next != now || ahead == 0));
                prepared += ahead;
                must(models[now]->weights->try_drain());
                CHECK(models[now]->wrong == 0);
            }
            CHECK(group.stock().held_bytes() <= broker.statistics().total_bytes);
        }
        CHECK(prepared > 1'000'000);
        CHECK(device.statistics().of(CallKind::map) == maps);  // memory changed hands without the driver
        for (auto& each : models) { each->graph.reset(); }
        members.clear();
        models.clear();
    }
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

}  // namespace filling_test

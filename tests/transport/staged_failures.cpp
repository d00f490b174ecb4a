// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Calls of the device that fail under a staged transport: no byte of another weight is ever copied, and the object goes on.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "residency/core/planned/planned_decider.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/pool/chunk_stock.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/transport/staged_streaming.hpp"

namespace staged_failures_test {

using namespace residency;
using simulation::CallKind;
using streaming::must;
using Staged = transport::Staged<streaming::Device>;
using OnSlab = Residency<evict::Lru, prefetch::None, pool::Slab<streaming::Device>, Staged>;
using Planned = Residency<evict::Planned, prefetch::Planned, pool::Virtual<streaming::Device>, Staged>;

namespace {

constexpr std::uint64_t page = 4096;

/// A staged transport over a file of eight storages of one page, with a ring of a few slots, and room on the device for each storage.
struct Bench {
    explicit Bench(Staged::Config config = {}, std::uint64_t slots = 2) {
        std::string bytes;
        for (char letter = 'a'; letter < 'i'; ++letter) { bytes += std::string(page, letter); }
        const auto file = std::make_shared<const SourceFile>(SourceFile{folder.write("weights", bytes), bytes.size()});
        CatalogBuilder builder;
        for (std::uint64_t i = 0; i < 8; ++i) {
            builder.add("w" + std::to_string(i), dtype::u8, {page}, FileSource{file, i * page});
        }
        config.ring_bytes = slots * page;
        config.slot_bytes = page;
        config.threads = 1;
        staged = Staged{config};
        must(staged.open(device, must(builder.try_build())));
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        must(device.synchronize());
        staged.close();
        must(device.deallocate(place));
        must(device.destroy_stream(stream));
    }
    [[nodiscard]] transport::Fetch fetch(std::uint32_t i) const { return {StorageId{i}, 0, page, place + i * page}; }
    Status bring(std::uint32_t i) {
        const transport::Fetch one = fetch(i);
        return staged.enqueue({&one, 1}, stream);
    }
    [[nodiscard]] bool holds(std::uint32_t i, std::byte byte) const {
        return std::all_of(place + i * page, place + (i + 1) * page, [byte](std::byte b) { return b == byte; });
    }
    [[nodiscard]] bool is_there(std::uint32_t i) const { return holds(i, static_cast<std::byte>('a' + i)); }

    support::TemporaryFolder folder;
    streaming::CheckedDevice device;
    Staged staged;
    streaming::Stream stream = must(device.create_stream());
    std::byte* place = static_cast<std::byte*>(must(device.allocate(8 * page)));
};

/// Weights from a file that cannot be read while `is_bad`; kernels write the last one.
template <class Weights>
struct BadFile {
    BadFile() {
        auto settings = staged_streaming::options<Weights>(model, 5 * page);
        settings.transport.slot_bytes = page;
        settings.transport.ring_bytes = 4 * page;
        settings.transport.before_read = [this](StorageId, std::uint64_t, std::uint64_t) -> Status {
            if (is_bad) { return Error{ErrorKind::io, "a bad sector"}; }
            return {};
        };
        if constexpr (requires { settings.policies.pool.stock; }) {
            settings.policies.pool.chunk_bytes = page;
            settings.policies.pool.stock = &stock;
        }
        weights.emplace(must(Weights::try_create(device, file.catalog, std::move(settings))));
        expect_working();
    }
    BadFile(const BadFile&) = delete;
    BadFile& operator=(const BadFile&) = delete;
    ~BadFile() {
        weights.reset();
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
    /// A pass whose reads fail; what came is not looked at.
    void lose() {
        is_bad = true;
        auto pass = must(weights->try_begin(stream));
        for (const Schedule::Step& step : weights->schedule()) {
            static_cast<void>(pass.try_acquire(step).has_value());
        }
        static_cast<void>(pass.try_end().has_value());
        must(device.synchronize());
        CHECK(says_so());
    }
    [[nodiscard]] bool says_so() const {
        const Status status = weights->try_transport_status();
        return !status && status.error().message() == "a bad sector";
    }
    /// What could not be read is said by the pass after it, and by no other call.
    void sleep_and_wake() {
        must(weights->try_suspend());
        CHECK(weights->statistics().held_bytes == 0);
        CHECK(says_so());
        is_bad = false;
        must(weights->try_resume());
        expect_said_once();
    }
    /// The next pass says what the last one lacked; once.
    void expect_said_once() {
        CHECK(says_so());
        const auto refused = weights->try_begin(stream);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().message() == "a bad sector");
        expect_working();
    }
    void expect_working() {
        for (int i = 0; i < 2; ++i) { streaming::run_pass(*weights, model, stream); }
        must(weights->try_drain());
    }

    streaming::CheckedDevice device;
    pool::ChunkStock<streaming::Device> stock{device, 8 * page, page};
    streaming::Model model = streaming::make_model(
        device, std::vector<streaming::Spec>{
                    {page}, {page}, {page}, {page}, {page}, {page}, {page, Placement::resident, true}});
    staged_streaming::InFile file{model};
    streaming::Stream stream = must(device.create_stream());
    std::atomic<bool> is_bad = false;
    std::optional<Weights> weights;
};

}  // namespace

TEST_CASE("staged: whichever wait for a slot fails, kernels read no other weight's bytes, and nothing is lost") {
    for (std::uint64_t nth = 1; nth <= 24; ++nth) {
        CAPTURE(nth);
        streaming::CheckedDevice device;
        const auto model = streaming::uniform_model(device, 8, page);
        const staged_streaming::InFile file{model};
        const auto stream = must(device.create_stream());
        {
            auto settings = staged_streaming::options<OnSlab>(model, 2 * page);
            settings.transport.slot_bytes = page;
            settings.transport.ring_bytes = 2 * page;
            settings.transport.threads = 1;
            auto weights = must(OnSlab::try_create(device, file.catalog, std::move(settings)));
            for (std::uint64_t i = 0; i < 3; ++i) { device.fail(CallKind::synchronize_event, nth + i); }
            for (int i = 0; i < 3; ++i) {
                auto pass = weights.try_begin(stream);
                if (!pass) { continue; }  // the wait was the caller's own
                for (const Schedule::Step& step : weights.schedule()) {
                    const auto lease = pass->try_acquire(step);
                    if (!lease) { continue; }
                    for (const auto id : step.weights) { streaming::verify(device, model, *lease, id, stream); }
                }
                static_cast<void>(pass->try_end().has_value());
            }
            device.clear_failures();
            CHECK(weights.try_transport_status());  // what failed in a thread was tried again
            streaming::run_pass(weights, model, stream);
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("staged: a copy does not begin before its slot is filled") {
    std::atomic<bool> may_read = false;
    Staged::Config config;
    config.before_read = [&may_read](StorageId, std::uint64_t, std::uint64_t) -> Status {
        while (!may_read) { std::this_thread::yield(); }
        return {};
    };
    Bench bench{config};
    must(bench.device.fill(bench.place, std::byte{1}, 8 * page, bench.stream));
    must(bench.bring(3));
    bench.device.spend(std::chrono::seconds{1});
    CHECK(bench.holds(3, std::byte{1}));
    may_read = true;
    must(bench.device.synchronize(bench.stream));
    CHECK(bench.is_there(3));
}

TEST_CASE("staged: a copy out of a slot whose end cannot be recorded has landed before the slot is filled again") {
    Bench bench;
    bench.device.fail(CallKind::record, 1);
    CHECK_FALSE(bench.bring(0));
    CHECK(bench.is_there(0));
    for (std::uint32_t i = 1; i < 8; ++i) { must(bench.bring(i)); }
    must(bench.device.synchronize(bench.stream));
    for (std::uint32_t i = 0; i < 8; ++i) { CHECK(bench.is_there(i)); }
    CHECK(bench.staged.status());
}

TEST_CASE("staged: a slot whose copy can neither be recorded nor awaited is not used before the streams are drained") {
    Bench bench;
    for (int times = 0; times < 3; ++times) {  // more often than there are slots
        bench.device.fail(CallKind::record, 1);
        bench.device.fail(CallKind::synchronize_stream, 1);
        CHECK_FALSE(bench.bring(0));
        CHECK_FALSE(bench.staged.status());
        CHECK_FALSE(bench.bring(1));
        must(bench.device.synchronize());
        std::vector<StorageId> lacking;
        bench.staged.take_failure(lacking);
        CHECK(lacking.empty());
        CHECK(bench.staged.status());
    }
    for (std::uint32_t i = 0; i < 8; ++i) { must(bench.bring(i)); }
    must(bench.device.synchronize(bench.stream));
    for (std::uint32_t i = 0; i < 8; ++i) { CHECK(bench.is_there(i)); }
}

TEST_CASE("staged: what is withdrawn gives its slots back, and is not copied") {
    Bench bench;
    must(bench.device.fill(bench.place, std::byte{1}, 8 * page, bench.stream));
    for (int times = 0; times < 4; ++times) {
        const transport::Fetch ahead = bench.fetch(0);
        REQUIRE(bench.staged.read_ahead({&ahead, 1}));
        if (times % 2 == 0) {
            bench.staged.forget_ahead();
        } else {  // left out: the call that comes was announced after it, or not at all
            must(bench.bring(static_cast<std::uint32_t>(times)));
            bench.staged.forget_ahead();
        }
        CHECK(bench.staged.statistics().withdrawn_bytes == page * (static_cast<std::uint64_t>(times) + 1));
    }
    for (std::uint32_t i = 4; i < 8; ++i) { must(bench.bring(i)); }
    must(bench.device.synchronize(bench.stream));
    CHECK(bench.holds(0, std::byte{1}));
    for (const std::uint32_t i : {1U, 3U, 4U, 5U, 6U, 7U}) { CHECK(bench.is_there(i)); }
}

TEST_CASE("staged: what was announced before the call that comes is withdrawn, and gives its slots back") {
    Bench bench{{}, 4};
    must(bench.device.fill(bench.place, std::byte{1}, 8 * page, bench.stream));
    for (std::uint64_t times = 1; times <= 6; ++times) {
        for (const std::uint32_t i : {0U, 1U}) {
            const transport::Fetch ahead = bench.fetch(i);
            REQUIRE(bench.staged.read_ahead({&ahead, 1}));
        }
        must(bench.bring(1));
        CHECK(bench.staged.statistics().withdrawn_bytes == times * page);
    }
    for (std::uint32_t i = 2; i < 8; ++i) { must(bench.bring(i)); }
    must(bench.device.synchronize(bench.stream));
    CHECK(bench.holds(0, std::byte{1}));
    for (std::uint32_t i = 1; i < 8; ++i) { CHECK(bench.is_there(i)); }
}

TEST_CASE("staged: what could not be read is said once, and brought again before the next pass") {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 6, page);
    const staged_streaming::InFile file{model};
    const auto stream = must(device.create_stream());
    {
        std::atomic<bool> is_bad = true;
        auto settings = staged_streaming::options<OnSlab>(model, 6 * page);  // everything stays
        settings.transport.slot_bytes = page;
        settings.transport.ring_bytes = 4 * page;
        settings.transport.before_read = [&](StorageId id, std::uint64_t, std::uint64_t) -> Status {
            if (id == StorageId{2} && is_bad.exchange(false)) { return Error{ErrorKind::io, "a bad sector"}; }
            return {};
        };
        auto weights = must(OnSlab::try_create(device, file.catalog, std::move(settings)));
        auto pass = must(weights.try_begin(stream));
        std::optional<OnSlab::Lease> kept;
        for (const Schedule::Step& step : weights.schedule()) {
            auto lease = pass.try_acquire(step);
            if (lease && step.position == 2) { kept = std::move(*lease); }
        }
        must(device.synchronize());
        CHECK(weights.try_transport_status().error().message() == "a bad sector");
        CHECK(pass.try_end().error().message() == "a bad sector");
        CHECK(weights.try_begin(stream).error().message() == "a bad sector");
        // A lease covers the bytes: they stay as they are, and no pass begins.
        const auto refused = weights.try_begin(stream);
        CHECK(refused.error().kind() == ErrorKind::wrong_state);
        CHECK(refused.error().message().find("w2") != std::string::npos);
        kept.reset();
        for (int i = 0; i < 2; ++i) { streaming::run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(weights.statistics().total.evictions == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C19 C31: what cannot be read does not keep a model awake, and the next pass says it", Weights,
                   OnSlab, Planned) {
    BadFile<Weights> f;
    f.lose();
    f.sleep_and_wake();
}

TEST_CASE_TEMPLATE("C19 C31: what never arrived is not kept as what kernels wrote", Weights, OnSlab, Planned) {
    BadFile<Weights> f;
    f.is_bad = true;
    CHECK_FALSE(f.weights->try_refresh({streaming::weight(6)}, [] {}));
    f.sleep_and_wake();
}

TEST_CASE_TEMPLATE("C19 C32: what cannot be read can be replaced", Weights, OnSlab, Planned) {
    BadFile<Weights> f;
    f.lose();
    must(f.weights->try_refresh_all([&] { f.is_bad = false; }));
    f.expect_said_once();
}

TEST_CASE("C19 C31: what could not be read ahead of a resume() comes again, and no pass lacked it") {
    BadFile<Planned> f;
    must(f.weights->try_suspend());
    f.is_bad = true;
    CHECK(must(f.weights->try_bring_asleep(8 * page)) > 0);
    must(f.device.synchronize());
    CHECK(f.says_so());
    f.is_bad = false;
    must(f.weights->try_resume());
    CHECK(f.weights->try_transport_status());
    f.expect_working();
}

TEST_CASE("C19 C31: a drain() of what is suspended says what could not be read ahead, once, and holds nothing of it") {
    BadFile<Planned> f;
    must(f.weights->try_suspend());
    f.is_bad = true;
    CHECK(must(f.weights->try_bring_asleep(3 * page)) > 0);
    const Status said = f.weights->try_drain();
    REQUIRE_FALSE(said);
    CHECK(said.error().message() == "a bad sector");
    CHECK(f.weights->statistics().held_bytes == 0);
    must(f.weights->try_drain());
    CHECK(f.weights->statistics().held_bytes == 0);
    f.is_bad = false;
    CHECK(must(f.weights->try_bring_asleep(3 * page)) > 0);
    must(f.weights->try_drain());
    CHECK(f.weights->statistics().held_bytes > 0);
    must(f.weights->try_resume());
    f.expect_working();
}

TEST_CASE("C19 C31: whichever call of such a drain() fails, the next ones hold nothing, and the model works again") {
    for (std::uint64_t nth = 1; nth <= 12; ++nth) {
        CAPTURE(nth);
        BadFile<Planned> f;
        must(f.weights->try_suspend());
        f.is_bad = true;
        CHECK(must(f.weights->try_bring_asleep(8 * page)) > 0);
        f.device.fail(CallKind::any, nth);
        CHECK_FALSE(f.weights->try_drain());
        f.device.clear_failures();
        static_cast<void>(f.weights->try_drain().has_value());  // says what the first one did not
        must(f.weights->try_drain());
        CHECK(f.weights->statistics().held_bytes == 0);
        f.is_bad = false;
        must(f.weights->try_resume());
        f.expect_working();
    }
}

TEST_CASE_TEMPLATE("C19 C31: a resume() whose copies can neither be recorded nor awaited fails once", Weights, OnSlab,
                   Planned) {
    int failures = 0;
    for (std::uint64_t nth = 1; nth <= 8; ++nth) {
        CAPTURE(nth);
        BadFile<Weights> f;
        must(f.weights->try_suspend());
        for (std::uint64_t i = 0; i < 6; ++i) {
            f.device.fail(CallKind::record, nth + i);
            f.device.fail(CallKind::synchronize_stream, 1 + i);
        }
        const bool has_failed = !f.weights->try_resume();
        failures += has_failed ? 1 : 0;
        f.device.clear_failures();
        must(f.weights->try_resume());
        f.expect_working();
    }
    CHECK(failures > 0);
}

TEST_CASE("a ring or slots of no bytes are refused by their names") {
    streaming::CheckedDevice device;
    for (const bool no_slots : {false, true}) {
        Staged::Config config;
        (no_slots ? config.slot_bytes : config.ring_bytes) = 0;
        Staged staged{config};
        const Status refused = staged.open(device, Catalog{});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::invalid_argument);
        CHECK(refused.error().message().find(no_slots ? "slot_bytes is 0" : "ring_bytes is 0") != std::string::npos);
    }
}

}  // namespace staged_failures_test

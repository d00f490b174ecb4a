// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <utility>

#include <doctest/doctest.h>

#include "residency/core/planned/planned_decider.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/host/loading.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/transport/staged_streaming.hpp"

namespace staged_planned_test {

using namespace residency;
using staged_streaming::InFile;
using streaming::must;
using streaming::weight;
using PlannedStaged =
    Residency<evict::Planned, prefetch::Planned, pool::Virtual<streaming::Device>, staged_streaming::Staged>;

TEST_CASE("staged, planned: passes from a file") {
    staged_streaming::stream_from_file<PlannedStaged>(std::uint64_t{8} << 20, 2'500'000);
}

TEST_CASE("staged, planned: a file that is truncated fails the pass, and the object can be destroyed") {
    staged_streaming::change_while_streaming<PlannedStaged>(std::uint64_t{8} << 20, 2'500'000);
}

TEST_CASE("staged, planned: the first pass runs while the model is still loading") {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 8, 2'500'000);
    const InFile in_file{model};
    const auto stream = must(device.create_stream());
    {
        host::LoadOptions load;
        load.threads = 1;
        load.read_bytes = 65536;
        const auto loading = must(host::Loading::try_start(device, in_file.catalog, load));
        auto settings = staged_streaming::options<PlannedStaged>(model, std::uint64_t{8} << 20);
        settings.transport.loading = loading;
        auto weights = must(PlannedStaged::try_create(device, loading->catalog(), std::move(settings)));
        for (int pass = 0; pass < 3; ++pass) { streaming::run_pass(weights, model, stream); }
        must(device.synchronize());
        must(loading->wait());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 3 * model.catalog.total_bytes());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("staged, planned: while the model loads, a step of the first pass runs as soon as its bytes are there") {
    constexpr std::uint32_t count = 8;
    constexpr std::uint64_t bytes = std::uint64_t{2} << 20;
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, count, bytes);
    const InFile in_file{model};
    const auto stream = must(device.create_stream());
    // Loading stops after that many bytes, until it is let go on.
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t allowed = 0;
    bool waited_in_vain = false;
    const auto allow = [&](std::uint64_t up_to) {
        const std::lock_guard lock{mutex};
        allowed = up_to;
        changed.notify_all();
    };
    {
        auto settings = staged_streaming::options<PlannedStaged>(model, std::uint64_t{8} << 20);
        // The schedule's order is not the file's.
        ScheduleBuilder builder{model.catalog};
        // Kernels that take no time: the plan copies in the order of the steps.
        for (std::uint32_t i = count; i-- > 0;) { builder.step({WeightId{i}}, std::chrono::nanoseconds{0}); }
        settings.schedule = must(builder.try_build());
        settings.learn = false;
        host::LoadOptions load;
        load.threads = 1;
        load.read_bytes = 65536;
        load.schedule = settings.schedule;
        load.progress = [&](const host::LoadProgress& progress) {
            std::unique_lock lock{mutex};
            if (!changed.wait_for(lock, std::chrono::seconds{60}, [&] { return progress.loaded_bytes <= allowed; })) {
                waited_in_vain = true;
                allowed = UINT64_MAX;
            }
            return true;
        };
        const auto loading = must(host::Loading::try_start(device, in_file.catalog, load));
        settings.transport.loading = loading;
        auto weights = must(PlannedStaged::try_create(device, loading->catalog(), std::move(settings)));
        // The chunks of a call arrive together: a step waits for its whole call, and for the calls before. The image and the memory are
        // in the order of the schedule.
        const plan::Plan& plan = weights.plan();
        const auto needed_bytes = [&](std::uint32_t step) {
            std::uint64_t needed = (step + 1) * bytes;
            for (const plan::Call& call : plan.calls()) {
                for (const plan::Copy& copy : plan.copies(call)) {
                    if (call.needed_by <= step) { needed = (std::max)(needed, copy.image_end); }
                }
            }
            return needed;
        };
        REQUIRE(needed_bytes(0) == bytes);
        auto pass = must(weights.try_begin(stream));
        for (std::uint32_t k = 0; k < count; ++k) {
            REQUIRE(plan.storage_offset(count - 1 - k) == k * bytes);
            allow(needed_bytes(k));
            const Schedule::Step& step = weights.schedule()[k];
            {
                auto lease = must(pass.try_acquire(step));
                streaming::verify(device, model, lease, step.weights.front(), stream);
            }
            must(device.synchronize(stream));
            CHECK(*model.verified == (k + 1) * bytes);
            for (std::uint32_t later = k + 1; later < count; ++later) {
                CHECK((!loading->is_loaded(StorageId{count - 1 - later}) || later * bytes < needed_bytes(k)));
            }
        }
        allow(UINT64_MAX);
        must(pass.try_end());
        must(loading->wait());
        must(weights.try_drain());
        CHECK_FALSE(waited_in_vain);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "staged, planned: passes that leave the schedule, and other budgets, get their bytes whatever was read ahead") {
    const std::uint32_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random{seed};
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 8, 2'500'000);
    const InFile in_file{model};
    const auto stream = must(device.create_stream());
    {
        auto settings = staged_streaming::options<PlannedStaged>(model, std::uint64_t{12} << 20);
        settings.transport.ring_bytes = std::uint64_t{2} << 20;
        auto weights = must(PlannedStaged::try_create(device, in_file.catalog, std::move(settings)));
        for (int round = 0; round < 20; ++round) {
            auto pass = must(weights.try_begin(stream));
            const bool follows = round % 3 == 0;
            for (const Schedule::Step& step : weights.schedule()) {
                const auto other = weight(static_cast<std::uint32_t>(random() % 8));
                if (!follows && random() % 4 == 0) { continue; }
                if (follows || random() % 2 == 0) {
                    auto lease = must(pass.try_acquire(step));
                    streaming::verify(device, model, lease, step.weights.front(), stream);
                } else {
                    auto lease = must(pass.try_acquire(other));
                    streaming::verify(device, model, lease, other, stream);
                }
            }
            must(pass.try_end());
            if (random() % 5 == 0) {
                must(weights.try_set_budget(Budget::bytes((std::uint64_t{8} + random() % 8) << 20)));
            }
        }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified > 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("staged, planned: whichever read fails, nothing wrong is used unnoticed") {
    staged_streaming::fail_every_read<PlannedStaged>(std::uint64_t{8} << 20, 2'500'000, std::uint64_t{2} << 20);
}

TEST_CASE("staged, planned: reads run ahead of the copies that wait for a step to end") {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 8, 2'500'000);
    const InFile in_file{model};
    const auto stream = must(device.create_stream());
    {
        std::mutex mutex;
        std::condition_variable changed;
        std::uint64_t read_bytes = 0;
        auto settings = staged_streaming::options<PlannedStaged>(model, std::uint64_t{8} << 20);
        settings.transport.ring_bytes = std::uint64_t{4} << 20;
        settings.transport.before_read = [&](StorageId, std::uint64_t, std::uint64_t bytes) {
            const std::lock_guard lock{mutex};
            read_bytes += bytes;
            changed.notify_all();
            return Status{};
        };
        auto weights = must(PlannedStaged::try_create(device, in_file.catalog, std::move(settings)));
        for (int pass = 0; pass < 3; ++pass) {
            auto begun = must(weights.try_begin(stream));
            for (const Schedule::Step& step : weights.schedule()) {
                auto lease = must(begun.try_acquire(step));
                for (const auto id : step.weights) { streaming::verify(device, model, lease, id, stream); }
                // While this lease is open nothing is enqueued, so that every further read is a read ahead.
                const std::uint64_t enqueued = weights.statistics().total.fetched_bytes;
                std::unique_lock lock{mutex};
                const bool is_ahead =
                    changed.wait_for(lock, std::chrono::seconds{60}, [&] { return read_bytes > enqueued; });
                CHECK(is_ahead);
                CHECK(weights.statistics().total.fetched_bytes == enqueued);
            }
            must(begun.try_end());
        }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 3 * model.catalog.total_bytes());
    }
    must(device.destroy_stream(stream));
}

}  // namespace staged_planned_test

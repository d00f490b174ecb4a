// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/broker/group_of_models.hpp"

namespace model_group_threads_test {

using namespace group_of_models;

namespace {

/// What threads did, one entry each: doctest's assertions stay on the main thread.
template <std::size_t count>
struct Notes {
    void note(std::size_t t, const residency::Error& error) {
        if (failure[t].empty()) { failure[t] = error.message(); }
    }
    std::array<std::string, count> failure;  // the first one
    std::array<std::uint64_t, count> done{};
};

residency::Status checked_pass(Device& device, Weights& weights, const streaming::Model& model, Stream stream) {
    {
        auto pass = weights.try_begin(stream);
        if (!pass) { return pass.error(); }
        for (const auto& step : weights.schedule()) {
            auto lease = pass->try_acquire(step);
            if (!lease) { return lease.error(); }
            const auto bytes = lease->bytes(step.weights.front());
            const std::byte* host = model.catalog.host_bytes(step.storages.front());
            auto launched = device.launch(
                stream, {.name = "verify",
                         .reads = {{bytes.data(), bytes.size()}},
                         .writes = {},
                         .body = [at = bytes.data(), count = bytes.size(), host, wrong = model.wrong.get()] {
                             *wrong += std::memcmp(at, host, count) == 0 ? 0U : 1U;
                         }});
            if (!launched) { return launched; }
        }
        if (auto ended = pass->try_end(); !ended) { return ended; }
    }
    return device.synchronize(stream);
}

}  // namespace

TEST_SUITE_BEGIN("broker model group threads");

TEST_CASE("C22: models, each in its thread, take turns beside a cache and beside models that begin and end") {
    Fixture f{whole * 14 / 10};
    for (const std::uint64_t tenths : {10U, 6U, 8U}) { f.add(whole * tenths / 10); }
    const auto brief = uniform_model(f.device, 2, chunk);
    auto cache = must(f.broker.try_add_memory({.name = "KV cache", .priority = 1, .limit_bytes = whole / 5}));
    Notes<5> notes;
    std::array<Stream, 5> streams;
    for (Stream& stream : streams) { stream = must(f.device.create_stream()); }
    const auto serve = [&](std::size_t t) {
        for (int i = 0; i < 40; ++i) {
            const auto use = f.group.try_activate(f.all[t]->member);
            if (!use) {
                notes.note(t, use.error());
                return;
            }
            const auto passed = checked_pass(f.device, *f.all[t]->weights, f.all[t]->model, streams[t]);
            if (!passed) { notes.note(t, passed.error()); }
            const auto brought = f.group.try_prepare(f.all[(t + 1) % 3]->member);
            if (!brought) { notes.note(t, brought.error()); }
            ++notes.done[t];
        }
    };
    const auto grow_and_shrink = [&] {
        std::mt19937 random{3};
        std::uint64_t taken = 0;
        for (int i = 0; i < 400 || (notes.done[3] == 0 && i < 100'000); ++i) {
            const std::uint64_t bytes = 1 + random() % (whole / 6);
            if (random() % 3 != 0 && cache.try_take(bytes)) {
                taken += bytes;
                ++notes.done[3];
            } else if (random() % 2 == 0) {
                cache.give_back(std::exchange(taken, 0));
            } else if (random() % 16 == 0) {  // what is refused comes with the end of a use, or so
                static_cast<void>(f.group.try_give_back());
            }
            const auto statistics = f.broker.statistics();
            if (statistics.granted_bytes > statistics.total_bytes) { notes.failure[3] = "above the total"; }
            static_cast<void>(f.group.accounts());
            std::this_thread::yield();
        }
        cache.give_back(taken);
    };
    const auto begin_and_end = [&] {
        for (int i = 0; i < 20; ++i) {
            auto made = f.group.try_make_room(2 * chunk);
            auto weights = Weights::try_create(f.device, brief.catalog, f.options(brief, 2 * chunk));
            if (!made || !weights) { continue; }  // others were faster
            auto member = f.group.try_add(*weights, {.name = "brief"});
            if (!member) {
                notes.note(4, member.error());
                return;
            }
            if (const auto use = f.group.try_activate(*member)) {
                const auto passed = checked_pass(f.device, *weights, brief, streams[4]);
                if (!passed) { notes.note(4, passed.error()); }
                ++notes.done[4];
            } else {
                notes.note(4, use.error());
            }
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] { serve(t); });
    }
    threads.emplace_back(grow_and_shrink);
    threads.emplace_back(begin_and_end);
    for (auto& thread : threads) { thread.join(); }
    for (std::size_t t = 0; t < 5; ++t) {
        CAPTURE(t);
        CHECK(notes.failure[t] == "");
        CHECK(notes.done[t] > 0);
    }
    for (const auto& each : f.all) { CHECK(*each->model.wrong == 0); }
    CHECK(*brief.wrong == 0);
    CHECK(f.device.peak_used_bytes() <= f.broker.statistics().total_bytes);
    for (const Stream stream : streams) { must(f.device.destroy_stream(stream)); }
}

TEST_SUITE_END();

}  // namespace model_group_threads_test

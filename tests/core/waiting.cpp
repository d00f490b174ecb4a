// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// While the host waits in a pass, speculative copies travel. Those whose step has passed make room for better ones.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "tests/core/compositions.hpp"

namespace waiting_test {

namespace {

using namespace streaming;
using CallKind = Device::CallKind;
using compositions::Hinted;
using residency::ErrorKind;
using residency::StorageId;
using std::chrono::microseconds;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20U;

void hint(Hinted& weights, std::uint32_t storage) {
    const residency::prefetch::Hint likely{.storage = StorageId{storage}};
    must(weights.prefetcher().hint({&likely, 1}));
}
/// A kernel of that length on a weight.
void use(Device& device, const Model& model, Hinted::Pass& pass, std::uint32_t i, microseconds duration,
         Stream stream) {
    const auto lease = must(pass.try_acquire(weight(i), stream));
    verify(device, model, lease, weight(i), stream, duration);
}

}  // namespace

TEST_CASE("a speculative copy of several pieces arrives while the host waits") {
    for (const bool waits_in_pass : {true, false}) {
        CAPTURE(waits_in_pass);
        CheckedDevice device;
        const Model model = uniform_model(device, 6, 4 * MiB);
        auto weights = make<Hinted>(device, model, 12 * MiB);
        const Stream stream{};
        auto pass = must(weights.try_begin(stream));
        use(device, model, pass, 0, microseconds{1000}, stream);
        hint(weights, 1);
        must(waits_in_pass ? pass.try_wait() : device.synchronize(stream));
        use(device, model, pass, 1, microseconds{2}, stream);
        must(pass.try_end());
        must(device.synchronize(stream));
        CHECK(weights.statistics().total.prefetch_hits == (waits_in_pass ? 1 : 0));
        CHECK(weights.statistics().total.demand_misses == (waits_in_pass ? 1 : 2));
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 8 * MiB);
    }
}

TEST_CASE("the last storage that is absent arrives while the host waits, too") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, 4 * MiB);
    auto weights = make<Hinted>(device, model, 12 * MiB);
    const Stream stream{};
    auto pass = must(weights.try_begin(stream));
    use(device, model, pass, 0, microseconds{1000}, stream);
    hint(weights, 1);
    must(pass.try_wait());
    use(device, model, pass, 1, microseconds{2}, stream);
    must(pass.try_end());
    must(device.synchronize(stream));
    CHECK(weights.statistics().total.prefetch_hits == 1);
    CHECK(weights.statistics().total.demand_misses == 1);
    CHECK(*model.wrong == 0);
}

TEST_CASE("waiting blocks for what was asked before, with hints and without") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4 * MiB);
    auto weights = make<Hinted>(device, model, 12 * MiB);
    const Stream stream{};
    auto pass = must(weights.try_begin(stream));
    for (const bool hints : {false, true}) {
        use(device, model, pass, 0, microseconds{10}, stream);
        if (hints) { hint(weights, 1); }
        const std::uint64_t before = *model.verified;
        must(pass.try_wait());
        CHECK(*model.verified == before + 4 * MiB);
    }
    must(pass.try_end());
    must(device.synchronize(stream));
}

TEST_CASE("waits of the host that it was asked for are counted, those that were refused are not") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4 * MiB);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Hinted>(device, model, 12 * MiB);
        const std::uint64_t before = weights.statistics().total.host_waits;
        auto pass = must(weights.try_begin(stream));
        for (const bool hints : {false, true}) {
            use(device, model, pass, 0, microseconds{10}, stream);
            if (hints) { hint(weights, 1); }
            must(pass.try_wait());
        }
        must(device.begin_capture(stream));
        CHECK_FALSE(pass.try_wait().has_value());
        must(device.destroy_graph(must(device.end_capture(stream))));
        must(pass.try_end());
        CHECK_FALSE(pass.try_wait().has_value());
        CHECK(weights.statistics().last_pass.host_waits == 2);
        must(device.synchronize(stream));
        CHECK(weights.statistics().total.host_waits == before + 2);
        must(weights.try_drain());
        CHECK(weights.statistics().total.host_waits == before + 3);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a speculative copy whose step has passed is given up where memory is short") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 4 * MiB);
    auto weights = make<Hinted>(device, model, 12 * MiB);
    const Stream stream{};
    auto pass = must(weights.try_begin(stream));
    for (const std::uint32_t i : {0U, 1U, 2U}) { use(device, model, pass, i, microseconds{2}, stream); }
    hint(weights, 7);
    use(device, model, pass, 2, microseconds{2}, stream);
    must(pass.try_wait());  // two pieces of four at most
    REQUIRE(weights.statistics().total.evictions == 1);
    for (int i = 0; i < 4; ++i) { use(device, model, pass, 2, microseconds{2}, stream); }
    hint(weights, 6);
    use(device, model, pass, 2, microseconds{1000}, stream);
    must(pass.try_wait());
    const residency::Counters before = weights.statistics().total;
    use(device, model, pass, 6, microseconds{2}, stream);
    CHECK((weights.statistics().total - before).prefetch_hits == 1);
    use(device, model, pass, 7, microseconds{2}, stream);
    CHECK((weights.statistics().total - before).demand_misses == 1);
    must(pass.try_end());
    must(device.synchronize(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("whatever fails while the host waits, the pass goes on with the right bytes") {
    std::uint64_t refused = 0;
    for (const CallKind kind : {CallKind::is_complete, CallKind::record, CallKind::wait, CallKind::copy, CallKind::fill,
                                CallKind::pool_allocate, CallKind::pool_deallocate, CallKind::is_capturing}) {
        for (std::uint64_t nth = 1; nth <= 6; ++nth) {
            CAPTURE(nth);
            CheckedDevice device;
            const Model model = uniform_model(device, 6, 2 * MiB);
            const Stream stream{};
            const Stream second = must(device.create_stream());
            {
                auto chosen = options<Hinted>(6 * MiB);
                chosen.poison = true;
                auto weights = must(Hinted::try_create(device, model.catalog, std::move(chosen)));
                auto pass = must(weights.try_begin(stream));
                for (const std::uint32_t i : {0U, 1U, 2U}) { use(device, model, pass, i, microseconds{100}, stream); }
                hint(weights, 4);
                hint(weights, 5);
                device.fail(kind, nth);
                refused += pass.try_wait() ? 0U : 1U;
                device.clear_failures();
                for (const std::uint32_t i : {4U, 5U, 5U, 5U, 5U, 0U, 1U, 2U, 3U}) {
                    use(device, model, pass, i, microseconds{10}, i % 2 == 0 ? second : stream);
                }
                must(pass.try_wait());
                must(pass.try_end());
                must(device.synchronize());
                CHECK(*model.wrong == 0);
                CHECK(*model.verified == 12 * 2 * MiB);
            }
            must(device.destroy_stream(second));
        }
    }
    CHECK(refused > 0);
}

TEST_CASE("a device that is lost ends the wait") {
    CheckedDevice device;
    device.leaks_expected = true;
    const Model model = uniform_model(device, 6, 4 * MiB);
    auto weights = make<Hinted>(device, model, 12 * MiB);
    const Stream stream{};
    auto pass = must(weights.try_begin(stream));
    use(device, model, pass, 0, microseconds{1000}, stream);
    hint(weights, 1);
    device.lose_device();
    CHECK_FALSE(pass.try_wait().has_value());
    CHECK_FALSE(pass.try_end().has_value());
}

TEST_CASE("a capture that the caller began in the pass is left as it is") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4 * MiB);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Hinted>(device, model, 12 * MiB);
        auto pass = must(weights.try_begin(stream));
        use(device, model, pass, 0, microseconds{1000}, stream);
        hint(weights, 1);
        must(device.begin_capture(stream));
        const auto waited = pass.try_wait();
        REQUIRE_FALSE(waited.has_value());
        CHECK(waited.error().kind() == ErrorKind::unsupported);
        must(device.destroy_graph(must(device.end_capture(stream))));
        must(pass.try_wait());
        must(pass.try_end());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a pass that has ended has nothing to wait for") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 8192);
    auto weights = make<Hinted>(device, model, MiB);
    auto pass = must(weights.try_begin(Stream{}));
    must(pass.try_end());
    const auto ended = pass.try_wait();
    REQUIRE_FALSE(ended.has_value());
    CHECK(ended.error().kind() == ErrorKind::wrong_state);
}

}  // namespace waiting_test

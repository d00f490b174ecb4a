// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Device memory that is given back and taken again, and weights that are replaced: random programs on every kind of composition.
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "residency/host/loading.hpp"
#include "residency/transport/staged.hpp"
#include "tests/support/compositions.hpp"
#include "tests/support/replaced_weights.hpp"
#include "tests/support/simulated_harness.hpp"
#include "tests/support/streaming.hpp"
#include "tests/transport/staged_streaming.hpp"

namespace suspend_and_refresh_test {

using streaming::must;
using streaming::run_pass;
using support::SimulatedHarness;
using support::WeightsIn;

namespace {

using Device = residency::SimulatedDevice;
template <class Weights>
struct WithStaging;
template <class Evictor, class Prefetcher, class Pool, class Transport>
struct WithStaging<residency::Residency<Evictor, Prefetcher, Pool, Transport>> {
    using type = residency::Residency<Evictor, Prefetcher, Pool, residency::transport::Staged<Device>>;
};

template <class Weights>
void run_programs(std::uint64_t programs, WeightsIn place) {
    const std::uint64_t reads =
        support::replace_weights<Weights, SimulatedHarness>(1, programs, place, 16384, 0, [](auto& options) {
            if constexpr (requires { options.policies.pool.chunk_bytes; }) { options.policies.pool.chunk_bytes = 4096; }
            if constexpr (requires { options.poison; }) { options.poison = true; }
            if constexpr (requires { options.transport.ring_bytes; }) {
                options.transport.ring_bytes = 32768;
                options.transport.slot_bytes = 4096;
                options.transport.threads = 2;
            }
        });
    CHECK(reads > 30 * programs);
}

/// Half of the weights fit.
template <class Weights>
Weights make(Device& device, const streaming::Model& model) {
    typename Weights::Options options;
    options.budget = residency::Budget::bytes(model.catalog.total_bytes() / 2);
    options.schedule = streaming::in_order(model);
    if constexpr (requires { options.policies.pool.chunk_bytes; }) { options.policies.pool.chunk_bytes = 4096; }
    return must(Weights::try_create(device, model.catalog, std::move(options)));
}
/// Other bytes for a weight, at its source.
void fill(Device& device, const streaming::Model& model, std::uint32_t i, std::byte value) {
    const residency::StorageId id{i};
    auto* const bytes = const_cast<std::byte*>(model.catalog.host_bytes(id));
    must(device.host_write(bytes, model.catalog.storage(id).bytes));
    std::memset(bytes, std::to_integer<int>(value), static_cast<std::size_t>(model.catalog.storage(id).bytes));
}

}  // namespace

TEST_SUITE_BEGIN("core suspend and refresh");

TEST_CASE_TEMPLATE("C31 C32: memory that is given back, weights that are replaced: random programs", Weights,
                   compositions::OnDemand, compositions::OnSlab, compositions::Ahead, compositions::Hinted,
                   compositions::Planned) {
    run_programs<Weights>(30, WeightsIn::pinned);
}

TEST_CASE_TEMPLATE("C31 C32: the same through a staging ring, from pageable memory and from a file", Weights,
                   compositions::OnDemand, compositions::Planned) {
    using Staged = typename WithStaging<Weights>::type;
    run_programs<Staged>(12, WeightsIn::pageable);
    run_programs<Staged>(12, WeightsIn::file);
}

TEST_CASE_TEMPLATE("C31: what is suspended refuses passes in words, and ends without being resumed", Weights,
                   compositions::OnDemand, compositions::Planned) {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 4, 4096);
    const auto stream = must(device.create_stream());
    const std::uint64_t before = must(device.memory()).free_bytes;
    {
        auto weights = make<Weights>(device, model);
        run_pass(weights, model, stream);
        must(weights.try_suspend());
        CHECK(must(device.memory()).free_bytes == before);
        const auto refused = weights.try_begin(stream);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().message() ==
              "it is suspended, and holds no device memory: call resume(), or activate() of its ModelGroup, before "
              "passes, captures and other schedules");
        must(weights.try_resume());
        run_pass(weights, model, stream);
        must(weights.try_suspend());
    }
    CHECK(*model.wrong == 0);
    CHECK(must(device.memory()).free_bytes == before);
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C32: weights that the catalog lacks are refused before anything is replaced", Weights,
                   compositions::OnDemand, compositions::Planned) {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 3, 4096);
    auto weights = make<Weights>(device, model);
    const auto refused =
        weights.try_refresh({streaming::weight(1), streaming::weight(3)}, [] { FAIL_CHECK("bytes are replaced"); });
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == residency::ErrorKind::invalid_argument);
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE_TEMPLATE("C32: what throws while it replaces weights is thrown on, and passes read what is there", Weights,
                   compositions::OnDemand, compositions::Planned) {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 4, 4096);
    const auto stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model);
        run_pass(weights, model, stream);
        struct Torn {};
        CHECK_THROWS_AS(weights.refresh_all([&] {
            fill(device, model, 0, std::byte{1});
            fill(device, model, 2, std::byte{2});
            throw Torn{};
        }),
                        Torn);
        run_pass(weights, model, stream);
        must(weights.try_drain());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}
#endif

TEST_CASE_TEMPLATE("C32: two of one model, each refreshed around the same bytes", Weights, compositions::OnDemand,
                   compositions::Planned) {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 4, 4096);
    const auto stream = must(device.create_stream());
    const auto second = must(device.create_stream());
    {
        auto a = make<Weights>(device, model);
        auto b = make<Weights>(device, model);
        for (int i = 0; i < 4; ++i) {
            run_pass(a, model, stream);
            run_pass(b, model, second);
            const auto some = {streaming::weight(1), streaming::weight(3)};
            must(a.try_refresh(some, [&] {
                return b.try_refresh(some, [&] {
                    fill(device, model, 1, std::byte(i));
                    fill(device, model, 3, std::byte(10 + i));
                });
            }));
        }
        run_pass(a, model, stream);
        run_pass(b, model, second);
        must(a.try_drain());
        must(b.try_drain());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
    must(device.destroy_stream(second));
}

TEST_CASE("C32: bytes that are still loading are loaded before they are replaced") {
    using Weights = typename WithStaging<compositions::Planned>::type;
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 6, 100'000);
    const staged_streaming::InFile in_file{model};
    const auto stream = must(device.create_stream());
    {
        residency::host::LoadOptions load;
        load.threads = 1;
        load.read_bytes = 4096;
        std::atomic<bool> may_load = false;
        load.progress = [&](const residency::host::LoadProgress&) {
            may_load.wait(false);
            return true;
        };
        const auto loading = must(residency::host::Loading::try_start(device, in_file.catalog, load));
        typename Weights::Options options;
        options.budget = residency::Budget::bytes(0);
        options.policies.pool.chunk_bytes = 4096;
        options.transport.loading = loading;
        const auto catalog = loading->catalog();
        auto weights = must(Weights::try_create(device, catalog, std::move(options)));
        may_load = true;
        may_load.notify_all();
        must(weights.try_refresh_all([&] {
            for (std::uint32_t i = 0; i < 6; ++i) {
                CHECK(loading->is_loaded(residency::StorageId{i}));
                fill(device, model, i, std::byte(i));  // what kernels expect
                std::memset(const_cast<std::byte*>(catalog.host_bytes(residency::StorageId{i})), static_cast<int>(i),
                            100'000);
            }
        }));
        streaming::run_pass(weights, model, stream);
        must(weights.try_drain());
        must(loading->wait());
    }
    CHECK(*model.wrong == 0);
    CHECK(*model.verified == model.catalog.total_bytes());
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace suspend_and_refresh_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Residency on a real GPU: every weight that a kernel is given is checked by that kernel, with no host wait in between.
#include "residency/core/residency.hpp"
#include "residency/core/planned/planned_decider.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "residency/device/cuda.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/gpu/support.hpp"

namespace residency_on_gpu {

using namespace std::chrono_literals;
using gpu::KiB;
using gpu::MiB;
using gpu::must;
using gpu::must_cuda;
using residency::Budget;
using residency::Catalog;
using residency::CudaDevice;
using residency::ErrorKind;
using residency::Placement;
using residency::Schedule;
using residency::StorageId;
using residency::WeightId;

namespace {

/// First come, first to leave.
struct Oldest {
    std::vector<StorageId> order;

    residency::Status attach(const residency::evict::Context& context) {
        order.clear();
        order.reserve(context.bytes.size());
        return {};
    }
    void inserted(StorageId id, residency::StepIndex) noexcept { order.push_back(id); }
    void used(StorageId, residency::StepIndex) noexcept {}
    void removed(StorageId id) noexcept { std::erase(order, id); }
    template <class MayLeave>
    std::optional<StorageId> victim(residency::StepIndex, MayLeave&& may_leave) noexcept {
        for (const StorageId id : order) {
            if (may_leave(id)) { return id; }
        }
        return std::nullopt;
    }
};
static_assert(residency::evict::EvictionPolicy<Oldest>);

/// Proposes anything: whatever it says, results stay right.
template <bool Interruptible>
struct Guesses {
    static constexpr bool interruptible = Interruptible;
    std::size_t storages = 0;

    residency::Status attach(const residency::prefetch::Context& context) {
        storages = context.bytes.size();
        return {};
    }
    template <class Sink>
    void propose(residency::StepIndex now, Sink&& sink) noexcept {
        for (std::size_t i = 0; i < 4 && i < storages; ++i) {
            if (!sink(StorageId{static_cast<std::uint32_t>((now * 7 + i) % storages)}, now + 1 + i)) { return; }
        }
    }
    void clear() noexcept {}
};
static_assert(residency::prefetch::PrefetchPolicy<Guesses<false>>);

/// A catalog over pinned bytes, and the checksum of each weight.
struct Model {
    Catalog catalog;
    std::vector<std::uint64_t> checksums;
};

/// The bytes hold the device, so that they can be given back whenever the last user is gone.
std::shared_ptr<const residency::HostBytes> pinned_bytes(const std::shared_ptr<CudaDevice>& device, std::uint64_t bytes,
                                                         std::uint64_t seed) {
    auto* const at = static_cast<std::byte*>(must(device->allocate_host(bytes)));
    gpu::fill_pattern({at, bytes}, seed);
    return residency::HostBytes::adopt(at, bytes, residency::HostMemory::pinned, [device](std::byte* p) {
        static_cast<void>(device->deallocate_host(p).has_value());
    });
}

Model make_model(const std::shared_ptr<CudaDevice>& device, std::mt19937_64& random, std::size_t weights, bool equal) {
    residency::CatalogBuilder builder;
    Model model;
    std::vector<std::uint64_t> sizes;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < weights; ++i) {
        sizes.push_back(equal ? 256 * KiB : (i % 11 == 5 ? 0 : 1 + random() % (2 * MiB)));
        total += sizes.back();
    }
    const auto host = pinned_bytes(device, total + 1, random());
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < weights; ++i) {
        residency::StorageOptions options;
        options.source = residency::HostSource{host, at};
        if (i % 13 == 6) { options.placement = Placement::resident; }
        if (i % 17 == 9) { options.placement = Placement::host; }
        const StorageId storage = builder.add_storage(sizes[i], options);
        builder.add_weight("w" + std::to_string(i), residency::dtype::u8, {sizes[i]}, storage);
        model.checksums.push_back(gpu::checksum({host->data() + at, sizes[i]}));
        at += sizes[i];
        if (i % 10 == 7) {
            // A tied name, and a view on the second half.
            builder.add_weight("tied" + std::to_string(i), residency::dtype::u8, {sizes[i]}, storage);
            model.checksums.push_back(model.checksums.back());
            const std::uint64_t half = sizes[i] / 2;
            builder.add_weight("half" + std::to_string(i), residency::dtype::u8, {sizes[i] - half}, storage, half);
            model.checksums.push_back(gpu::checksum({host->data() + at - sizes[i] + half, sizes[i] - half}));
        }
    }
    model.catalog = must(builder.try_build());
    return model;
}

Schedule make_schedule(const Model& model, std::mt19937_64& random, std::size_t steps) {
    residency::ScheduleBuilder builder{model.catalog};
    for (std::size_t i = 0; i < steps; ++i) {
        std::vector<WeightId> weights;
        for (std::size_t k = 0; k <= random() % 4; ++k) {
            weights.push_back(WeightId{static_cast<std::uint32_t>(random() % model.catalog.weights().size())});
        }
        builder.step(std::span<const WeightId>{weights});
    }
    return must(builder.try_build());
}

/// Sums of kernels, in the order of the checks; compared at the end.
class Checks {
public:
    Checks(CudaDevice& device, std::size_t most)
        : device_{device}, sums_{static_cast<std::uint64_t*>(must(device.allocate(most * 8)))}, most_{most} {
        must_cuda(cudaMemset(sums_, 0, most * 8));
    }
    Checks(const Checks&) = delete;
    Checks& operator=(const Checks&) = delete;
    ~Checks() { static_cast<void>(device_.deallocate(sums_).has_value()); }

    void add(const std::byte* at, std::uint64_t bytes, std::uint64_t expected, cudaStream_t stream) {
        REQUIRE(expected_.size() < most_);
        if (bytes == 0) { return; }
        must_cuda(gpu::launch_checksum({at, bytes}, sums_ + expected_.size(), stream));
        expected_.push_back(expected);
    }
    /// How many differ. Waits for the device.
    [[nodiscard]] std::size_t wrong() const {
        must_cuda(cudaDeviceSynchronize());
        std::vector<std::uint64_t> got(expected_.size());
        if (!got.empty()) { must_cuda(cudaMemcpy(got.data(), sums_, got.size() * 8, cudaMemcpyDeviceToHost)); }
        std::size_t count = 0;
        for (std::size_t i = 0; i < got.size(); ++i) { count += got[i] != expected_[i] ? 1U : 0U; }
        return count;
    }
    [[nodiscard]] std::size_t size() const noexcept { return expected_.size(); }

private:
    CudaDevice& device_;
    std::uint64_t* sums_;
    std::size_t most_;
    std::vector<std::uint64_t> expected_;
};

/// Random passes over random streams, with leases that overlap, kernels of random length and nested leases.
template <class Weights>
void run_passes(Weights& weights, const Model& model, Checks& checks, std::mt19937_64& random,
                std::span<const CudaDevice::Stream> streams, std::size_t passes) {
    for (std::size_t p = 0; p < passes; ++p) {
        auto pass = must(weights.try_begin(streams[random() % streams.size()]));
        for (const Schedule::Step& step : weights.schedule()) {
            const CudaDevice::Stream stream = streams[random() % streams.size()];
            const bool diverge = random() % 9 == 0;
            const WeightId other{static_cast<std::uint32_t>(random() % model.catalog.weights().size())};
            auto acquired = diverge ? pass.try_acquire(other, stream) : pass.try_acquire(step, stream);
            // What was not announced may be refused, never wrong.
            if (diverge && !acquired && acquired.error().kind() == ErrorKind::budget) { continue; }
            auto lease = must(std::move(acquired));
            std::vector<CudaDevice::Stream> on{stream};
            if (random() % 4 == 0) {
                const CudaDevice::Stream second = streams[random() % streams.size()];
                must(lease.try_use_on(second));
                on.push_back(second);
            }
            for (const CudaDevice::Stream each : on) {
                if (random() % 3 == 0) { must_cuda(gpu::launch_spin(std::chrono::microseconds{random() % 300}, each)); }
                const auto check = [&](WeightId id) {
                    checks.add(lease.data(id), model.catalog.weight(id).bytes, model.checksums[index(id)], each);
                };
                if (diverge) {
                    check(other);
                } else {
                    for (const WeightId id : step.weights) { check(id); }
                }
            }
        }
        must(pass.try_end());
    }
    REQUIRE_MESSAGE(!weights.failure(), (weights.failure() ? weights.failure()->message() : std::string{}));
}

/// `must_stream`: the model is one of which it is known that every budget but the largest streams, and the smallest evicts.
template <class Weights>
void run_program(bool equal, unsigned seed, bool must_stream) {
    std::mt19937_64 random{seed};
    auto device = std::make_shared<CudaDevice>(0);
    std::vector<CudaDevice::Stream> streams;
    for (int i = 0; i < 3; ++i) { streams.push_back(must(device->create_stream())); }
    const Model model = make_model(device, random, 60, equal);
    Checks checks{*device, 60000};
    for (int round = 0; round < 4; ++round) {
        const Schedule schedule = make_schedule(model, random, 50);
        // The floor, a little more, about half, everything.
        std::uint64_t floor = 0;
        std::uint64_t total = 0;
        {
            typename Weights::Options options;
            options.budget = Budget::bytes(0);
            options.schedule = schedule;
            auto probe = must(Weights::try_create(*device, model.catalog, std::move(options)));
            floor = probe.budget().floor_bytes;
            total = probe.budget().total_bytes;
        }
        must(device->synchronize());
        const std::uint64_t free_before = must(device->memory()).free_bytes;
        typename Weights::Options options;
        options.schedule = schedule;
        if constexpr (requires { options.poison; }) { options.poison = round % 2 == 1; }
        const std::uint64_t budget = round == 0   ? floor
                                     : round == 1 ? floor + (total - floor) / 4
                                     : round == 2 ? (floor + total) / 2
                                                  : total;
        options.budget = Budget::bytes(budget);
        {
            auto weights = must(Weights::try_create(*device, model.catalog, std::move(options)));
            run_passes(weights, model, checks, random, streams, 6);
            const auto statistics = weights.statistics();
            CHECK(statistics.held_bytes <= budget);
            CHECK(statistics.peak_requested_bytes <= budget);
            if (round == 3 || must_stream) { CHECK(statistics.streaming == (round != 3)); }
            if (round == 0 && must_stream) { CHECK(statistics.total.evictions > 0); }
            const std::uint64_t taken = free_before - must(device->memory()).free_bytes;
            MESSAGE("budget " << budget << ", held " << statistics.held_bytes << ", taken from the driver " << taken
                              << ", evictions " << statistics.total.evictions << ", host waits "
                              << statistics.total.host_waits);
            CHECK(taken <= budget + gpu::driver_own_bytes);
        }
        CHECK(must(device->memory()).free_bytes == free_before);
    }
    CHECK(checks.size() > 1000);
    CHECK(checks.wrong() == 0);
    for (const auto stream : streams) { must(device->destroy_stream(stream)); }
}

template <class Weights>
void check_composition(bool equal, unsigned first_seed) {
    gpu::for_seeds(first_seed, [&](unsigned seed) { run_program<Weights>(equal, seed, seed == first_seed); });
}

template <class Prefetcher, class Pool>
using Weights = residency::Residency<Oldest, Prefetcher, Pool>;
using StreamOrdered = residency::pool::StreamOrdered<CudaDevice>;
using Slab = residency::pool::Slab<CudaDevice>;
template <class Pool>
using Scheduled = residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled, Pool>;
using Planned =
    residency::Residency<residency::evict::Planned, residency::prefetch::Planned, residency::pool::Virtual<CudaDevice>>;

}  // namespace

TEST_CASE("residency: every weight is right under random passes, stream-ordered pool") {
    check_composition<Weights<Guesses<false>, StreamOrdered>>(false, 101);
}
TEST_CASE("residency: every weight is right under random passes, stream-ordered pool, guesses in pieces") {
    check_composition<Weights<Guesses<true>, StreamOrdered>>(false, 102);
}
TEST_CASE("residency: every weight is right under random passes, slab") {
    check_composition<Weights<Guesses<false>, Slab>>(true, 103);
}

TEST_CASE("residency: every weight is right under random passes, by the schedule") {
    check_composition<Scheduled<StreamOrdered>>(false, 104);
}
TEST_CASE("residency: every weight is right under random passes, planned") { check_composition<Planned>(false, 105); }

TEST_CASE("residency: below the floor is refused with numbers that work") {
    auto device = std::make_shared<CudaDevice>(0);
    std::mt19937_64 random{5};
    const Model model = make_model(device, random, 40, false);
    const Schedule schedule = make_schedule(model, random, 20);
    using W = Weights<Guesses<false>, Slab>;
    const std::uint64_t before = must(device->memory()).free_bytes;
    W::Options options;
    options.schedule = schedule;
    options.budget = Budget::bytes(2 * MiB);
    const auto refused = W::try_create(*device, model.catalog, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
    REQUIRE(numbers != nullptr);
    CHECK(must(device->memory()).free_bytes == before);
    options.budget = Budget::bytes(numbers->floor_bytes);
    CHECK(W::try_create(*device, model.catalog, options));
    // More than the GPU has: out of memory, and nothing left behind.
    CHECK(must(device->memory()).free_bytes == before);
}

TEST_CASE("residency: torn down with work in flight") {
    auto device = std::make_shared<CudaDevice>(0);
    std::mt19937_64 random{6};
    const auto stream = must(device->create_stream());
    const Model model = make_model(device, random, 40, false);
    const Schedule schedule = make_schedule(model, random, 20);
    Checks checks{*device, 2000};
    for (int round = 0; round < 5; ++round) {
        using W = Weights<Guesses<false>, StreamOrdered>;
        W::Options options;
        options.schedule = schedule;
        options.budget = Budget::bytes(0);
        auto weights = must(W::try_create(*device, model.catalog, std::move(options)));
        must_cuda(gpu::launch_spin(5ms, stream));
        run_passes(weights, model, checks, random, {&stream, 1}, 1);
    }
    CHECK(checks.wrong() == 0);
    must(device->destroy_stream(stream));
}

TEST_CASE("residency: two in two threads share the host bytes and the device") {
    auto device = std::make_shared<CudaDevice>(0);
    std::mt19937_64 random{7};
    const Model model = make_model(device, random, 50, false);
    const Schedule schedule = make_schedule(model, random, 30);
    std::vector<std::unique_ptr<Checks>> checks;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; ++t) { checks.push_back(std::make_unique<Checks>(*device, 10000)); }
    for (unsigned t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 own{100 + t};
            const auto stream = must(device->create_stream());
            using W = Weights<Guesses<false>, StreamOrdered>;
            W::Options options;
            options.schedule = schedule;
            options.budget = Budget::bytes(0);
            {
                auto weights = must(W::try_create(*device, model.catalog, std::move(options)));
                run_passes(weights, model, *checks[t], own, {&stream, 1}, 8);
            }
            must(device->destroy_stream(stream));
        });
    }
    for (auto& thread : threads) { thread.join(); }
    for (const auto& each : checks) {
        CHECK(each->size() > 100);
        CHECK(each->wrong() == 0);
    }
}

TEST_CASE(
    "residency: a lease held over its declared range: right weights, and no copy more than planned, eager and "
    "captured") {
    constexpr std::uint32_t count = 16, last = 8,
                            large = 12;  // weight 0 is read in steps 0 to 8; for weight 12 all leave
    constexpr std::uint64_t budget = 16 * MiB;
    auto device = std::make_shared<CudaDevice>(must(CudaDevice::try_open(0)));
    const auto host = pinned_bytes(device, count * 2 * MiB + budget, 5);
    residency::CatalogBuilder builder;
    std::vector<std::uint64_t> expected;
    for (std::uint32_t i = 0, at = 0; i < count; ++i) {
        const std::uint64_t bytes = i == large ? budget : 2 * MiB;
        residency::StorageOptions options;
        options.source = residency::HostSource{host, at * MiB};
        builder.add_weight("w" + std::to_string(i), residency::dtype::u8, {bytes}, builder.add_storage(bytes, options));
        expected.push_back(gpu::checksum({host->data() + at * MiB, bytes}));
        at += static_cast<std::uint32_t>(bytes / MiB);
    }
    expected.push_back(expected.front());  // read again at the end of its range
    const Catalog catalog = must(builder.try_build());
    residency::ScheduleBuilder steps{catalog};
    for (std::uint32_t i = 0; i < count; ++i) {
        steps.step({WeightId{i}}, 20us);
        if (i == 0) { steps.live_until(WeightId{0}, last); }
    }
    const CudaDevice::Stream stream = must(device->create_stream());
    auto* const sums = static_cast<std::uint64_t*>(must(device->allocate(expected.size() * 8)));
    {
        Planned::Options options;
        options.schedule = must(steps.try_build());
        options.budget = Budget::bytes(budget);
        options.learn = false;
        auto weights = must(Planned::try_create(*device, catalog, std::move(options)));
        const auto& plan = weights.plan();
        REQUIRE(std::any_of(plan.copies().begin(), plan.copies().end(), [&](const residency::plan::Copy& copy) {
            return copy.image_begin < plan.storage_offset(0) + plan.storage_bytes(0) &&
                   copy.image_end > plan.storage_offset(0);
        }));  // what is held streams, at least in part
        const auto read = [&](const auto& lease, std::uint32_t i, std::uint32_t to) {
            const WeightId id{i};
            must_cuda(gpu::launch_checksum({lease.data(id), catalog.weight(id).bytes}, sums + to, stream));
        };
        const auto body = [&](auto& pass) {
            auto held = must(pass.try_acquire(WeightId{0}));
            read(held, 0, 0);
            for (std::uint32_t i = 1; i < count; ++i) {
                auto lease = must(pass.try_acquire(WeightId{i}));
                read(lease, i, i);
                if (i != last) { continue; }
                read(held, 0, count);
                held.end();
            }
        };
        const auto check = [&] {
            must_cuda(cudaDeviceSynchronize());
            std::vector<std::uint64_t> got(expected.size());
            must_cuda(cudaMemcpy(got.data(), sums, got.size() * 8, cudaMemcpyDeviceToHost));
            CHECK(got == expected);
            must_cuda(cudaMemset(sums, 0, got.size() * 8));
        };
        must_cuda(cudaMemset(sums, 0, expected.size() * 8));
        for (int i = 0; i < 4; ++i) {
            auto pass = must(weights.try_begin(stream));
            body(pass);
            must(pass.try_end());
            check();
        }
        CHECK(weights.statistics().last_pass.demand_misses == 0);
        CHECK(weights.statistics().last_pass.fetched_bytes == weights.plan().bytes_per_pass());
        CHECK(weights.statistics().held_lease.storage == residency::no_storage);
        auto graph = must(weights.try_capture(stream, body));
        for (int i = 0; i < 3; ++i) {
            must(graph.try_launch(stream));
            check();
        }
    }
    must(device->deallocate(sums));
    must(device->destroy_stream(stream));
}

TEST_CASE("residency: a captured pass brings the right weights, beside eager ones, until the budget changes") {
    auto device = std::make_shared<CudaDevice>(must(CudaDevice::try_open(0)));
    std::mt19937_64 random{77};
    const Model model = make_model(device, random, 60, false);
    const Schedule schedule = make_schedule(model, random, 40);
    const CudaDevice::Stream stream = must(device->create_stream());
    const CudaDevice::Stream side = must(device->create_stream());
    std::size_t reads = 0;
    for (const Schedule::Step& step : schedule) { reads += step.weights.size(); }
    auto* const sums = static_cast<std::uint64_t*>(must(device->allocate(reads * 8)));
    {
        Planned::Options options;
        options.schedule = schedule;
        options.budget = Budget::bytes(0);
        auto weights = must(Planned::try_create(*device, model.catalog, std::move(options)));
        std::vector<std::uint64_t> expected;
        const auto body = [&](auto& pass) {
            expected.clear();
            for (const Schedule::Step& step : schedule) {
                auto lease = must(pass.try_acquire(step));
                if (step.position % 5 == 2) { must(lease.try_use_on(side)); }
                for (const WeightId id : step.weights) {
                    const std::uint64_t bytes = model.catalog.weight(id).bytes;
                    const CudaDevice::Stream on = step.position % 5 == 2 && expected.size() % 2 == 0 ? side : stream;
                    if (bytes > 0) {
                        must_cuda(gpu::launch_checksum({lease.data(id), bytes}, sums + expected.size(), on));
                    }
                    expected.push_back(bytes > 0 ? model.checksums[index(id)] : 0);
                }
            }
        };
        // The kernels add to the sums: after so many passes.
        const auto check = [&](std::uint64_t passes = 1) {
            must_cuda(cudaDeviceSynchronize());
            std::vector<std::uint64_t> got(reads), sum(reads);
            must_cuda(cudaMemcpy(got.data(), sums, reads * 8, cudaMemcpyDeviceToHost));
            std::transform(expected.begin(), expected.end(), sum.begin(), [&](auto each) { return each * passes; });
            CHECK(got == sum);
            must_cuda(cudaMemset(sums, 0, reads * 8));
        };
        must_cuda(cudaMemset(sums, 0, reads * 8));
        const std::uint64_t floor = weights.budget().floor_bytes;
        // Of what the steps read: beyond that nothing more is held.
        std::set<StorageId> read;
        for (const Schedule::Step& step : schedule) { read.insert(step.storages.begin(), step.storages.end()); }
        std::uint64_t most = 0;
        for (const StorageId id : read) { most += model.catalog.storage(id).bytes; }
        const std::uint64_t span = most - floor;
        const auto part = [&](std::uint64_t tenths) { return Budget::bytes(floor + span * tenths / 10); };
        for (const std::uint64_t tenths : {0U, 4U, 7U, 2U}) {
            if (tenths > 0) { must(weights.try_set_budget(part(tenths))); }
            auto timed = must(weights.try_capture_timed(stream, body));
            CHECK(timed.is_learning() == weights.statistics().streaming);
            std::uint32_t launches = 0;
            for (; timed.is_learning() && launches < 10; ++launches) {
                must(timed.try_launch(launches == 1 ? side : stream));
                if (launches != 2) { check(launches == 3 ? 2 : 1); }  // after the third the next launch waits
            }
            CHECK(launches < 10);
            if (launches == 3) { check(); }
            if (launches > 0) { CHECK(weights.statistics().learning.timed_steps > 0); }
            auto graph = must(weights.try_capture(stream, body));
            CHECK(timed.is_stale() == (launches > 0));
            CHECK_FALSE(weights.failure().has_value());
            for (int i = 0; i < 3; ++i) {
                must(graph.try_launch(i == 1 ? side : stream));
                check();
            }
            {
                auto pass = must(weights.try_begin(stream));
                body(pass);
                must(pass.try_end());
            }
            check();
            {
                // Out of order, so that what the graph expects is no longer there.
                auto pass = must(weights.try_begin(side));
                for (const std::uint32_t at : {31U, 3U, 17U}) {
                    static_cast<void>(pass.try_acquire(schedule[at], side).has_value());
                }
                must(pass.try_end());
            }
            must(graph.try_launch(stream));
            check();
            const std::uint64_t before = weights.statistics().held_bytes;
            must(weights.try_set_budget(part(9)));
            CHECK(weights.statistics().held_bytes != before);
            CHECK(graph.is_stale());
            const auto refused = graph.try_launch(stream);
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::stale);
        }
    }
    must(device->deallocate(sums));
    must(device->destroy_stream(stream));
    must(device->destroy_stream(side));
}

}  // namespace residency_on_gpu

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/interop/memory_resource.hpp"

#include <doctest/doctest.h>

#include <new>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "tests/support/simulated_harness.hpp"

namespace memory_resource_test {

using residency::BudgetBroker;
using residency::ErrorKind;
using residency::MemoryResource;
using residency::SimulatedDevice;
using support::must;
using Resource = MemoryResource<SimulatedDevice>;
using CallKind = SimulatedDevice::CallKind;

TEST_SUITE_BEGIN("memory resource");

namespace {

constexpr std::uint64_t granule = 65536;

Resource make(SimulatedDevice& device, BudgetBroker& broker, std::uint64_t limit = UINT64_MAX) {
    return must(Resource::try_create(device, must(broker.try_add_memory({.name = "cache", .limit_bytes = limit}))));
}

}  // namespace

TEST_CASE("what the pool holds is what the client has taken, at every instant") {
    support::SimulatedHarness harness;
    auto& device = harness.device();
    {
        BudgetBroker broker{{.total_bytes = 4 * granule}};
        auto resource = make(device, broker);
        const auto stream = must(device.create_stream());
        std::vector<void*> pages;
        while (true) {
            auto page = resource.try_allocate(granule / 2, 256, stream);
            if (!page) {
                CHECK(page.error().kind() == ErrorKind::budget);
                CHECK(page.error().detail<residency::BudgetNumbers>() != nullptr);
                break;
            }
            pages.push_back(*page);
            CHECK(resource.held_bytes() == (pages.size() + 1) / 2 * granule);
            CHECK(device.peak_used_bytes() <= resource.held_bytes());
        }
        CHECK(pages.size() >= 7);  // the eighth would need room for a granule, had the pool none inside
        CHECK(resource.requested_bytes() == pages.size() * granule / 2);
        for (void* page : pages) { must(resource.try_deallocate(page, granule / 2, stream)); }
        CHECK(resource.requested_bytes() == 0);
        CHECK(resource.held_bytes() == 4 * granule);
        must(device.synchronize(stream));
        must(resource.try_trim());
        CHECK(resource.held_bytes() == 0);
        CHECK(broker.statistics().granted_bytes == 0);
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("a full pool gives what it has inside; what it holds without use is given back before a refusal") {
    support::SimulatedHarness harness;
    auto& device = harness.device();
    {
        BudgetBroker broker{{.total_bytes = 8 * granule}};
        auto resource = make(device, broker, 2 * granule + 5);
        void* const a = must(resource.try_allocate(granule));
        void* const b = must(resource.try_allocate(granule / 2));
        // The pool is at its limit and cannot grow, so that nothing has to be free for this.
        void* const c = must(resource.try_allocate(granule / 2));
        const auto full = resource.try_allocate(1);
        REQUIRE_FALSE(full);
        CHECK(full.error().kind() == ErrorKind::out_of_memory);
        must(resource.try_deallocate(a, granule));
        void* const d = must(resource.try_allocate(granule));
        CHECK(resource.held_bytes() == 2 * granule);
        for (const auto& [at, bytes] : {std::pair{b, granule / 2}, {c, granule / 2}, {d, granule}}) {
            must(resource.try_deallocate(at, bytes));
        }
        auto other = must(broker.try_add_memory({.name = "other"}));
        CHECK_FALSE(other.try_take(7 * granule));
        void* const e = must(resource.try_allocate(granule));
        must(resource.try_trim());
        must(other.try_take(7 * granule));
        must(resource.try_deallocate(e, granule));
    }
}

namespace {

/// Its pools grow by more than their granularity says.
class GreedyDevice : public SimulatedDevice {
public:
    using SimulatedDevice::SimulatedDevice;
    [[nodiscard]] std::uint64_t pool_granularity() const noexcept {
        return SimulatedDevice::pool_granularity() / says_less;
    }
    static constexpr std::uint64_t says_less = 4;
};

}  // namespace

TEST_CASE("C8: what a pool comes to hold beyond what was foreseen is counted, or undone") {
    GreedyDevice device{support::small_device()};
    constexpr std::uint64_t said = granule / GreedyDevice::says_less;
    const auto stream = must(device.create_stream());
    {
        BudgetBroker broker{{.total_bytes = 3 * granule}};
        auto other = must(broker.try_add_memory({.name = "other", .priority = 1}));
        auto resource = must(residency::MemoryResource<GreedyDevice>::try_create(
            device, must(broker.try_add_memory({.name = "cache"})), {.limit_bytes = 2 * granule}));
        void* const at = must(resource.try_allocate(said, 256, stream));
        CHECK(resource.held_bytes() == granule);
        CHECK(device.peak_used_bytes() == granule);
        CHECK(broker.statistics().used_bytes == granule);
        // Others cannot take what is held.
        CHECK_FALSE(other.try_take(2 * granule + 1));
        must(other.try_take(2 * granule));
        must(resource.try_deallocate(at, said, stream));
        other.give_back(2 * granule);
    }
    {
        // There is room for what was asked, and none for what the pool takes.
        BudgetBroker broker{{.total_bytes = granule}};
        auto other = must(broker.try_add_memory({.name = "other", .priority = 1}));
        must(other.try_take(granule - said));
        auto resource = must(residency::MemoryResource<GreedyDevice>::try_create(
            device, must(broker.try_add_memory({.name = "cache"})), {.limit_bytes = granule}));
        const auto refused = resource.try_allocate(said, 256, stream);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(refused.error().message().find("grew to " + residency::detail::in_bytes(granule)) != std::string::npos);
        CHECK(resource.held_bytes() == 0);
        CHECK(resource.requested_bytes() == 0);
        CHECK(broker.statistics().used_bytes == granule - said);
        CHECK(broker.statistics().granted_bytes <= granule);
        other.give_back(granule - said);
        must(resource.try_deallocate(must(resource.try_allocate(said, 256, stream)), said, stream));
    }
    must(device.synchronize());
    must(device.destroy_stream(stream));
    CHECK(device.report_count() == 0);
}

TEST_CASE("zero bytes, alignments, equality, copies") {
    support::SimulatedHarness harness;
    auto& device = harness.device();
    {
        BudgetBroker broker{{.total_bytes = 8 * granule}};
        auto resource = make(device, broker);
        CHECK(must(resource.try_allocate(0)) == nullptr);
        must(resource.try_deallocate(nullptr, 0));
        for (const std::size_t bad : {std::size_t{0}, std::size_t{3}, std::size_t{512}}) {
            CHECK(resource.try_allocate(16, bad).error().kind() == ErrorKind::invalid_argument);
        }
        const Resource copy = resource;
        CHECK(copy == resource);
        auto other = make(device, broker);
        CHECK_FALSE(other == resource);
        void* const at = must(resource.try_allocate(100, 8));
        CHECK(reinterpret_cast<std::uintptr_t>(at) % 256 == 0);
        CHECK(copy.requested_bytes() == 100);
        must(resource.try_deallocate(at, 100));
        const auto small =
            Resource::try_create(device, must(broker.try_add_memory({.name = "small", .limit_bytes = granule - 1})));
        REQUIRE_FALSE(small);
        CHECK(small.error().kind() == ErrorKind::invalid_argument);
        CHECK(broker.accounts().size() == 2);
    }
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE("the forms that throw: std::bad_alloc, with the numbers") {
    support::SimulatedHarness harness;
    auto& device = harness.device();
    {
        BudgetBroker broker{{.total_bytes = 2 * granule}};
        Resource resource{device, broker.add_memory({.name = "cache"})};
        const auto stream = must(device.create_stream());
        void* const at = resource.allocate_async(granule, stream);
        CHECK_THROWS_AS(static_cast<void>(resource.allocate(2 * granule)), std::bad_alloc);
        try {
            static_cast<void>(resource.allocate_async(2 * granule, 256, stream));
            FAIL_CHECK("there was no room");
        } catch (const residency::AllocationError& error) {
            CHECK(error.error().detail<residency::BudgetNumbers>()->asked_bytes == 2 * granule);
            CHECK(std::string{error.what()} == error.error().message());
        }
        CHECK_THROWS_AS(static_cast<void>(resource.allocate(1, 3)), residency::InvalidArgument);
        resource.deallocate_async(at, granule, stream);
        void* const other = resource.allocate(granule);
        resource.deallocate(other, granule);
        CHECK(resource.failure() == nullptr);
        must(device.destroy_stream(stream));
    }
}
#endif

TEST_CASE("failures: nothing is taken for what was not allocated") {
    support::SimulatedHarness harness;
    auto& device = harness.device();
    {
        BudgetBroker broker{{.total_bytes = 4 * granule}};
        for (const CallKind kind : {CallKind::create_pool, CallKind::create_stream, CallKind::memory}) {
            device.fail(kind, 1);
            CHECK_FALSE(Resource::try_create(device, must(broker.try_add_memory({.name = "cache"}))));
            CHECK(broker.accounts().empty());
        }
        auto resource = make(device, broker);
        device.fail(CallKind::pool_allocate, 1);
        CHECK(resource.try_allocate(100).error().kind() == ErrorKind::device);
        CHECK(resource.held_bytes() == 0);
        // Where the pool does not say what it holds, what was taken stays taken, and the failure is kept.
        device.fail(CallKind::held_bytes, 1);
        void* const at = must(resource.try_allocate(100));
        CHECK(resource.failure() != nullptr);
        CHECK(resource.held_bytes() == granule);
        device.fail(CallKind::pool_deallocate, 1);
        CHECK_FALSE(resource.try_deallocate(at, 100));
        CHECK(resource.requested_bytes() == 100);
        must(resource.try_deallocate(at, 100));
        device.fail(CallKind::trim, 1);
        CHECK_FALSE(resource.try_trim());
        must(resource.try_trim());
        CHECK(resource.held_bytes() == 0);
    }
}

TEST_CASE("more than the pool may ever hold is refused with the bytes that were asked for and the limit") {
    support::SimulatedHarness harness;
    auto& device = harness.device();
    {
        BudgetBroker broker{{.total_bytes = 8 * granule}};
        auto resource = make(device, broker, 2 * granule);
        const auto huge = resource.try_allocate(std::uint64_t{1} << 40U);
        REQUIRE_FALSE(huge);
        CHECK(huge.error().kind() == ErrorKind::budget);
        CHECK(huge.error().message().find("\"cache\" asks for 1,099,511,627,776 bytes (1 TiB) at once, and its pool "
                                          "holds 131,072 bytes (128 KiB) at most") != std::string::npos);
        CHECK(huge.error().detail<residency::BudgetNumbers>()->asked_bytes == std::uint64_t{1} << 40U);
        CHECK(resource.held_bytes() == 0);
        CHECK(broker.statistics().granted_bytes == 0);
    }
}

TEST_SUITE_END();

}  // namespace memory_resource_test

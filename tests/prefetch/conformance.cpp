// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Every prefetcher keeps the contract of prefetch::PrefetchPolicy, and the suite notices those that do not.

#include "residency/conformance/prefetch_policy.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "residency/model/use_order.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/support/allocations.hpp"

namespace conformance_test {

using namespace residency;

TEST_CASE_TEMPLATE("prefetchers keep their contract", P, prefetch::None, prefetch::Lookahead<1>, prefetch::Lookahead<7>,
                   prefetch::Lookahead<1000>, prefetch::Scheduled, prefetch::Hinted) {
    conformance::check_prefetch_policy<P>({.allocations = test::allocations});
}

TEST_CASE("Hinted keeps its contract under random hints") {
    conformance::PrefetchSuite<prefetch::Hinted> suite;
    suite.allocations = test::allocations;
    suite.prepare = [](prefetch::Hinted& hinted, std::uint32_t storages, StepIndex now, std::uint32_t number) {
        std::mt19937 random{number};
        std::vector<prefetch::Hint> hints;
        for (std::uint32_t i = 0; i < number % 9; ++i) {
            hints.push_back({StorageId{static_cast<std::uint32_t>(random() % storages)},
                             static_cast<float>(random() % 5) / 4,
                             random() % 3 == 0 ? UseOrder::never : now + random() % 4});
        }
        const std::uint64_t before = test::allocations();
        REQUIRE(hinted.hint(hints));
        CHECK(test::allocations() == before);
        CHECK(hinted.size() <= 16);
    };
    conformance::check_prefetch_policy<prefetch::Hinted>(suite, [] { return prefetch::Hinted{{.capacity = 16}}; });
}

namespace {

enum class Fault { none, twice, goes_on, allocates, differs, keeps };

/// Offers all storages in order, with a fault.
template <Fault fault>
struct Faulty {
    static constexpr bool interruptible = true;
    std::uint32_t storages = 0;
    std::uint32_t calls = 0;
    bool is_clear = false;
    std::vector<int> more;

    Status attach(const prefetch::Context& context) {
        storages = static_cast<std::uint32_t>(context.bytes.size());
        is_clear = false;
        return {};
    }
    void clear() noexcept { is_clear = fault != Fault::keeps; }
    template <class Sink>
    void propose(StepIndex now, Sink&& sink) noexcept {
        ++calls;
        if (is_clear) { return; }
        if (fault == Fault::allocates) { more = std::vector<int>(storages); }
        for (std::uint32_t i = 0; i < storages; ++i) {
            const StorageId id{fault == Fault::differs ? (i + calls) % storages : i};
            if (fault == Fault::twice && i == 1 && !sink(StorageId{0}, now)) { return; }
            if (!sink(id, now) && fault != Fault::goes_on) { return; }
        }
    }
};
template <Fault fault>
void check_faulty() {
    conformance::check_prefetch_policy<Faulty<fault>>({.runs = 5, .allocations = test::allocations});
}

}  // namespace

TEST_CASE("the suite accepts a simple prefetcher") { check_faulty<Fault::none>(); }
TEST_CASE("the suite notices a storage offered twice" * doctest::should_fail()) { check_faulty<Fault::twice>(); }
TEST_CASE("the suite notices who does not end" * doctest::should_fail()) { check_faulty<Fault::goes_on>(); }
TEST_CASE("the suite notices an allocation" * doctest::should_fail()) { check_faulty<Fault::allocates>(); }
TEST_CASE("the suite notices proposals that differ" * doctest::should_fail()) { check_faulty<Fault::differs>(); }
TEST_CASE("the suite notices who does not forget" * doctest::should_fail()) { check_faulty<Fault::keeps>(); }

}  // namespace conformance_test

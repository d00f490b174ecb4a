// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Every evictor keeps the contract of evict::EvictionPolicy, and the suite notices those that do not.

#include "residency/conformance/eviction_policy.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/evict/static_split.hpp"
#include "tests/support/allocations.hpp"

namespace conformance_test {

using namespace residency;

TEST_CASE_TEMPLATE("evictors keep their contract", E, evict::Lru, evict::Fifo, evict::Lfu, evict::Sieve, evict::S3Fifo,
                   evict::Gdsf, evict::ExpectedUse, evict::StaticSplit, evict::Scheduled, evict::Belady) {
    conformance::check_eviction_policy<E>({.allocations = test::allocations});
}

TEST_CASE("with other settings too") {
    conformance::check_eviction_policy<evict::S3Fifo>({.allocations = test::allocations}, [] {
        return evict::S3Fifo{{.small_percent = 60, .ghost_percent = 0, .promotion_uses = 1}};
    });
    conformance::check_eviction_policy<evict::StaticSplit>({.allocations = test::allocations}, [] {
        return evict::StaticSplit{{.choice = evict::StaticSplit::Choice::prefix, .ring_steps = 1}};
    });
    conformance::check_eviction_policy<evict::ExpectedUse>(
        {.allocations = test::allocations}, [] { return evict::ExpectedUse{{.slow_rounds = 2, .fast_rounds = 0.5}}; });
}

namespace {

enum class Fault { none, absent_victim, leased_victim, no_victim, forgets, allocates, random };

/// The first in the order of the ids leaves, with a fault.
template <Fault fault>
struct Faulty {
    std::vector<int> here;
    std::vector<int> more;
    unsigned calls = 0;

    Status attach(const evict::Context& context) {
        here.assign(context.bytes.size(), 0);
        if (fault != Fault::random) { calls = 0; }
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { here[index(id)] = 1; }
    void used(StorageId, StepIndex) noexcept {
        if (fault == Fault::allocates) { more.push_back(1); }
    }
    void removed(StorageId id) noexcept { here[index(id)] = 0; }
    template <class MayLeave>
    std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        ++calls;
        if (fault == Fault::no_victim && calls % 7 == 0) { return std::nullopt; }
        const std::size_t count = here.size();
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = fault == Fault::random ? (i + calls) % count : i;
            const StorageId id{static_cast<std::uint32_t>(at)};
            const bool is_here = here[at] != 0 || (fault == Fault::absent_victim && calls % 5 == 0);
            if (is_here && (may_leave(id) || (fault == Fault::leased_victim && calls % 5 == 0))) {
                if (fault == Fault::forgets) { here[at] = 0; }
                return id;
            }
        }
        return std::nullopt;
    }
};

template <Fault fault>
void check_faulty() {
    conformance::check_eviction_policy<Faulty<fault>>({.runs = 8, .allocations = test::allocations});
}

}  // namespace

TEST_CASE("the suite accepts a simple evictor") { check_faulty<Fault::none>(); }
TEST_CASE("the suite notices a victim that is not there" * doctest::should_fail()) {
    check_faulty<Fault::absent_victim>();
}
TEST_CASE("the suite notices a victim that may not leave" * doctest::should_fail()) {
    check_faulty<Fault::leased_victim>();
}
TEST_CASE("the suite notices a missing victim" * doctest::should_fail()) { check_faulty<Fault::no_victim>(); }
TEST_CASE("the suite notices a victim that is taken for gone" * doctest::should_fail()) {
    check_faulty<Fault::forgets>();
}
TEST_CASE("the suite notices an allocation" * doctest::should_fail()) { check_faulty<Fault::allocates>(); }
TEST_CASE("the suite notices answers that differ" * doctest::should_fail()) { check_faulty<Fault::random>(); }

}  // namespace conformance_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The conformance suite of pools asks for no more than the concept says, and notices those that do not keep to it.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "residency/conformance/memory_pool.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "tests/support/allocation_count.hpp"
#include "tests/support/archetypes.hpp"
#include "tests/support/watched_device.hpp"

// The suite asks nothing of a pool, or of its device, beyond the concepts.
template void residency::conformance::check_memory_pool<archetype::Pool>(
    archetype::Device&, const residency::conformance::MemoryPoolSuite&,
    const std::function<std::unique_ptr<archetype::Pool>()>&);
template void residency::conformance::check_memory_pool<archetype::ResizablePool>(
    archetype::Device&, const residency::conformance::MemoryPoolSuite&,
    const std::function<std::unique_ptr<archetype::ResizablePool>()>&);

namespace faults_test {

namespace conformance = residency::conformance;
namespace pool = residency::pool;
using residency::Result;
using residency::Status;
using Watched = support::WatchedDevice;
using Slab = pool::Slab<Watched>;

namespace {

struct NeverCommits : archetype::ResizablePool {
    using archetype::ResizablePool::ResizablePool;
    Status commit_resize() = delete;
};
struct MayThrow : archetype::ResizablePool {
    using archetype::ResizablePool::ResizablePool;
    bool is_over() const { return false; }
};
struct NeverCloses : archetype::Pool {
    using archetype::Pool::Pool;
    void close() noexcept = delete;
};
struct ErrorsOnly : archetype::Pool {
    using archetype::Pool::Pool;
    Status allocate(std::uint64_t, archetype::Device::Stream) { return {}; }
};
struct NoDevice : archetype::Pool {
    using archetype::Pool::Pool;
    using Device = int;
};
static_assert(pool::MemoryPool<NeverCommits> && !pool::ResizablePool<NeverCommits>);
static_assert(pool::MemoryPool<MayThrow> && !pool::ResizablePool<MayThrow>);
static_assert(!pool::MemoryPool<NeverCloses> && !pool::MemoryPool<ErrorsOnly> && !pool::MemoryPool<NoDevice> &&
              !pool::MemoryPool<pool::Virtual<Watched>>);

enum class Fault {
    none,
    error_when_full,
    allocates,
    blocks,
    overlaps,
    counts_less,
    moves_what_may_stay,
    forgets_to_commit,
    keeps_memory,
    calls_when_abandoned,
    loses_count_on_failure,
};

/// A slab with a fault.
class Faulty : public Slab {
public:
    explicit Faulty(Config config) : Faulty(Fault::none, config) {}
    Faulty(Fault fault, Config config) : Slab{config}, fault_{fault} {}

    Status open(Watched& device, const pool::Requirements& requirements, std::uint64_t cap_bytes) {
        device_ = &device;
        if (fault_ == Fault::keeps_memory) {
            if (auto kept = device.allocate(4096); !kept) { return kept.error(); }
        }
        return Slab::open(device, requirements, cap_bytes);
    }
    Result<void*> allocate(std::uint64_t bytes, Watched::Stream stream) {
        if (fault_ == Fault::allocates) { static_cast<void>(std::make_unique<int>(1)); }
        if (fault_ == Fault::blocks) { static_cast<void>(device_->synchronize(stream).has_value()); }
        auto at = Slab::allocate(bytes, stream);
        if (at && *at == nullptr && fault_ == Fault::error_when_full) {
            return residency::Error{residency::ErrorKind::out_of_memory, "full"};
        }
        if (at && *at != nullptr && fault_ == Fault::overlaps && bytes > 1) { return static_cast<std::byte*>(*at) - 1; }
        return at;
    }
    Status deallocate(void* at, std::uint64_t bytes, Watched::Stream stream) {
        const bool is_shifted = fault_ == Fault::overlaps && bytes > 1;
        return Slab::deallocate(is_shifted ? static_cast<std::byte*>(at) + 1 : at, bytes, stream);
    }
    [[nodiscard]] std::uint64_t requested_bytes() const {
        return Slab::requested_bytes() / (fault_ == Fault::counts_less ? 2 : 1);
    }
    [[nodiscard]] bool must_move(const void* at) const noexcept {
        return fault_ == Fault::moves_what_may_stay || Slab::must_move(at);
    }
    Status commit_resize() { return fault_ == Fault::forgets_to_commit ? Status{} : Slab::commit_resize(); }
    Status resize(std::uint64_t cap_bytes, std::span<const pool::Place> allocated) {
        auto resized = Slab::resize(cap_bytes, allocated);
        if (fault_ == Fault::loses_count_on_failure && !device_->memory()) {
            return residency::Error{residency::ErrorKind::device, "too late"};
        }
        return resized;
    }
    void abandon() noexcept {
        if (fault_ == Fault::calls_when_abandoned) { static_cast<void>(device_->synchronize().has_value()); }
        Slab::abandon();
    }

private:
    Watched* device_ = nullptr;
    Fault fault_;
};

/// Each storage is an allocation of its own.
struct Scattered : pool::StreamOrdered<Watched> {
    using pool::StreamOrdered<Watched>::StreamOrdered;
    static constexpr bool one_range = true;
};

void check_faulty(Fault fault) {
    Watched device;
    if (fault == Fault::keeps_memory) { device.expect_leaks(); }
    conformance::check_memory_pool<Faulty>(
        device, {.runs = 12, .patience = std::chrono::milliseconds{200}, .allocations = test::allocations_here},
        [fault] { return std::make_unique<Faulty>(fault, Slab::Config{}); });
}

}  // namespace

TEST_SUITE_BEGIN("pools");

TEST_CASE("the suite notices neighbours that no copy may fill together" * doctest::should_fail()) {
    Watched device;
    conformance::check_memory_pool<Scattered>(device, {.fragments = true});
}
TEST_CASE("the suite accepts what is only wrapped") { check_faulty(Fault::none); }
TEST_CASE("the suite notices an error where nothing is free" * doctest::should_fail()) {
    check_faulty(Fault::error_when_full);
}
TEST_CASE("the suite notices an allocation on the host" * doctest::should_fail()) { check_faulty(Fault::allocates); }
TEST_CASE("the suite notices who waits for the stream" * doctest::should_fail()) { check_faulty(Fault::blocks); }
TEST_CASE("the suite notices places that overlap" * doctest::should_fail()) { check_faulty(Fault::overlaps); }
TEST_CASE("the suite notices a wrong count" * doctest::should_fail()) { check_faulty(Fault::counts_less); }
TEST_CASE("the suite notices what moves for nothing" * doctest::should_fail()) {
    check_faulty(Fault::moves_what_may_stay);
}
TEST_CASE("the suite notices a change that is not ended" * doctest::should_fail()) {
    check_faulty(Fault::forgets_to_commit);
}
TEST_CASE("the suite notices memory that is kept" * doctest::should_fail()) { check_faulty(Fault::keeps_memory); }
TEST_CASE("the suite notices a call of a device that is lost" * doctest::should_fail()) {
    check_faulty(Fault::calls_when_abandoned);
}
TEST_CASE("the suite notices a failure that has changed something" * doctest::should_fail()) {
    check_faulty(Fault::loses_count_on_failure);
}

TEST_SUITE_END();

}  // namespace faults_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/own-policy.md quotes.
#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/conformance/eviction_policy.hpp"
#include "residency/conformance/memory_pool.hpp"
#include "residency/conformance/prefetch_policy.hpp"
#include "residency/conformance/routed_policy.hpp"
#include "residency/conformance/transport_policy.hpp"
#include "residency/residency.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/simulation/simulated_server.hpp"
#include "tests/docs/model.hpp"

namespace docs_own_policy {

using namespace residency;
using docs::Model;

/// Evicts the largest storage, and of equal ones the one that came first.
class Largest {
public:
    [[nodiscard]] Status attach(const evict::Context& context) {
        bytes_ = context.bytes;
        here_.clear();
        here_.reserve(context.bytes.size());  // so that nothing is allocated later
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { here_.push_back(id); }
    void used(StorageId, StepIndex) noexcept {}
    void removed(StorageId id) noexcept { std::erase(here_, id); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        std::optional<StorageId> found;
        for (const StorageId id : here_) {
            if (found && bytes_[index(id)] <= bytes_[index(*found)]) { continue; }
            if (may_leave(id)) { found = id; }
        }
        return found;
    }

private:
    std::span<const std::uint64_t> bytes_;
    std::vector<StorageId> here_;
};
static_assert(evict::EvictionPolicy<Largest>);

TEST_CASE("docs/own-policy.md: an evictor") { conformance::check_eviction_policy<Largest>(); }

/// The expert that came first leaves, as evict::Fifo decides on the host.
struct FirstCome {
    struct Config {};
    struct Numbers {};
    struct OfExpert {};
    struct OfSlot {
        std::uint64_t came = 0;
    };
    static Result<Numbers> numbers(const Config&) { return Numbers{}; }
    RESIDENCY_HOST_DEVICE static void inserted(const Numbers&, OfSlot& slot, const OfExpert&, std::uint32_t,
                                               const routed::Now& now) {
        slot.came = now.time();
    }
    RESIDENCY_HOST_DEVICE static void used(const Numbers&, OfSlot&, OfExpert&, std::uint32_t, const routed::Now&) {}
    RESIDENCY_HOST_DEVICE static routed::Key key(const Numbers&, const OfSlot& slot, std::uint32_t, std::uint32_t,
                                                 const routed::Now&) {
        return {-static_cast<double>(slot.came), 0};
    }
};
static_assert(routed::Policy<FirstCome>);

TEST_CASE("docs/own-policy.md: who leaves a cache of experts") {
    conformance::check_routed_policy<FirstCome>();
    conformance::check_routed_policy_as<FirstCome, evict::Fifo>([](const auto&) { return evict::Fifo{}; });
    SimulatedDevice device;
    conformance::check_routed_policy_on(device, SimulatedServer<FirstCome>{},
                                        conformance::RoutedSuite<FirstCome>{.runs = 4, .tokens = 20});
}

/// Proposes what the schedule reads next, one step ahead.
class OneAhead {
public:
    static constexpr bool interruptible = false;  // the schedule is no guess

    [[nodiscard]] Status attach(const prefetch::Context& context) {
        order_ = context.order;
        storages_ = static_cast<std::uint32_t>(context.bytes.size());
        return {};
    }
    template <class Sink>
    void propose(StepIndex now, Sink&& sink) noexcept {
        if (order_ == nullptr) { return; }
        for (std::uint32_t i = 0; i < storages_; ++i) {
            if (order_->next_use(StorageId{i}, now) == now + 1 && !sink(StorageId{i}, now + 1)) { return; }
        }
    }

private:
    const UseOrder* order_ = nullptr;
    std::uint32_t storages_ = 0;
};
static_assert(prefetch::PrefetchPolicy<OneAhead>);

TEST_CASE("docs/own-policy.md: a prefetcher") { conformance::check_prefetch_policy<OneAhead>(); }

/// One allocation, cut into equal slots, each as large as the largest storage.
template <Device D>
class EqualSlots {
public:
    using Device = D;
    struct Config {};
    static constexpr bool one_range = true;  // a copy may go from one slot into the next

    EqualSlots() : EqualSlots(Config{}) {}
    explicit EqualSlots(Config) noexcept {}

    [[nodiscard]] std::uint64_t occupied(std::uint64_t) const noexcept { return slot_bytes_; }
    [[nodiscard]] std::uint64_t floor_bytes(const D& device, const pool::Requirements& requirements) const {
        return rounded(requirements.step.size() * slot_of(requirements), device.allocation_granularity());
    }
    [[nodiscard]] Status open(D& device, const pool::Requirements& requirements, std::uint64_t cap_bytes) {
        const std::uint64_t granularity = device.allocation_granularity();
        const std::uint64_t slot_bytes = slot_of(requirements);
        const std::uint64_t slots = cap_bytes / granularity * granularity / slot_bytes;
        free_.clear();
        free_.reserve(slots);  // so that nothing is allocated later
        auto all = device.allocate(slots * slot_bytes);
        if (!all) { return all.error(); }
        device_ = &device;
        all_ = *all;
        slot_bytes_ = slot_bytes;
        held_bytes_ = rounded(slots * slot_bytes, granularity);
        requested_bytes_ = 0;
        for (std::uint64_t i = 0; i < slots; ++i) { free_.push_back(static_cast<std::byte*>(all_) + i * slot_bytes); }
        return {};
    }
    [[nodiscard]] Result<void*> allocate(std::uint64_t, typename D::Stream) {
        if (free_.empty()) { return static_cast<void*>(nullptr); }
        void* const at = free_.back();
        free_.pop_back();
        requested_bytes_ += slot_bytes_;
        return at;
    }
    [[nodiscard]] Status deallocate(void* at, std::uint64_t, typename D::Stream) {
        free_.push_back(static_cast<std::byte*>(at));
        requested_bytes_ -= slot_bytes_;
        return {};
    }
    [[nodiscard]] std::uint64_t held_bytes() const { return held_bytes_; }
    [[nodiscard]] std::uint64_t requested_bytes() const { return requested_bytes_; }
    void close() noexcept {
        if (all_ != nullptr) { static_cast<void>(device_->deallocate(all_).has_value()); }
        abandon();
    }
    void abandon() noexcept {
        all_ = nullptr;
        held_bytes_ = requested_bytes_ = 0;
        free_.clear();
    }

private:
    [[nodiscard]] static std::uint64_t rounded(std::uint64_t bytes, std::uint64_t unit) {
        return (bytes + unit - 1) / unit * unit;
    }
    [[nodiscard]] static std::uint64_t slot_of(const pool::Requirements& requirements) {
        return rounded(requirements.largest_storage_bytes, requirements.largest_alignment_bytes);
    }

    D* device_ = nullptr;
    void* all_ = nullptr;
    std::uint64_t slot_bytes_ = 0, held_bytes_ = 0, requested_bytes_ = 0;
    std::vector<std::byte*> free_;
};
static_assert(pool::MemoryPool<EqualSlots<SimulatedDevice>>);

TEST_CASE("docs/own-policy.md: a pool") {
    SimulatedDevice device{
        {.memory_bytes = std::uint64_t{64} << 20U,  // small granules: the suite fills the device often
         .allocation_granularity = 4096,
         .pool_granularity = 16384,
         .chunk_granularity = 4096}};
    conformance::check_memory_pool<EqualSlots<SimulatedDevice>>(device);
}

/// Pinned, and counts what it brings.
template <Device D>
class Counted {
public:
    struct Config {
        std::uint64_t* fetched_bytes = nullptr;  ///< where the sum goes; may be null
    };
    static constexpr bool capturable = false;  // a launch of a graph would not be counted

    Counted() : Counted(Config{}) {}
    explicit Counted(Config config) noexcept : config_{config} {}

    [[nodiscard]] Status open(D& device, const Catalog& catalog) { return pinned_.open(device, catalog); }
    [[nodiscard]] Status enqueue(std::span<const transport::Fetch> fetches, typename D::Stream stream) {
        Status sent = pinned_.enqueue(fetches, stream);
        for (const transport::Fetch& fetch : fetches) {
            if (sent && config_.fetched_bytes != nullptr) { *config_.fetched_bytes += fetch.bytes; }
        }
        return sent;
    }
    void close() noexcept { pinned_.close(); }

private:
    Config config_;
    transport::Pinned<D> pinned_;
};
static_assert(transport::TransportPolicy<Counted<SimulatedDevice>, SimulatedDevice>);

TEST_CASE("docs/own-policy.md: a transport") {
    SimulatedDevice device;
    conformance::check_transport_policy<Counted<SimulatedDevice>>(device);
}

TEST_CASE("docs/own-policy.md: all of them in one composition") {
    Model model;
    using Weights = Residency<Largest, OneAhead, EqualSlots<SimulatedDevice>, Counted<SimulatedDevice>>;
    std::uint64_t fetched_bytes = 0;
    Weights::Options options;
    options.budget = Budget::parse("50%");
    options.schedule = model.schedule;
    options.transport.fetched_bytes = &fetched_bytes;
    Weights weights{model.gpu, model.catalog, options};
    for (int i = 0; i < 3; ++i) {
        auto pass = weights.begin(model.stream);
        for (const auto& step : weights.schedule()) {
            const auto lease = pass.acquire(step);
            model.launch(step.weights.front(), lease.data(step.weights.front()));
        }
    }
    weights.drain();
    CHECK(fetched_bytes == weights.statistics().total.fetched_bytes);
    CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
    CHECK(model.is_right());
}

}  // namespace docs_own_policy

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// An evictor of one's own: the most recently used leaves. It is a class with five members and nothing else; the library is not
// touched. On a cycle that does not fit it keeps what LRU always throws out just before it is needed. Exits with 0 only if it
// does, and if every byte was right.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/simulation/simulated_device.hpp"

using namespace residency;

/// The most recently used leaves. A stack of storages; used() costs a walk down to the storage, victim() is O(1).
class MostRecentlyUsed {
public:
    [[nodiscard]] Status attach(const evict::Context& context) {
        stack_.clear();
        stack_.reserve(context.bytes.size());  // so that nothing is allocated later
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { stack_.push_back(id); }
    void used(StorageId id, StepIndex) noexcept {
        removed(id);
        stack_.push_back(id);
    }
    void removed(StorageId id) noexcept { std::erase(stack_, id); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        for (auto each = stack_.rbegin(); each != stack_.rend(); ++each) {
            if (may_leave(*each)) { return *each; }
        }
        return std::nullopt;
    }

private:
    std::vector<StorageId> stack_;
};
static_assert(evict::EvictionPolicy<MostRecentlyUsed>);

namespace {

constexpr std::uint32_t layers = 16;
constexpr std::uint64_t layer_bytes = std::uint64_t{2} << 20;
constexpr int passes = 10;

template <class Evictor>
Counters run(const char* name, std::uint32_t places, bool& right) {
    using Weights = Residency<Evictor, prefetch::None, pool::Slab<SimulatedDevice>>;
    SimulatedDevice device;
    auto* const host = static_cast<std::byte*>(unwrap(device.allocate_host(layers * layer_bytes)));
    for (std::uint64_t i = 0; i < layers * layer_bytes; ++i) {
        host[i] = static_cast<std::byte>(i * 0x9E3779B1U >> 24U);
    }
    Counters counters;
    {
        const auto held = HostBytes::borrow({host, layers * layer_bytes}, HostMemory::pinned);
        CatalogBuilder builder;
        for (std::uint32_t i = 0; i < layers; ++i) {
            builder.add("layer." + std::to_string(i), dtype::u8, {layer_bytes}, HostSource{held, i * layer_bytes});
        }
        typename Weights::Options options;
        options.budget = Budget::bytes(places * layer_bytes);
        Weights weights{device, builder.build(), options};
        const auto stream = unwrap(device.create_stream());
        for (int i = 0; i < passes; ++i) {
            auto pass = weights.begin(stream);
            for (std::uint32_t layer = 0; layer < layers; ++layer) {
                const auto lease = pass.acquire(WeightId{layer});
                const auto bytes = lease.bytes(WeightId{layer});
                unwrap(device.launch(stream, {.name = "layer",
                                              .reads = {{bytes.data(), bytes.size()}},
                                              .writes = {},
                                              .body = [at = bytes.data(), from = host + layer * layer_bytes, &right] {
                                                  right = right && std::memcmp(at, from, layer_bytes) == 0;
                                              }}));
            }
        }
        weights.drain();
        counters = weights.statistics().total;
        unwrap(device.destroy_stream(stream));
    }
    unwrap(device.deallocate_host(host));
    right = right && device.reports().empty() && device.leaks().empty();
    const double accesses = static_cast<double>(counters.hits + counters.demand_misses);
    std::printf("  %-20s %2u of %u layers fit │ hits %3.0f %% │ fetched %5llu MiB\n", name, places, layers,
                100 * static_cast<double>(counters.hits) / accesses,
                static_cast<unsigned long long>(counters.fetched_bytes >> 20U));
    return counters;
}

}  // namespace

int main() {
    bool right = true;
    bool better = true;
    std::printf("%d passes over %u layers, in order:\n", passes, layers);
    for (const std::uint32_t places : {4U, 8U, 12U}) {
        const Counters lru = run<evict::Lru>("least recently used", places, right);
        const Counters mru = run<MostRecentlyUsed>("most recently used", places, right);
        better = better && lru.hits == 0 && mru.hits > 0 && mru.fetched_bytes < lru.fetched_bytes;
    }
    std::printf("%s\n", right && better ? "every byte was right" : "NOT as expected");
    return right && better ? 0 : 1;
}

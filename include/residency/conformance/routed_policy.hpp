// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/conformance/device.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/storage.hpp"
#include "residency/routed/on_host.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/routed_experts.hpp"
#include "residency/routed/tables.hpp"

namespace residency::conformance {

/// How the checks of a routed::Policy run.
template <routed::Policy P>
struct RoutedSuite {
    std::uint32_t seed = 1;      ///< of the first run
    std::uint32_t runs = 20;     ///< with other choices and another number of slots each
    std::uint32_t tokens = 400;  ///< in each run
    std::uint32_t layers = 5;    ///< of the model
    std::uint32_t per_layer =
        32;  ///< experts, 8 at least; a power of two beside evict::ExpectedUse, which then computes as kernels do
    typename P::Config config{};  ///< of the policy
};

namespace detail {

/// First experts of layers of equal size, and the number of all.
inline std::vector<std::uint32_t> equal_layers(std::uint32_t layers, std::uint32_t per_layer) {
    std::vector<std::uint32_t> first;
    for (std::uint32_t layer = 0; layer <= layers; ++layer) { first.push_back(layer * per_layer); }
    return first;
}

/// What a router might choose: different experts, some of them often.
inline std::vector<std::int32_t> choose_experts(std::mt19937& random, std::uint32_t experts, std::uint32_t count) {
    std::vector<std::int32_t> chosen;
    while (chosen.size() < count) {
        const std::uint32_t among = random() % 3 == 0 ? experts : (experts + 2) / 3;
        const auto expert = static_cast<std::int32_t>(random() % among);
        if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) { chosen.push_back(expert); }
    }
    std::shuffle(chosen.begin(), chosen.end(), random);
    return chosen;
}

/// A suite that can run.
template <routed::Policy P>
void require_whole(const RoutedSuite<P>& suite) {
    REQUIRE_MESSAGE((suite.runs > 0 && suite.tokens > 0 && suite.layers > 0),
                    "RoutedSuite: runs, tokens and layers are not 0");
    REQUIRE_MESSAGE((suite.per_layer >= 8 && suite.per_layer <= routed::most_experts),
                    "RoutedSuite: a layer has 8 experts to " << routed::most_experts);
    const auto numbers = P::numbers(suite.config);
    REQUIRE_MESSAGE(numbers, "RoutedSuite::config: " << (numbers ? std::string{} : numbers.error().message()));
}

/// Slots of one run: few, some, nearly all.
template <routed::Policy P>
std::uint32_t slots_of(const RoutedSuite<P>& suite, std::uint32_t run) {
    const std::uint32_t all = suite.layers * suite.per_layer;
    return 4 + run * (all - 5) / (suite.runs > 1 ? suite.runs - 1 : 1);
}

/// Which rules a policy broke.
struct BrokenRules {
    bool key_is_no_number = false, slot_remembers = false;
};

/// A policy that watches another one: of each slot it also keeps what would be there if nothing had been there before.
template <routed::Policy P>
struct Watched {
    struct Config {
        typename P::Config own{};
        BrokenRules* broken = nullptr;
    };
    struct Numbers {
        typename P::Numbers own;
        BrokenRules* broken;
    };
    using OfExpert = typename P::OfExpert;
    struct OfSlot {
        typename P::OfSlot own{}, fresh{};
    };
    static Result<Numbers> numbers(const Config& config) {
        auto own = P::numbers(config.own);
        if (!own) { return own.error(); }
        return Numbers{*own, config.broken};
    }
    RESIDENCY_HOST_DEVICE static void inserted(const Numbers& numbers, OfSlot& slot, const OfExpert& expert,
                                               std::uint32_t round, const routed::Now& now) {
        slot.fresh = {};
        P::inserted(numbers.own, slot.fresh, expert, round, now);
        P::inserted(numbers.own, slot.own, expert, round, now);
    }
    RESIDENCY_HOST_DEVICE static void used(const Numbers& numbers, OfSlot& slot, OfExpert& expert, std::uint32_t round,
                                           const routed::Now& now) {
        auto before = expert;
        P::used(numbers.own, slot.fresh, before, round, now);
        P::used(numbers.own, slot.own, expert, round, now);
    }
    RESIDENCY_HOST_DEVICE static routed::Key key(const Numbers& numbers, const OfSlot& slot, std::uint32_t layer,
                                                 std::uint32_t round, const routed::Now& now) {
        const routed::Key key = P::key(numbers.own, slot.own, layer, round, now);
        const routed::Key fresh = P::key(numbers.own, slot.fresh, layer, round, now);
        const bool is_number = !std::isnan(key.first) && !std::isnan(key.second) && key.first < 1e308;
        if (!is_number) { numbers.broken->key_is_no_number = true; }
        if (key.is_over(fresh) || fresh.is_over(key)) { numbers.broken->slot_remembers = true; }
        return key;
    }
};

/// A cache that a policy of the host decides about, as plainly as it can be written.
template <evict::EvictionPolicy Host>
class RoutedReference {
public:
    RoutedReference(Host policy, std::uint32_t layers, std::uint32_t per_layer, std::uint32_t slots)
        : policy_{std::move(policy)},
          slots_{slots},
          per_layer_{per_layer},
          bytes_(std::size_t{layers} * per_layer, 1),
          is_there_(bytes_.size()) {
        evict::Context context;
        context.bytes = bytes_;
        context.capacity_bytes = slots;
        must(policy_.attach(context));
    }
    void serve(std::uint32_t layer, const std::vector<std::int32_t>& chosen) {
        ++now_;
        std::vector<bool> is_chosen(bytes_.size());
        std::vector<StorageId> misses;
        for (const std::int32_t each : chosen) {
            const StorageId id{layer * per_layer_ + static_cast<std::uint32_t>(each)};
            is_chosen[index(id)] = true;
            if (is_there_[index(id)]) {
                policy_.used(id, now_);
            } else {
                misses.push_back(id);
            }
        }
        if (misses.size() == chosen.size()) {  // the round begins here, too
            policy_.inserted(misses.front(), now_);
            policy_.used(misses.front(), now_);
            policy_.removed(misses.front());
        }
        for (const StorageId id : misses) {
            if (there_ == slots_) {
                const auto leaves =
                    policy_.victim(now_, [&](StorageId candidate) { return !is_chosen[index(candidate)]; });
                REQUIRE_MESSAGE(leaves, "the host's policy names nobody who leaves, though somebody may");
                policy_.removed(*leaves);
                is_there_[index(*leaves)] = false;
                --there_;
            }
            policy_.inserted(id, now_);
            policy_.used(id, now_);
            is_there_[index(id)] = true;
            ++there_;
        }
    }
    [[nodiscard]] bool has(std::uint32_t expert) const { return is_there_[expert]; }

private:
    Host policy_;
    std::uint32_t slots_, per_layer_, there_ = 0;
    StepIndex now_ = 0;
    std::vector<std::uint64_t> bytes_;
    std::vector<bool> is_there_;
};

/// Memory for check_routed_policy_on, and a model of experts in pinned memory.
template <Device D>
struct RoutedBench {
    RoutedBench(D& on, std::uint32_t experts, std::uint64_t bytes, std::uint32_t most) : device{on} {
        const std::uint64_t all = experts * bytes;
        host = static_cast<std::byte*>(must(device.allocate_host(all)));
        std::mt19937 random{7};
        for (std::uint64_t i = 0; i < all; ++i) { host[i] = static_cast<std::byte>(random()); }
        choices = static_cast<std::int32_t*>(must(device.allocate(most * sizeof(std::int32_t))));
        staged = static_cast<std::int32_t*>(must(device.allocate_host(most * sizeof(std::int32_t))));
        addresses = static_cast<const std::byte**>(must(device.allocate_host(most * sizeof(std::byte*))));
        back = static_cast<std::byte*>(must(device.allocate_host(bytes)));
        stream = must(device.create_stream());
    }
    RoutedBench(const RoutedBench&) = delete;
    RoutedBench& operator=(const RoutedBench&) = delete;
    ~RoutedBench() {
        static_cast<void>(device.synchronize().has_value());
        static_cast<void>(device.destroy_stream(stream).has_value());
        static_cast<void>(device.deallocate(choices).has_value());
        for (void* const at : {static_cast<void*>(host), static_cast<void*>(staged), static_cast<void*>(addresses),
                               static_cast<void*>(back)}) {
            static_cast<void>(device.deallocate_host(at).has_value());
        }
    }
    /// Copies in the order of the stream, and waits.
    void copy(void* to, const void* from, std::uint64_t bytes) const {
        const Copy one{to, from, bytes};
        must(device.copy({&one, 1}, stream));
        must(device.synchronize(stream));
    }

    D& device;
    std::byte *host = nullptr, *back = nullptr;
    std::int32_t *choices = nullptr, *staged = nullptr;
    const std::byte** addresses = nullptr;
    typename D::Stream stream{};
};

}  // namespace detail

/// Checks the rules X1–X4 of routed::Policy on random runs of the kernels' code, on the host: with guesses, and with experts that are read
/// in place.
///
///     TEST_CASE("my policy") { residency::conformance::check_routed_policy<MyPolicy>(); }
template <routed::Policy P>
void check_routed_policy(const RoutedSuite<P>& suite = {}) {
    using detail::Watched;
    REQUIRE_MESSAGE(P::numbers({}), "X1: numbers() takes the default Config");
    detail::require_whole(suite);
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run, slots = detail::slots_of(suite, run);
        CAPTURE(seed);
        CAPTURE(slots);
        detail::BrokenRules broken;
        const auto layers = detail::equal_layers(suite.layers, suite.per_layer);
        routed::OnHost<Watched<P>> one{layers, slots, 3 * routed::piece_bytes, {suite.config, &broken}};
        routed::OnHost<P> again{layers, slots, 3 * routed::piece_bytes, suite.config};
        std::mt19937 random{seed};
        std::uint64_t differences = 0;
        for (std::uint32_t token = 0; token < suite.tokens; ++token) {
            for (std::uint32_t layer = 0; layer < suite.layers; ++layer) {
                if (random() % 40 == 0) { continue; }  // a layer without experts this time
                const auto count = 1 + static_cast<std::uint32_t>(random() % 4);
                const auto chosen = detail::choose_experts(random, suite.per_layer, count);
                const auto guessed = detail::choose_experts(random, suite.per_layer, count);
                const bool guesses = random() % 2 == 0, in_place = random() % 3 == 0;
                const auto call = [&](auto& cache) {
                    cache.tables.reads_in_place = in_place;
                    cache.serve(layer, chosen);
                    if (guesses) { cache.guess((layer + 1) % suite.layers, guessed); }
                };
                call(one);
                call(again);
                for (std::uint32_t i = 0; i < layers.back(); ++i) {
                    differences += one.has(i) != again.has(i) ? 1U : 0U;
                }
            }
        }
        CHECK_MESSAGE(!broken.key_is_no_number, "X2: no number of a key is NaN, and the first is below 1e308");
        CHECK_MESSAGE(!broken.slot_remembers,
                      "X3: inserted() forgets what had the slot before; or, where it does, X4: it asks a clock or a "
                      "variable of its own");
        CHECK_MESSAGE(differences == 0, "X4: the same calls decide the same: nothing else is remembered");
        if (broken.key_is_no_number || broken.slot_remembers || differences != 0) { return; }
    }
}

/// Checks that P decides as a policy of the host does, choice by choice, without guesses. `make(layer_of)` returns that one; `layer_of` has
/// the layer of each expert, which is its StorageId. Where a call finds nothing, the host's policy is told of one arrival more, which leaves
/// at once: a round begins there, too.
template <routed::Policy P, evict::EvictionPolicy Host>
void check_routed_policy_as(const std::function<Host(const std::vector<std::uint32_t>& layer_of)>& make,
                            const RoutedSuite<P>& suite = {}) {
    detail::require_whole(suite);
    std::vector<std::uint32_t> layer_of(std::size_t{suite.layers} * suite.per_layer);
    for (std::uint32_t i = 0; i < layer_of.size(); ++i) { layer_of[i] = i / suite.per_layer; }
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run, slots = detail::slots_of(suite, run);
        CAPTURE(seed);
        CAPTURE(slots);
        routed::OnHost<P> kernels{detail::equal_layers(suite.layers, suite.per_layer), slots, 1, suite.config};
        detail::RoutedReference<Host> host{make(layer_of), suite.layers, suite.per_layer, slots};
        std::mt19937 random{seed};
        for (std::uint32_t token = 0; token < suite.tokens; ++token) {
            for (std::uint32_t layer = 0; layer < suite.layers; ++layer) {
                if (random() % 40 == 0) { continue; }
                const auto chosen =
                    detail::choose_experts(random, suite.per_layer, 1 + static_cast<std::uint32_t>(random() % 4));
                kernels.serve(layer, chosen);
                host.serve(layer, chosen);
                std::uint32_t first = 0;  // expert that only one of them has
                while (first < layer_of.size() && kernels.has(first) == host.has(first)) { ++first; }
                if (first == layer_of.size()) { continue; }
                FAIL("token " << token << ": expert " << first % suite.per_layer << " of layer " << layer_of[first]
                              << " has a slot by one of the two only: host " << host.has(first));
            }
        }
        CHECK(kernels.state.counters.misses > 0);
    }
}

/// Checks on a device that a whole RoutedExperts decides as the code of the kernels does on the host, that each expert is read right, and
/// that the budget holds; without guesses. `server` runs P there: a CudaServer<P>, or a SimulatedServer<P>.
template <VirtualMemoryDevice D, routed::Policy P>
void check_routed_policy_on(D& device, const routed::Server<D, P>& server, const RoutedSuite<P>& suite = {}) {
    detail::require_whole(suite);
    constexpr std::uint64_t bytes = 5 * routed::piece_bytes / 2;
    constexpr std::uint32_t most = 4;
    const std::uint32_t all = suite.layers * suite.per_layer;
    const detail::RoutedBench<D> bench{device, all, bytes, most};
    const std::span<const std::byte> host(bench.host, static_cast<std::size_t>(all * bytes));
    const auto held = HostBytes::borrow(host, HostMemory::pinned);
    CatalogBuilder builder;
    std::vector<std::vector<WeightId>> experts(suite.layers);
    for (std::uint32_t i = 0; i < all; ++i) {
        experts[i / suite.per_layer].push_back(
            builder.add("expert" + std::to_string(i), dtype::u8, {bytes}, HostSource{held, i * bytes}));
    }
    const Catalog catalog = must(builder.try_build());
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run;
        CAPTURE(seed);
        typename RoutedExperts<D, P>::Options options;
        options.server = &server;
        options.choices = most;
        options.evictor = suite.config;
        options.budget = Budget::bytes(0);
        const auto limits = must(RoutedExperts<D, P>::try_resolve_budget(device, catalog, experts, options));
        options.budget = Budget::bytes(limits.floor_bytes + all * bytes * run / (std::max)(1U, suite.runs - 1));
        auto cache = must(RoutedExperts<D, P>::try_create(device, catalog, experts, std::move(options)));
        routed::OnHost<P> on_host{detail::equal_layers(suite.layers, suite.per_layer), cache.slots(), bytes,
                                  suite.config};
        std::mt19937 random{seed};
        std::uint64_t wrong = 0;
        for (std::uint32_t token = 0; token < suite.tokens; ++token) {
            for (std::uint32_t layer = 0; layer < suite.layers; ++layer) {
                const auto chosen = detail::choose_experts(random, suite.per_layer, most);
                std::copy(chosen.begin(), chosen.end(), bench.staged);
                bench.copy(bench.choices, bench.staged, most * sizeof(std::int32_t));
                const auto served = must(cache.try_serve(layer, {bench.choices, most}, bench.stream));
                on_host.serve(layer, chosen);
                bench.copy(static_cast<void*>(bench.addresses), static_cast<const void*>(served.addresses),
                           most * sizeof(std::byte*));
                for (std::uint32_t i = 0; i < most; ++i) {
                    const auto expert = layer * suite.per_layer + static_cast<std::uint32_t>(chosen[i]);
                    bench.copy(bench.back, bench.addresses[i], bytes);
                    wrong += std::memcmp(bench.back, bench.host + expert * bytes, bytes) != 0 ? 1U : 0U;
                }
            }
        }
        const auto statistics = must(cache.try_statistics());
        CHECK_MESSAGE(wrong == 0, "experts were read that are not their own bytes");
        CHECK(statistics.held_bytes <= cache.budget().bytes);
        INFO("decisions on the device are those of the same code on the host");
        CHECK(statistics.total.hits == on_host.state.counters.hits);
        CHECK(statistics.total.misses == on_host.state.counters.misses);
        CHECK(statistics.total.demand_bytes == on_host.state.counters.demand_bytes);
    }
}

}  // namespace residency::conformance

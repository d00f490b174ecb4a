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
#include <memory>
#include <random>
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
    std::uint32_t choices = 4;    ///< of a call, at most
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
    REQUIRE_MESSAGE((suite.choices > 0 && suite.choices <= suite.per_layer),
                    "RoutedSuite: a call has 1 choice to as many as a layer has experts");
    const auto numbers = P::numbers(suite.config);
    REQUIRE_MESSAGE(numbers, "RoutedSuite::config: " << (numbers ? std::string{} : numbers.error().message()));
}

/// Calls run(seed, slots) for each run, of few slots first and nearly all last, until it returns false.
template <routed::Policy P, class Run>
void for_each_run(const RoutedSuite<P>& suite, const Run& run) {
    const std::uint32_t all = suite.layers * suite.per_layer;
    for (std::uint32_t i = 0; i < suite.runs; ++i) {
        const std::uint32_t seed = suite.seed + i, slots = 4 + i * (all - 5) / (std::max)(1U, suite.runs - 1);
        CAPTURE(seed);
        CAPTURE(slots);
        if (!run(seed, slots)) { return; }
    }
}
/// Calls call(random, layer, chosen) for each layer of each token, and now and then leaves one out.
template <routed::Policy P, class Call>
void for_each_call(const RoutedSuite<P>& suite, std::uint32_t seed, const Call& call) {
    std::mt19937 random{seed};
    for (std::uint32_t token = 0; token < suite.tokens; ++token) {
        CAPTURE(token);
        for (std::uint32_t layer = 0; layer < suite.layers; ++layer) {
            if (random() % 40 == 0) { continue; }
            call(random, layer,
                 choose_experts(random, suite.per_layer, 1 + static_cast<std::uint32_t>(random() % suite.choices)));
        }
    }
}
/// The first expert that has a slot in one of two caches only; `experts`: there is none.
template <class One, class Other>
std::uint32_t first_difference(const One& one, const Other& other, std::uint32_t experts) {
    std::uint32_t expert = 0;
    while (expert < experts && one.has(expert) == other.has(expert)) { ++expert; }
    return expert;
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

/// Random bytes in pinned memory.
template <Device D>
std::shared_ptr<const HostBytes> random_bytes(D& device, std::uint64_t bytes) {
    auto* const at = static_cast<std::byte*>(must(device.allocate_host(bytes)));
    std::mt19937 random{7};
    for (std::uint64_t i = 0; i < bytes; ++i) { at[i] = static_cast<std::byte>(random()); }
    return HostBytes::adopt(at, static_cast<std::size_t>(bytes), HostMemory::pinned, [&device](std::byte* memory) {
        static_cast<void>(device.deallocate_host(memory).has_value());
    });
}
/// A stream, and device memory for a router's choices.
template <Device D>
struct Router {
    Router(D& on, std::uint32_t most) : device{on}, choices{must(on.allocate(most * sizeof(std::int32_t)))} {}
    Router(const Router&) = delete;
    Router& operator=(const Router&) = delete;
    ~Router() {
        static_cast<void>(device.destroy_stream(stream).has_value());
        static_cast<void>(device.deallocate(choices).has_value());
    }
    /// Copies in the order of the stream, and waits.
    void copy(void* to, const void* from, std::uint64_t bytes) const {
        const Copy one{to, from, bytes};
        must(device.copy({&one, 1}, stream));
        must(device.synchronize(stream));
    }

    D& device;
    void* choices;
    typename D::Stream stream = must(device.create_stream());
};

}  // namespace detail

/// Checks the rules X1–X4 of routed::Policy on random runs of the kernels' code, on the host: with guesses, and with experts that are read
/// in place.
///
///     TEST_CASE("my policy") { residency::conformance::check_routed_policy<MyPolicy>(); }
template <routed::Policy P>
void check_routed_policy(const RoutedSuite<P>& suite = {}) {
    REQUIRE_MESSAGE(P::numbers({}), "X1: numbers() takes the default Config");
    detail::require_whole(suite);
    const auto layers = detail::equal_layers(suite.layers, suite.per_layer);
    detail::for_each_run(suite, [&](std::uint32_t seed, std::uint32_t slots) {
        detail::BrokenRules broken;
        routed::OnHost<detail::Watched<P>> one{layers, slots, 3 * routed::piece_bytes, {suite.config, &broken}};
        routed::OnHost<P> again{layers, slots, 3 * routed::piece_bytes, suite.config};
        bool decides_alike = true;
        detail::for_each_call(suite, seed, [&](std::mt19937& random, std::uint32_t layer, const auto& chosen) {
            const auto guessed = detail::choose_experts(random, suite.per_layer, 4);
            const bool guesses = random() % 2 == 0, in_place = random() % 3 == 0;
            const auto call = [&](auto& cache) {
                cache.tables.reads_in_place = in_place;
                cache.serve(layer, chosen);
                if (guesses) { cache.guess((layer + 1) % suite.layers, guessed); }
            };
            call(one);
            call(again);
            decides_alike = decides_alike && detail::first_difference(one, again, layers.back()) == layers.back();
        });
        CHECK_MESSAGE(!broken.key_is_no_number, "X2: no number of a key is NaN, and the first is below 1e308");
        CHECK_MESSAGE(!broken.slot_remembers,
                      "X3: inserted() forgets what had the slot before; or, where it does, X4: it asks a clock or a "
                      "variable of its own");
        CHECK_MESSAGE(decides_alike, "X4: the same calls decide the same: nothing else is remembered");
        return !broken.key_is_no_number && !broken.slot_remembers && decides_alike;
    });
}

/// Checks that P decides as a policy of the host does, choice by choice, without guesses. `make(layer_of)` returns that one; `layer_of` has
/// the layer of each expert, which is its StorageId. Where a call finds nothing, the host's policy is told of one arrival more, which leaves
/// at once: a round begins there, too.
template <routed::Policy P, evict::EvictionPolicy Host>
void check_routed_policy_as(const std::function<Host(const std::vector<std::uint32_t>& layer_of)>& make,
                            const RoutedSuite<P>& suite = {}) {
    detail::require_whole(suite);
    const auto layers = detail::equal_layers(suite.layers, suite.per_layer);
    std::vector<std::uint32_t> layer_of(layers.back());
    for (std::uint32_t i = 0; i < layer_of.size(); ++i) { layer_of[i] = i / suite.per_layer; }
    detail::for_each_run(suite, [&](std::uint32_t seed, std::uint32_t slots) {
        routed::OnHost<P> kernels{layers, slots, 1, suite.config};
        detail::RoutedReference<Host> host{make(layer_of), suite.layers, suite.per_layer, slots};
        detail::for_each_call(suite, seed, [&](std::mt19937&, std::uint32_t layer, const auto& chosen) {
            kernels.serve(layer, chosen);
            host.serve(layer, chosen);
            const std::uint32_t expert = detail::first_difference(kernels, host, layers.back());
            if (expert == layers.back()) { return; }
            FAIL("expert " << expert % suite.per_layer << " of layer " << layer_of[expert]
                           << " has a slot by one of the two only: host " << host.has(expert));
        });
        CHECK(kernels.state.counters.misses > 0);
        return true;
    });
}

/// Checks on a device that a whole RoutedExperts gives each choice the slot that the code of the kernels gives it on the host, that each
/// expert is read right, and that the budget holds; choices are repeated, or padding, and every other run reads in place; without guesses.
/// `server` runs P there: a CudaServer<P>, or a SimulatedServer<P>. Returns the slots of the largest run in which experts left.
template <VirtualMemoryDevice D, routed::Policy P>
std::uint32_t check_routed_policy_on(D& device, const routed::Server<D, P>& server, const RoutedSuite<P>& suite = {}) {
    detail::require_whole(suite);
    constexpr std::uint64_t bytes = 5 * routed::piece_bytes / 2;
    const std::uint32_t most = suite.choices;
    const auto layers = detail::equal_layers(suite.layers, suite.per_layer);
    const std::uint64_t all_bytes = layers.back() * bytes;
    const auto held = detail::random_bytes(device, all_bytes);
    const detail::Router<D> router{device, most};
    CatalogBuilder builder;
    std::vector<std::vector<WeightId>> experts(suite.layers);
    for (std::uint32_t i = 0; i < layers.back(); ++i) {
        experts[i / suite.per_layer].push_back(
            builder.add("expert" + std::to_string(i), dtype::u8, {bytes}, HostSource{held, i * bytes}));
    }
    const Catalog catalog = must(builder.try_build());
    std::vector<const std::byte*> addresses(most);
    std::vector<std::int32_t> slots_read(most);
    std::vector<std::byte> read(bytes);
    std::uint32_t most_slots = 0;
    detail::for_each_run(suite, [&](std::uint32_t seed, std::uint32_t slots) {
        const bool in_place = seed % 2 == 0;
        typename RoutedExperts<D, P>::Options options;
        options.server = &server;
        options.choices = most;
        options.evictor = suite.config;
        options.read_in_place = in_place;
        options.budget = Budget::bytes(0);
        const auto limits = must(RoutedExperts<D, P>::try_resolve_budget(device, catalog, experts, options));
        options.budget = Budget::bytes(limits.floor_bytes + slots * bytes);
        auto cache = must(RoutedExperts<D, P>::try_create(device, catalog, experts, std::move(options)));
        routed::OnHost<P> on_host{layers, cache.slots(), bytes, suite.config};
        on_host.tables.reads_in_place = in_place;
        std::uint64_t wrong = 0, elsewhere = 0;
        detail::for_each_call(suite, seed, [&](std::mt19937& random, std::uint32_t layer, auto chosen) {
            if (random() % 4 == 0) { chosen.back() = chosen.front(); }
            if (random() % 8 == 0) { chosen.back() = -1; }
            const auto count = static_cast<std::uint32_t>(chosen.size());
            router.copy(router.choices, chosen.data(), count * sizeof(std::int32_t));
            const auto served =
                must(cache.try_serve(layer, {static_cast<const std::int32_t*>(router.choices), count}, router.stream));
            on_host.serve(layer, chosen);
            router.copy(static_cast<void*>(addresses.data()), static_cast<const void*>(served.addresses),
                        count * sizeof(std::byte*));
            router.copy(slots_read.data(), served.slots, count * sizeof(std::int32_t));
            elsewhere += std::equal(slots_read.begin(), slots_read.begin() + count, on_host.slots().begin()) ? 0U : 1U;
            for (std::uint32_t i = 0; i < count; ++i) {
                if (chosen[i] < 0) { continue; }
                const auto expert = layers[layer] + static_cast<std::uint32_t>(chosen[i]);
                router.copy(read.data(), addresses[i], bytes);
                wrong += std::memcmp(read.data(), held->data() + expert * bytes, bytes) != 0 ? 1U : 0U;
            }
        });
        const auto statistics = must(cache.try_statistics());
        CHECK_MESSAGE(wrong == 0, "experts were read that are not their own bytes");
        CHECK(statistics.held_bytes <= cache.budget().bytes);
        CHECK_MESSAGE(elsewhere == 0, "calls got other slots than on the host");
        INFO("decisions on the device are those of the same code on the host");
        CHECK(statistics.total.hits == on_host.state.counters.hits);
        CHECK(statistics.total.misses == on_host.state.counters.misses);
        CHECK(statistics.total.demand_bytes == on_host.state.counters.demand_bytes);
        if (statistics.total.misses > cache.slots()) { most_slots = (std::max)(most_slots, cache.slots()); }
        return true;
    });
    CHECK_MESSAGE(most_slots > 0, "no run had more misses than slots: give RoutedSuite more tokens");
    return most_slots;
}

}  // namespace residency::conformance

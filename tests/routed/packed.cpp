// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Experts that travel packed into the cache whose router is on the device.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/codec/packed_part.hpp"
#include "residency/model/storage.hpp"
#include "residency/routed/routed_experts.hpp"
#include "tests/packed/support.hpp"
#include "tests/routed/pack_expert.hpp"
#include "tests/routed/support.hpp"

namespace routed_packed_test {

using namespace routed_test;
using residency::routed::ExpectedUse;
using residency::routed::Lfu;
using residency::routed::Lru;

template <class P = ExpectedUse>
using Cache = RoutedExperts<Gpu, P>;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// How experts are packed.
enum class Mix : std::uint8_t {
    equal,   ///< all are bf16, of one size
    unlike,  ///< of unlike types and sizes; some parts are raw, and some experts are
};

/// The model of a Fixture, packed.
struct PackedFixture : Fixture {
    explicit PackedFixture(const std::vector<std::uint32_t>& experts_of_layer, Mix mix = Mix::equal,
                           std::uint64_t expert_bytes = 200'000)
        : Fixture{experts_of_layer, expert_bytes} {
        std::mt19937_64 random{expert_bytes + experts_of_layer.size()};
        const std::size_t count = raw.storages().size();
        CatalogBuilder builder;
        std::vector<StorageSource> sources;
        packed_host = static_cast<std::byte*>(must(gpu().allocate_host(2 * count * stride)));
        packed = HostBytes::borrow({packed_host, static_cast<std::size_t>(2 * count * stride)}, HostMemory::pinned);
        const std::array types{dtype::bf16, dtype::f8_e4m3fn, dtype::f32, dtype::u8};
        for (std::size_t i = 0; i < count; ++i) {
            const DType type = mix == Mix::equal ? dtype::bf16 : types[random() % types.size()];
            const std::uint64_t unit = type.block_bits() / 8;
            const std::uint64_t size = (bytes - (mix == Mix::equal ? 0 : random() % (bytes / 2))) / unit * unit;
            const std::span own{host + i * stride, static_cast<std::size_t>(size)};
            packed_tests::fill_normal(random, own, type);
            const std::string name = "e" + std::to_string(i);
            builder.add(name, type, {size / unit}, HostSource{held, i * stride});
            sources.push_back(type == dtype::u8 ? StorageSource{HostSource{held, i * stride}}
                                                : pack_expert(random, own, codec::chunk_form(type), mix == Mix::unlike,
                                                              packed, packed_host, 2 * i * stride));
        }
        raw = builder.build();
        catalog = must(raw.try_with_sources(std::move(sources)));
    }
    ~PackedFixture() {
        must(gpu().synchronize());
        catalog = Catalog{};
        packed.reset();
        must(gpu().deallocate_host(packed_host));
    }
    PackedFixture(const PackedFixture&) = delete;
    PackedFixture& operator=(const PackedFixture&) = delete;

    /// The bytes in which an expert travels.
    [[nodiscard]] std::uint64_t travels(std::size_t expert) const {
        const Storage& storage = catalog.storages()[expert];
        const auto* source = std::get_if<PackedHostSource>(&storage.source);
        return source != nullptr ? source->bytes : storage.bytes;
    }
    [[nodiscard]] std::uint64_t travels() const {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < catalog.storages().size(); ++i) { sum += travels(i); }
        return sum;
    }

    std::byte* packed_host = nullptr;
    std::shared_ptr<const HostBytes> packed;
};

template <class P = ExpectedUse>
typename Cache<P>::Options options(const SimulatedServer<P>& server, Budget budget, std::uint32_t choices) {
    typename Cache<P>::Options result;
    result.budget = budget;
    result.server = &server;
    result.choices = choices;
    result.pool.chunk_bytes = 4096;
    return result;
}

/// A cache of the packed experts, and one of the raw ones that has as many slots.
template <class P>
struct Both {
    Both(PackedFixture& f, const SimulatedServer<P>& server, const char* budget, std::uint32_t choices)
        : raw{f.gpu(), f.raw, f.experts, options<P>(server, Budget::parse(budget), choices)},
          packed{f.gpu(), f.catalog, f.experts, options<P>(server, Budget::parse("100%"), choices)} {
        set_budget(Budget::parse(budget));
        REQUIRE(raw.slots() == packed.slots());
    }
    void set_budget(const Budget& budget) {
        must(raw.try_set_budget(budget));
        must(packed.try_set_budget(
            Budget::bytes(raw.budget().bytes + packed.budget().floor_bytes - raw.budget().floor_bytes)));
        CHECK(raw.slots() == packed.slots());
        CHECK(must(packed.try_statistics()).held_bytes <= packed.budget().bytes);
    }
    /// Both have decided alike.
    void compare() {
        const auto a = must(raw.try_statistics()).total, b = must(packed.try_statistics()).total;
        CHECK(a.calls == b.calls);
        CHECK(a.hits == b.hits);
        CHECK(a.guess_hits == b.guess_hits);
        CHECK(a.misses == b.misses);
        CHECK(a.guesses == b.guesses);
        CHECK(b.in_place == 0);
    }

    Cache<P> raw, packed;
};

/// One pass over all experts; every byte is compared.
template <class P>
void prefill(PackedFixture& f, Cache<P>& cache, std::uint32_t ring, std::mt19937& random) {
    must(cache.try_begin_prefill(ring));
    for (std::uint32_t layer = 0; layer < f.experts.size(); ++layer) {
        std::uint32_t expert = 0;
        for (std::uint32_t group = 0; group < cache.prefill_groups(layer); ++group) {
            const auto there = must(cache.try_acquire(layer, group, f.stream));
            CHECK(there.first == expert);
            expert = there.last;
            Gpu::Kernel kernel;
            kernel.name = "products";
            kernel.duration = std::chrono::microseconds{random() % 3 == 0 ? 300 : 3};
            kernel.body = [&f, layer, there] {
                for (std::uint32_t i = there.first; i < there.last; ++i) {
                    f.wrong += f.is_at(there.addresses[i], layer, i) ? 0U : 1U;
                    ++f.reads;
                }
            };
            must(f.gpu().launch(f.stream, std::move(kernel)));
        }
        CHECK(expert == f.experts[layer].size());
    }
    must(cache.try_end_prefill());
}

}  // namespace

TEST_CASE_TEMPLATE("routed packed: it decides as the raw cache does, every byte is right, and packed bytes travel", P,
                   ExpectedUse, Lru, Lfu) {
    for (const Mix mix : {Mix::equal, Mix::unlike}) {
        PackedFixture f{{9, 5, 7}, mix};
        const SimulatedServer<P> server;
        for (const char* const budget : {"0", "40%", "100%"}) {
            CAPTURE(budget);
            Both<P> both{f, server, budget, 3};
            std::mt19937 random{3};
            for (int token = 0; token < 25; ++token) {
                for (std::uint32_t layer = 0; layer < 3; ++layer) {
                    auto chosen = choose_experts(random, static_cast<std::uint32_t>(f.experts[layer].size()), 3);
                    if (random() % 4 == 0) { chosen[1] = random() % 2 == 0 ? -1 : chosen[0]; }
                    f.choose(chosen);
                    f.read(layer, must(both.packed.try_serve(layer, {f.choices, 3}, f.stream)), chosen);
                    must(both.raw.try_serve(layer, {f.choices, 3}, f.stream));
                }
            }
            both.compare();
            const auto total = must(both.packed.try_statistics()).total;
            if (both.packed.slots() == 21) {
                for (std::uint32_t layer = 0; layer < 3; ++layer) {  // the last ones, which nobody may have chosen
                    for (std::uint32_t i = 0; i < f.experts[layer].size(); ++i) {
                        const std::vector<std::int32_t> one{static_cast<std::int32_t>(i)};
                        f.choose(one);
                        f.read(layer, must(both.packed.try_serve(layer, {f.choices, 1}, f.stream)), one);
                    }
                }
                CHECK(must(both.packed.try_statistics()).total.demand_bytes == f.travels());
            }
            CHECK(total.demand_bytes < must(both.raw.try_statistics()).total.demand_bytes);
            CHECK(total.in_place_bytes == 0);
        }
        CHECK(f.wrong == 0);
    }
}

TEST_CASE_TEMPLATE(
    "routed packed: guesses, right and wrong, change no byte that is read, and count as those of raw ones", P,
    ExpectedUse, Lfu) {
    for (const Mix mix : {Mix::equal, Mix::unlike}) {
        PackedFixture f{{8, 8, 6}, mix, 150'000};
        for (const std::uint32_t pieces : {UINT32_MAX, 9U, 1U, 0U}) {
            CAPTURE(pieces);
            const SimulatedServer<P> server{std::chrono::microseconds{5}, pieces};
            Both<P> both{f, server, "30%", 3};
            std::mt19937 random{11};
            for (const char* const budget : {"30%", "0", "70%", "45%"}) {
                both.set_budget(Budget::parse(budget));
                for (int token = 0; token < 12; ++token) {
                    for (std::uint32_t layer = 0; layer < 3; ++layer) {
                        const auto chosen = choose_experts(random, 6, 3), guessed = choose_experts(random, 6, 3);
                        f.choose(chosen);
                        f.read(layer, must(both.packed.try_serve(layer, {f.choices, 3}, f.stream)), chosen);
                        must(both.raw.try_serve(layer, {f.choices, 3}, f.stream));
                        f.choose(guessed);
                        for (auto* const cache : {&both.packed, &both.raw}) {
                            for (int again = token % 3; again < 3; ++again) {
                                must(cache->try_guess((layer + 1) % 3, {f.choices, 3}, f.stream));
                                must(cache->try_join(f.stream));
                            }
                        }
                    }
                }
                // Of raw experts fewer are whole where a guess brings few pieces.
                if (pieces == UINT32_MAX || pieces == 0) { both.compare(); }
            }
            const auto total = must(both.packed.try_statistics()).total;
            if (pieces == UINT32_MAX) { CHECK(total.guess_hits > 0); }
            CHECK((total.guess_bytes > 0) == (pieces > 0));
        }
        CHECK(f.wrong == 0);
    }
}

TEST_CASE("routed packed: what of a guess has come is not brought again, and counts as a hit where it is all") {
    PackedFixture f{{8, 8}};
    for (const std::uint32_t pieces : {UINT32_MAX, 1U}) {
        const SimulatedServer<> server{std::chrono::microseconds{5}, pieces};
        Cache<> cache{f.gpu(), f.catalog, f.experts, options(server, Budget::parse("100%"), 2)};
        const std::vector<std::int32_t> first{0, 1}, second{4, 5};
        const std::uint64_t of_first = f.travels(0) + f.travels(1), of_second = f.travels(12) + f.travels(13);
        const auto serve = [&](std::uint32_t layer, const std::vector<std::int32_t>& chosen) {
            f.choose(chosen);
            f.read(layer, must(cache.try_serve(layer, {f.choices, 2}, f.stream)), chosen);
        };
        serve(0, first);
        f.choose(second);
        for (int i = 0; i < 3; ++i) {  // of the last ones nothing is left to bring where a guess brings all
            must(cache.try_guess(1, {f.choices, 2}, f.stream));
            must(cache.try_join(f.stream));
        }
        serve(1, second);
        const auto total = must(cache.try_statistics()).total;
        CHECK(total.hits + total.misses == 4);
        if (pieces == 1) {
            CHECK(total.guess_hits == 0);
            CHECK(total.guess_bytes == 3 * routed::piece_bytes);
            CHECK(total.demand_bytes == of_first + of_second - 3 * routed::piece_bytes);
        } else {
            CHECK(total.guesses == 2);
            CHECK(total.guess_hits == 2);
            CHECK(total.hits == 2);
            CHECK(total.guess_bytes == of_second);
            CHECK(total.demand_bytes == of_first);
        }
        serve(1, second);  // unpacked by now: a plain hit
        const auto after = must(cache.try_statistics()).total;
        CHECK(after.hits == total.hits + 2);
        CHECK(after.guess_hits == total.guess_hits);
        CHECK(after.demand_bytes == total.demand_bytes);
    }
    CHECK(f.wrong == 0);
}

TEST_CASE("routed packed: tokens, guesses, prefills and budgets in any order") {
    for (const Mix mix : {Mix::equal, Mix::unlike}) {
        PackedFixture f{{8, 5, 7}, mix, 150'000};
        for (const std::uint32_t pieces : {UINT32_MAX, 6U}) {
            const SimulatedServer<> server{std::chrono::microseconds{5}, pieces};
            for (const std::uint32_t choices : {1U, 3U}) {
                CAPTURE(choices);
                Cache<> cache{f.gpu(), f.catalog, f.experts, options(server, Budget::parse("50%"), choices)};
                std::mt19937 random{pieces + choices};
                for (int turn = 0; turn < 60; ++turn) {
                    const auto layer = static_cast<std::uint32_t>(random() % 3);
                    const auto chosen = choose_experts(random, 5, choices);
                    const auto what = random() % 12;
                    if (what == 0) { prefill(f, cache, static_cast<std::uint32_t>(random() % 9), random); }
                    if (what == 1) {
                        must(cache.try_set_budget(
                            Budget::bytes(cache.budget().floor_bytes +
                                          random() % (cache.budget().total_bytes - cache.budget().floor_bytes))));
                        CHECK(must(cache.try_statistics()).held_bytes <= cache.budget().bytes);
                    }
                    f.choose(chosen);
                    if (what < 8) {
                        f.read(layer, must(cache.try_serve(layer, {f.choices, choices}, f.stream)), chosen);
                    } else {
                        must(cache.try_guess(layer, {f.choices, choices}, f.stream));
                        must(cache.try_join(f.stream));
                    }
                }
            }
        }
        CHECK(f.wrong == 0);
    }
}

TEST_CASE("routed packed: a token is one graph, which stays valid over budgets and prefills") {
    PackedFixture f{{8, 8}, Mix::unlike, 100'000};
    const SimulatedServer<> server;
    Cache<> cache{f.gpu(), f.catalog, f.experts, options(server, Budget::parse("50%"), 3)};
    std::array<std::vector<std::int32_t>, 2> chosen;
    must(f.gpu().begin_capture(f.stream));
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
        const auto served = must(cache.try_serve(layer, {f.choices + layer * 3, 3}, f.stream));
        if (layer == 0) { must(cache.try_guess(1, {f.choices + 3, 3}, f.stream)); }
        Gpu::Kernel kernel;
        kernel.body = [&f, layer, served, &wanted = chosen[layer]] {
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                f.wrong += f.is_at(served.addresses[i], layer, static_cast<std::uint32_t>(wanted[i])) ? 0U : 1U;
            }
            ++f.reads;
        };
        must(f.gpu().launch(f.stream, std::move(kernel)));
        if (layer == 0) { must(cache.try_join(f.stream)); }
    }
    const auto graph = must(f.gpu().end_capture(f.stream));
    std::mt19937 random{5};
    std::uint64_t graphs = 0;
    for (const char* const budget : {"50%", "100%", "0", "70%"}) {
        must(cache.try_set_budget(Budget::parse("100%")));
        must(cache.try_set_budget(budget == std::string{"0"} ? Budget::bytes(cache.budget().floor_bytes)
                                                             : Budget::parse(budget)));
        for (int token = 0; token < 15; ++token, ++graphs) {
            must(f.gpu().synchronize(f.stream));
            chosen = {choose_experts(random, 8, 3), choose_experts(random, 8, 3)};
            std::vector<std::int32_t> both{chosen[0]};
            both.insert(both.end(), chosen[1].begin(), chosen[1].end());
            f.choose(both);
            must(f.gpu().launch(graph, f.stream));
        }
        must(f.gpu().synchronize(f.stream));
        const std::uint64_t before = f.reads;
        prefill(f, cache, 0, random);
        f.reads = before;
    }
    CHECK(f.reads == 2 * graphs);
    CHECK(must(cache.try_statistics()).total.guess_hits > 0);
    CHECK(f.wrong == 0);
    must(f.gpu().destroy_graph(graph));
}

TEST_CASE("routed packed: one expert in all has one slot, and a prefill reads it") {
    PackedFixture f{{1}};
    const SimulatedServer<> server;
    Cache<> cache{f.gpu(), f.catalog, f.experts, options(server, Budget::parse("100%"), 1)};
    std::mt19937 random{1};
    prefill(f, cache, 0, random);
    prefill(f, cache, 1, random);
    const std::vector<std::int32_t> chosen{0};
    f.choose(chosen);
    f.read(0, must(cache.try_serve(0, {f.choices, 1}, f.stream)), chosen);
    prefill(f, cache, 0, random);
    CHECK(f.reads == 4);
    CHECK(f.wrong == 0);
}

TEST_CASE("routed packed: what is not unpacked is refused with what to do") {
    PackedFixture f{{4}};
    const SimulatedServer<> server;
    const auto refusal = [&](const auto& change, bool in_place = false) {
        auto tried = options(server, Budget::parse("100%"), 2);
        tried.read_in_place = in_place;
        std::vector<StorageSource> sources;
        for (const Storage& storage : f.catalog.storages()) { sources.push_back(storage.source); }
        auto source = std::get<PackedHostSource>(sources[2]);
        auto parts = *source.parts;
        change(source, parts);
        source.parts = std::make_shared<const std::vector<PackedPart>>(parts);
        sources[2] = source;
        auto made = Cache<>::try_create(f.gpu(), must(f.raw.try_with_sources(std::move(sources))), f.experts, tried);
        return made ? std::string{} : made.error().message();
    };
    CHECK(refusal([](auto&, auto&) {}).empty());
    const std::string form = refusal([](auto&, auto& parts) { parts[1].form = PackedForm::bf16_tiles; });
    CHECK(contains(form, "layer 0, expert 2: "));
    CHECK(contains(form, "pack it without PackOptions::form, in chunks"));
    const std::string in_place = refusal([](auto&, auto&) {}, true);
    CHECK(contains(in_place, "layer 0, expert 0: "));
    CHECK(contains(in_place, "kernels cannot read it so in host memory: leave Options::read_in_place out"));
    CHECK(contains(refusal([](auto&, auto& parts) { parts[0].offset_bytes += 8; }), "multiples of 16: pack it again"));
    CHECK(
        contains(refusal([](auto& source, auto&) { source.offset_bytes += 8; }), "does not begin at a multiple of 16"));
    std::vector<std::byte> pageable(200'000);
    CHECK(contains(refusal([&](auto& source, auto&) {
                       source.host = HostBytes::borrow(pageable, HostMemory::pageable);
                       source.offset_bytes = 0;
                   }),
                   "packed::pack and packed::load bring packed bytes there"));
    auto small = options(server, Budget::bytes(1000), 2);
    const auto below = Cache<>::try_create(f.gpu(), f.catalog, f.experts, small);
    REQUIRE_FALSE(below);
    CHECK(contains(below.error().message(), "and for the packed bytes of 2"));
}

TEST_CASE("routed packed: C19: what a call brought and could not unpack is unpacked before anything reads it") {
    using residency::simulation::CallKind;
    PackedFixture f{{8}};
    const SimulatedServer<> server;
    const std::vector<std::int32_t> chosen{2, 5}, others{1, 6};
    std::mt19937 random{1};
    for (int next = 0; next < 3; ++next) {
        CAPTURE(next);
        Cache<> cache{f.gpu(), f.catalog, f.experts, options(server, Budget::parse("70%"), 2)};
        f.choose(chosen);
        f.gpu().fail(CallKind::launch_kernel, 2);  // the first one brings
        CHECK_FALSE(cache.try_serve(0, {f.choices, 2}, f.stream));
        if (next == 0) { prefill(f, cache, 2, random); }
        if (next == 1) { must(cache.try_set_budget(Budget::parse("100%"))); }
        if (next == 2) {
            f.choose(others);
            f.read(0, must(cache.try_serve(0, {f.choices, 2}, f.stream)), others);
        }
        f.choose(chosen);
        f.read(0, must(cache.try_serve(0, {f.choices, 2}, f.stream)), chosen);
        CHECK(must(cache.try_statistics()).total.hits == 2);
        CHECK(f.wrong == 0);
    }
    // In a capture nothing was brought, and the staging area has what a prefill left there.
    Cache<> cache{f.gpu(), f.catalog, f.experts, options(server, Budget::parse("70%"), 2)};
    f.choose(chosen);
    f.read(0, must(cache.try_serve(0, {f.choices, 2}, f.stream)), chosen);
    prefill(f, cache, 2, random);
    must(f.gpu().begin_capture(f.stream));
    f.gpu().fail(CallKind::launch_kernel, 2);
    CHECK_FALSE(cache.try_serve(0, {f.choices, 2}, f.stream));
    must(f.gpu().destroy_graph(must(f.gpu().end_capture(f.stream))));
    f.read(0, must(cache.try_serve(0, {f.choices, 2}, f.stream)), chosen);
    CHECK(must(cache.try_statistics()).total.hits == 2);
    CHECK(f.wrong == 0);
}

TEST_CASE("routed packed: C19: any call of the device fails once, nothing is left behind and every byte is right") {
    using residency::simulation::CallKind;
    PackedFixture f{{4, 4}, Mix::unlike, 40'000};
    Gpu& gpu = f.gpu();
    const SimulatedServer<> server;
    std::uint64_t points = 0;
    for (std::uint8_t kind = 0; kind < static_cast<std::uint8_t>(CallKind::any); ++kind) {
        const auto which = static_cast<CallKind>(kind);
        for (std::uint64_t nth = 1; nth < 80; ++nth) {
            const std::uint64_t before = gpu.statistics().of(which);
            gpu.fail(which, nth);
            const auto wait = [&] {
                while (!gpu.synchronize(f.stream)) {}
            };
            {
                auto made = Cache<>::try_create(gpu, f.catalog, f.experts, options(server, Budget::parse("80%"), 2));
                std::mt19937 random{4};
                for (int token = 0; made && token < 3; ++token) {
                    for (std::uint32_t layer = 0; layer < 2; ++layer) {
                        serve_two(f, *made, random, layer, [&](std::uint32_t expert, const std::byte* at) {
                            f.wrong += f.is_at(at, layer, expert) ? 0U : 1U;
                        });
                    }
                    if (token == 1) { static_cast<void>(made->try_set_budget(Budget::parse("100%")).has_value()); }
                    if (!made->try_begin_prefill()) { continue; }
                    for (std::uint32_t group = 0; group < made->prefill_groups(0); ++group) {
                        auto there = made->try_acquire(0, group, f.stream);
                        if (!there) { there = made->try_acquire(0, group, f.stream); }
                        wait();
                        for (std::uint32_t i = there ? there->first : 0; there && i < there->last; ++i) {
                            f.wrong += f.is_at(there->addresses[i], 0, i) ? 0U : 1U;
                        }
                    }
                    while (!made->try_end_prefill()) {}
                }
            }
            const bool is_over = gpu.statistics().of(which) - before < nth;
            gpu.clear_failures();
            CHECK(f.wrong == 0);
            if (is_over) { break; }
            ++points;
        }
    }
    CHECK(points > 100);
}

}  // namespace routed_packed_test

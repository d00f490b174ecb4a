// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Online compositions of packed weights: they travel and are cached packed, a lease gives the raw bytes, and the budget holds, with what
// leases unpack to.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tests/packed/support.hpp"

namespace online_test {

using namespace packed_tests;
using residency::Budget;
using residency::ErrorKind;
using residency::Lease;
using residency::Placement;
using Spec = Model::Spec;
using Experts = residency::PackedExperts<Device>;
using Cached = residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<4>,
                                    residency::pool::PackedStorages<residency::pool::StreamOrdered<Device>>>;
using RawExperts = residency::Experts<Device>;

namespace {

template <class Weights>
typename Weights::Options online(const residency::Unpacker<Device>& unpacker, Budget budget) {
    typename Weights::Options made;
    made.budget = budget;
    made.poison = true;
    made.policies.unpacker = &unpacker;
    return made;
}

/// A lease of weights, by number.
template <class Pass>
residency::Result<Lease<Device>> acquire(Pass& pass, const std::vector<std::uint32_t>& weights) {
    std::vector<WeightId> ids;
    for (const std::uint32_t weight : weights) { ids.push_back(WeightId{weight}); }
    return pass.try_acquire(std::span<const WeightId>{ids});
}
void verify(Device& device, const Model& model, const Lease<Device>& lease, const std::vector<std::uint32_t>& weights,
            Stream stream, std::uint64_t& wrong) {
    std::vector<WeightId> ids;
    for (const std::uint32_t weight : weights) { ids.push_back(WeightId{weight}); }
    packed_tests::verify(device, model, lease, ids, stream, wrong);
}

/// `count` distinct numbers below `end`.
std::vector<std::uint32_t> some_of(std::mt19937_64& random, std::uint32_t end, std::size_t count) {
    std::set<std::uint32_t> chosen;
    while (chosen.size() < count) { chosen.insert(static_cast<std::uint32_t>(random() % end)); }
    return {chosen.begin(), chosen.end()};
}

/// Experts of one size, noise among them, what is no bf16, and residents.
std::vector<Spec> mixture() {
    std::vector<Spec> specs(24, {6'000});
    specs[5].is_noise = specs[17].is_noise = true;
    specs[9].type = residency::dtype::u8;
    specs[10].type = residency::dtype::f32;
    specs[11].type = residency::dtype::f8_e4m3fn;
    specs.push_back({3'000});
    specs.back().placement = Placement::resident;
    specs.push_back({700});
    specs.back().placement = Placement::resident;
    specs.back().is_noise = true;
    return specs;
}
constexpr std::uint32_t residents_from = 24;

/// Random leases of two experts, several open together, on two streams, and of residents, with hints where they are taken.
template <class Weights>
void run_randomly(Device& device, const Model& model, Weights& weights, const Stream (&streams)[2],
                  std::mt19937_64& random, std::size_t most_leases, std::uint64_t used_before) {
    std::uint64_t wrong = 0;
    const auto expect_budget = [&] {
        CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
        CHECK(used_bytes(device) - used_before <= weights.budget().bytes);
    };
    for (int turn = 0; turn < 12; ++turn) {
        auto pass = must(weights.try_begin(streams[random() % 2]));
        std::vector<Lease<Device>> open;
        for (int access = 0; access < 12; ++access) {
            const auto wanted = random() % 5 == 0 ? std::vector{residents_from, residents_from + 1}
                                                  : some_of(random, residents_from, 1 + random() % 2);
            const Stream on = streams[random() % 2];
            std::vector<WeightId> ids;
            for (const std::uint32_t weight : wanted) { ids.push_back(WeightId{weight}); }
            auto lease = must(pass.try_acquire(std::span<const WeightId>{ids}, on));
            verify(device, model, lease, wanted, on, wrong);
            if (random() % 4 == 0) {
                const Stream also = streams[random() % 2];
                must(lease.try_use_on(also));
                verify(device, model, lease, wanted, also, wrong);
            }
            if constexpr (requires { weights.prefetcher().hint(std::span<const residency::prefetch::Hint>{}); }) {
                const std::uint32_t guess = static_cast<std::uint32_t>(random() % residents_from);
                const residency::prefetch::Hint hint{.storage = StorageId{guess}, .probability = 0.8F};
                must(weights.prefetcher().hint({&hint, 1}));
            }
            if (wanted.front() < residents_from) { open.push_back(std::move(lease)); }
            while (open.size() >= most_leases) {
                open.erase(open.begin() + static_cast<std::ptrdiff_t>(random() % open.size()));
            }
            expect_budget();
        }
        if (random() % 3 == 0) { must(pass.try_wait()); }
        open.clear();
        must(pass.try_end());
    }
    must(weights.try_drain());
    expect_budget();
    CHECK(wrong == 0);
    CHECK(!weights.failure());
    expect_no_reports(device);
}

template <class Weights>
void check_random_accesses() {
    Device device{device_config()};
    const Model model{device, mixture()};
    const residency::SimulatedUnpacker unpacker;
    const Stream streams[2]{must(device.create_stream()), must(device.create_stream())};
    std::mt19937_64 random{38};
    const std::uint64_t used_before = used_bytes(device);
    for (const std::uint32_t leases : {1U, 3U}) {
        auto made = online<Weights>(unpacker, Budget::bytes(0));
        made.policies.storages_at_once = 2;
        made.policies.leases_at_once = leases;
        const auto floor = must(Weights::try_resolve_budget(device, model.packed.catalog, made)).floor_bytes;
        for (const std::uint64_t more : {0U, 40'000U, 90'000U, 400'000U}) {
            CAPTURE(leases);
            CAPTURE(more);
            made.budget = Budget::bytes(floor + more);
            auto weights = must(Weights::try_create(device, model.packed.catalog, made));
            run_randomly(device, model, weights, streams, random, leases, used_before);
            const auto& total = weights.statistics().total;
            CHECK(total.demand_misses > 0);
            CHECK(total.unpacked_bytes > 0);
            CHECK((more == 400'000) == !weights.statistics().streaming);
            if (more < 400'000) { CHECK(total.evictions > 0); }
            must(weights.try_set_budget(Budget::bytes(floor + 400'000 - more)));
            run_randomly(device, model, weights, streams, random, leases, used_before);
            must(weights.try_suspend());
            CHECK(used_bytes(device) == used_before);
            CHECK(weights.statistics().held_bytes == 0);
            must(weights.try_resume());
            run_randomly(device, model, weights, streams, random, leases, used_before);
        }
    }
    CHECK(used_bytes(device) == used_before);
    for (const Stream stream : streams) { must(device.destroy_stream(stream)); }
}

}  // namespace

TEST_CASE("PackedExperts: random leases read the raw bytes inside every budget, suspended and resumed between") {
    check_random_accesses<Experts>();
}

TEST_CASE("a stream-ordered pool of packed storages does the same") { check_random_accesses<Cached>(); }

TEST_CASE("packed, the same budget caches 1.3 to 1.5 times the experts, and a miss moves two thirds of the bytes") {
    Device device{device_config()};
    const Model model{device, std::vector<Spec>(64, {24'000})};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    constexpr std::uint64_t raw_bytes = 48'000;
    struct Seen {
        std::uint64_t cached = 0, bytes_a_miss = 0, misses = 0, unpacked_bytes = 0;
    };
    const auto measure = [&]<class Weights>(Weights& weights) {
        std::mt19937_64 random{1};
        std::uint64_t wrong = 0;
        for (int turn = 0; turn < 40; ++turn) {
            auto pass = must(weights.try_begin(stream));
            for (int layer = 0; layer < 8; ++layer) {
                auto wanted = some_of(random, 8, 2);
                for (std::uint32_t& expert : wanted) { expert += static_cast<std::uint32_t>(8 * layer); }
                const auto lease = must(acquire(pass, wanted));
                verify(device, model, lease, wanted, stream, wrong);
            }
            must(pass.try_end());
        }
        must(weights.try_drain());
        CHECK(wrong == 0);
        const auto& total = weights.statistics().total;
        CHECK(total.demand_misses + total.hits == 40 * 8 * 2);
        return Seen{total.demand_misses - total.evictions, total.fetched_bytes / total.demand_misses,
                    total.demand_misses, total.unpacked_bytes};
    };
    for (const std::uint64_t experts : {16U, 24U, 32U, 40U}) {  // a quarter of the raw bytes, and more
        CAPTURE(experts);
        const Budget budget = Budget::bytes(experts * raw_bytes);
        RawExperts::Options as_raw;
        as_raw.budget = budget;
        as_raw.policies.storages_at_once = 2;
        auto raw = must(RawExperts::try_create(device, model.raw, std::move(as_raw)));
        auto made = online<Experts>(unpacker, budget);
        made.policies.storages_at_once = 2;
        auto packed = must(Experts::try_create(device, model.packed.catalog, std::move(made)));
        const Seen before = measure(raw), after = measure(packed);
        const double cached = static_cast<double>(after.cached) / static_cast<double>(before.cached);
        const double moved = static_cast<double>(after.bytes_a_miss) / static_cast<double>(before.bytes_a_miss);
        MESSAGE(experts << " raw experts: " << cached << " times as many cached, " << moved << " of the bytes a miss, "
                        << after.misses << " misses instead of " << before.misses);
        CHECK(before.unpacked_bytes == 0);
        CHECK(after.unpacked_bytes == 40 * 8 * 2 * raw_bytes);
        CHECK(cached >= 1.3);
        CHECK(cached <= 1.5);
        CHECK(moved >= 0.6);
        CHECK(moved <= 0.75);
        CHECK(after.misses < before.misses);
    }
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("a budget below the floor names the packed floor; at the floor it works") {
    Device device{device_config()};
    const Model model{device, std::vector<Spec>(12, {6'000})};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    auto made = online<Experts>(unpacker, Budget::bytes(0));
    made.policies.storages_at_once = 2;
    const auto floor = must(Experts::try_resolve_budget(device, model.packed.catalog, made)).floor_bytes;
    CHECK(floor >= 2 * 12'000 + 2 * 12'000 * 6 / 10);  // raw to read, packed to hold
    CHECK(floor <= 4 * 12'000 + 2 * 4096);
    made.budget = Budget::bytes(floor - 1);
    const auto refused = Experts::try_create(device, model.packed.catalog, made);
    REQUIRE(!refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(says(refused.error(), "with its packed bytes"));
    CHECK(says(refused.error(), std::to_string(floor)));
    CHECK(refused.error().detail<residency::BudgetNumbers>()->floor_bytes == floor);

    made.budget = Budget::bytes(floor);
    auto weights = must(Experts::try_create(device, model.packed.catalog, made));
    std::uint64_t wrong = 0;
    const auto lease_all = [&] {
        auto pass = must(weights.try_begin(stream));
        for (std::uint32_t i = 0; i < 12; i += 2) {
            const std::vector<std::uint32_t> wanted{i, i + 1};
            verify(device, model, must(acquire(pass, wanted)), wanted, stream, wrong);
        }
        must(pass.try_end());
    };
    lease_all();
    // A schedule whose steps read more is refused with its floor, and the one in force stays.
    const auto wide = schedule_of(model.packed.catalog, {{0, 1, 2, 3}, {4, 5}});
    const auto too_wide = weights.try_set_schedule(wide);
    REQUIRE(!too_wide);
    CHECK(too_wide.error().kind() == ErrorKind::budget);
    CHECK(says(too_wide.error(), "that this schedule needs"));
    lease_all();
    const auto wide_floor = too_wide.error().detail<residency::BudgetNumbers>()->floor_bytes;
    must(weights.try_set_budget(Budget::bytes(wide_floor)));
    must(weights.try_set_schedule(wide));
    CHECK(weights.statistics().floor_bytes == wide_floor);
    CHECK(weights.statistics().held_bytes <= wide_floor);
    {
        auto pass = must(weights.try_begin(stream));
        for (const Schedule::Step& step : weights.schedule()) {
            packed_tests::verify(device, model, must(pass.try_acquire(step)), step.weights, stream, wrong);
        }
        must(pass.try_end());
    }
    must(weights.try_set_schedule({}));
    lease_all();
    const auto below = weights.try_set_budget(Budget::bytes(floor - 1));
    REQUIRE(!below);
    CHECK(below.error().kind() == ErrorKind::budget);
    must(weights.try_set_budget(Budget::bytes(floor)));
    lease_all();
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "C19: a change of schedule that fails, and whose undoing fails, leaves room for the steps of the one in force") {
    int failed = 0;
    for (std::uint64_t first = 1; first <= 14; ++first) {
        for (std::uint64_t second = 1; second <= 14; ++second) {
            CAPTURE(first);
            CAPTURE(second);
            Device device{device_config()};
            const Model model{device, std::vector<Spec>(8, {6'000})};
            const residency::SimulatedUnpacker unpacker;
            const Stream stream = must(device.create_stream());
            const auto wide = schedule_of(model.packed.catalog, {{0, 1, 2, 3}, {4, 5, 6, 7}});
            const auto narrow = schedule_of(model.packed.catalog, {{0}, {1}, {2}, {3}});
            std::uint64_t wrong = 0;
            {
                auto made = online<Experts>(unpacker, Budget::percent_of_weights(120));
                made.schedule = wide;
                auto weights = must(Experts::try_create(device, model.packed.catalog, made));
                const auto run = [&] {
                    auto pass = must(weights.try_begin(stream));
                    for (const Schedule::Step& step : weights.schedule()) {
                        packed_tests::verify(device, model, must(pass.try_acquire(step)), step.weights, stream, wrong);
                    }
                    must(pass.try_end());
                    must(weights.try_drain());
                };
                run();
                device.fail(Device::CallKind::any, first);
                device.fail(Device::CallKind::any, first + second);
                failed += weights.try_set_schedule(narrow).has_value() ? 0 : 1;
                device.clear_failures();
                run();
                must(weights.try_set_schedule(narrow));
                run();
            }
            CHECK(wrong == 0);
            expect_no_reports(device);
            must(device.destroy_stream(stream));
        }
    }
    CHECK(failed > 20);
}

TEST_CASE("what lies where a larger weight has to go is unpacked again elsewhere, unless another lease covers it") {
    Device device{device_config()};
    const Model model{device, {{3'000}, {9'000}, {12'000}, {1'000}}};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    auto made = online<Experts>(unpacker, Budget::percent_of_weights(200));
    made.policies.storages_at_once = 2;  // room for the two largest
    auto weights = must(Experts::try_create(device, model.packed.catalog, std::move(made)));
    std::uint64_t wrong = 0;
    {
        auto pass = must(weights.try_begin(stream));
        const auto lease = [&](const std::vector<std::uint32_t>& wanted) {
            verify(device, model, must(acquire(pass, wanted)), wanted, stream, wrong);
        };
        lease({0, 1});  // the larger first, so that 0 lies in the middle
        {
            const std::vector<std::uint32_t> middle{0};
            const auto held = must(acquire(pass, middle));
            const auto refused = acquire(pass, std::vector<std::uint32_t>{0, 2});
            REQUIRE(!refused);
            CHECK(refused.error().kind() == ErrorKind::budget);
            verify(device, model, held, middle, stream, wrong);
        }
        const std::uint64_t unpacked_before = weights.statistics().total.unpacked_bytes;
        lease({0, 2});
        CHECK(weights.statistics().total.unpacked_bytes == unpacked_before + 6'000 + 24'000);
        must(pass.try_end());
    }
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("as many leases as the options say have room at the floor, whatever the sizes of their weights") {
    Device device{device_config()};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    const Model model{device, {{4'000}, {12'000}, {12'000}, {1'000}, {1'000}, {7'000}}};
    for (const std::uint32_t leases : {2U, 3U, 5U}) {
        CAPTURE(leases);
        auto made = online<Experts>(unpacker, Budget::bytes(0));
        made.policies.storages_at_once = 1;
        made.policies.leases_at_once = leases;
        auto weights = must(Experts::try_create(device, model.packed.catalog, std::move(made)));
        CHECK(weights.budget().bytes == weights.statistics().floor_bytes);
        std::mt19937_64 random{leases};
        std::uint64_t wrong = 0;
        {
            auto pass = must(weights.try_begin(stream));
            std::vector<std::pair<std::vector<std::uint32_t>, Lease<Device>>> open;
            for (int turn = 0; turn < 300; ++turn) {
                if (open.size() == leases) {
                    const auto at = open.begin() + static_cast<std::ptrdiff_t>(random() % leases);
                    verify(device, model, at->second, at->first, stream, wrong);
                    open.erase(at);
                }
                std::vector<std::uint32_t> wanted{static_cast<std::uint32_t>(random() % 6)};
                auto lease = must(acquire(pass, wanted));
                open.emplace_back(std::move(wanted), std::move(lease));
            }
            open.clear();
            must(pass.try_end());
        }
        must(weights.try_drain());
        CHECK(wrong == 0);
    }
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("C17: more leases than there is room to unpack for are refused with the option; what is leased stays") {
    Device device{device_config()};
    const Model model{device, std::vector<Spec>(12, {6'000})};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    auto made = online<Experts>(unpacker, Budget::percent_of_weights(200));
    made.policies.storages_at_once = 2;
    made.policies.leases_at_once = 2;
    auto weights = must(Experts::try_create(device, model.packed.catalog, std::move(made)));
    std::uint64_t wrong = 0;
    auto pass = must(weights.try_begin(stream));
    auto first = must(acquire(pass, {0, 1}));
    const auto second = must(acquire(pass, {1, 2}));  // shares one
    const auto before = weights.statistics().total.unpacked_bytes;
    const auto again = must(acquire(pass, {0, 2}));  // shares both, and unpacks nothing
    CHECK(weights.statistics().total.unpacked_bytes == before);
    CHECK(before == 3 * 12'000);
    const auto refused = acquire(pass, {3, 4});
    REQUIRE(!refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(says(refused.error(), "leases_at_once"));
    REQUIRE(refused.error().detail<residency::BudgetNumbers>() != nullptr);
    const auto third = must(acquire(pass, {3}));
    verify(device, model, first, {0, 1}, stream, wrong);
    verify(device, model, second, {1, 2}, stream, wrong);
    verify(device, model, again, {0, 2}, stream, wrong);
    verify(device, model, third, {3}, stream, wrong);
    first = {};
    // 0 is covered by another lease still, so that nothing is free.
    CHECK(!acquire(pass, {5}));
    {
        const auto ticket = pass.try_request({WeightId{6}});  // a ticket unpacks nothing before it is a lease
        CHECK(ticket.has_value());
    }
    must(pass.try_end());
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
}

TEST_CASE(
    "C9: a packed weight that no step reads, beside steps that read none that is packed, is refused with the numbers") {
    Device device{device_config()};
    std::vector<Spec> specs(4, {6'000});
    specs[1].type = residency::dtype::u8;
    const Model model{device, specs};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    {
        auto made = online<Cached>(unpacker, Budget::percent_of_weights(200));
        made.schedule = schedule_of(model.packed.catalog, {{1}});
        auto weights = must(Cached::try_create(device, model.packed.catalog, made));
        std::uint64_t wrong = 0;
        auto pass = must(weights.try_begin(stream));
        const auto refused = acquire(pass, {0});
        REQUIRE(!refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(says(refused.error(), "policies.storages_at_once"));
        verify(device, model, must(acquire(pass, {1})), {1}, stream, wrong);
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(wrong == 0);
    }
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

TEST_CASE("weights that kernels read packed are cached and leased as they are, residents too") {
    Device device{device_config()};
    std::vector<Spec> specs(8, {16 * 64 * 8, false, residency::dtype::bf16, Placement::streamed, 64});
    specs[3].placement = Placement::resident;
    const Model model{device, specs};
    residency::packed::PackOptions tiles;
    tiles.form = [](const residency::Weight& weight) {
        return weight.name == "w1" || weight.name == "w6" ? residency::PackedForm::bf16_tiers
                                                          : residency::PackedForm::bf16_tiles;
    };
    const auto packed = must(residency::packed::try_pack(device, model.raw, tiles));
    // Here nothing unpacks tiles, as on a GPU.
    class TiersOnly final : public residency::Unpacker<Device> {
    public:
        [[nodiscard]] bool takes(residency::PackedForm form) const noexcept override {
            return form == residency::PackedForm::bf16_tiers;
        }
        [[nodiscard]] residency::Status enqueue(Device& on, std::span<const residency::codec::UnpackTask> tasks,
                                                std::span<const residency::PackedPart> parts,
                                                const residency::codec::UnpackTask* table,
                                                Stream stream) const override {
            return inner_.enqueue(on, tasks, parts, table, stream);
        }

    private:
        residency::SimulatedUnpacker inner_;
    };
    const TiersOnly unpacker;
    const Stream stream = must(device.create_stream());
    std::uint64_t wrong = 0;
    auto made = online<Experts>(unpacker, Budget::percent_of_weights(60));
    auto weights = must(Experts::try_create(device, packed.catalog, std::move(made)));
    for (int turn = 0; turn < 3; ++turn) {
        auto pass = must(weights.try_begin(stream));
        for (std::uint32_t i = 0; i < 8; ++i) {
            const WeightId id{i};
            const auto lease = must(pass.try_acquire({id}));
            const auto as_packed = lease.packed(id);
            const bool is_unpacked = i == 1 || i == 6;
            CHECK((as_packed.data == nullptr) == is_unpacked);
            if (is_unpacked) {
                verify(device, model, lease, {i}, stream, wrong);
                continue;
            }
            CHECK(as_packed.form == residency::PackedForm::bf16_tiles);
            CHECK(reinterpret_cast<std::uintptr_t>(as_packed.data) % 512 == 0);
            const auto& source = std::get<residency::PackedHostSource>(packed.catalog.storage(StorageId{i}).source);
            const std::byte* const expected =
                source.host->data() + source.offset_bytes + source.parts->front().offset_bytes;
            Device::Kernel kernel;
            kernel.reads = {{as_packed.data, as_packed.bytes}};
            kernel.body = [&wrong, as_packed, expected] {
                wrong +=
                    std::memcmp(as_packed.data, expected, static_cast<std::size_t>(as_packed.bytes)) != 0 ? 1U : 0U;
            };
            must(device.launch(stream, std::move(kernel)));
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(weights.statistics().requested_bytes <= weights.statistics().held_bytes);
        must(weights.try_suspend());
        must(weights.try_resume());
    }
    CHECK(weights.statistics().total.evictions > 0);
    CHECK(weights.statistics().total.unpacked_bytes == 3 * 2 * specs[0].elements * 2);
    CHECK(wrong == 0);
    expect_no_reports(device);
}

TEST_CASE("what online compositions of packed weights refuse, and say why") {
    Device device{device_config()};
    const Model model{device, mixture()};
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    auto made = online<Experts>(unpacker, Budget::percent_of_weights(300));
    made.policies.unpacker = nullptr;
    const auto without = Experts::try_create(device, model.packed.catalog, made);
    REQUIRE(!without);
    CHECK(without.error().kind() == ErrorKind::invalid_argument);
    CHECK(says(without.error(), "policies.unpacker"));
    static_cast<void>(must(Experts::try_create(device, model.raw, made)));

    made.policies.unpacker = &unpacker;
    auto weights = must(Experts::try_create(device, model.packed.catalog, made));
    CHECK(!weights.statistics().streaming);
    const auto refreshed = weights.try_refresh_all([]() -> residency::Status { return {}; });
    REQUIRE(!refreshed);
    CHECK(refreshed.error().kind() == ErrorKind::unsupported);
    CHECK(says(refreshed.error(), "is packed"));
    std::uint64_t wrong = 0;
    {
        auto pass = must(weights.try_begin(stream));
        verify(device, model, must(acquire(pass, {2})), {2}, stream, wrong);
        must(pass.try_end());
    }
    must(device.begin_capture(stream));
    const auto captured = weights.try_begin(stream);
    REQUIRE(!captured);
    CHECK(captured.error().kind() == ErrorKind::unsupported);
    must(device.destroy_graph(must(device.end_capture(stream))));
    {
        auto pass = must(weights.try_begin(stream));
        verify(device, model, must(acquire(pass, {2})), {2}, stream, wrong);
        must(pass.try_end());
    }
    must(weights.try_drain());
    CHECK(wrong == 0);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

namespace {

struct Tally {
    std::uint64_t failures = 0, passes = 0, leases = 0;
};

/// A random program, of which calls fail.
template <class Weights>
class Program {
public:
    Program(Device& device, std::uint64_t seed, Tally& tally)
        : device_{device}, random_{seed}, tally_{tally}, model_{device, mixture(), seed} {
        for (Stream& stream : streams_) { stream = must(device.create_stream()); }
        schedules_ = {Schedule{}, schedule_of(model_.packed.catalog, {{0, 1}, {2, 3, 4}, {5, 6}, {24, 25}}),
                      schedule_of(model_.packed.catalog, {{7}, {8, 9}, {10, 24}, {11}})};
        options_ = online<Weights>(unpacker_, Budget::bytes(0));
        options_.schedule = schedules_[random_() % 3];
        options_.policies.storages_at_once = 3;
        options_.policies.leases_at_once = 1 + static_cast<std::uint32_t>(random_() % 2);
        floor_ = must(Weights::try_resolve_budget(device_, model_.packed.catalog, options_)).floor_bytes;
        options_.budget = Budget::bytes(floor_ + random_() % 200'000);
        before_ = used_bytes(device_);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        weights_.reset();
        for (const Stream stream : streams_) { must(device_.destroy_stream(stream)); }
    }

    void run() {
        for (int turn = 0; turn < 30; ++turn) {
            CAPTURE(turn);
            const bool is_faulty = random_() % 2 == 0;
            if (is_faulty) { faults_.inject(device_, random_); }
            operate();
            if (error_) {
                CAPTURE(error_->message());
                const bool is_refusal = error_->kind() == ErrorKind::budget || (weights_ && weights_->is_suspended());
                CHECK((is_faulty || is_refusal));
                tally_.failures += is_refusal ? 0U : 1U;
            }
            device_.clear_failures();
            REQUIRE(wrong_ == 0);
            if (weights_ && !faults_.may_hold() &&
                !weights_->is_suspended()) {  // what suspend() failed to give back is held still
                CHECK(weights_->statistics().held_bytes <= weights_->budget().bytes);
                CHECK(used_bytes(device_) - before_ <= weights_->budget().bytes);
            }
            faults_.expect_few_reports(device_);
        }
        error_.reset();
        if (!weights_) { make(); }
        if (weights_->is_suspended()) { must(weights_->try_resume()); }
        static_cast<void>(weights_->try_drain().has_value());
        error_.reset();
        run_pass();
        if (error_) { FAIL(error_->message()); }
        must(weights_->try_drain());
        CHECK(wrong_ == 0);
        faults_.expect_few_reports(device_);
    }
    [[nodiscard]] bool may_hold() const noexcept { return faults_.may_hold(); }

private:
    template <class R>
    bool seen(const R& result) {
        if (!result && !error_) { error_ = result.error(); }
        return static_cast<bool>(result);
    }
    void make() {
        auto made = Weights::try_create(device_, model_.packed.catalog, options_);
        if (seen(made)) { weights_ = std::make_unique<Weights>(std::move(*made)); }
    }
    void operate() {
        error_.reset();
        if (!weights_) { return make(); }
        switch (random_() % 10) {
            case 0:
            case 1: seen(weights_->try_set_budget(Budget::bytes(floor_ - 100 + random_() % 250'000))); return;
            case 2: seen(weights_->try_set_schedule(schedules_[random_() % 3])); return;
            case 3: seen(weights_->try_suspend()); return;
            case 4: seen(weights_->try_resume()); return;
            case 5: seen(weights_->try_drain()); return;
            case 6:
                if (random_() % 4 == 0) { weights_.reset(); }
                return;
            default: run_pass();
        }
    }
    void run_pass() {
        auto pass = weights_->try_begin(streams_[0]);
        if (!seen(pass)) { return; }
        ++tally_.passes;
        std::optional<Lease<Device>> last;
        for (int access = 0; access < 10; ++access) {
            std::vector<std::uint32_t> wanted = some_of(random_, residents_from + 2, 1 + random_() % 3);
            std::vector<WeightId> ids;
            for (const std::uint32_t weight : wanted) { ids.push_back(WeightId{weight}); }
            const Stream on = streams_[random_() % 2];
            residency::Result<Lease<Device>> lease = residency::Error{ErrorKind::device, "none"};
            if (random_() % 4 == 0) {
                auto ticket = pass->try_request(std::span<const WeightId>{ids});
                if (ticket) {
                    lease = ticket->try_lease(on);
                } else {
                    lease = ticket.error();
                }
            } else {
                lease = pass->try_acquire(std::span<const WeightId>{ids}, on);
            }
            if (!lease && lease.error().kind() == ErrorKind::budget && last) {
                last.reset();  // two of three each may be more than there is room for
                continue;
            }
            if (!seen(lease)) { break; }
            ++tally_.leases;
            if (!read(*lease, wanted, on)) { break; }
            last.reset();
            if (options_.policies.leases_at_once > 1) { last = std::move(*lease); }
        }
        last.reset();
        seen(pass->try_end());
    }
    bool read(const Lease<Device>& lease, const std::vector<std::uint32_t>& wanted, Stream on) {
        Device::Kernel kernel;
        kernel.name = "reader";
        std::vector<residency::simulation::ByteRange> reads;
        std::vector<std::pair<const std::byte*, std::span<const std::byte>>> pairs;
        for (const std::uint32_t weight : wanted) {
            const auto expected = model_.contents[weight];
            pairs.emplace_back(lease.data(WeightId{weight}), expected);
            reads.push_back({pairs.back().first, expected.size()});
        }
        kernel.reads = reads;
        kernel.duration = std::chrono::microseconds{random_() % 20};
        kernel.body = [this, pairs] {
            for (const auto& [at, expected] : pairs) {
                wrong_ += std::memcmp(at, expected.data(), expected.size()) != 0 ? 1U : 0U;
            }
        };
        return seen(device_.launch(on, std::move(kernel)));
    }

    Device& device_;
    std::mt19937_64 random_;
    Tally& tally_;
    const Model model_;
    residency::SimulatedUnpacker unpacker_;
    Stream streams_[2]{};
    std::vector<Schedule> schedules_;
    typename Weights::Options options_;
    std::uint64_t floor_ = 0, before_ = 0, wrong_ = 0;
    std::unique_ptr<Weights> weights_;
    std::optional<residency::Error> error_;
    Faults faults_;
};

template <class Weights>
void run_programs() {
    Tally tally;
    for (std::uint64_t seed = 1; seed <= 80; ++seed) {
        CAPTURE(seed);
        Device device{device_config()};
        bool may_hold = false;
        {
            Program<Weights> program{device, seed, tally};
            program.run();
            may_hold = program.may_hold();
        }
        for (const auto& leak : device.leaks()) {
            if (!may_hold) { FAIL_CHECK("left: " << leak.what); }
        }
    }
    MESSAGE(tally.passes << " passes, " << tally.leases << " leases, " << tally.failures << " failures");
    CHECK(tally.failures > 60);
    CHECK(tally.leases > 1000);
}

}  // namespace

TEST_CASE("PackedExperts: random programs with failures lose nothing, leave nothing, and work again") {
    run_programs<Experts>();
}

TEST_CASE("a stream-ordered pool of packed storages: random programs with failures") { run_programs<Cached>(); }

TEST_CASE("packed online: no leases at once are refused; leases that raise the floor are named") {
    Device device{device_config()};
    const Model model{device, std::vector<Spec>(12, {6'000})};
    const residency::SimulatedUnpacker unpacker;
    auto made = online<Experts>(unpacker, Budget::bytes(100'000));
    made.policies.leases_at_once = 0;
    const auto none = Experts::try_create(device, model.packed.catalog, made);
    REQUIRE(!none);
    CHECK(none.error().kind() == ErrorKind::invalid_argument);
    CHECK(says(none.error(), "policies.leases_at_once is 0"));
    made.policies.leases_at_once = 100;
    const auto many = Experts::try_create(device, model.packed.catalog, made);
    REQUIRE(!many);
    CAPTURE(many.error().message());
    CHECK(many.error().kind() == ErrorKind::budget);
    CHECK(says(many.error(), "with room for 100 leases together (policies.leases_at_once)"));
    CHECK(says(many.error(), "the 12 largest storages"));
}

}  // namespace online_test

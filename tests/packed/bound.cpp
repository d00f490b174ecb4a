// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The exact bound of packed plans: the value of a linear program, and below every plan that is made.
#include "residency/packed/bound.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/packed/dual_simplex.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/planner.hpp"
#include "tests/packed/support.hpp"
#include "tests/support/choice_check.hpp"
#include "tests/support/planning.hpp"

#if RESIDENCY_TEST_GLPK
#include <glpk.h>
#endif

namespace bound_test {

namespace plan = residency::plan;
namespace packed = residency::packed;
using packed::UnpackProblem;
using residency::testing::Dice;

namespace {

/// Whole numbers of bytes; P = 1 byte a second. Steps read packed storages, raw ones, and now and then those of other steps.
UnpackProblem small_problem(Dice& dice) {
    UnpackProblem problem;
    problem.travels.link.bytes_per_second = 1;
    problem.travels.link.latency_seconds = 0;
    problem.travels.cyclic = dice(0, 3) != 0;
    problem.travels.chunk_bytes = problem.granule_bytes = 1;
    problem.travels.alignment_bytes = 1;
    problem.unpacked_bytes_per_second = 1 + 20 * dice.real();
    problem.launch_seconds = dice(0, 1) == 0 ? 0 : 4 * dice.real();
    problem.leases_at_once = dice(0, 3) == 0 ? 2 : 1;
    const std::uint32_t steps = dice(1, 8), storages = dice(1, 12);
    for (std::uint32_t s = 0; s < storages; ++s) {
        const std::uint64_t raw = dice(1, 100);
        const bool is_packed = dice(0, 4) != 0;
        const std::uint64_t percent = storages % 4 == 3 ? 110 : 67;  // those of some problems do not get smaller
        problem.travels.storage_bytes.push_back(is_packed ? raw * percent / 100 : raw);
        problem.unpacked_bytes.push_back(is_packed ? raw : 0);
        problem.must_stay.push_back(dice(0, 15) == 0);
        if (problem.must_stay.back() && !is_packed) { problem.travels.kept.push_back(s); }
    }
    problem.step_offsets.push_back(0);
    for (std::uint32_t i = 0; i < steps; ++i) {
        std::vector<std::uint32_t> step;
        for (std::uint32_t s = i; s < storages; s += steps) { step.push_back(s); }
        if (dice(0, 3) == 0) { step.push_back(dice(0, storages - 1)); }
        std::sort(step.begin(), step.end());
        step.erase(std::unique(step.begin(), step.end()), step.end());
        problem.travels.add_step(step);
        problem.travels.compute_seconds.push_back(dice(0, 3) == 0 ? 0 : dice(0, 100) * dice.real());
        problem.step_storages.insert(problem.step_storages.end(), step.begin(), step.end());
        problem.step_offsets.push_back(static_cast<std::uint32_t>(problem.step_storages.size()));
    }
    return problem;
}

std::uint64_t raw_bytes(const UnpackProblem& problem) {
    std::uint64_t sum = 0;
    for (std::size_t s = 0; s < problem.unpacked_bytes.size(); ++s) {
        sum += std::max(problem.unpacked_bytes[s], problem.travels.storage_bytes[s]);
    }
    return sum;
}

#if RESIDENCY_TEST_GLPK
double unpack_seconds(const UnpackProblem& problem, std::uint32_t s) {
    return static_cast<double>(problem.unpacked_bytes[s]) / problem.unpacked_bytes_per_second;
}

/// A program of glpk, column by column and row by row.
class Program {
public:
    using Terms = std::vector<std::pair<int, double>>;
    Program() : lp_{glp_create_prob()} { glp_set_obj_dir(lp_, GLP_MIN); }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() { glp_delete_prob(lp_); }
    int column(double cost, int type, double most = 0) {
        const int c = glp_add_cols(lp_, 1);
        glp_set_col_bnds(lp_, c, type == GLP_DB && most <= 0 ? GLP_FX : type, 0, most);
        glp_set_obj_coef(lp_, c, cost);
        return c;
    }
    void row(const Terms& terms, int type, double bound) {
        std::vector<double> dense(static_cast<std::size_t>(glp_get_num_cols(lp_)) + 1, 0.0);
        for (const auto& [column, factor] : terms) { dense[static_cast<std::size_t>(column)] += factor; }
        std::vector<int> index(1);
        std::vector<double> value(1);
        for (std::size_t c = 1; c < dense.size(); ++c) {
            if (dense[c] == 0) { continue; }
            index.push_back(static_cast<int>(c));
            value.push_back(dense[c]);
        }
        const int r = glp_add_rows(lp_, 1);
        glp_set_mat_row(lp_, r, static_cast<int>(index.size()) - 1, index.data(), value.data());
        glp_set_row_bnds(lp_, r, type, bound, bound);
    }
    /// None: no solution.
    std::optional<double> solve() {
        glp_smcp how;
        glp_init_smcp(&how);
        how.msg_lev = GLP_MSG_OFF;
        how.tol_bnd = how.tol_dj = 1e-11;
        if (glp_simplex(lp_, &how) != 0 || glp_get_status(lp_) != GLP_OPT) { return std::nullopt; }
        return glp_get_obj_val(lp_);
    }

private:
    glp_prob* lp_;
};

/// The same model written as flows in time: what comes beside each step and during each stall, and how full memory is. None: nothing fits.
std::optional<double> linear_program(const UnpackProblem& problem, double budget) {
    const plan::Problem& travels = problem.travels;
    const std::uint32_t n = travels.steps(), storages = travels.storages();
    const double p = travels.link.bytes_per_second;
    Program lp;
    std::vector<int> share(storages, 0), launch(n), beside(n), stalled(n);
    struct Unpacking {
        std::uint32_t step = 0;
        int column = 0;  // of the first: the packed share; later: what is unpacked again
    };
    std::vector<std::vector<Unpacking>> unpackings(storages);
    std::vector<bool> is_pinned(storages, false), is_read(storages, false);
    for (const std::uint32_t s : travels.kept) { is_pinned[s] = true; }
    for (std::uint32_t i = 0; i < n; ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            unpackings[s].push_back({i});
            is_read[s] = true;
        }
    }
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (problem.unpacked_bytes[s] == 0 || problem.must_stay[s] || !is_read[s]) { continue; }
        for (Unpacking& each : unpackings[s]) { each.column = lp.column(unpack_seconds(problem, s), GLP_DB, 1); }
        share[s] = unpackings[s].front().column;
        for (const Unpacking& each : unpackings[s]) {
            if (each.column != share[s]) { lp.row({{each.column, 1}, {share[s], -1}}, GLP_UP, 0); }
        }
    }
    const int memory = lp.column(0, GLP_LO), lead = lp.column(0, travels.cyclic ? GLP_FR : GLP_FX);
    for (std::uint32_t i = 0; i < n; ++i) {
        launch[i] = lp.column(problem.launch_seconds, GLP_DB, 1);
        beside[i] = lp.column(0, GLP_LO);
        stalled[i] = lp.column(1 / p, GLP_LO);
        Program::Terms terms{{beside[i], 1}, {launch[i], -p * problem.launch_seconds}};
        for (std::uint32_t s = 0; s < storages; ++s) {
            if (share[s] == 0) { continue; }
            for (const Unpacking& each : unpackings[s]) {
                if (each.step == i) { terms.emplace_back(each.column, -p * unpack_seconds(problem, s)); }
            }
        }
        lp.row(terms, GLP_UP, p * travels.compute(i));
        Program::Terms unpacked{{memory, -1}};
        for (std::uint32_t s = 0; s < storages; ++s) {
            if (share[s] == 0) { continue; }
            bool is_before = false, is_covered = false;
            const Unpacking* next = nullptr;
            for (const Unpacking& each : unpackings[s]) {
                if (each.step == i) { lp.row({{each.column, 1}, {launch[i], -1}}, GLP_UP, 0); }
                is_before = is_before || each.step <= i;
                is_covered = is_covered || (each.step <= i && i < each.step + problem.leases_at_once);
                if (each.step > i && next == nullptr) { next = &each; }
            }
            const auto bytes = static_cast<double>(problem.unpacked_bytes[s]);
            if (is_covered || (is_before && next != nullptr)) { unpacked.emplace_back(share[s], bytes); }
            if (!is_covered && is_before && next != nullptr) { unpacked.emplace_back(next->column, -bytes); }
        }
        lp.row(unpacked, GLP_UP, 0);
    }
    struct Access {
        int column;
        int before, at;
        bool wraps;
    };
    std::vector<Access> accesses;
    std::vector<int> latest(storages, -1);
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (is_pinned[s] || (problem.unpacked_bytes[s] > 0 && problem.must_stay[s])) { continue; }
        const std::size_t begin = accesses.size();
        for (std::uint32_t i = 0; i < n; ++i) {
            const auto reads = travels.reads(i);
            if (std::find(reads.begin(), reads.end(), s) == reads.end()) { continue; }
            const auto bytes = static_cast<double>(travels.storage_bytes[s]);
            accesses.push_back({lp.column(0, GLP_DB, bytes), latest[s], static_cast<int>(i), latest[s] < 0});
            latest[s] = static_cast<int>(i);
            if (share[s] != 0) { lp.row({{accesses.back().column, 1}, {share[s], -bytes}}, GLP_UP, 0); }
        }
        if (travels.cyclic && accesses.size() > begin) { accesses[begin].before = latest[s]; }
    }
    Program::Terms terms;
    if (travels.cyclic) {
        for (std::uint32_t i = 0; i < n; ++i) { terms.insert(terms.end(), {{beside[i], 1}, {stalled[i], 1}}); }
        for (const Access& access : accesses) { terms.emplace_back(access.column, -1); }
        lp.row(terms, GLP_FX, 0);
    }
    for (int i = 0; i < static_cast<int>(n); ++i) {
        terms.assign(1, {lead, 1});
        for (std::uint32_t k = 0; static_cast<int>(k) <= i; ++k) {
            terms.emplace_back(stalled[k], 1);
            if (static_cast<int>(k) < i) { terms.emplace_back(beside[k], 1); }
        }
        Program::Terms held = terms;
        for (const Access& access : accesses) {
            if (access.at <= i) { terms.emplace_back(access.column, -1); }
        }
        lp.row(terms, GLP_LO, 0);
        held.insert(held.end(), {{beside[static_cast<std::size_t>(i)], 1}, {memory, 1}});
        for (const Access& access : accesses) {
            const int dropped = (access.wraps ? 1 : 0) + (access.before >= 0 && access.before < i ? 1 : 0);
            held.emplace_back(access.column, -dropped);
        }
        double room = budget;
        for (std::uint32_t s = 0; s < storages; ++s) {
            const auto raw = static_cast<double>(problem.unpacked_bytes[s]);
            const auto travelling = static_cast<double>(travels.storage_bytes[s]);
            const bool is_gone = !travels.cyclic && latest[s] >= 0 && latest[s] < i;
            if (share[s] != 0) {
                room -= raw;
                held.emplace_back(share[s], (is_gone ? 0 : travelling) - raw);
            } else if (raw > 0 && problem.must_stay[s]) {
                room -= raw;
            } else if (is_read[s] || is_pinned[s]) {
                room -= is_gone ? 0 : travelling;
            }
        }
        lp.row(held, GLP_UP, room);
    }
    const auto value = lp.solve();
    if (!value) { return std::nullopt; }
    return plan::total_compute(travels) + *value;
}
#endif

/// As the decider has it: larger storages, chunks, and a latency of the link.
UnpackProblem planned_problem(Dice& dice) {
    UnpackProblem problem = small_problem(dice);
    for (std::uint64_t& bytes : problem.travels.storage_bytes) { bytes *= 500; }
    for (std::uint64_t& bytes : problem.unpacked_bytes) { bytes *= 500; }
    problem.travels.chunk_bytes = problem.granule_bytes = 4096;
    problem.travels.alignment_bytes = 256;
    problem.travels.link.bytes_per_second = 5e10;
    problem.travels.link.latency_seconds = 1e-6 * dice.real();
    problem.unpacked_bytes_per_second *= 5e10;
    problem.launch_seconds *= 1e-6;
    for (double& seconds : problem.travels.compute_seconds) { seconds *= 2e-8; }
    return problem;
}

}  // namespace

TEST_CASE("the bound is the value of the linear program") {
#if RESIDENCY_TEST_GLPK
    std::uint32_t solved = 0, none = 0;
    for (std::uint64_t seed = 1; seed <= 900; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const UnpackProblem problem = small_problem(dice);
        const std::uint64_t budget = raw_bytes(problem) * dice(20, 120) / 100;
        CAPTURE(budget);
        const auto value = linear_program(problem, static_cast<double>(budget));
        const double bound = packed::exact_bound(problem, budget);
        if (!value) {
            CHECK(std::isinf(bound));
            ++none;
            continue;
        }
        CHECK(std::abs(bound - *value) <= 1e-9 * *value);
        ++solved;
    }
    CHECK(solved >= 300);
    CHECK(none >= 20);
#else
    MESSAGE("skipped: built without glpk (libglpk-dev)");
#endif
}

TEST_CASE("more memory never takes longer, and in the end only the kernels count") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const UnpackProblem problem = small_problem(dice);
        double last = std::numeric_limits<double>::infinity();
        for (std::uint64_t percent = 10; percent <= 100; percent += 10) {
            CAPTURE(percent);
            const std::uint64_t budget = raw_bytes(problem) * percent / 100;
            const double now = packed::exact_bound(problem, budget);
            CHECK(now <= last * (1 + 1e-9));
            CHECK(packed::exact_bound(problem, budget, 0) <= now * (1 + 1e-9));
            last = now;
        }
        CHECK(last == doctest::Approx(plan::total_compute(problem.travels)).epsilon(1e-12));
    }
}

TEST_CASE("without unpacking it is the bound of plans of copies") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        UnpackProblem problem = small_problem(dice);
        problem.unpacked_bytes.assign(problem.unpacked_bytes.size(), 0);
        // The other bound counts whole bytes.
        for (double& seconds : problem.travels.compute_seconds) { seconds = std::floor(seconds); }
        std::uint64_t largest = 0, pinned = 0;
        for (const std::uint32_t s : problem.travels.kept) { pinned += problem.travels.storage_bytes[s]; }
        for (std::uint32_t i = 0; i < problem.travels.steps(); ++i) {
            std::uint64_t bytes = 0;
            for (const std::uint32_t s : problem.travels.reads(i)) { bytes += problem.travels.storage_bytes[s]; }
            largest = std::max(largest, bytes);
        }
        const std::uint64_t budget = pinned + largest + raw_bytes(problem) * dice(0, 60) / 100;
        CHECK(packed::exact_bound(problem, budget) ==
              doctest::Approx(plan::exact_bound(problem.travels, budget)).epsilon(1e-6));
    }
}

TEST_CASE("no plan of the decider is faster") {
    std::uint32_t made = 0;
    double nearest = 1e30;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const UnpackProblem problem = planned_problem(dice);
        const auto floor = packed::unpack_floor(problem);
        const auto everything = packed::unpack_everything(problem);
        REQUIRE(floor);
        REQUIRE(everything);
        for (const std::uint64_t percent : {0U, 30U, 70U}) {
            const std::uint64_t budget =
                *everything > *floor ? *floor + (*everything - *floor) * percent / 100 : *floor;
            CAPTURE(budget);
            const auto choice = packed::choose_unpacked(problem, budget, {.effort = plan::Effort::quick});
            REQUIRE(choice);
            const double bound = packed::exact_bound(problem, budget);
            CHECK(bound <= choice->seconds * (1 + 1e-9));
            if (bound > 0) { nearest = std::min(nearest, choice->seconds / bound); }
            ++made;
        }
    }
    CHECK(made == 180);
    CHECK(nearest < 1.01);
}

TEST_CASE("a small model that is read five times a pass, and a large one") {
    UnpackProblem problem;
    plan::Problem& travels = problem.travels;
    problem.granule_bytes = travels.chunk_bytes;
    problem.step_offsets.push_back(0);
    std::vector<std::uint32_t> order;
    for (std::uint32_t s = 0; s < 49; ++s) {
        const std::uint64_t raw = s < 16 ? 150'000'000 : s < 48 ? 430'000'000 : 1'000'000'000;
        travels.storage_bytes.push_back(raw * 67 / 100);
        problem.unpacked_bytes.push_back(raw);
        for (int turn = 0; turn < (s < 16 ? 5 : 1); ++turn) { order.push_back(s); }
    }
    problem.must_stay.resize(49);
    for (std::size_t i = 0; i < 80; ++i) { order[i] = static_cast<std::uint32_t>(i % 16); }
    for (const std::uint32_t s : order) {
        travels.add_step({&s, 1});
        travels.compute_seconds.push_back(static_cast<double>(problem.unpacked_bytes[s]) / 4e12 + 2e-6);
        problem.step_storages.push_back(s);
        problem.step_offsets.push_back(static_cast<std::uint32_t>(problem.step_storages.size()));
    }
    double last = std::numeric_limits<double>::infinity();
    for (const std::uint64_t percent : {35U, 50U, 75U, 90U}) {
        CAPTURE(percent);
        const std::uint64_t budget = raw_bytes(problem) / 100 * percent;
        const auto choice = packed::choose_unpacked(problem, budget, {.effort = plan::Effort::quick});
        REQUIRE(choice);
        const double bound = packed::exact_bound(problem, budget);
        CHECK(bound <= choice->seconds);
        CHECK(bound <= last);
        CHECK(bound >= packed::exact_bound(problem, budget, 0));
        // At 75 % it was 2.4 times the bound where what is read again was chosen like the rest.
        CHECK(choice->seconds <= bound * 1.15);
        last = bound;
    }
}

TEST_CASE("where everything has nearly room, small matrices stay, and few large ones are unpacked: near the bound") {
    // The matrices of a decoder, one a step, some with a norm: a launch takes as long as 16 MB.
    UnpackProblem problem;
    plan::Problem& travels = problem.travels;
    travels.link.bytes_per_second = 5.5e10;
    problem.granule_bytes = travels.chunk_bytes;
    problem.unpacked_bytes_per_second = 1.6e12;
    problem.launch_seconds = 10e-6;
    problem.step_offsets.push_back(0);
    std::vector<std::uint32_t> step;
    const auto add = [&](std::uint64_t raw) {
        step.push_back(travels.storages());
        travels.storage_bytes.push_back(raw * 67 / 100);
        problem.unpacked_bytes.push_back(raw);
    };
    const auto end_step = [&] {
        double bytes = 0;
        for (const std::uint32_t s : step) { bytes += static_cast<double>(problem.unpacked_bytes[s]); }
        travels.add_step(step);
        travels.compute_seconds.push_back(bytes / 3e12 + 1.5e-6);
        problem.step_storages.insert(problem.step_storages.end(), step.begin(), step.end());
        problem.step_offsets.push_back(static_cast<std::uint32_t>(problem.step_storages.size()));
        step.clear();
    };
    constexpr std::uint64_t norm = 8192, small = 8'388'608, middle = 33'554'432, large = 117'440'512;
    for (int layer = 0; layer < 12; ++layer) {
        for (const std::uint64_t raw : {middle, small, small, middle, large, large, large}) {
            if (travels.steps() % 7 == 0 || travels.steps() % 7 == 4) { add(norm); }
            add(raw);
            end_step();
        }
    }
    add(262'144'000);
    end_step();
    problem.must_stay.resize(problem.unpacked_bytes.size());
    UnpackProblem without_norms = problem;
    for (std::uint32_t s = 0; s < travels.storages(); ++s) {
        if (problem.unpacked_bytes[s] == norm) {
            without_norms.unpacked_bytes[s] = without_norms.travels.storage_bytes[s] = 0;
        }
    }
    struct Case {
        std::uint64_t percent;
        double most;  // times the bound; where as large a share of all matrices stayed, it was 1.05, 1.12 and 1.14
    };
    for (const Case& each : {Case{75, 1.03}, Case{85, 1.06}, Case{90, 1.10}}) {
        CAPTURE(each.percent);
        const std::uint64_t budget = raw_bytes(problem) / 100 * each.percent;
        const auto choice = packed::choose_unpacked(problem, budget, {});
        REQUIRE(choice);
        const auto made = plan::make_plan(choice->rest, {});
        REQUIRE(made);
        CHECK(support::check_choice(problem, *choice, *made));
        const double bound = packed::exact_bound(problem, budget);
        // Without what is tiny there is less to do. Rounding once ended the program before it said so.
        CHECK(packed::exact_bound(without_norms, budget) <= bound * (1 + 1e-6));
        CHECK(made->predicted_seconds() >= bound * (1 - 1e-9));
        CHECK(made->predicted_seconds() <= bound * each.most);
        std::uint32_t smalls = 0;
        for (const packed::Unpacking& unpacking : choice->unpackings) {
            smalls += problem.unpacked_bytes[unpacking.storage] == small ? 1 : 0;
        }
        CHECK(smalls <= 2);
    }
}

TEST_CASE("half of the storages are read twice a pass: near the bound, with the right bytes") {
    auto config = packed_tests::device_config();
    config.link.to_device_bytes_per_second = 5e8;  // slow, so that the host's calls do not count
    const plan::Link link{5e8, 0, 0};
    constexpr std::chrono::nanoseconds kernel = std::chrono::microseconds{20};
    packed_tests::Device device{config};
    const packed::UnpackRate unpack_rate{5e9, 3e-6};
    const residency::SimulatedUnpacker unpacker{unpack_rate.bytes_per_second};
    const packed_tests::Model model{device, std::vector<packed_tests::Model::Spec>(64, {48'000})};
    packed_tests::Steps steps;
    for (std::uint32_t i = 0; i < 64; ++i) { steps.push_back({i}); }
    for (std::uint32_t i = 0; i < 64; i += 2) { steps.push_back({i}); }
    const auto schedule = packed_tests::schedule_of(model.packed.catalog, steps, kernel);
    const auto stream = packed_tests::must(device.create_stream("compute"));
    for (const std::uint64_t percent : {50U, 75U, 90U}) {
        CAPTURE(percent);
        auto options = packed_tests::options(unpacker, model.raw_bytes() * percent / 100, schedule);
        options.policies.link = link;
        options.policies.unpack_rate = unpack_rate;
        auto weights =
            packed_tests::must(packed_tests::Weights::try_create(device, model.packed.catalog, std::move(options)));
        std::uint64_t wrong = 0;
        const auto run = [&](int passes) {
            const auto begin = device.host_time();
            for (int k = 0; k < passes; ++k) {
                auto pass = packed_tests::must(weights.try_begin(stream));
                for (const auto& step : weights.schedule()) {
                    const auto lease = packed_tests::must(pass.try_acquire(step));
                    packed_tests::verify(device, model, lease, step.weights, stream, wrong, kernel);
                }
                packed_tests::must(pass.try_end());
            }
            packed_tests::must(weights.try_drain());
            return std::chrono::duration<double>(device.host_time() - begin).count();
        };
        run(2);
        constexpr int passes = 10;
        const double seconds = run(passes) / passes, bound = weights.exact_bound();
        CHECK(seconds <= 1.10 * bound);
        CHECK(seconds > 0.98 * bound);
        CHECK(wrong == 0);
    }
    packed_tests::must(device.destroy_stream(stream));
    packed_tests::expect_no_reports(device);
}

TEST_CASE("no pass of the preset is faster") {
    packed_tests::Device device{packed_tests::device_config()};
    const residency::SimulatedUnpacker unpacker;
    std::vector<packed_tests::Model::Spec> specs(12, {24'000});
    specs.push_back({72'000});
    specs.push_back({5'000, true});
    const packed_tests::Model model{device, specs};
    const double rate = packed_tests::device_config().link.to_device_bytes_per_second;
    packed_tests::Steps steps(specs.size());
    for (std::uint32_t i = 0; i < steps.size(); ++i) { steps[i] = {i}; }
    steps[3].push_back(1);  // which an earlier step has unpacked already
    const auto schedule = packed_tests::schedule_of(model.packed.catalog, steps);
    const auto stream = packed_tests::must(device.create_stream("compute"));
    double last = std::numeric_limits<double>::infinity();
    for (const std::uint64_t percent : {55U, 70U, 85U, 110U}) {
        CAPTURE(percent);
        auto options = packed_tests::options(unpacker, model.raw_bytes() * percent / 100, schedule);
        options.policies.link = plan::Link{rate, 0, 0};
        options.policies.unpack_rate = packed::UnpackRate{1.3e12, 3e-6};
        auto weights =
            packed_tests::must(packed_tests::Weights::try_create(device, model.packed.catalog, std::move(options)));
        const double bound = weights.exact_bound();
        CHECK(bound <= weights.plan().predicted_seconds() * (1 + 1e-9));
        CHECK(bound <= last * (1 + 1e-9));
        last = bound;
        std::uint64_t wrong = 0;
        packed_tests::must(weights.try_drain());
        const auto begin = device.host_time();
        constexpr int passes = 20;
        for (int i = 0; i < passes; ++i) {
            auto pass = packed_tests::must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                const auto lease = packed_tests::must(pass.try_acquire(step));
                packed_tests::verify(device, model, lease, step.weights, stream, wrong);
            }
            packed_tests::must(pass.try_end());
        }
        packed_tests::must(weights.try_drain());
        const double seconds = std::chrono::duration<double>(device.host_time() - begin).count();
        // What lies in memory before the first pass did not have to come.
        const double ahead = static_cast<double>(model.raw_bytes()) / rate;
        CHECK(seconds + ahead >= passes * bound * (1 - 1e-9));
        CHECK(wrong == 0);
    }
    packed_tests::must(device.destroy_stream(stream));
}

TEST_CASE("the rows of a program come one after the other") {
    packed::DualSimplex program;
    const std::uint32_t x = program.add_column(1, 4), y = program.add_column(2, 10);
    using Terms = std::vector<packed::DualSimplex::Term>;
    program.add_row(Terms{{x, -1}, {y, -1}}, -3);  // x + y >= 3
    REQUIRE(program.solve(100));
    CHECK(program.objective() == doctest::Approx(3));
    program.add_row(Terms{{x, -1}, {y, -1}}, -6);
    REQUIRE(program.solve(100));
    CHECK(program.objective() == doctest::Approx(8));
    CHECK(program.value(x) == doctest::Approx(4));
    program.drop_loose_rows();
    CHECK(program.rows() == 1);
    program.add_row(Terms{{x, 1}, {y, -1}, {x, 1}}, 1);  // 2x - y <= 1
    REQUIRE(program.solve(100));
    CHECK(program.objective() == doctest::Approx(7.0 / 3 + 2 * 11.0 / 3));
    CHECK(program.proven() == doctest::Approx(program.objective()).epsilon(1e-12));
    program.rebuild();
    CHECK(program.objective() == 0);
    CHECK(program.rows() == 2);
    REQUIRE(program.solve(100));
    CHECK(program.objective() == doctest::Approx(7.0 / 3 + 2 * 11.0 / 3));
    CHECK(program.value(x) == doctest::Approx(7.0 / 3));
    CHECK(program.proven() == doctest::Approx(program.objective()).epsilon(1e-12));
    program.add_row(Terms{{y, 1}}, 1);
    CHECK(!program.solve(100));
    CHECK(program.is_impossible());
    CHECK(program.proven() <= 7.0 / 3 + 2 * 11.0 / 3 + 1e-9);
}

}  // namespace bound_test

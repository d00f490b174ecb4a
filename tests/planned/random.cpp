// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Random programs on plans, with storages of many chunks, graphs, budgets and failures; a failing one is shrunk and printed.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"
#include "tests/support/sanitized.hpp"

namespace random_test {

using namespace planned;
using residency::Budget;
using residency::ErrorKind;
using residency::Placement;

namespace {

enum class Do : std::uint8_t {
    pass,
    begin,
    end,
    step,
    weights,
    request,
    lease,
    verify,
    use_on,
    release,
    capture,
    launch,
    budget,
    schedule,
    drain,
    fail,
    count
};
constexpr std::array names{"pass",   "begin",   "end",     "step",   "weights", "request",  "lease", "verify",
                           "use_on", "release", "capture", "launch", "budget",  "schedule", "drain", "fail"};
static_assert(names.size() == static_cast<std::size_t>(Do::count));

struct Op {
    Do what = Do::pass;
    std::uint32_t a = 0, b = 0;
};
struct Program {
    std::uint64_t seed = 0;
    std::vector<Spec> specs;
    std::array<Steps, 2> schedules;
    bool one_shot = false, learn = false;
    std::uint32_t budget = 0;  // per mille of the way from the floor to everything
    double jitter = 1, link = 1;
    std::vector<Op> ops;
};

Program make_program(std::uint64_t seed, bool with_failures) {
    std::mt19937_64 random{seed * 0x9E3779B97F4A7C15U + 5};
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    Program program;
    program.seed = seed;
    auto model = random_model(random, 4 + below(10));
    if (below(3) == 0) {
        model.specs.assign(model.specs.size(), Spec{chunk * (1 + below(4)) + (below(2) == 0 ? 0 : 300)});
    }
    program.specs = std::move(model.specs);
    program.schedules[0] = std::move(model.steps);
    if (below(3) != 0) {
        program.schedules[0].clear();
        for (std::uint32_t i = 0; i < program.specs.size(); ++i) {
            if (i == 0 || below(4) != 0) { program.schedules[0].emplace_back(); }
            program.schedules[0].back().push_back(i);
        }
    }
    program.schedules[1] = program.schedules[0];
    std::shuffle(program.schedules[1].begin(), program.schedules[1].end(), random);
    program.one_shot = below(8) == 0;
    program.budget = below(3) == 0 ? 0 : below(10) == 0 ? 2000 : below(900);
    program.jitter = below(2) == 0 ? 1 : 10;
    program.learn = below(2) == 0;
    program.link = below(2) == 0 ? 1 : below(2) == 0 ? 0.05 : 20;
    const bool wild = below(2) == 0;
    for (std::uint32_t i = 20 + below(60); i > 0; --i) {
        const std::uint32_t die = below(100);
        Do what = Do::step;
        if (die < 8) {
            what = Do::pass;
        } else if (die < 20) {
            what = Do::begin;
        } else if (die < 50) {
            what = wild && below(3) == 0 ? Do::weights : Do::step;
        } else if (die < 55) {
            what = Do::request;
        } else if (die < 60) {
            what = Do::lease;
        } else if (die < 68) {
            what = Do::verify;
        } else if (die < 71) {
            what = Do::use_on;
        } else if (die < 82) {
            what = Do::release;
        } else if (die < 85) {
            what = Do::end;
        } else if (die < 88) {
            what = Do::capture;
        } else if (die < 92) {
            what = Do::launch;
        } else if (die < 93) {
            what = Do::budget;
        } else if (die < 95) {
            what = Do::schedule;
        } else if (die < 98) {
            what = Do::step;
        } else {
            what = Do::drain;
        }
        if (with_failures && below(12) == 0) { program.ops.push_back({Do::fail, below(64), below(64)}); }
        program.ops.push_back({what, wild ? below(64) : below(2) == 0 ? 0 : below(64), below(64)});
    }
    return program;
}

std::string text_of(const Program& program) {
    std::string text = "seed " + std::to_string(program.seed) + ", budget " + std::to_string(program.budget) +
                       ", jitter " + std::to_string(program.jitter) + ", link x" + std::to_string(program.link) +
                       (program.one_shot ? ", one shot" : "") + "\n  storages:";
    for (const auto& spec : program.specs) {
        text += " " + std::to_string(spec.bytes) +
                (spec.placement == Placement::resident ? "R"
                 : spec.placement == Placement::host   ? "H"
                                                       : "");
    }
    for (const auto& steps : program.schedules) {
        text += "\n  steps:";
        for (const auto& step : steps) {
            text += " {";
            for (const auto w : step) { text += " " + std::to_string(w); }
            text += " }";
        }
    }
    for (const auto& op : program.ops) {
        text += std::string{"\n    "} + names[static_cast<std::size_t>(op.what)] + " " + std::to_string(op.a) + " " +
                std::to_string(op.b);
    }
    return text;
}

struct Tally {
    std::uint64_t evictions = 0, misses = 0, refused = 0, launches = 0, stale = 0, remapped = 0, divergences = 0,
                  streaming = 0, verified = 0, returns = 0;
};

class Run {
public:
    static std::string of(const Program& program, Tally& tally) {
        auto config = small_config();
        config.memory_bytes = std::uint64_t{8} << 20U;
        config.jitter = program.jitter;
        config.seed = program.seed;
        config.link.to_device_bytes_per_second *= program.link;
        Device device{config};
        std::string wrong;
        {
            Run run{program, device, tally};
            wrong = run.all();
        }
        if (wrong.empty() && !device.reports().empty()) { wrong = device.reports().front().text; }
        if (wrong.empty() && !device.leaks().empty()) { wrong = "left: " + device.leaks().front().what; }
        return wrong;
    }

private:
    struct Held {
        Weights::Lease lease;
        std::vector<WeightId> weights;
        std::vector<Stream> streams;
    };
    using Graph =
        std::remove_cvref_t<decltype(std::declval<Weights&>().try_capture(Stream{}, [](Weights::Pass&) {}).value())>;

    Run(const Program& program, Device& device, Tally& tally)
        : program_{program}, device_{device}, tally_{tally}, model_{make_model(device, program.specs)} {
        for (int i = 0; i < 2; ++i) { streams_.push_back(*device.create_stream()); }
        for (std::size_t i = 0; i < 2; ++i) {
            schedules_[i] = schedule_of(model_, program.schedules[i],
                                        program.one_shot ? residency::Cycle::one_shot : residency::Cycle::cyclic);
        }
    }

    std::string all() {
        used_before_ = used_bytes(device_);
        auto chosen = options(0, schedules_[0]);
        chosen.policies.options.effort = residency::plan::Effort::quick;
        chosen.learn = program_.learn;
        auto made = Weights::try_create(device_, model_.catalog, std::move(chosen));
        if (!made) { return "at the floor: " + made.error().message(); }
        weights_ = std::make_unique<Weights>(std::move(*made));
        if (auto set = weights_->try_set_budget(budget(program_.budget)); !set) {
            return "first budget: " + set.error().message();
        }
        for (const Op& op : program_.ops) {
            apply(op);
            check();
            if (!wrong_.empty()) { break; }
        }
        device_.clear_failures();
        failing_ = 0;
        held_.clear();
        tickets_.clear();
        if (pass_open_) { note(pass_.try_end(), "last end"); }
        if (wrong_.empty()) { settle(); }
        tally_.evictions += weights_->statistics().total.evictions;
        tally_.misses += weights_->statistics().total.demand_misses;
        tally_.divergences += weights_->statistics().total.divergences;
        tally_.streaming += weights_->statistics().streaming ? 1U : 0U;
        tally_.verified += *model_.verified;
        graphs_.clear();
        weights_.reset();
        for (const Stream stream : streams_) { static_cast<void>(device_.destroy_stream(stream).has_value()); }
        return wrong_;
    }
    /// Back on the plan: nothing is missed, and the plan's bytes are moved. Every graph that is not stale still runs.
    void settle() {
        // Until no other plan is made of what is learned.
        for (int i = 0; i < 20 && weights_->statistics().learning.state == residency::LearningState::measuring; ++i) {
            whole_pass(streams_[0]);
            note(weights_->try_drain(), "drain while learning");
        }
        for (int i = 0; i < 3; ++i) { whole_pass(streams_[0]); }
        if (weights_->pending_bytes() != 0 && wrong_.empty()) { wrong_ = "pending, and no lease is open"; }
        const auto last = weights_->statistics().last_pass;
        if (!program_.one_shot && wrong_.empty()) {
            if (last.demand_misses != 0) { wrong_ = "misses on the plan"; }
            if (last.fetched_bytes != bytes_of(weights_->plan())) {
                wrong_ = "not the plan's bytes: " + std::to_string(last.fetched_bytes) + ", " +
                         std::to_string(bytes_of(weights_->plan()));
            }
        }
        for (auto& graph : graphs_) {
            if (!graph.is_stale()) { note(graph.try_launch(streams_[1]), "last launch"); }
        }
        whole_pass(streams_[1]);
        note(weights_->try_drain(), "last drain");
        check();
    }
    [[nodiscard]] Budget budget(std::uint32_t per_mille) const {
        std::uint64_t everything = 0;
        for (const auto& spec : program_.specs) { everything += spec.bytes + chunk; }
        const auto floor = weights_->statistics().floor_bytes;
        return Budget::bytes(floor + (everything > floor ? (everything - floor) * per_mille / 1000 : 0));
    }

    template <class T>
    bool note(const residency::Result<T>& result, const char* what) {
        if (!result && failing_ == 0 && wrong_.empty()) {
            wrong_ = std::string{what} + ": " + result.error().message();
        }
        return result.has_value();
    }
    void check() {
        if (!wrong_.empty()) { return; }
        if (!device_.reports().empty()) { wrong_ = device_.reports().front().text; }
        if (*model_.wrong != 0) { wrong_ = "wrong bytes"; }
        if (failing_ > 0) { return; }
        const auto statistics = weights_->statistics();
        const auto used = used_bytes(device_) - used_before_;
        if (used != statistics.held_bytes) {
            wrong_ = "the device counts " + std::to_string(used) + ", the statistics " +
                     std::to_string(statistics.held_bytes);
        }
        // What leases keep of a change of the budget becomes less, never more.
        allowed_ = std::max(statistics.budget_bytes, std::min(allowed_, statistics.held_bytes));
        if (used > allowed_) { wrong_ = "over the budget"; }
    }
    void read(Held& held, Stream stream, std::uint32_t duration) {
        for (const auto id : held.weights) {
            const auto bytes = held.lease.bytes(id);
            if (bytes.empty()) { continue; }
            const auto& weight = model_.catalog.weight(id);
            Device::Kernel kernel;
            kernel.name = weight.name;
            kernel.duration = std::chrono::nanoseconds{100 + duration * duration * 20};
            kernel.reads = {{bytes.data(), bytes.size()}};
            kernel.body = [at = bytes.data(), count = bytes.size(),
                           host = model_.catalog.host_bytes(weight.storage) + weight.offset_bytes,
                           wrong = model_.wrong.get(), verified = model_.verified.get()] {
                *wrong += std::memcmp(at, host, count) == 0 ? 0U : 1U;
                ++*verified;
            };
            note(device_.launch(stream, std::move(kernel)), "launch");
        }
    }
    void whole_pass(Stream stream) {
        auto pass = weights_->try_begin(stream);
        if (!note(pass, "begin")) { return; }
        for (const auto& step : weights_->schedule()) {
            auto lease = pass->try_acquire(step);
            if (!lease && !(held_.empty() && tickets_.empty()) && lease.error().kind() == ErrorKind::budget) {
                ++tally_.refused;
                continue;
            }
            if (!note(lease, "step")) { continue; }
            Held held{std::move(*lease), {step.weights.begin(), step.weights.end()}, {}};
            read(held, stream, static_cast<std::uint32_t>(step.position * 7 % 30));
        }
        note(pass->try_end(), "end");
    }
    [[nodiscard]] Stream stream(std::uint32_t i) const { return streams_[i % streams_.size()]; }
    [[nodiscard]] bool is_quiet() const { return !pass_open_ && held_.empty() && tickets_.empty(); }
    std::uint64_t allowed_ = UINT64_MAX;

    void quieten() {
        held_.clear();
        tickets_.clear();
        if (pass_open_) { note(pass_.try_end(), "end"); }
        pass_open_ = false;
    }
    /// Nothing is planned twice for the same schedule beside the same image, unless something else was planned between.
    void switch_schedule(std::uint32_t which) {
        const auto plans = weights_->statistics().total.plans_made;
        if (plans != plans_ || failing_ > 0) { switched_.clear(); }
        std::pair from{which, weights_->plan().data().storage_offsets};
        const auto set = weights_->try_set_schedule(schedules_[which]);
        plans_ = weights_->statistics().total.plans_made;
        if (!set) {
            switched_.clear();
            if (set.error().kind() != ErrorKind::budget) { note(set, "set_schedule"); }
            return;
        }
        if (std::find(switched_.begin(), switched_.end(), from) == switched_.end()) {
            switched_.push_back(std::move(from));
        } else if (plans_ != plans) {
            wrong_ = "a return to a schedule made a plan";
        } else {
            ++tally_.returns;
        }
    }
    [[nodiscard]] residency::StorageId storage_of(WeightId id) const { return weights_->catalog().storage_of(id); }
    void keep(residency::Result<Weights::Lease> lease, std::vector<WeightId> ids, Stream on) {
        if (!lease) {
            if (lease.error().kind() == ErrorKind::budget && !(held_.empty() && tickets_.empty())) {
                ++tally_.refused;
                return;
            }
            // The floor counts steps: sets that none announces, and what none reads, may be too much.
            const bool is_more = ids.size() > 1 || weights_->schedule().use_order().uses(storage_of(ids[0])).empty();
            if (lease.error().kind() == ErrorKind::budget && is_more) { return; }
            note(lease, "acquire");
            return;
        }
        held_.push_back({std::move(*lease), std::move(ids), {on}});
        read(held_.back(), on, 5);
    }

    void apply(const Op& op) {
        const auto remaps = weights_->statistics().total.host_waits;
        act(op);
        tally_.remapped += weights_->statistics().total.host_waits - remaps;
        if (failing_ > 0 && --failing_ == 0) { device_.clear_failures(); }
    }
    void act(const Op& op) {
        const auto& schedule = weights_->schedule();
        switch (op.what) {
            case Do::pass:
                if (pass_open_) { return; }
                return whole_pass(stream(op.b));
            case Do::begin: {
                if (pass_open_) { return; }
                auto pass = weights_->try_begin(stream(op.b));
                if (!note(pass, "begin")) { return; }
                pass_ = std::move(*pass);
                pass_open_ = true;
                next_ = 0;
                return;
            }
            case Do::end:
                if (!pass_open_) { return; }
                note(pass_.try_end(), "end");
                pass_open_ = false;
                return;
            case Do::step: {
                if (!pass_open_) { return; }
                const auto& step = schedule[op.a == 0 ? next_ % schedule.size() : op.b % schedule.size()];
                next_ = step.position + 1;
                const Stream on = stream(op.a);
                return keep(pass_.try_acquire(step, on), {step.weights.begin(), step.weights.end()}, on);
            }
            case Do::weights: {
                if (!pass_open_) { return; }
                std::vector<WeightId> ids{WeightId{static_cast<std::uint32_t>(op.a % program_.specs.size())}};
                if (op.b % 2 == 0) {
                    ids.push_back(WeightId{static_cast<std::uint32_t>(op.b % program_.specs.size())});
                }
                return keep(pass_.try_acquire(ids, stream(op.b)), ids, stream(op.b));
            }
            case Do::request: {
                if (!pass_open_) { return; }
                const auto& step = schedule[op.a == 0 ? next_ % schedule.size() : op.b % schedule.size()];
                auto ticket = pass_.try_request(step);
                if (!ticket && ticket.error().kind() == ErrorKind::budget && !(held_.empty() && tickets_.empty())) {
                    return;
                }
                if (!note(ticket, "request")) { return; }
                tickets_.emplace_back(std::move(*ticket),
                                      std::vector<WeightId>{step.weights.begin(), step.weights.end()});
                return;
            }
            case Do::lease: {
                if (tickets_.empty() || !pass_open_) { return; }
                auto [ticket, ids] = std::move(tickets_.front());
                tickets_.pop_front();
                if (op.b % 3 == 0) { return; }
                return keep(ticket.try_lease(stream(op.a)), std::move(ids), stream(op.a));
            }
            case Do::verify:
                if (!held_.empty()) {
                    Held& held = held_[op.b % held_.size()];
                    read(held, held.streams[op.a % held.streams.size()], op.b);
                }
                return;
            case Do::use_on:
                if (!held_.empty()) {
                    Held& held = held_[op.b % held_.size()];
                    if (note(held.lease.try_use_on(stream(op.a)), "use_on")) { held.streams.push_back(stream(op.a)); }
                }
                return;
            case Do::release:
                if (!held_.empty()) { held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(op.b % held_.size())); }
                return;
            case Do::capture: {
                if (op.a % 2 == 0) { quieten(); }
                if (!is_quiet()) { return; }
                const Stream on = stream(op.b);
                auto graph = weights_->try_capture(on, [&](Weights::Pass& pass) -> residency::Status {
                    for (const auto& step : schedule) {
                        auto lease = pass.try_acquire(step, on);
                        if (!lease) { return lease.error(); }
                        Held held{std::move(*lease), {step.weights.begin(), step.weights.end()}, {}};
                        read(held, on, step.position);
                        if (op.a % 3 == 0) {
                            if (auto used = held.lease.try_use_on(stream(op.b + 1)); !used) { return used; }
                            read(held, stream(op.b + 1), 30);
                        }
                    }
                    return {};
                });
                if (!graph && program_.one_shot && graph.error().kind() == ErrorKind::unsupported) { return; }
                if (!note(graph, "capture")) { return; }
                // With a failing call, a kernel may be missing in it, never a copy.
                graphs_.push_back(std::move(*graph));
                return;
            }
            case Do::launch: {
                if (op.a % 2 == 0) { quieten(); }
                if (!is_quiet() || graphs_.empty()) { return; }
                auto& graph = graphs_[op.b % graphs_.size()];
                const bool stale = graph.is_stale();
                const auto launched = graph.try_launch(stream(op.a));
                if (stale) {
                    ++tally_.stale;
                    if (launched || launched.error().kind() != ErrorKind::stale) {
                        wrong_ = "a stale graph was not refused";
                    }
                } else {
                    note(launched, "launch");
                    ++tally_.launches;
                }
                return;
            }
            case Do::budget: {
                // With leases and tickets open, or not.
                if (op.b % 2 == 0) {
                    quieten();
                } else if (pass_open_) {
                    note(pass_.try_end(), "end");
                    pass_open_ = false;
                }
                const auto before = weights_->statistics().budget_bytes;
                const auto changed = weights_->try_set_budget(budget((op.a * 64 + op.b) % 1050));
                const bool is_leased = !(held_.empty() && tickets_.empty());
                if (changed) { allowed_ = std::max(changed->budget_bytes, changed->held_bytes); }
                if (!changed && is_leased && changed.error().kind() == ErrorKind::wrong_state) {
                    ++tally_.refused;
                } else if (!note(changed, "set_budget") && weights_->statistics().budget_bytes != before) {
                    wrong_ = "a failed change changed the budget";
                }
                return;
            }
            case Do::schedule: {
                // There, and in half of the cases back and forth again.
                quieten();
                for (std::uint32_t i = 0; i < (op.a % 2 == 0 ? 1U : 3U); ++i) {
                    switch_schedule((op.b + i) % 2);
                    if (op.a % 4 == 1) { whole_pass(stream(op.b)); }
                }
                return;
            }
            case Do::drain: note(weights_->try_drain(), "drain"); return;
            case Do::fail:
                device_.clear_failures();
                device_.fail(Device::CallKind::any, 1 + op.a);
                failing_ = 6;
                return;
            case Do::count: return;
        }
    }

    const Program& program_;
    Device& device_;
    Tally& tally_;
    Model model_;
    std::vector<Stream> streams_;
    std::array<Schedule, 2> schedules_;
    std::unique_ptr<Weights> weights_;
    std::deque<Held> held_;
    std::deque<std::pair<Weights::Ticket, std::vector<WeightId>>> tickets_;
    std::deque<Graph> graphs_;
    Weights::Pass pass_;
    bool pass_open_ = false;
    std::uint32_t next_ = 0;
    std::uint64_t plans_ = 0;                                                     // made so far, by the last switch
    std::vector<std::pair<std::uint32_t, std::vector<std::uint64_t>>> switched_;  // to a schedule, from an image
    std::uint32_t failing_ = 0;  // operations for which a failing call may be pending
    std::uint64_t used_before_ = 0;
    std::string wrong_;
};

/// Drops operations as long as it still fails.
Program shrunk(Program program) {
    Tally ignored;
    for (std::size_t size = std::max<std::size_t>(program.ops.size() / 2, 1); size > 0; size /= 2) {
        for (std::size_t at = 0; at < program.ops.size();) {
            Program smaller = program;
            const auto begin = smaller.ops.begin() + static_cast<std::ptrdiff_t>(at);
            smaller.ops.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(size, program.ops.size() - at)));
            if (!Run::of(smaller, ignored).empty()) {
                program = std::move(smaller);
            } else {
                at += size;
            }
        }
    }
    return program;
}
Tally run_programs(std::uint64_t count, bool with_failures) {
    Tally tally;
    const std::uint64_t first = support::first_seed();
    for (std::uint64_t seed = first; seed < first + support::cases_each(count); ++seed) {
        const Program program = make_program(seed, with_failures);
        if (Run::of(program, tally).empty()) { continue; }
        const Program small = shrunk(program);
        Tally ignored;
        FAIL(Run::of(small, ignored) << "\n" << text_of(small));
    }
    MESSAGE(tally.verified << " reads, " << tally.evictions << " evictions, " << tally.misses << " misses, "
                           << tally.refused << " refusals, " << tally.launches << " launches, " << tally.stale
                           << " stale, " << tally.remapped << " host waits, " << tally.divergences << " divergences, "
                           << tally.streaming << " programs that stream at their end, " << tally.returns
                           << " returns without a plan");
    return tally;
}

}  // namespace

TEST_SUITE_BEGIN("planned random");

TEST_CASE("random programs: passes, divergence, leases, tickets, graphs, budgets and schedules") {
    const Tally tally = run_programs(2500, false);
    CHECK(tally.evictions > 0);
    CHECK(tally.misses > 0);
    CHECK(tally.refused > 0);
    CHECK(tally.launches > 0);
    CHECK(tally.stale > 0);
    CHECK(tally.remapped > 0);
    CHECK(tally.returns > 100);
}

TEST_CASE("random programs whose device calls fail now and then: nothing is leaked, and all goes on") {
    const Tally tally = run_programs(1500, true);
    CHECK(tally.evictions > 0);
    CHECK(tally.launches > 0);
}

TEST_SUITE_END();

}  // namespace random_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "tests/attack/failed.hpp"
#include "tests/attack/model.hpp"
#include "tests/attack/run.hpp"

namespace attack {
namespace {

using namespace residency;
using CallKind = simulation::CallKind;

/// What kernels found.
struct Found {
    std::atomic<std::uint64_t> wrong = 0;     // kernels that read something else than the source or all ones
    std::atomic<std::uint64_t> all_ones = 0;  // kernels that read ones where a staged transport could not read
    std::atomic<std::uint64_t> ran = 0;
};

struct Held {
    std::size_t lease;
    std::vector<WeightId> weights;
    Stream stream;
};

/// A Residency under attack, and what it must do.
struct Target {
    Kind kind;
    std::unique_ptr<Model> model;
    std::unique_ptr<Subject> subject;  // null: not constructed
    Found found;
    std::optional<broker::ModelClient> client;
    std::vector<Held> leases;
    std::vector<std::vector<WeightId>> tickets;
    Stream pass_stream{};
    std::uint32_t next_step = 0;
    std::uint64_t cap_bytes = 0;  // its budget and what is pending
    bool is_strict = false;
    bool is_doubtful = false;            // a transport's thread may have failed, which a later call says
    bool was_told = false;               // a call said that something failed, since collect()
    bool is_source_gone = false;         // for good
    std::atomic<int> read_error_in = 0;  // reads until one fails; 0: none does
};

class Case {
public:
    Case(std::span<const Kind> kinds, std::uint64_t seed, Mode mode)
        : kinds_{kinds}, random_{seed * 0x9E3779B97F4A7C15U + 77}, device_{config(random_)}, mode_{mode} {
        device_.on_report([this](const Device::Report& report) { reported(report); });
    }
    void run();

private:
    [[nodiscard]] static Device::Config config(Random& random) {
        Device::Config config;
        config.memory_bytes = std::uint64_t{64} << 20U;
        const std::uint64_t granularity = std::uint64_t{1024} << (random() % 3);
        config.allocation_granularity = random() % 2 != 0 ? 256 : granularity;
        config.pool_granularity = granularity * 2;
        config.chunk_granularity = 4096;
        config.jitter = random() % 2 != 0 ? 1 : 12;
        config.seed = random();
        config.concurrent_kernels = random() % 4 != 0;
        return config;
    }
    [[nodiscard]] std::uint64_t below(std::uint64_t n) { return random_() % n; }
    [[nodiscard]] bool one_in(std::uint64_t n) { return random_() % n == 0; }
    [[nodiscard]] Stream any_stream() { return streams_[below(streams_.size())]; }
    [[nodiscard]] std::optional<Stream> maybe_stream() {
        return one_in(3) ? std::optional<Stream>{any_stream()} : std::nullopt;
    }
    [[nodiscard]] bool may_fail() const { return is_lost_ || armed_ > 0 || mode_ == Mode::lies; }

    void reported(const Device::Report& report) const;
    void arm();
    void disarm();
    /// Ends the case unless the error has a reason.
    void refused(const Error& error, Target& target, const char* what);
    void check_failed(const Status& status, Target& target, const char* what) {
        if (!status) { refused(status.error(), target, what); }
    }
    /// What may be used on the device from now on, beside what may be used already.
    void allow(std::uint64_t more_bytes);
    void check();
    void verify(Target& target, std::size_t lease, WeightId weight, Stream stream, std::uint64_t nanoseconds);
    void verify_captured(Target& target, std::span<const std::byte> bytes, WeightId weight, Stream stream,
                         std::uint64_t nanoseconds);
    /// All kernels have run: what did they find?
    void collect(Target& target) const;

    /// Any composition; more often than others one that plans, since it alone has graphs.
    [[nodiscard]] Kind pick();
    [[nodiscard]] Choice choose(Target& target);
    void construct(Target& target);
    void destroy(Target& target);
    void operate(Target& target);
    void go_on(Target& target);
    void acquire(Target& target);
    void request(Target& target);
    void use_ticket(Target& target);
    void set_budget(Target& target);
    void hint(Target& target);
    void capture(Target& target);
    void launch(Target& target);
    void pass_end(Target& target);
    void use_memory();
    void spoil(Target& target);
    void recover(Target& target);
    void release(Target& target);

    std::span<const Kind> kinds_;
    Random random_;
    Device device_;
    Mode mode_;
    std::vector<Stream> streams_;
    std::vector<std::unique_ptr<Target>> targets_;
    std::optional<BudgetBroker> broker_;
    std::optional<broker::MemoryClient> memory_;
    std::vector<std::pair<void*, std::uint64_t>> blocks_;  // of the caller's own memory
    std::uint64_t own_bytes_ = 0, allowed_peak_ = 0;
    int armed_ = 0;  // calls that are to fail
    bool is_lost_ = false;
    bool is_leaky_ = false;  // something could not be given back
};

void Case::reported(const Device::Report& report) const {
    if (is_lost_) { return; }
    // What could not be given back is in the way of what it lies in.
    const bool follows = armed_ > 0 && (report.text.find("have not been deallocated") != std::string::npos ||
                                        report.text.find("still mapped") != std::string::npos);
    if (!follows) { failed("the checker reports", report.text); }
}

void Case::arm() {
    if (mode_ == Mode::faults && one_in(5)) {
        const std::uint64_t count = one_in(3) ? 1 + below(6) : 1;
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto kind = one_in(2) ? CallKind::any : static_cast<CallKind>(below(simulation::call_kinds));
            device_.fail(kind, 1 + below(12), one_in(3) ? ErrorKind::out_of_memory : ErrorKind::device);
            ++armed_;
            ++tally().faults;
        }
    }
    if (mode_ == Mode::lies && one_in(5)) {
        device_.lie(1 + static_cast<int>(below(20)));
        ++tally().faults;
    }
    for (const auto& target : targets_) {
        if (may_fail() && target->kind.is_staged) { target->is_doubtful = true; }
    }
}

void Case::disarm() {
    device_.clear_failures();
    device_.lie(0);
    armed_ = 0;
}

void Case::refused(const Error& error, Target& target, const char* what) {
    target.was_told = true;
    if (may_fail() || target.is_doubtful || target.is_source_gone) { return; }
    if (error.kind() == ErrorKind::budget) { return; }
    if (error.kind() == ErrorKind::divergence && target.is_strict) { return; }
    failed(what, error.message());
}

void Case::allow(std::uint64_t more_bytes) {
    std::uint64_t sum = own_bytes_ + more_bytes;
    for (const auto& target : targets_) { sum += target->subject ? target->cap_bytes : 0; }
    allowed_peak_ = std::max(allowed_peak_, sum);
}

void Case::check() {
    for (const auto& target : targets_) {
        if (!target->subject) { continue; }
        const std::uint64_t allowed = target->subject->budget().bytes + target->subject->pending_bytes();
        const Statistics statistics = target->subject->statistics();
        if (statistics.held_bytes > allowed && armed_ == 0) {
            failed("more is held than the budget and what is pending",
                   std::to_string(statistics.held_bytes) + " > " + std::to_string(allowed));
        }
        if (statistics.held_bytes > 0 && statistics.requested_bytes > statistics.held_bytes) {
            failed("more is requested than held");
        }
        target->cap_bytes = allowed;
        if (target->found.wrong != 0) { failed("a kernel read wrong bytes", target->kind.name); }
    }
    allow(0);
    if (!is_leaky_ && device_.peak_used_bytes() > allowed_peak_) {
        failed("the budget was exceeded",
               std::to_string(device_.peak_used_bytes()) + " > " + std::to_string(allowed_peak_));
    }
}

void Case::verify_captured(Target& target, std::span<const std::byte> bytes, WeightId weight, Stream stream,
                           std::uint64_t nanoseconds) {
    const std::vector<std::byte>& expected = target.model->content[index(weight)];
    if (bytes.size() != expected.size()) { failed("a weight has another size"); }
    if (bytes.empty()) { return; }
    Device::Kernel kernel;
    kernel.name = "verify";
    kernel.duration = std::chrono::nanoseconds{nanoseconds};
    kernel.reads = {{bytes.data(), bytes.size()}};
    kernel.body = [at = bytes.data(), &expected, &target] {
        Found& found = target.found;
        ++found.ran;
        if (std::memcmp(at, expected.data(), expected.size()) == 0) { return; }
        bool is_ones = target.kind.is_staged;
        for (std::size_t i = 0; is_ones && i < expected.size(); ++i) {
            is_ones = at[i] == expected[i] || at[i] == std::byte{0xff};
        }
        ++(is_ones ? found.all_ones : found.wrong);
    };
    if (auto launched = device_.launch(stream, std::move(kernel)); !launched && !is_lost_ && armed_ == 0) {
        failed("a launch of a kernel", launched.error().message());
    }
}

void Case::verify(Target& target, std::size_t lease, WeightId weight, Stream stream, std::uint64_t nanoseconds) {
    verify_captured(target, target.subject->bytes(lease, weight), weight, stream, nanoseconds);
}

void Case::collect(Target& target) const {
    if (target.found.wrong != 0) { failed("a kernel read wrong bytes", target.kind.name); }
    const std::uint64_t ones = target.found.all_ones.exchange(0);
    const bool is_told =
        std::exchange(target.was_told, false) || !target.subject || !target.subject->transport_status();
    tally().all_ones += ones;
    if (ones != 0 && !is_told) { failed("a kernel read ones, and no call said that a read failed", target.kind.name); }
}

Kind Case::pick() {
    std::vector<Kind> choice{kinds_.begin(), kinds_.end()};
    if (mode_ == Mode::sources) {
        std::erase_if(choice, [](const Kind& kind) { return !kind.is_staged; });
    }
    const bool has_planned = std::ranges::any_of(choice, &Kind::is_planned);
    if (has_planned && one_in(4)) {
        std::erase_if(choice, [](const Kind& kind) { return !kind.is_planned; });
    }
    return choice[below(choice.size())];
}

Choice Case::choose(Target& target) {
    Choice choice;
    choice.budget = Budget::bytes(0);
    choice.schedule = target.model->schedules[0];
    choice.strict = target.is_strict;
    choice.record = one_in(3);
    choice.learn = one_in(5);
    choice.poison = one_in(2);
    choice.leases_at_once = one_in(3) ? 2 : 1;
    choice.chunk_bytes = std::uint64_t{4096} << below(2);
    choice.before_read = [&target](StorageId, std::uint64_t, std::uint64_t) -> Status {
        if (target.read_error_in > 0 && --target.read_error_in == 0) {
            return Error{ErrorKind::io, "a read that was made to fail"};
        }
        return {};
    };
    return choice;
}

void Case::construct(Target& target) {
    Choice choice = choose(target);
    const bool may_lack_schedule = choice.schedule.empty();  // which a policy may need
    const auto sizes = target.kind.resolve(device_, target.model->catalog, choice);
    if (!sizes) {
        if (sizes.error().kind() == ErrorKind::invalid_argument && may_lack_schedule) { return; }
        refused(sizes.error(), target, "the sizes of a budget");
        return;
    }
    const std::uint64_t floor = sizes->floor_bytes, total = sizes->total_bytes;
    std::uint64_t wanted = floor;
    if (total > floor && !one_in(3)) { wanted += below(total - floor + 1); }
    if (one_in(6) && wanted > 0) { wanted = below(wanted); }  // below the floor, perhaps
    if (broker_) {
        if (!target.client) {
            auto client = broker_->try_add_model({.name = target.kind.name,
                                                  .priority = static_cast<int>(below(3)),
                                                  .floor_bytes = floor,
                                                  .wanted_bytes = total});
            if (!client) { return refused(client.error(), target, "a client of the broker"); }
            target.client.emplace(std::move(*client));
        }
        const auto granted = target.client->try_budget();
        if (!granted) { return refused(granted.error(), target, "the budget of a client"); }
        wanted = granted->amount();
    }
    choice.budget = Budget::bytes(wanted);
    allow(std::max(wanted, floor));
    const std::size_t before = device_.leaks().size();
    const int armed = armed_;
    auto made = target.kind.make(device_, target.model->catalog, choice);
    if (!made) {
        ++tally().not_constructed;
        // Where one call failed, at most what it was to give back is left; where several do, things are in each other's way.
        const auto left = is_lost_ ? std::vector<Device::Leak>{} : device_.leaks();
        if (left.size() > before + (armed == 1 ? 1U : 0U) && armed <= 1) {
            failed("a failed construction left something behind", made.error().message() + ": " + left.back().what);
        }
        if (left.size() != before) { is_leaky_ = true; }
        const ErrorKind kind = made.error().kind();
        if (kind == ErrorKind::budget && wanted >= floor) {
            failed("refused at or above the floor", made.error().message());
        }
        if (kind == ErrorKind::invalid_argument && may_lack_schedule) { return; }
        return refused(made.error(), target, "a construction");
    }
    ++tally().constructed;
    target.subject = std::move(*made);
    target.cap_bytes = target.subject->budget().bytes;
    if (target.cap_bytes > std::max(wanted, floor)) { failed("a larger budget than was asked for"); }
    target.next_step = 0;
}

void Case::release(Target& target) {
    for (const Held& held : target.leases) { target.subject->end_lease(held.lease); }
    target.leases.clear();
    while (target.subject->tickets() > 0) { target.subject->drop_ticket(0); }
    target.tickets.clear();
}

void Case::destroy(Target& target) {
    if (!target.subject) { return; }
    if (armed_ > 0) { is_leaky_ = true; }
    release(target);
    if (target.subject->is_open()) {
        if (!target.subject->end()) { target.was_told = true; }
    }
    if (!is_lost_ && device_.synchronize()) { collect(target); }
    while (target.subject->graphs() > 0) { target.subject->drop_graph(0); }
    target.subject.reset();
    target.cap_bytes = 0;
    target.client.reset();
}

void Case::acquire(Target& target) {
    Subject& subject = *target.subject;
    const Schedule& schedule = subject.schedule();
    const auto on = maybe_stream();
    const Stream stream = on ? *on : target.pass_stream;
    std::vector<WeightId> weights;
    Result<std::size_t> lease = Error{ErrorKind::cancelled, {}};
    if (schedule.empty() || one_in(12)) {
        for (std::uint64_t i = 1 + below(2); i > 0; --i) {
            weights.push_back(WeightId{static_cast<std::uint32_t>(below(target.model->content.size()))});
        }
        lease = subject.acquire(weights, on);
    } else {
        const auto steps = static_cast<std::uint32_t>(schedule.size());
        const std::uint32_t step = one_in(14) ? static_cast<std::uint32_t>(below(steps)) : target.next_step % steps;
        target.next_step = step + 1;
        weights.assign(schedule[step].weights.begin(), schedule[step].weights.end());
        lease = subject.acquire_step(step, on);
        const bool is_alone = target.leases.empty() && target.tickets.empty() && subject.pending_bytes() == 0;
        if (!lease && lease.error().kind() == ErrorKind::budget && is_alone && !may_fail()) {
            failed("a step alone was refused", lease.error().message());
        }
    }
    if (!lease) {
        ++tally().refused;
        return refused(lease.error(), target, "acquire");
    }
    ++tally().acquired;
    for (const WeightId weight : weights) {
        verify(target, *lease, weight, stream, 200 + below(one_in(6) ? 60000 : 3000));
    }
    if (one_in(4)) {
        target.leases.push_back({*lease, std::move(weights), stream});
    } else {
        subject.end_lease(*lease);
    }
}

void Case::go_on(Target& target) {
    if (target.subject->is_open()) { return acquire(target); }
    if (target.kind.is_planned && one_in(3)) { return target.subject->graphs() > 0 ? launch(target) : capture(target); }
    target.pass_stream = any_stream();
    target.next_step = 0;
    check_failed(target.subject->begin(target.pass_stream), target, "begin");
}

void Case::request(Target& target) {
    Subject& subject = *target.subject;
    const Schedule& schedule = subject.schedule();
    std::vector<WeightId> weights;
    Status asked;
    if (!schedule.empty() && one_in(2)) {
        const std::uint32_t step = target.next_step % static_cast<std::uint32_t>(schedule.size());
        weights.assign(schedule[step].weights.begin(), schedule[step].weights.end());
        asked = subject.request_step(step);
    } else {
        weights = {WeightId{static_cast<std::uint32_t>(below(target.model->content.size()))}};
        asked = subject.request(weights);
    }
    if (!asked) { return refused(asked.error(), target, "request"); }
    target.tickets.push_back(std::move(weights));
}

void Case::use_ticket(Target& target) {
    const std::size_t ticket = below(target.tickets.size());
    std::vector<WeightId> weights = std::move(target.tickets[ticket]);
    target.tickets.erase(target.tickets.begin() + static_cast<std::ptrdiff_t>(ticket));
    if (one_in(3)) { return target.subject->drop_ticket(ticket); }
    const auto on = target.subject->is_open() ? maybe_stream() : std::optional<Stream>{any_stream()};
    const Stream stream = on ? *on : target.pass_stream;
    const auto lease = target.subject->lease_ticket(ticket, on);
    if (!lease) { return refused(lease.error(), target, "the lease of a ticket"); }
    for (const WeightId weight : weights) { verify(target, *lease, weight, stream, 300); }
    target.leases.push_back({*lease, std::move(weights), stream});
}

void Case::set_budget(Target& target) {
    if (target.client) { return; }  // the broker's
    const ResolvedBudget before = target.subject->budget();
    const std::uint64_t unit = device_.allocation_granularity();
    std::uint64_t wanted = one_in(2) ? before.floor_bytes + below(before.total_bytes - before.floor_bytes + unit + 1)
                                     : below(before.total_bytes + unit + 1);
    if (one_in(8)) { wanted = 0; }
    const Budget budget = one_in(6) ? Budget::percent_of_weights(below(130)) : Budget::bytes(wanted);
    const std::uint64_t could =
        budget.kind() == BudgetKind::bytes ? std::max(wanted, before.floor_bytes) : before.total_bytes + unit;
    allow(could > target.cap_bytes ? could - target.cap_bytes : 0);
    const Status set = target.subject->set_budget(budget);
    ++tally().budgets;
    if (set) { return; }
    if (set.error().kind() != ErrorKind::wrong_state) { refused(set.error(), target, "another budget"); }
    if (target.subject->budget().bytes != before.bytes) { failed("a refused budget is in force"); }
}

void Case::hint(Target& target) {
    std::vector<prefetch::Hint> hints;
    for (std::uint64_t i = below(4); i > 0; --i) {
        const auto storage = static_cast<std::uint32_t>(below(target.model->catalog.storages().size()));
        hints.push_back({StorageId{storage}, static_cast<float>(below(100)) / 100});
    }
    check_failed(target.subject->hint(hints), target, "a hint");
    if (target.subject->is_open() && one_in(2)) { check_failed(target.subject->wait(), target, "wait"); }
}

void Case::capture(Target& target) {
    Subject& subject = *target.subject;
    const bool may_capture = target.kind.is_planned && !subject.is_open() && target.leases.empty() &&
                             target.tickets.empty() && subject.graphs() < 3 && !subject.schedule().empty();
    if (!may_capture) { return; }
    const Stream stream = any_stream();
    const std::uint64_t how = below(8);
    const auto body = [&](const CapturedSteps& steps_of_pass) -> Status {
        // What was learned comes into force before the pass: the schedule may be another one now.
        const auto steps = static_cast<std::uint32_t>(subject.schedule().size());
        for (std::uint32_t step = 0; step < steps; ++step) {
            if (step == steps / 2) {
                if (how == 0) { return Error{ErrorKind::cancelled, "no further"}; }
                if (how == 1) { throw std::runtime_error{"no further"}; }
                if (how == 2 && steps > 1) { continue; }
            }
            if (auto acquired = steps_of_pass.acquire(step); !acquired) { return acquired; }
            for (const WeightId weight : subject.schedule()[step].weights) {
                verify_captured(target, steps_of_pass.bytes(weight), weight, stream, 700);
            }
        }
        steps_of_pass.release();
        return {};
    };
    Status captured;
    try {
        captured = subject.capture(stream, body);
    } catch (const std::runtime_error& error) { captured = Error{ErrorKind::cancelled, error.what()}; }
    if (captured) {
        ++tally().captures;
        for (std::uint64_t i = below(4); i > 0; --i) { launch(target); }
    } else if (how > 2 && captured.error().kind() != ErrorKind::unsupported) {
        refused(captured.error(), target, "a capture");
    } else {
        target.was_told = true;
    }
}

void Case::launch(Target& target) {
    const std::size_t graph = below(target.subject->graphs());
    const bool is_stale = target.subject->is_stale(graph);
    const Status launched = target.subject->launch(graph, any_stream());
    if (launched && is_stale) { failed("a stale graph was launched"); }
    if (launched) {
        ++tally().launches;
    } else if (launched.error().kind() != ErrorKind::stale && launched.error().kind() != ErrorKind::wrong_state) {
        refused(launched.error(), target, "a launch of a graph");
    }
    if (one_in(8) && target.subject->graphs() > 1) { target.subject->drop_graph(graph); }
}

void Case::pass_end(Target& target) {
    const std::uint64_t wanted = target.client->account().wanted_bytes;
    allow(wanted > target.cap_bytes ? wanted - target.cap_bytes : 0);
    if (auto ended = target.subject->at_pass_end(*target.client); !ended) {
        refused(ended.error(), target, "the end of a pass at the broker");
    }
}

void Case::use_memory() {
    if (one_in(2) && blocks_.size() < 6) {
        const std::uint64_t bytes = (1 + below(20)) * device_.allocation_granularity();
        if (!memory_->try_take(bytes)) { return; }
        own_bytes_ += bytes;
        allow(0);
        const auto block = device_.allocate(bytes);
        if (block) {
            blocks_.emplace_back(*block, bytes);
            return;
        }
        own_bytes_ -= bytes;
        memory_->give_back(bytes);
        if (armed_ == 0 && !is_lost_) { failed("the caller's own memory", block.error().message()); }
    } else if (!blocks_.empty()) {
        const auto [at, bytes] = blocks_.back();
        if (!device_.deallocate(at)) { return; }
        blocks_.pop_back();
        own_bytes_ -= bytes;
        memory_->give_back(bytes);
    }
}

void Case::spoil(Target& target) {
    if (mode_ == Mode::lost && !is_lost_ && one_in(40)) {
        device_.lose_device();
        is_lost_ = true;
    }
    if (mode_ != Mode::sources || !target.kind.is_staged) { return; }
    if (one_in(3)) {
        target.is_doubtful = true;
        target.read_error_in = 1 + static_cast<int>(below(5));
        ++tally().faults;
    } else if (one_in(20)) {
        target.is_source_gone = true;
        ++tally().faults;
        std::error_code ignored;
        std::filesystem::resize_file(target.model->file, below(200), ignored);
    }
}

void Case::operate(Target& target) {
    const auto at = [&](const char* what) {
        now_at(static_cast<int>(tally().operations % 100000), what, target.kind.name);
    };
    if (!target.subject) {
        at("construct");
        if (one_in(3)) { construct(target); }
        return;
    }
    Subject& subject = *target.subject;
    const bool is_idle = !subject.is_open() && target.leases.empty() && target.tickets.empty();
    if (subject.is_suspended()) {
        at("take the memory again");
        if (one_in(2)) { check_failed(subject.resume(), target, "resume"); }
        if (subject.is_suspended()) { return; }
    }
    switch (below(31)) {
        case 8:
        case 9:
            at("end a lease");
            if (!target.leases.empty()) {
                const std::size_t i = below(target.leases.size());
                subject.end_lease(target.leases[i].lease);
                target.leases.erase(target.leases.begin() + static_cast<std::ptrdiff_t>(i));
            }
            return;
        case 10:
            at("use on another stream");
            if (!target.leases.empty()) {
                const Held& held = target.leases[below(target.leases.size())];
                const Stream stream = any_stream();
                const Status used = subject.use_on(held.lease, stream);
                if (!used) { return refused(used.error(), target, "use_on"); }
                for (const WeightId weight : held.weights) {
                    verify(target, held.lease, weight, stream, 500 + below(20000));
                }
            }
            return;
        case 11:
            at("request");
            if (subject.is_open()) { request(target); }
            return;
        case 12:
            at("use a ticket");
            if (!target.tickets.empty()) { use_ticket(target); }
            return;
        case 13:
        case 14: {
            const bool is_over = !subject.schedule().empty() && target.next_step >= subject.schedule().size();
            at("end a pass");
            if (subject.is_open() && (one_in(3) || is_over)) { check_failed(subject.end(), target, "end"); }
            return;
        }
        case 15: at("set the budget"); return set_budget(target);
        case 16: at("reclaim"); return check_failed(subject.reclaim_pending(), target, "reclaim_pending");
        case 17:
            at("set the schedule");
            if (is_idle) {
                const Status set = subject.set_schedule(target.model->schedules[below(2)]);
                if (!set && set.error().kind() != ErrorKind::invalid_argument) {
                    refused(set.error(), target, "another schedule");
                }
                target.next_step = 0;
            }
            return;
        case 18: {
            at("drain");
            const Status drained = subject.drain();
            if (!drained) { return refused(drained.error(), target, "drain"); }
            collect(target);
            return;
        }
        case 19: at("hint"); return hint(target);
        case 20:
            at("synchronize a stream");
            if (!device_.synchronize(any_stream()) && !is_lost_ && armed_ == 0) { failed("synchronize"); }
            return;
        case 21: at("spend"); return device_.spend(std::chrono::microseconds{below(200)});
        case 22: at("capture"); return capture(target);
        case 23:
        case 24:
            at("launch");
            if (subject.graphs() > 0) { launch(target); }
            return;
        case 25:
            at("end a pass at the broker");
            if (target.client && !subject.is_open()) { pass_end(target); }
            return;
        case 26:
            at("the caller's own memory");
            if (memory_) { use_memory(); }
            return;
        case 27:
            at("another total");
            if (broker_ && one_in(6)) {
                static_cast<void>(broker_->try_set_total(below(400) * 1024 + 60000).has_value());
            }
            return;
        case 28:
            at("destroy or move");
            if (one_in(8)) {
                if (one_in(2)) { disarm(); }
                destroy(target);
            } else if (is_idle && subject.graphs() == 0) {
                subject.move_to_another_object();
                static_cast<void>(subject.recorded().has_value());
            }
            return;
        case 29: at("spoil"); return spoil(target);
        case 30:
            at("give the memory back");
            if (is_idle && mode_ != Mode::lies && one_in(3)) { check_failed(subject.suspend(), target, "suspend"); }
            return;
        default: at("go on"); return go_on(target);
    }
}

void Case::recover(Target& target) {
    if (!target.subject || target.is_source_gone) { return; }
    now_at(-1, "recovery", target.kind.name);
    Subject& subject = *target.subject;
    release(target);
    target.read_error_in = 0;
    if (subject.is_open()) { check_failed(subject.end(), target, "end after all"); }
    if (subject.is_suspended()) {
        Status resumed = subject.resume();
        if (!resumed) {
            refused(resumed.error(), target, "resume after all");
            resumed = subject.resume();
        }
        if (!resumed) { failed("not usable after faults: resume", resumed.error().message()); }
    }
    Status drained = subject.drain();
    if (!drained) {
        // What failed before is said once.
        refused(drained.error(), target, "drain after all");
        drained = subject.drain();
    }
    if (!drained) { failed("not usable after faults: drain", drained.error().message()); }
    target.is_doubtful = false;
    collect(target);
    if (const Status reclaimed = subject.reclaim_pending(); !reclaimed) {
        failed("not usable after faults: reclaim_pending", reclaimed.error().message());
    }
    if (subject.pending_bytes() != 0) { failed("bytes are pending, and everything is complete"); }
    for (int pass = 0; pass < 2; ++pass) {
        Status begun = subject.begin(streams_[0]);
        if (!begun && target.kind.is_staged && pass == 0) {
            begun = subject.begin(streams_[0]);
        }  // a read ahead failed
        if (!begun) { failed("not usable after faults: begin", begun.error().message()); }
        for (std::uint32_t step = 0; step < subject.schedule().size(); ++step) {
            const auto lease = subject.acquire_step(step, std::nullopt);
            if (!lease) { failed("not usable after faults: acquire", lease.error().message()); }
            for (const WeightId weight : subject.schedule()[step].weights) {
                verify(target, *lease, weight, streams_[0], 400);
            }
            subject.end_lease(*lease);
        }
        if (const Status ended = subject.end(); !ended) {
            failed("not usable after faults: end", ended.error().message());
        }
        check();
    }
    if (const Status done = subject.drain(); !done) { failed("drain after all", done.error().message()); }
    target.was_told = false;
    collect(target);
    ++tally().recovered;
}

void Case::run() {
    for (std::uint64_t i = 1 + below(4); i > 0; --i) {
        auto stream = device_.create_stream();
        if (!stream) { failed("a stream", stream.error().message()); }
        streams_.push_back(*stream);
    }
    const std::uint64_t targets = one_in(3) ? 2 + below(2) : 1;
    if (one_in(4)) {
        broker_.emplace(BudgetBroker::Config{.total_bytes = 100000 + below(400000),
                                             .hysteresis = 0.05 * static_cast<double>(below(4)),
                                             .most_moved_bytes = one_in(2) ? std::uint64_t{1} << 30U : 8192});
        if (auto memory = broker_->try_add_memory({.name = "own", .priority = static_cast<int>(below(3))}); memory) {
            memory_.emplace(std::move(*memory));
        }
    }
    for (std::uint64_t i = 0; i < targets; ++i) {
        auto target = std::make_unique<Target>();
        target->kind = pick();
        target->is_strict = one_in(10);
        target->model = make_model(device_, random_, target->kind.is_staged);
        targets_.push_back(std::move(target));
    }
    for (const auto& target : targets_) {
        now_at(-1, "construct", target->kind.name);
        arm();
        construct(*target);
        check();
        if (!one_in(3)) { disarm(); }
    }
    for (std::uint64_t i = 40 + below(200); i > 0; --i) {
        arm();
        operate(*targets_[below(targets_.size())]);
        ++tally().operations;
        check();
        if (armed_ > 0 && one_in(4)) { disarm(); }
        if (mode_ == Mode::lies && one_in(5)) { disarm(); }
    }
    disarm();
    if (mode_ == Mode::lies) { mode_ = Mode::calm; }  // from here on every call tells the truth
    if (!is_lost_) {
        for (const auto& target : targets_) {
            target->is_doubtful = true;  // what failed last is said yet
            recover(*target);
        }
        if (auto idle = device_.synchronize(); !idle) { failed("synchronize", idle.error().message()); }
    }
    for (const auto& target : targets_) {
        now_at(-1, "destroy", target->kind.name);
        destroy(*target);
    }
    for (const auto& [at, bytes] : blocks_) { static_cast<void>(device_.deallocate(at).has_value()); }
    memory_.reset();
    for (const auto& target : targets_) {
        tally().kernels += target->found.ran;
        target->model.reset();
    }
    for (const Stream stream : streams_) { static_cast<void>(device_.destroy_stream(stream).has_value()); }
    if (!is_lost_ && !is_leaky_ && mode_ != Mode::faults) {
        for (const auto& leak : device_.leaks()) { failed("left behind", leak.what); }
    }
    ++tally().cases;
}

}  // namespace

void run_case(std::span<const Kind> kinds, std::uint64_t seed, Mode mode) {
    now_at(seed, mode);
    Case{kinds, seed, mode}.run();
}

}  // namespace attack

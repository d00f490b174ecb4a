// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/attack/case.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include "tests/attack/failed.hpp"

namespace attack {

using namespace residency;

Result<std::size_t> Case::acquire_range(Target& target, std::vector<WeightId>& weights) {
    const Schedule& schedule = target.subject->schedule();
    StepRange range{static_cast<std::uint32_t>(below(schedule.size())), 0};
    range.last = range.first + 1 + static_cast<std::uint32_t>(below(schedule.size() - range.first));
    if (const auto ranges = target.subject->ranges(); !ranges.empty() && !one_in(3)) {
        range = ranges[below(ranges.size())];
    }
    for (std::uint32_t step = range.first; step < range.last; ++step) {
        weights.insert(weights.end(), schedule[step].weights.begin(), schedule[step].weights.end());
    }
    target.next_step = range.last;
    return target.subject->acquire_range(range);
}

void Case::acquire(Target& target) {
    Subject& subject = *target.subject;
    const Schedule& schedule = subject.schedule();
    const auto on = maybe_stream();
    Stream stream = on ? *on : target.pass_stream;
    std::vector<WeightId> weights;
    Result<std::size_t> lease = Error{ErrorKind::cancelled, {}};
    if (schedule.empty() || one_in(12)) {
        for (std::uint64_t i = 1 + below(2); i > 0; --i) {
            weights.push_back(WeightId{static_cast<std::uint32_t>(below(target.model->content.size()))});
        }
        lease = subject.acquire(weights, on);
    } else if (target.kind.is_planned && one_in(8)) {
        lease = acquire_range(target, weights);
        stream = target.pass_stream;
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
    if (!target.is_in_group) { allow(could > target.cap_bytes ? could - target.cap_bytes : 0); }
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
    if ((mode_ == Mode::lost || mode_ == Mode::faults) && !neighbours_.empty() && one_in(8)) {
        neighbours_[below(neighbours_.size())]->lose_device();
        is_neighbour_lost_ = true;
        ++tally().faults;
        for (const auto& each : targets_) { each->is_doubtful = each->is_doubtful || each->kind.has_links(); }
    }
    if (mode_ != Mode::sources || !target.kind.is_staged()) { return; }
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

void Case::refresh(Target& target) {
    if (target.kind.source == Source::packed || target.is_source_gone) { return; }
    const Catalog& catalog = target.model->catalog;
    std::vector<WeightId> weights;
    for (std::uint64_t i = below(4); i > 0; --i) {
        const WeightId weight{static_cast<std::uint32_t>(below(catalog.weights().size()))};
        if (!catalog.storage(catalog.storage_of(weight)).is_mutable) { weights.push_back(weight); }
    }
    const bool is_all = one_in(4), gives_up = one_in(8);
    const std::uint64_t how = random_();
    bool is_written = false;
    const auto write = [&]() -> Status {
        Random random{how};
        is_written = true;
        for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
            const StorageId storage{i};
            const bool is_named =
                is_all ? !catalog.storage(storage).is_mutable : std::ranges::any_of(weights, [&](WeightId weight) {
                    return catalog.storage_of(weight) == storage;
                });
            if (!is_named) { continue; }
            if (auto replaced = target.model->replace(storage, random); !replaced) { return replaced; }
            if (gives_up) { return Error{ErrorKind::cancelled, "given up"}; }
        }
        return {};
    };
    const Status done =
        target.subject->refresh(is_all ? std::nullopt : std::optional<std::span<const WeightId>>{weights}, write);
    tally().refreshed += done ? 1U : 0U;
    if (!target.is_idle()) {
        if (is_written) { failed("bytes were replaced under a lease"); }
        if (!done && done.error().kind() == ErrorKind::wrong_state) { return; }
        if (done) { failed("a refresh in a pass"); }
    }
    if (!done && done.error().kind() == ErrorKind::cancelled && gives_up) { return; }
    check_failed(done, target, "a refresh");
}

void Case::write(Target& target) {
    Subject& subject = *target.subject;
    const Catalog& catalog = target.model->catalog;
    if (!subject.is_open() || may_fail() || target.is_doubtful) { return; }
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        const StorageId storage{i};
        if (!catalog.storage(storage).is_mutable || catalog.storage(storage).bytes == 0) { continue; }
        const WeightId whole = catalog.weights_of(storage).front();
        const auto lease = subject.acquire(std::span{&whole, 1}, std::nullopt);
        if (!lease) { return refused(lease.error(), target, "a lease to write"); }
        // All that reads it is over before, and waits for it after.
        if (auto idle = device_.synchronize(); !idle) { failed("synchronize", idle.error().message()); }
        const auto bytes = subject.bytes(*lease, whole);
        auto* const at = const_cast<std::byte*>(bytes.data());
        std::vector<std::byte> written(bytes.size());
        for (std::byte& byte : written) { byte = static_cast<std::byte>(random_() >> 40U); }
        Device::Kernel kernel;
        kernel.name = "write";
        kernel.writes = {{at, bytes.size()}};
        kernel.body = [at, written] { std::memcpy(at, written.data(), written.size()); };
        if (auto launched = device_.launch(target.pass_stream, std::move(kernel)); !launched) {
            failed("a kernel that writes", launched.error().message());
        }
        if (auto idle = device_.synchronize(); !idle) { failed("synchronize", idle.error().message()); }
        subject.end_lease(*lease);
        target.model->set_content(storage, written);
        ++tally().written;
    }
}

void Case::operate_experts() {
    now_at("experts");
    const bool was_made = experts_->is_made();
    experts_->operate(random_, may_fail(), [this](std::uint64_t bytes) {
        const std::uint64_t before = experts_->cap_bytes();
        allow(bytes > before ? bytes - before : 0);
    });
    // As of a Residency that ends: where several calls fail, it may leave something behind.
    if (armed_ > 0 && was_made && !experts_->is_made()) { is_leaky_ = true; }
}

void Case::change_schedule(Target& target) {
    if (!target.is_idle()) { return; }
    const Status set = target.subject->set_schedule(target.model->schedules[below(2)]);
    if (!set && set.error().kind() != ErrorKind::invalid_argument) { refused(set.error(), target, "another schedule"); }
    target.next_step = 0;
}

void Case::operate_asleep(Target& target) {
    Subject& subject = *target.subject;
    const auto at = [&](const char* what) { now_at(what, target.kind.name); };
    switch (below(12)) {
        case 0: at("not in use: set the budget"); return set_budget(target);
        case 1: at("not in use: refresh"); return refresh(target);
        case 2: at("not in use: suspend"); return check_failed(subject.suspend(), target, "suspend");
        case 3: at("not in use: resume"); return check_failed(subject.resume(), target, "resume");
        case 4:
            at("not in use: destroy");
            if (one_in(4)) { destroy(target); }
            return;
        case 5: at("the group gives back"); return check_failed(group_->try_give_back(), target, "give_back");
        case 6:
        case 7: {
            at("prepare");
            const auto most = one_in(2) ? std::nullopt : std::optional{below(20) * 4096};
            return check_failed(subject.prepare(most), target, "prepare");
        }
        default:
            at("activate");
            if (auto awake = subject.activate(); !awake) { return refused(awake.error(), target, "activate"); }
            if (subject.is_suspended()) { failed("active, and asleep"); }
            ++tally().wakes;
    }
}

void Case::operate(Target& target) {
    const auto at = [&](const char* what) { now_at(what, target.kind.name); };
    if (!target.subject) {
        at("construct");
        if (one_in(3)) { construct(target); }
        return;
    }
    Subject& subject = *target.subject;
    const bool is_idle = target.is_idle();
    if (target.is_in_group) {
        if (subject.is_used() && is_idle && one_in(5)) { subject.end_use(); }
        if (!subject.is_used()) { return operate_asleep(target); }
    }
    if (subject.is_suspended()) {
        at("take the memory again");
        if (one_in(2)) { check_failed(subject.resume(), target, "resume"); }
        if (subject.is_suspended()) { return; }
    }
    switch (below(33)) {
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
        case 17: at("set the schedule"); return change_schedule(target);
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
                const std::uint64_t total = below(400) * 1024 + 60000;
                if (broker_->try_set_total(total)) { most_total_ = std::max(most_total_, total); }
            }
            return;
        case 28:
            at("destroy or move");
            if (one_in(8)) {
                if (one_in(2)) { disarm(); }
                destroy(target);
            } else if (is_idle && subject.graphs() == 0 && !target.is_in_group) {
                subject.move_to_another_object();
                static_cast<void>(subject.recorded().has_value());
            }
            return;
        case 29: at("spoil"); return spoil(target);
        case 30:
            at("give the memory back");
            if (is_idle && mode_ != Mode::lies && !target.is_in_group && one_in(3)) {
                check_failed(subject.suspend(), target, "suspend");
            }
            return;
        case 31: at("refresh"); return refresh(target);
        case 32: at("write"); return write(target);
        default: at("go on"); return go_on(target);
    }
}

}  // namespace attack

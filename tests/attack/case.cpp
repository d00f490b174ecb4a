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

void Case::reported(const Device::Report& report) const {
    if (is_lost_) { return; }
    // What could not be given back is in the way of what it lies in; what could not be joined ends a capture with an error.
    const auto says = [&](const char* text) { return report.text.find(text) != std::string::npos; };
    const bool follows =
        (armed_ > 0 || mode_ == Mode::lies) && (says("have not been deallocated") || says("still mapped") ||
                                                says("was forked into the capture and not joined"));
    if (!follows) { failed("the checker reports", report.text); }
}

void Case::arm() {
    const auto any_device = [&]() -> Device& {
        return neighbours_.empty() || one_in(2) ? device_ : *neighbours_[below(neighbours_.size())];
    };
    if (mode_ == Mode::faults && one_in(5)) {
        const std::uint64_t count = one_in(3) ? 1 + below(6) : 1;
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto kind = one_in(2) ? CallKind::any : static_cast<CallKind>(below(simulation::call_kinds));
            const ErrorKind error = one_in(3) ? ErrorKind::out_of_memory : ErrorKind::device;
            const std::uint64_t nth = 1 + below(12);
            now_at("will fail, call " + std::to_string(nth), simulation::name(kind));
            any_device().fail(kind, nth, error);
            ++armed_;
            ++tally().faults;
        }
    }
    if (mode_ == Mode::lies && one_in(5)) {
        any_device().lie(1 + static_cast<int>(below(20)));
        ++tally().faults;
    }
    if (one_in(20)) { any_device().delay(1 + static_cast<int>(below(20))); }
    for (const auto& target : targets_) {
        if (may_fail() && (target->kind.is_staged() || target->kind.has_links())) { target->is_doubtful = true; }
    }
}

void Case::disarm() {
    device_.clear_failures();
    device_.lie(0);
    for (const auto& neighbour : neighbours_) {
        neighbour->clear_failures();
        neighbour->lie(0);
    }
    armed_ = 0;
}

void Case::refused(const Error& error, Target& target, const char* what) {
    target.was_told = true;
    if (may_fail() || target.is_doubtful || target.is_source_gone) { return; }
    if (error.kind() == ErrorKind::budget) { return; }
    if (error.kind() == ErrorKind::divergence && target.is_strict) { return; }
    // What no step reads has no place to be unpacked to.
    if (error.kind() == ErrorKind::unsupported && target.kind.source == Source::packed) { return; }
    const bool may_lack_room = error.kind() == ErrorKind::out_of_memory || error.kind() == ErrorKind::wrong_state;
    if (target.is_in_group && may_lack_room) { return; }  // others have it
    failed(what, error.message());
}

void Case::allow(std::uint64_t more_bytes) {
    std::uint64_t sum = own_bytes_ + experts_bytes_ + more_bytes;
    for (const auto& target : targets_) { sum += target->subject && !target->is_in_group ? target->cap_bytes : 0; }
    // A group takes of the total what it needs, during any call.
    if (group_) { sum = std::max(sum, broker_->statistics().total_bytes); }
    allowed_peak_ = std::max(allowed_peak_, sum);
}

void Case::check() {
    std::uint64_t group_bytes = 0;
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
        group_bytes += target->is_in_group ? statistics.held_bytes : 0;
        if (target->found.wrong != 0) { failed("a kernel read wrong bytes", target->kind.name); }
    }
    if (experts_) {
        experts_bytes_ = experts_->cap_bytes();
        experts_->collect();
    }
    allow(0);
    if (!is_leaky_ && device_.peak_used_bytes() > allowed_peak_) {
        failed("the budget was exceeded",
               std::to_string(device_.peak_used_bytes()) + " > " + std::to_string(allowed_peak_));
    }
    check_used(group_bytes);
}

void Case::check_used(std::uint64_t group_bytes) {
    if (broker_ && broker_->statistics().granted_bytes > most_total_) {
        failed("a broker granted more than its total");
    }
    if (mode_ != Mode::calm && mode_ != Mode::sources) { return; }
    // Nothing has failed: the device holds what each of them says, and nothing else.
    if (group_ && group_->stock().used_bytes() != group_bytes) {
        failed("the stock of a group and its models disagree",
               std::to_string(group_->stock().used_bytes()) + ", " + std::to_string(group_bytes));
    }
    std::uint64_t held = own_bytes_ + (group_ ? group_->stock().held_bytes() : 0);
    for (const auto& target : targets_) {
        held += target->subject && !target->is_in_group ? target->subject->statistics().held_bytes : 0;
    }
    const auto memory = device_.memory();
    if (!memory) { failed("what is used of the device", memory.error().message()); }
    const std::uint64_t used = memory->total_bytes - memory->free_bytes;
    if (used < held || used > held + experts_bytes_) {
        failed("the device holds something else than is said", std::to_string(used) + ", and " + std::to_string(held) +
                                                                   " are said" + (experts_ ? " beside experts" : ""));
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
        bool is_lost = target.kind.is_staged() || (target.kind.has_links() && target.is_doubtful);
        for (std::size_t i = 0; target.kind.is_staged() && is_lost && i < expected.size(); ++i) {
            is_lost = at[i] == expected[i] || at[i] == std::byte{0xff};
        }
        ++(is_lost ? found.lost : found.wrong);
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
    const std::uint64_t lost = target.found.lost.exchange(0);
    const bool is_told =
        std::exchange(target.was_told, false) || !target.subject || !target.subject->transport_status();
    tally().lost += lost;
    if (lost != 0 && !is_told) { failed("a kernel read what was lost, and no call said so", target.kind.name); }
}

Kind Case::pick() {
    std::vector<Kind> choice{kinds_.begin(), kinds_.end()};
    if (mode_ == Mode::sources) {
        std::erase_if(choice, [](const Kind& kind) { return !kind.is_staged(); });
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
    choice.time_stalls = one_in(4);
    choice.leases_at_once = one_in(3) ? 2 : 1;
    choice.chunk_bytes = target.kind.has_links() ? 65536 : target.is_in_group ? 4096 : std::uint64_t{4096} << below(2);
    choice.measures = one_in(4) || (target.kind.has_links() && one_in(2));
    choice.unpacker = &unpacker_;
    if (target.is_in_group) { choice.stock = &group_->stock(); }
    for (const auto& neighbour : neighbours_) {
        choice.neighbours.push_back(neighbour.get());
        choice.memory_bytes.push_back(one_in(3) ? 0 : (std::uint64_t{1} << 20U) + below(std::uint64_t{6} << 20U));
    }
    choice.before_read = [&target](StorageId, std::uint64_t, std::uint64_t) -> Status {
        if (target.read_error_in > 0 && --target.read_error_in == 0) {
            return Error{ErrorKind::io, "a read that was made to fail"};
        }
        return {};
    };
    return choice;
}

std::optional<std::uint64_t> Case::grant(Target& target, std::uint64_t floor, std::uint64_t total) {
    std::uint64_t wanted = floor;
    if (total > floor && !one_in(3)) { wanted += below(total - floor + 1); }
    if (one_in(6) && wanted > 0) { wanted = below(wanted); }  // below the floor, perhaps
    if (target.is_in_group) {
        const Status made = group_->try_make_room(wanted, std::chrono::nanoseconds{0});
        check_failed(made, target, "room for a model of a group");
        return made ? std::optional{wanted} : std::nullopt;
    }
    if (!broker_) { return wanted; }
    if (!target.client) {
        auto client = broker_->try_add_model({.name = target.kind.name,
                                              .priority = static_cast<int>(below(3)),
                                              .floor_bytes = floor,
                                              .wanted_bytes = total});
        if (!client) {
            refused(client.error(), target, "a client of the broker");
            return std::nullopt;
        }
        target.client.emplace(std::move(*client));
    }
    const auto granted = target.client->try_budget();
    if (!granted) {
        refused(granted.error(), target, "the budget of a client");
        return std::nullopt;
    }
    return granted->amount();
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
    const auto granted = grant(target, floor, total);
    if (!granted) { return; }
    const std::uint64_t wanted = *granted;
    choice.budget = Budget::bytes(wanted);
    allow(std::max(wanted, floor));
    const std::size_t before = device_.leaks().size();
    const int armed = armed_;
    auto made = target.kind.make(device_, target.model->catalog, choice);
    if (!made) {
        ++tally().not_constructed;
        // Where one call failed, at most what it was to give back is left; where several do, things are in each other's way.
        const auto left = is_lost_ ? std::vector<Device::Leak>{} : device_.leaks();
        if (left.size() > before + (armed == 1 ? 1U : 0U) && armed <= 1 && !target.is_in_group) {
            failed("a failed construction left something behind", made.error().message() + ": " + left.back().what);
        }
        if (left.size() != before) { is_leaky_ = true; }
        const ErrorKind kind = made.error().kind();
        if (kind == ErrorKind::budget && wanted >= floor && !target.is_in_group) {
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
    if (!target.is_in_group) { return; }
    const Status joined = target.subject->join(
        *group_, {.name = target.kind.name, .priority = static_cast<int>(below(2)), .is_pinned = one_in(12)});
    if (!joined) { failed("a model that joins a group", joined.error().message()); }
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
    target.subject->end_use();
    target.subject.reset();
    target.cap_bytes = 0;
    target.client.reset();
    if (is_lost_) { return; }
    // Where all calls fail that wait for its kernels, a Residency ends before them, and leaves its memory to them (C20). What they are to find
    // changes only once they have run.
    for (int i = 0; i <= armed_; ++i) {
        if (device_.synchronize()) { break; }
    }
    collect(target);
    for (std::uint32_t i = 0; i < target.model->at_source.size(); ++i) {  // what kernels wrote is gone
        const StorageId storage{i};
        if (target.model->catalog.storage(storage).is_mutable) {
            target.model->set_content(storage, target.model->at_source[i]);
        }
    }
}

void Case::recover(Target& target) {
    if (!target.subject || target.is_source_gone) { return; }
    now_at("recovery", target.kind.name);
    Subject& subject = *target.subject;
    release(target);
    target.read_error_in = 0;
    if (subject.is_open()) { check_failed(subject.end(), target, "end after all"); }
    if (target.is_in_group && !subject.is_used()) {
        if (Status woken = subject.activate(); !woken) {
            refused(woken.error(), target, "activate after all");
            woken = subject.activate();
            const bool is_for_room = !woken && (woken.error().kind() == ErrorKind::budget ||
                                                woken.error().kind() == ErrorKind::out_of_memory ||
                                                woken.error().kind() == ErrorKind::wrong_state);
            if (!woken && !is_for_room) { failed("not usable after faults: activate", woken.error().message()); }
            if (!woken) { return; }
        }
    }
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
        if (!begun && target.kind.is_staged() && pass == 0) {
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
    subject.end_use();
    ++tally().recovered;
}

void Case::make_around() {
    for (std::uint64_t i = 1 + below(4); i > 0; --i) {
        auto stream = device_.create_stream();
        if (!stream) { failed("a stream", stream.error().message()); }
        streams_.push_back(*stream);
    }
    if (one_in(3)) {
        most_total_ = 100000 + below(400000);
        broker_.emplace(BudgetBroker::Config{.total_bytes = most_total_,
                                             .hysteresis = 0.05 * static_cast<double>(below(4)),
                                             .most_moved_bytes = one_in(2) ? std::uint64_t{1} << 30U : 8192});
        if (auto memory = broker_->try_add_memory({.name = "own", .priority = static_cast<int>(below(3))}); memory) {
            memory_.emplace(std::move(*memory));
        }
        if (one_in(2)) {
            auto group = Group::try_create(device_, *broker_,
                                           {.name = "models",
                                            .priority = static_cast<int>(below(3)),
                                            .floor_bytes = one_in(2) ? 0 : below(most_total_ / 2),
                                            .chunk_bytes = 4096});
            if (!group) { failed("a group of models", group.error().message()); }
            group_.emplace(std::move(*group));
        }
    } else if (one_in(3)) {
        experts_ = std::make_unique<Experts>(device_, random_);
        experts_bytes_ = experts_->cap_bytes();
    }
}

void Case::make_targets() {
    const std::uint64_t targets = one_in(3) || group_ ? 2 + below(2) : 1;
    for (std::uint64_t i = 0; i < targets; ++i) {
        auto target = std::make_unique<Target>();
        target->kind = pick();
        target->is_strict = one_in(10);
        target->model = make_model(device_, random_, target->kind.source);
        target->is_in_group =
            group_ && mode_ != Mode::lies && target->kind.is_planned && !target->kind.has_links() && !one_in(4);
        if (target->kind.has_links() && neighbours_.empty()) {
            for (std::uint64_t n = 1 + below(2); n > 0; --n) {
                Device::Config neighbour = config(random_);
                neighbour.peer_access = !one_in(5);
                neighbours_.push_back(std::make_unique<Device>(neighbour, device_));
                neighbours_.back()->on_report([this](const Device::Report& report) { reported(report); });
            }
        }
        targets_.push_back(std::move(target));
    }
}

void Case::end_all() {
    disarm();
    if (mode_ == Mode::lies) { mode_ = Mode::calm; }  // from here on every call tells the truth
    device_.delay(0);
    if (!is_lost_) {
        for (const auto& target : targets_) {
            target->is_doubtful = true;  // what failed last is said yet
            if (target->subject) {
                release(*target);
                if (target->subject->is_open()) { check_failed(target->subject->end(), *target, "end after all"); }
                target->subject->end_use();
            }
        }
        for (const auto& target : targets_) { recover(*target); }
        if (experts_) { experts_->recover(random_); }
        if (auto idle = device_.synchronize(); !idle) { failed("synchronize", idle.error().message()); }
    }
    for (const auto& target : targets_) {
        now_at("destroy", target->kind.name);
        destroy(*target);
    }
    if (experts_) { tally().kernels += experts_->kernels(); }
    experts_.reset();
    group_.reset();
    for (const auto& [at, bytes] : blocks_) { static_cast<void>(device_.deallocate(at).has_value()); }
    memory_.reset();
    for (const auto& target : targets_) {
        tally().kernels += target->found.ran;
        target->model.reset();
    }
    for (const Stream stream : streams_) { static_cast<void>(device_.destroy_stream(stream).has_value()); }
    if (is_lost_ || is_leaky_ || mode_ == Mode::faults) { return; }
    for (const auto& leak : device_.leaks()) { failed("left behind", leak.what); }
    for (const auto& neighbour : neighbours_) {
        if (is_neighbour_lost_) { break; }
        for (const auto& leak : neighbour->leaks()) { failed("left behind on a neighbour", leak.what); }
    }
}

void Case::run(const Skipped& skipped) {
    constexpr std::int64_t most_ns = 30'000'000'000;  // the calls of a case that take a second come to less
    make_around();
    make_targets();
    for (const auto& target : targets_) {
        now_at("construct", target->kind.name);
        arm();
        construct(*target);
        check();
        if (!one_in(3)) { disarm(); }
    }
    const std::uint64_t operations = 40 + below(200);
    for (std::uint64_t i = 0; i < operations; ++i) {
        if (skipped.contains(i)) { continue; }
        random_.seed(number(i + 1));
        now_at(i);
        const std::int64_t begun_ns = now_ns_;
        arm();
        if (experts_ && one_in(3)) {
            operate_experts();
        } else {
            operate(*targets_[below(targets_.size())]);
        }
        ++tally().operations;
        check();
        if (now_ns_ - begun_ns > most_ns) { failed("an operation takes too long", std::to_string(now_ns_ - begun_ns)); }
        if (armed_ > 0 && one_in(4)) { disarm(); }
        if (mode_ == Mode::lies && one_in(5)) { disarm(); }
    }
    random_.seed(number(operations + 1));
    now_at(no_operation);
    end_all();
    ++tally().cases;
}

void run_case(std::span<const Kind> kinds, std::uint64_t seed, Mode mode, const Skipped& skipped) {
    now_at(seed, mode);
    Case{kinds, seed, mode}.run(skipped);
}

}  // namespace attack

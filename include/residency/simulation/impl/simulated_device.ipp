// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// SimulatedDevice: every call; streams, events and flags; what only a simulated device has.

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "residency/model/number.hpp"
#include "residency/simulation/device_state.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE SimulatedDevice::SimulatedDevice() : SimulatedDevice(Config{}) {}

RESIDENCY_INLINE SimulatedDevice::~SimulatedDevice() = default;

RESIDENCY_INLINE SimulatedDevice::SimulatedDevice(Config config)
    : config_{std::move(config)}, state_{std::make_unique<State>(this)} {
    RESIDENCY_ASSERT(
        std::has_single_bit(config_.allocation_granularity) && std::has_single_bit(config_.pool_granularity) &&
            std::has_single_bit(config_.pool_block_bytes) && std::has_single_bit(config_.chunk_granularity),
        "granularities are powers of two");
    RESIDENCY_ASSERT(config_.chunk_granularity % simulation::AddressSpace::page_bytes() == 0,
                     "chunk_granularity is a multiple of the page");
    RESIDENCY_ASSERT(residency::detail::is_positive(config_.link.to_device_bytes_per_second) &&
                         residency::detail::is_positive(config_.link.to_host_bytes_per_second) &&
                         residency::detail::is_positive(config_.link.pageable_bytes_per_second) &&
                         residency::detail::is_positive(config_.link.on_device_bytes_per_second),
                     "give link.to_device_, to_host_, pageable_ and on_device_bytes_per_second above 0, and finite");
    RESIDENCY_ASSERT(config_.link.call_latency.count() >= 0 && config_.link.node_latency.count() >= 0,
                     "give link.call_latency and link.node_latency of 0 or more");
    RESIDENCY_ASSERT(config_.call_cost.count() >= 0 && config_.copy_cost.count() >= 0 &&
                         config_.copy_piece_cost.count() >= 0 && config_.launch_cost.count() >= 0,
                     "give call_cost, copy_cost, copy_piece_cost and launch_cost of 0 or more");
    RESIDENCY_ASSERT(residency::detail::is_finite(config_.jitter) && config_.jitter >= 1,
                     "give jitter of 1 or more, and finite: the factor by which durations may be longer or shorter");
    for (std::size_t kind = 0; kind <= static_cast<std::size_t>(OperationKind::mapping); ++kind) {
        state_->kind_labels[kind] = state_->names.number(simulation::name(static_cast<OperationKind>(kind)));
    }
    state_->simulator.concurrent_kernels = config_.concurrent_kernels;
    state_->simulator.real_bytes = config_.real_bytes;
    state_->simulator.jitter = config_.jitter;
    state_->simulator.seed(config_.seed);
    state_->checker.on = config_.checker;
    state_->checker.max_reports = config_.max_reports;
    state_->simulator.stream(state_->simulator.add_stream()).label = state_->names.number("host");
    StreamState& stream = state_->simulator.stream(state_->simulator.add_stream());
    stream.label = state_->names.number("default stream");
    stream.alive = true;
}

RESIDENCY_INLINE std::uint32_t SimulatedDevice::label_of(OperationKind kind) const noexcept {
    return state_->kind_labels[static_cast<std::size_t>(kind)];
}

// ---- Every call

RESIDENCY_INLINE SimulatedDevice::Lock SimulatedDevice::guard() const {
    RESIDENCY_ASSERT(state_->simulator.body_thread.load(std::memory_order_relaxed) != std::this_thread::get_id(),
                     "the body of a kernel must not call the device");
    return Lock{state_->mutex};
}

RESIDENCY_INLINE Status SimulatedDevice::enter(CallKind kind, std::chrono::nanoseconds more) {
    ++statistics_.calls[static_cast<std::size_t>(kind)];
    if (state_->lost) { return failure(ErrorKind::device, kind, "the device is lost"); }
    for (std::size_t i = 0; i < state_->failures.size(); ++i) {
        State::Failure& planned = state_->failures[i];
        if (planned.kind != kind && planned.kind != CallKind::any) { continue; }
        if (--planned.remaining == 0) {
            const ErrorKind error = planned.error;
            state_->failures.erase(state_->failures.begin() + static_cast<std::ptrdiff_t>(i));
            return failure(error, kind, "made to fail");
        }
    }
    state_->host_now += (config_.call_cost + more).count();
    state_->simulator.advance_to(state_->host_now);
    return {};
}

RESIDENCY_INLINE Error SimulatedDevice::failure(ErrorKind kind, CallKind call, const std::string& text,
                                                std::uint64_t bytes) {
    const std::string name{simulation::name(call)};
    return {kind, "simulated device: " + name + ": " + text, DeviceFailure{static_cast<int>(kind) + 1, name, bytes}};
}

RESIDENCY_INLINE Error SimulatedDevice::misuse(ErrorKind kind, CallKind call, const std::string& text, const void* at,
                                               std::uint64_t bytes) {
    const Access access{++state_->sequence, host, state_->simulator.stream(host).label,
                        state_->names.number(simulation::name(call)), OperationKind::host_memory};
    state_->checker.misuse(access, std::string{simulation::name(call)} + ": " + text, at, bytes);
    return failure(kind, call, text, bytes);
}

RESIDENCY_INLINE Error SimulatedDevice::out_of_memory(CallKind call, std::uint64_t bytes) const {
    return failure(ErrorKind::out_of_memory, call,
                   residency::detail::in_bytes(bytes) + " asked for, " +
                       residency::detail::in_bytes(config_.memory_bytes - state_->used_bytes) + " of " +
                       residency::detail::in_bytes(config_.memory_bytes) + " free",
                   bytes);
}

RESIDENCY_INLINE Error SimulatedDevice::unusable(CallKind call, std::uint32_t number, OperationKind kind,
                                                 std::uint32_t label, const void* at, std::uint64_t bytes) {
    const Access access{++state_->sequence, number, state_->simulator.stream(number).label, label, kind};
    const char* why = where(at, bytes) == Where::pageable
                          ? "this is neither device memory nor pinned host memory: allocate it by the device"
                          : "not all of it lies in one living allocation, in pageable memory or in mapped addresses";
    state_->checker.dead(access, at, bytes, why);
    return failure(ErrorKind::invalid_argument, call, why, bytes);
}

// ---- Streams and order

RESIDENCY_INLINE std::uint32_t SimulatedDevice::find(Stream stream) noexcept {
    const bool is_default = stream == Stream{};
    if (stream.device != this && !is_default) { return 0; }
    if (stream.number >= state_->simulator.stream_count() - first_stream) { return 0; }
    const std::uint32_t number = stream.number + first_stream;
    const StreamState& state = state_->simulator.stream(number);
    return state.alive && state.generation == stream.generation ? number : 0;
}

RESIDENCY_INLINE std::uint32_t SimulatedDevice::add_stream(std::string_view name) {
    // A stream's number is used again only after the host has learned that its work is over, so that work that nobody waited for stays
    // unordered.
    const auto reusable =
        std::find_if(state_->retired_streams.begin(), state_->retired_streams.end(), [&](std::uint32_t number) {
            const StreamState& state = state_->simulator.stream(number);
            return state.first == nullptr && state_->host_clock.covers(number, state.sequence);
        });
    std::uint32_t number = 0;
    if (reusable != state_->retired_streams.end()) {
        number = *reusable;
        state_->retired_streams.erase(reusable);
    } else {
        number = state_->simulator.add_stream();
    }
    StreamState& state = state_->simulator.stream(number);
    state.alive = true;
    state.clock.clear();
    state.host_version = 0;
    state.capture = 0;
    state.internal = false;
    state.label = state_->names.number(name);
    return number;
}

RESIDENCY_INLINE void SimulatedDevice::retire_stream(std::uint32_t number) {
    StreamState& state = state_->simulator.stream(number);
    state.alive = false;
    ++state.generation;
    state_->retired_streams.push_back(number);
}

RESIDENCY_INLINE SimulatedDevice::Access SimulatedDevice::host_acts(OperationKind kind, std::string_view label) {
    const std::uint64_t sequence = ++state_->sequence;
    state_->host_clock.set(host, sequence);
    ++state_->host_version;
    return {sequence, host, state_->simulator.stream(host).label, state_->names.number(label), kind};
}

RESIDENCY_INLINE void SimulatedDevice::join_host(StreamState& stream) {
    if (stream.host_version == state_->host_version) { return; }
    stream.clock.join(state_->host_clock);
    stream.host_version = state_->host_version;
}

RESIDENCY_INLINE SimulatedDevice::Operation* SimulatedDevice::begin(std::uint32_t number, OperationKind kind,
                                                                    std::uint32_t label) {
    StreamState& stream = state_->simulator.stream(number);
    join_host(stream);
    Operation* operation = state_->simulator.make();
    operation->kind = kind;
    operation->stream = number;
    operation->label = label;
    operation->sequence = ++state_->sequence;
    stream.sequence = operation->sequence;
    stream.clock.set(number, operation->sequence);
    return operation;
}

RESIDENCY_INLINE SimulatedDevice::Access SimulatedDevice::access_of(const Operation& operation) {
    return {operation.sequence, operation.stream, state_->simulator.stream(operation.stream).label, operation.label,
            operation.kind};
}

RESIDENCY_INLINE SimulatedDevice::Marker* SimulatedDevice::mark(std::uint32_t number) {
    Operation* operation = begin(number, OperationKind::record, label_of(OperationKind::record));
    Marker* marker = state_->simulator.make_marker();
    state_->simulator.hold(marker);
    marker->stream = number;
    marker->sequence = operation->sequence;
    marker->clock = state_->simulator.stream(number).clock;
    operation->marker = marker;
    state_->simulator.append(operation);
    return marker;
}

RESIDENCY_INLINE void SimulatedDevice::append_wait(std::uint32_t number, Marker* marker, bool learn) {
    StreamState& stream = state_->simulator.stream(number);
    if (learn && !stream.clock.covers(marker->stream, marker->sequence)) { stream.clock.join(marker->clock); }
    if (marker->done) { return; }
    Operation* operation = begin(number, OperationKind::wait, label_of(OperationKind::wait));
    state_->simulator.hold(marker);
    operation->marker = marker;
    state_->simulator.append(operation);
}

RESIDENCY_INLINE void SimulatedDevice::host_learns(const Marker& marker) {
    if (state_->host_clock.covers(marker.stream, marker.sequence)) { return; }
    state_->host_clock.join(marker.clock);
    ++state_->host_version;
}

RESIDENCY_INLINE Status SimulatedDevice::block_until(Lock& lock, Marker* marker, CallKind call, bool learns) {
    while (!marker->done) {
        if (state_->lost) { return failure(ErrorKind::device, call, "the device is lost"); }
        if (state_->simulator.step()) {
            state_->host_now = (std::max)(state_->host_now, state_->simulator.now());
        } else {
            state_->changed.wait(lock);  // the work waits for a flag
        }
    }
    if (learns) { host_learns(*marker); }
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::drain(Lock& lock, CallKind call) {
    std::vector<Marker*> pending;
    for (std::uint32_t number = first_stream; number < state_->simulator.stream_count(); ++number) {
        if (state_->simulator.stream(number).first != nullptr) {
            pending.push_back(mark(number));
        } else {
            state_->host_clock.join(state_->simulator.stream(number).clock);
        }
    }
    ++state_->host_version;
    Status status;
    for (Marker* marker : pending) {
        if (status) { status = block_until(lock, marker, call); }
        state_->simulator.release(marker);
    }
    return status;
}

RESIDENCY_INLINE Result<SimulatedDevice::Stream> SimulatedDevice::create_stream(std::string_view name) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_stream); !entered) { return entered.error(); }
    ++state_->streams_made;
    const std::uint32_t number =
        add_stream(name.empty() ? "stream " + std::to_string(state_->streams_made) : std::string{name});
    return Stream{number - first_stream, state_->simulator.stream(number).generation, this};
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_stream(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_stream); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::destroy_stream, stream); }
    if (number == first_stream) {
        return misuse(ErrorKind::invalid_argument, CallKind::destroy_stream, "the default stream cannot be destroyed");
    }
    if (state_->simulator.stream(number).capture != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::destroy_stream,
                      "the stream is capturing: end the capture first");
    }
    retire_stream(number);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::name_stream(Stream stream, std::string_view name) {
    const Lock lock = guard();
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::create_stream, stream); }
    state_->simulator.stream(number).label = state_->names.number(name);
    return {};
}

RESIDENCY_INLINE Result<SimulatedDevice::Event> SimulatedDevice::create_event(Timing timing) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_event); !entered) { return entered.error(); }
    const Event event = state_->events.add();
    state_->events.find(event)->timing = timing == Timing::on;
    return event;
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_event(Event event) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_event); !entered) { return entered; }
    State::EventState* state = state_->events.find(event);
    if (state == nullptr) { return dead_handle(CallKind::destroy_event, event); }
    state_->simulator.release(state->marker);
    state_->events.remove(event);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::record(Event event, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::record); !entered) { return entered; }
    State::EventState* state = state_->events.find(event);
    if (state == nullptr) { return dead_handle(CallKind::record, event); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::record, stream); }
    if (CaptureState* capture = capture_of(number); capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::record); !valid) { return valid; }
        const std::uint32_t lane = state_->simulator.stream(number).lane;
        CapturedCall captured;
        captured.kind = OperationKind::record;
        captured.lane = lane;
        captured.mark = static_cast<std::uint32_t>(capture->marks.size());
        capture->marks.push_back({capture->clocks[lane]});
        state_->simulator.release(std::exchange(state->marker, nullptr));
        state->capture = capture->number;
        state->mark = captured.mark;
        capture->calls.push_back(std::move(captured));
        return {};
    }
    state_->simulator.release(state->marker);
    state->marker = mark(number);
    state->capture = 0;
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::wait(Stream stream, Event event) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::wait); !entered) { return entered; }
    State::EventState* state = state_->events.find(event);
    if (state == nullptr) { return dead_handle(CallKind::wait, event); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::wait, stream); }
    CaptureState* capture = capture_of(number);
    if (capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::wait); !valid) { return valid; }
    }
    if (state->marker == nullptr && state->capture == 0) { return {}; }
    if (state->capture != 0) {
        CaptureState* origin = find_capture(state->capture);
        if (origin == nullptr || (capture != nullptr && capture != origin)) {
            if (capture != nullptr) { invalidate(*capture, "a wait on an event recorded in another capture"); }
            return misuse(ErrorKind::wrong_state, CallKind::wait,
                          "the event was recorded in a capture that this stream is not in");
        }
        if (capture == nullptr) {
            if (Status valid = check_valid(*origin, CallKind::wait); !valid) { return valid; }
            if (number == first_stream) {
                invalidate(*origin, "the default stream was drawn into it");
                return misuse(ErrorKind::wrong_state, CallKind::wait,
                              "the default stream cannot take part in a capture");
            }
            join_capture(*origin, number);
        }
        const std::uint32_t lane = state_->simulator.stream(number).lane;
        origin->clocks[lane].join(origin->marks[state->mark].before);
        CapturedCall captured;
        captured.kind = OperationKind::wait;
        captured.lane = lane;
        captured.mark = state->mark;
        origin->calls.push_back(std::move(captured));
        return {};
    }
    if (capture != nullptr) {
        invalidate(*capture, "a wait on an event recorded outside of it");
        return failure(ErrorKind::wrong_state, CallKind::wait,
                       "the event was recorded outside of the capture, which is now invalid");
    }
    append_wait(number, state->marker, true);
    return {};
}

RESIDENCY_INLINE Result<bool> SimulatedDevice::is_complete(Event event) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::is_complete); !entered) { return entered.error(); }
    State::EventState* state = state_->events.find(event);
    if (state == nullptr) { return dead_handle(CallKind::is_complete, event); }
    if (state->capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::is_complete, "the event was recorded in a capture");
    }
    if (state->marker == nullptr) { return true; }
    if (!state->marker->done) { return false; }
    host_learns(*state->marker);
    return true;
}

RESIDENCY_INLINE Status SimulatedDevice::synchronize(Event event) {
    Lock lock = guard();
    if (Status entered = enter(CallKind::synchronize_event); !entered) { return entered; }
    State::EventState* state = state_->events.find(event);
    if (state == nullptr) { return dead_handle(CallKind::synchronize_event, event); }
    if (state->capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::synchronize_event, "the event was recorded in a capture");
    }
    if (state->marker == nullptr) { return {}; }
    Marker* marker = state->marker;
    state_->simulator.hold(marker);
    Status status = block_until(lock, marker, CallKind::synchronize_event);
    state_->simulator.release(marker);
    return status;
}

RESIDENCY_INLINE Status SimulatedDevice::synchronize(Stream stream) {
    Lock lock = guard();
    if (Status entered = enter(CallKind::synchronize_stream); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::synchronize_stream, stream); }
    if (CaptureState* capture = capture_of(number); capture != nullptr) {
        invalidate(*capture, "a synchronisation with a stream of it");
        return failure(ErrorKind::wrong_state, CallKind::synchronize_stream,
                       "the stream is capturing; the capture is now invalid: wait for it outside of captures");
    }
    Marker* marker = mark(number);
    Status status = block_until(lock, marker, CallKind::synchronize_stream);
    state_->simulator.release(marker);
    return status;
}

RESIDENCY_INLINE Status SimulatedDevice::synchronize() {
    const CaptureGate::Call call{state_->gate};
    Lock lock = guard();
    if (Status entered = enter(CallKind::synchronize_device); !entered) { return entered; }
    if (!state_->captures.empty()) {
        for (const auto& capture : state_->captures) { invalidate(*capture, "a synchronisation with the device"); }
        return failure(ErrorKind::wrong_state, CallKind::synchronize_device,
                       "a stream is capturing; the capture is now invalid: call what waits for the device outside of "
                       "captures");
    }
    return drain(lock, CallKind::synchronize_device);
}

RESIDENCY_INLINE Result<std::chrono::nanoseconds> SimulatedDevice::elapsed(Event from, Event to) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::elapsed); !entered) { return entered.error(); }
    const State::EventState* begin = state_->events.find(from);
    const State::EventState* end = state_->events.find(to);
    if (begin == nullptr || end == nullptr) { return dead_handle(CallKind::elapsed, begin == nullptr ? from : to); }
    if (!begin->timing || !end->timing) {
        return failure(ErrorKind::invalid_argument, CallKind::elapsed, "both events must be made with Timing::on");
    }
    if (begin->marker == nullptr || end->marker == nullptr || !begin->marker->done || !end->marker->done) {
        return failure(ErrorKind::wrong_state, CallKind::elapsed, "both events must be recorded and complete");
    }
    return std::chrono::nanoseconds{end->marker->time - begin->marker->time};
}

RESIDENCY_INLINE std::chrono::nanoseconds SimulatedDevice::host_time() const {
    const Lock lock = guard();
    return std::chrono::nanoseconds{state_->host_now};
}

RESIDENCY_INLINE void SimulatedDevice::spend(std::chrono::nanoseconds duration) {
    const Lock lock = guard();
    state_->host_now += duration.count();
    state_->simulator.advance_to(state_->host_now);
}

// ---- Flags

RESIDENCY_INLINE Result<SimulatedDevice::Flag> SimulatedDevice::create_flag() {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_flag); !entered) { return entered.error(); }
    return state_->flags.add();
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_flag(Flag flag) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_flag); !entered) { return entered; }
    const simulation::FlagState* state = state_->flags.find(flag);
    if (state == nullptr) { return dead_handle(CallKind::destroy_flag, flag); }
    if (state->pending != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::destroy_flag, "a stream has yet to wait for this flag");
    }
    state_->flags.remove(flag);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::wait_flag(Stream stream, Flag flag, std::uint32_t value) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::wait_flag); !entered) { return entered; }
    simulation::FlagState* state = state_->flags.find(flag);
    if (state == nullptr) { return dead_handle(CallKind::wait_flag, flag); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::wait_flag, stream); }
    if (state_->simulator.stream(number).capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::wait_flag, "refused in a capture");
    }
    Operation* operation = begin(number, OperationKind::wait_flag, label_of(OperationKind::wait_flag));
    operation->flag = state;
    operation->flag_value = value;
    ++state->pending;
    state_->simulator.append(operation);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::raise_flag(Flag flag, std::uint32_t value) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::raise_flag); !entered) { return entered; }
    simulation::FlagState* state = state_->flags.find(flag);
    if (state == nullptr) { return dead_handle(CallKind::raise_flag, flag); }
    if (value <= state->value) { return {}; }
    state->value = value;
    state_->simulator.wake(*state);
    state_->changed.notify_all();
    return {};
}

// ---- What only a simulated device has

RESIDENCY_INLINE std::vector<SimulatedDevice::Report> SimulatedDevice::reports() const {
    const Lock lock = guard();
    return state_->checker.reports();
}

RESIDENCY_INLINE std::uint64_t SimulatedDevice::report_count() const {
    const Lock lock = guard();
    return state_->checker.count();
}

RESIDENCY_INLINE void SimulatedDevice::clear_reports() {
    const Lock lock = guard();
    state_->checker.clear_reports();
}

RESIDENCY_INLINE void SimulatedDevice::on_report(std::function<void(const Report&)> handler) {
    const Lock lock = guard();
    state_->checker.on_report = std::move(handler);
}

RESIDENCY_INLINE void SimulatedDevice::observe(std::function<void(const ExecutedOperation&)> observer) {
    const Lock lock = guard();
    state_->simulator.observer = std::move(observer);
}

RESIDENCY_INLINE void SimulatedDevice::fail(CallKind kind, std::uint64_t nth, ErrorKind error) {
    RESIDENCY_ASSERT(nth > 0, "the next call is number 1");
    const Lock lock = guard();
    state_->failures.push_back({kind, nth, error});
}

RESIDENCY_INLINE void SimulatedDevice::clear_failures() {
    const Lock lock = guard();
    state_->failures.clear();
}

RESIDENCY_INLINE void SimulatedDevice::lose_device() {
    const Lock lock = guard();
    state_->lost = true;
    state_->changed.notify_all();
}

RESIDENCY_INLINE SimulatedDevice::Statistics SimulatedDevice::statistics() const {
    const Lock lock = guard();
    Statistics result = statistics_;
    result.operations = state_->simulator.executed();
    return result;
}

RESIDENCY_INLINE std::uint64_t SimulatedDevice::peak_used_bytes() const {
    const Lock lock = guard();
    return state_->peak_bytes;
}

RESIDENCY_INLINE std::uint64_t SimulatedDevice::peak_held_bytes(Pool pool) const {
    const Lock lock = guard();
    const MemoryPool* state = state_->pools.find(pool);
    return state == nullptr ? 0 : state->peak_bytes;
}

RESIDENCY_INLINE std::vector<SimulatedDevice::Leak> SimulatedDevice::leaks() const {
    const Lock lock = guard();
    std::vector<Leak> result;
    for (std::uint32_t number = first_stream + 1; number < state_->simulator.stream_count(); ++number) {
        const StreamState& stream = state_->simulator.stream(number);
        if (stream.alive && !stream.internal) {
            result.push_back({"stream '" + state_->names.name(stream.label) + "'", 0});
        }
    }
    state_->events.for_each([&](const State::EventState&) { result.push_back({"event", 0}); });
    for (const State::Allocation& allocation : state_->allocations) {
        result.push_back({"allocation", allocation.bytes});
    }
    state_->pools.for_each([&](const MemoryPool& pool) {
        if (!pool.destroyed) { result.push_back({"pool", pool.held_bytes}); }
        for (const MemoryPool::Segment& segment : pool.segments) {
            for (const MemoryPool::Block& block : segment.blocks) {
                if (block.used) { result.push_back({"allocation of a pool", block.bytes}); }
            }
        }
    });
    for (const State::Allocation& allocation : state_->pinned) {
        result.push_back({allocation.pinned_only ? "pinned range" : "host allocation", allocation.bytes});
    }
    state_->chunks.for_each([&](const ChunkState& chunk) { result.push_back({"chunk", chunk.bytes}); });
    for (const State::Allocation& range : state_->reservations) { result.push_back({"reserved range", range.bytes}); }
    state_->graphs.for_each([&](const simulation::GraphState&) { result.push_back({"graph", 0}); });
    state_->flags.for_each([&](const simulation::FlagState&) { result.push_back({"flag", 0}); });
    for (const auto& capture : state_->captures) {
        result.push_back(
            {"capture of stream '" + state_->names.name(state_->simulator.stream(capture->streams[0]).label) + "'", 0});
    }
    return result;
}

}}  // namespace residency::RESIDENCY_ABI

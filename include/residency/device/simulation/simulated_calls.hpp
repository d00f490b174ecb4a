// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bodies of SimulatedDevice.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "residency/device/simulated.hpp"

namespace residency::inline RESIDENCY_ABI {

RESIDENCY_DETAIL_INLINE SimulatedDevice::SimulatedDevice(Config config) : config_{std::move(config)} {
    RESIDENCY_ASSERT(
        std::has_single_bit(config_.allocation_granularity) && std::has_single_bit(config_.pool_granularity) &&
            std::has_single_bit(config_.pool_block_bytes) && std::has_single_bit(config_.chunk_granularity),
        "granularities are powers of two");
    RESIDENCY_ASSERT(config_.chunk_granularity % AddressSpace::page_bytes() == 0,
                     "chunk_granularity is a multiple of the page");
    for (std::size_t kind = 0; kind <= static_cast<std::size_t>(OperationKind::mapping); ++kind) {
        kind_labels_[kind] = names_.number(simulation::name(static_cast<OperationKind>(kind)));
    }
    engine_.concurrent_kernels = config_.concurrent_kernels;
    engine_.real_bytes = config_.real_bytes;
    engine_.jitter = config_.jitter;
    engine_.seed(config_.seed);
    checker_.on = config_.checker;
    checker_.max_reports = config_.max_reports;
    engine_.stream(engine_.add_stream()).label = names_.number("host");
    StreamState& stream = engine_.stream(engine_.add_stream());
    stream.label = names_.number("default stream");
    stream.alive = true;
}

// ---- Every call

RESIDENCY_DETAIL_INLINE SimulatedDevice::Lock SimulatedDevice::guard() const {
    RESIDENCY_ASSERT(engine_.body_thread.load(std::memory_order_relaxed) != std::this_thread::get_id(),
                     "the body of a kernel must not call the device");
    return Lock{mutex_};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::enter(CallKind kind, std::chrono::nanoseconds more) {
    ++statistics_.calls[static_cast<std::size_t>(kind)];
    if (lost_) { return failure(ErrorKind::device, kind, "the device is lost"); }
    for (std::size_t i = 0; i < failures_.size(); ++i) {
        Failure& planned = failures_[i];
        if (planned.kind != kind && planned.kind != CallKind::any) { continue; }
        if (--planned.remaining == 0) {
            const ErrorKind error = planned.error;
            failures_.erase(failures_.begin() + static_cast<std::ptrdiff_t>(i));
            return failure(error, kind, "made to fail");
        }
    }
    host_now_ += (config_.call_cost + more).count();
    engine_.advance_to(host_now_);
    return {};
}

RESIDENCY_DETAIL_INLINE Error SimulatedDevice::failure(ErrorKind kind, CallKind call, const std::string& text,
                                                       std::uint64_t bytes) {
    const std::string name{simulation::name(call)};
    return {kind, "simulated device: " + name + ": " + text, DeviceFailure{static_cast<int>(kind) + 1, name, bytes}};
}

RESIDENCY_DETAIL_INLINE Error SimulatedDevice::misuse(ErrorKind kind, CallKind call, const std::string& text,
                                                      const void* at, std::uint64_t bytes) {
    const Access access{++sequence_, host, engine_.stream(host).label, names_.number(simulation::name(call)),
                        OperationKind::host_memory};
    checker_.misuse(access, std::string{simulation::name(call)} + ": " + text, at, bytes);
    return failure(kind, call, text, bytes);
}

RESIDENCY_DETAIL_INLINE Error SimulatedDevice::out_of_memory(CallKind call, std::uint64_t bytes) const {
    return failure(ErrorKind::out_of_memory, call,
                   std::to_string(bytes) + " bytes asked for, " + std::to_string(config_.memory_bytes - used_bytes_) +
                       " of " + std::to_string(config_.memory_bytes) + " free",
                   bytes);
}

RESIDENCY_DETAIL_INLINE Error SimulatedDevice::unusable(CallKind call, std::uint32_t number, OperationKind kind,
                                                        std::uint32_t label, const void* at, std::uint64_t bytes) {
    const Access access{++sequence_, number, engine_.stream(number).label, label, kind};
    const char* why = where(at, bytes) == Where::pageable
                          ? "this is neither device memory nor pinned host memory"
                          : "not all of it lies in one living allocation, in pageable memory or in mapped addresses";
    checker_.dead(access, at, bytes, why);
    return failure(ErrorKind::invalid_argument, call, why, bytes);
}

// ---- Streams and order

RESIDENCY_DETAIL_INLINE std::uint32_t SimulatedDevice::find(Stream stream) noexcept {
    if (stream.number >= engine_.stream_count() - first_stream) { return 0; }
    const std::uint32_t number = stream.number + first_stream;
    const StreamState& state = engine_.stream(number);
    return state.alive && state.generation == stream.generation ? number : 0;
}

RESIDENCY_DETAIL_INLINE std::uint32_t SimulatedDevice::add_stream(std::string_view name) {
    // A number is used again once the host knows that all its work is done: what was not waited for stays unordered.
    const auto reusable = std::find_if(retired_streams_.begin(), retired_streams_.end(), [&](std::uint32_t number) {
        const StreamState& state = engine_.stream(number);
        return state.first == nullptr && host_clock_.covers(number, state.sequence);
    });
    std::uint32_t number = 0;
    if (reusable != retired_streams_.end()) {
        number = *reusable;
        retired_streams_.erase(reusable);
    } else {
        number = engine_.add_stream();
    }
    StreamState& state = engine_.stream(number);
    state.alive = true;
    state.clock.clear();
    state.host_version = 0;
    state.capture = 0;
    state.internal = false;
    state.label = names_.number(name);
    return number;
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::retire_stream(std::uint32_t number) {
    StreamState& state = engine_.stream(number);
    state.alive = false;
    ++state.generation;
    retired_streams_.push_back(number);
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::Access SimulatedDevice::host_acts(OperationKind kind, std::string_view label) {
    const std::uint64_t sequence = ++sequence_;
    host_clock_.set(host, sequence);
    ++host_version_;
    return {sequence, host, engine_.stream(host).label, names_.number(label), kind};
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::join_host(StreamState& stream) {
    if (stream.host_version == host_version_) { return; }
    stream.clock.join(host_clock_);
    stream.host_version = host_version_;
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::Operation* SimulatedDevice::begin(std::uint32_t number, OperationKind kind,
                                                                           std::uint32_t label) {
    StreamState& stream = engine_.stream(number);
    join_host(stream);
    Operation* operation = engine_.make();
    operation->kind = kind;
    operation->stream = number;
    operation->label = label;
    operation->sequence = ++sequence_;
    stream.sequence = operation->sequence;
    stream.clock.set(number, operation->sequence);
    return operation;
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::Access SimulatedDevice::access_of(const Operation& operation) {
    return {operation.sequence, operation.stream, engine_.stream(operation.stream).label, operation.label,
            operation.kind};
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::Marker* SimulatedDevice::mark(std::uint32_t number) {
    Operation* operation = begin(number, OperationKind::record, label_of(OperationKind::record));
    Marker* marker = engine_.make_marker();
    engine_.hold(marker);
    marker->stream = number;
    marker->sequence = operation->sequence;
    marker->clock = engine_.stream(number).clock;
    operation->marker = marker;
    engine_.append(operation);
    return marker;
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::append_wait(std::uint32_t number, Marker* marker, bool learn) {
    StreamState& stream = engine_.stream(number);
    if (learn && !stream.clock.covers(marker->stream, marker->sequence)) { stream.clock.join(marker->clock); }
    if (marker->done) { return; }
    Operation* operation = begin(number, OperationKind::wait, label_of(OperationKind::wait));
    engine_.hold(marker);
    operation->marker = marker;
    engine_.append(operation);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::host_learns(const Marker& marker) {
    if (host_clock_.covers(marker.stream, marker.sequence)) { return; }
    host_clock_.join(marker.clock);
    ++host_version_;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::block_until(Lock& lock, Marker* marker, CallKind call) {
    while (!marker->done) {
        if (lost_) { return failure(ErrorKind::device, call, "the device is lost"); }
        if (engine_.step()) {
            host_now_ = (std::max)(host_now_, engine_.now());
        } else {
            changed_.wait(lock);  // only a flag can let the work go on
        }
    }
    host_learns(*marker);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::drain(Lock& lock, CallKind call) {
    std::vector<Marker*> pending;
    for (std::uint32_t number = first_stream; number < engine_.stream_count(); ++number) {
        if (engine_.stream(number).first != nullptr) {
            pending.push_back(mark(number));
        } else {
            host_clock_.join(engine_.stream(number).clock);
        }
    }
    ++host_version_;
    Status status;
    for (Marker* marker : pending) {
        if (status) { status = block_until(lock, marker, call); }
        engine_.release(marker);
    }
    return status;
}

RESIDENCY_DETAIL_INLINE Result<SimulatedDevice::Stream> SimulatedDevice::create_stream(std::string_view name) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_stream); !entered) { return entered.error(); }
    ++streams_made_;
    const std::uint32_t number =
        add_stream(name.empty() ? "stream " + std::to_string(streams_made_) : std::string{name});
    return Stream{number - first_stream, engine_.stream(number).generation};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::destroy_stream(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_stream); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::destroy_stream, "stream"); }
    if (number == first_stream) {
        return misuse(ErrorKind::invalid_argument, CallKind::destroy_stream, "the default stream cannot be destroyed");
    }
    if (engine_.stream(number).capture != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::destroy_stream,
                      "the stream is capturing: end the capture first");
    }
    retire_stream(number);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::name_stream(Stream stream, std::string_view name) {
    const Lock lock = guard();
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::create_stream, "stream"); }
    engine_.stream(number).label = names_.number(name);
    return {};
}

RESIDENCY_DETAIL_INLINE Result<SimulatedDevice::Event> SimulatedDevice::create_event(Timing timing) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_event); !entered) { return entered.error(); }
    const Event event = events_.add();
    events_.find(event)->timing = timing == Timing::on;
    return event;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::destroy_event(Event event) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_event); !entered) { return entered; }
    EventState* state = events_.find(event);
    if (state == nullptr) { return dead_handle(CallKind::destroy_event, "event"); }
    engine_.release(state->marker);
    events_.remove(event);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::record(Event event, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::record); !entered) { return entered; }
    EventState* state = events_.find(event);
    if (state == nullptr) { return dead_handle(CallKind::record, "event"); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::record, "stream"); }
    if (CaptureState* capture = capture_of(number); capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::record); !valid) { return valid; }
        const std::uint32_t lane = engine_.stream(number).lane;
        Command command;
        command.kind = OperationKind::record;
        command.lane = lane;
        command.mark = static_cast<std::uint32_t>(capture->marks.size());
        capture->marks.push_back({capture->clocks[lane]});
        engine_.release(std::exchange(state->marker, nullptr));
        state->capture = capture->number;
        state->mark = command.mark;
        capture->commands.push_back(std::move(command));
        return {};
    }
    engine_.release(state->marker);
    state->marker = mark(number);
    state->capture = 0;
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::wait(Stream stream, Event event) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::wait); !entered) { return entered; }
    EventState* state = events_.find(event);
    if (state == nullptr) { return dead_handle(CallKind::wait, "event"); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::wait, "stream"); }
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
        const std::uint32_t lane = engine_.stream(number).lane;
        origin->clocks[lane].join(origin->marks[state->mark].before);
        Command command;
        command.kind = OperationKind::wait;
        command.lane = lane;
        command.mark = state->mark;
        origin->commands.push_back(std::move(command));
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

RESIDENCY_DETAIL_INLINE Result<bool> SimulatedDevice::is_complete(Event event) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::is_complete); !entered) { return entered.error(); }
    EventState* state = events_.find(event);
    if (state == nullptr) { return dead_handle(CallKind::is_complete, "event"); }
    if (state->capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::is_complete, "the event was recorded in a capture");
    }
    if (state->marker == nullptr) { return true; }
    if (!state->marker->done) { return false; }
    host_learns(*state->marker);
    return true;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::synchronize(Event event) {
    Lock lock = guard();
    if (Status entered = enter(CallKind::synchronize_event); !entered) { return entered; }
    EventState* state = events_.find(event);
    if (state == nullptr) { return dead_handle(CallKind::synchronize_event, "event"); }
    if (state->capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::synchronize_event, "the event was recorded in a capture");
    }
    if (state->marker == nullptr) { return {}; }
    Marker* marker = state->marker;
    engine_.hold(marker);
    Status status = block_until(lock, marker, CallKind::synchronize_event);
    engine_.release(marker);
    return status;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::synchronize(Stream stream) {
    Lock lock = guard();
    if (Status entered = enter(CallKind::synchronize_stream); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::synchronize_stream, "stream"); }
    if (CaptureState* capture = capture_of(number); capture != nullptr) {
        invalidate(*capture, "a synchronisation with a stream of it");
        return failure(ErrorKind::wrong_state, CallKind::synchronize_stream,
                       "the stream is capturing; the capture is now invalid");
    }
    Marker* marker = mark(number);
    Status status = block_until(lock, marker, CallKind::synchronize_stream);
    engine_.release(marker);
    return status;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::synchronize() {
    Lock lock = guard();
    if (Status entered = enter(CallKind::synchronize_device); !entered) { return entered; }
    if (!captures_.empty()) {
        for (const auto& capture : captures_) { invalidate(*capture, "a synchronisation with the device"); }
        return failure(ErrorKind::wrong_state, CallKind::synchronize_device,
                       "a stream is capturing; the capture is now invalid");
    }
    return drain(lock, CallKind::synchronize_device);
}

RESIDENCY_DETAIL_INLINE Result<std::chrono::nanoseconds> SimulatedDevice::elapsed(Event from, Event to) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::elapsed); !entered) { return entered.error(); }
    const EventState* begin = events_.find(from);
    const EventState* end = events_.find(to);
    if (begin == nullptr || end == nullptr) { return dead_handle(CallKind::elapsed, "event"); }
    if (!begin->timing || !end->timing) {
        return failure(ErrorKind::invalid_argument, CallKind::elapsed, "both events must be made with Timing::on");
    }
    if (begin->marker == nullptr || end->marker == nullptr || !begin->marker->done || !end->marker->done) {
        return failure(ErrorKind::wrong_state, CallKind::elapsed, "both events must be recorded and complete");
    }
    return std::chrono::nanoseconds{end->marker->time - begin->marker->time};
}

RESIDENCY_DETAIL_INLINE std::chrono::nanoseconds SimulatedDevice::host_time() const {
    const Lock lock = guard();
    return std::chrono::nanoseconds{host_now_};
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::spend(std::chrono::nanoseconds duration) {
    const Lock lock = guard();
    host_now_ += duration.count();
    engine_.advance_to(host_now_);
}

// ---- Work

RESIDENCY_DETAIL_INLINE SimulatedDevice::Where SimulatedDevice::where(const void* at, std::uint64_t bytes) {
    if (const AddressMap::Entry* entry = map_.find(at); entry != nullptr) {
        const bool inside = bytes <= entry->end - reinterpret_cast<std::uintptr_t>(at);
        if (!inside && !map_.is_one_range(at, bytes)) { return Where::dead; }
        return entry->on_device ? Where::device : Where::pinned;
    }
    const bool is_foreign = !device_space_.owns(at) && !host_space_.owns(at) && !map_.touches(at, bytes);
    return is_foreign ? Where::pageable : Where::dead;
}

RESIDENCY_DETAIL_INLINE std::int64_t SimulatedDevice::copy_duration(OperationKind kind, bool pageable,
                                                                    std::uint64_t bytes, bool node) const {
    const LinkModel& link = config_.link;
    double rate = link.on_device_bytes_per_second;
    if (kind == OperationKind::copy_to_device) { rate = link.to_device_bytes_per_second; }
    if (kind == OperationKind::copy_to_host) { rate = link.to_host_bytes_per_second; }
    if (pageable || kind == OperationKind::copy_on_host) { rate = link.pageable_bytes_per_second; }
    return (node ? link.node_latency : link.call_latency).count() +
           std::llround(static_cast<double>(bytes) / rate * 1e9);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::enqueue_copies(std::uint32_t number, OperationKind kind,
                                                             std::int64_t duration, std::span<const Copy> copies) {
    Operation* operation = begin(number, kind, label_of(kind));
    operation->copies.assign(copies.begin(), copies.end());
    operation->duration = duration;
    for (const Copy& copy : copies) { operation->bytes += copy.bytes; }
    if (checker_.on) {
        const Access access = access_of(*operation);
        const simulation::VectorClock& clock = engine_.stream(number).clock;
        const auto never = [](const Access&) noexcept { return false; };
        for (const Copy& copy : copies) { checker_.read(copy.from, copy.bytes, access, clock, true, never); }
        for (const Copy& copy : copies) {
            checker_.write(copy.to, copy.bytes, access, clock, true, Content::written, never);
        }
    }
    statistics_.copies += copies.size();
    if (kind == OperationKind::copy_to_device) { statistics_.bytes_to_device += operation->bytes; }
    if (kind == OperationKind::copy_to_host) { statistics_.bytes_to_host += operation->bytes; }
    engine_.append(operation);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::enqueue_fill(std::uint32_t number, std::byte* at, std::byte value,
                                                           std::uint64_t bytes, std::int64_t duration) {
    Operation* operation = begin(number, OperationKind::fill, label_of(OperationKind::fill));
    operation->fill_at = at;
    operation->fill_value = value;
    operation->bytes = bytes;
    operation->duration = duration;
    checker_.write(at, bytes, access_of(*operation), engine_.stream(number).clock, false, Content::written,
                   [](const Access&) noexcept { return false; });
    engine_.append(operation);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::enqueue_kernel(Operation* operation) {
    const Access access = access_of(*operation);
    const simulation::VectorClock& clock = engine_.stream(operation->stream).clock;
    const auto never = [](const Access&) noexcept { return false; };
    for (const simulation::ByteRange& range : operation->reads.view()) {
        operation->bytes += range.bytes;
        checker_.read(range.at, range.bytes, access, clock, false, never);
    }
    for (const simulation::ByteRange& range : operation->writes.view()) {
        operation->bytes += range.bytes;
        checker_.write(range.at, range.bytes, access, clock, false, Content::written, never);
    }
    engine_.append(operation);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::copy(std::span<const Copy> copies, Stream stream) {
    Lock lock = guard();
    if (Status entered = enter(CallKind::copy,
                               config_.copy_cost + config_.copy_piece_cost * static_cast<std::int64_t>(copies.size()));
        !entered) {
        return entered;
    }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::copy, "stream"); }
    CaptureState* capture = capture_of(number);
    if (capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::copy); !valid) { return valid; }
    }
    for (CopyGroup& group : groups_) {
        group.copies.clear();
        group.bytes = 0;
    }
    for (const Copy& copy : copies) {
        if (copy.bytes == 0) { continue; }
        if (copy.to == nullptr || copy.from == nullptr) {
            return misuse(ErrorKind::invalid_argument, CallKind::copy, "a piece of a copy has a null address");
        }
        const Where to = where(copy.to, copy.bytes);
        const Where from = where(copy.from, copy.bytes);
        const auto kind = to == Where::device
                              ? (from == Where::device ? OperationKind::copy_on_device : OperationKind::copy_to_device)
                              : (from == Where::device ? OperationKind::copy_to_host : OperationKind::copy_on_host);
        if (to == Where::dead) { return unusable(CallKind::copy, number, kind, label_of(kind), copy.to, copy.bytes); }
        if (from == Where::dead) {
            return unusable(CallKind::copy, number, kind, label_of(kind), copy.from, copy.bytes);
        }
        const bool pageable = to == Where::pageable || from == Where::pageable;
        const std::size_t index =
            (static_cast<std::size_t>(kind) - static_cast<std::size_t>(OperationKind::copy_to_device)) * 2;
        CopyGroup& group = groups_[index + (pageable ? 1 : 0)];
        group.kind = kind;
        group.pageable = pageable;
        group.bytes += copy.bytes;
        group.copies.push_back(copy);
    }
    bool blocks = false;
    for (const CopyGroup& group : groups_) {
        if (group.copies.empty()) { continue; }
        if (capture != nullptr) {
            for (const Copy& copy : group.copies) {
                Command& command = add_work(*capture, number, group.kind, label_of(group.kind));
                command.copy = copy;
                command.duration = copy_duration(group.kind, group.pageable, copy.bytes, true);
            }
            continue;
        }
        enqueue_copies(number, group.kind, copy_duration(group.kind, group.pageable, group.bytes, false), group.copies);
        blocks = blocks || group.pageable;
    }
    if (!blocks) { return {}; }
    Marker* marker = mark(number);
    Status status = block_until(lock, marker, CallKind::copy);
    engine_.release(marker);
    return status;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::fill(void* at, std::byte value, std::uint64_t bytes, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::fill, config_.copy_cost); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::fill, "stream"); }
    CaptureState* capture = capture_of(number);
    if (capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::fill); !valid) { return valid; }
    }
    if (bytes == 0) { return {}; }
    const std::uint32_t label = label_of(OperationKind::fill);
    if (const Where place = where(at, bytes); place != Where::device && place != Where::pinned) {
        return unusable(CallKind::fill, number, OperationKind::fill, label, at, bytes);
    }
    const std::int64_t duration = copy_duration(OperationKind::fill, false, bytes, false);
    if (capture != nullptr) {
        Command& command = add_work(*capture, number, OperationKind::fill, label);
        command.fill_at = static_cast<std::byte*>(at);
        command.fill_value = value;
        command.bytes = bytes;
        command.duration = duration;
        return {};
    }
    enqueue_fill(number, static_cast<std::byte*>(at), value, bytes, duration);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::launch(Stream stream, Kernel kernel) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::launch_kernel, config_.launch_cost); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::launch_kernel, "stream"); }
    CaptureState* capture = capture_of(number);
    if (capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::launch_kernel); !valid) { return valid; }
    }
    const std::uint32_t label = names_.number(kernel.name);
    for (const auto* ranges : {&kernel.reads, &kernel.writes}) {
        for (const simulation::ByteRange& range : ranges->view()) {
            if (range.bytes == 0) { continue; }
            if (const Where place = where(range.at, range.bytes); place != Where::device && place != Where::pinned) {
                return unusable(CallKind::launch_kernel, number, OperationKind::kernel, label, range.at, range.bytes);
            }
        }
    }
    if (capture != nullptr) {
        Command& command = add_work(*capture, number, OperationKind::kernel, label);
        command.duration = kernel.duration.count();
        command.reads = std::move(kernel.reads);
        command.writes = std::move(kernel.writes);
        if (kernel.body) { command.body = std::make_shared<simulation::KernelFunction>(std::move(kernel.body)); }
        return {};
    }
    Operation* operation = begin(number, OperationKind::kernel, label);
    operation->duration = kernel.duration.count();
    operation->reads = std::move(kernel.reads);
    operation->writes = std::move(kernel.writes);
    operation->body = std::move(kernel.body);
    enqueue_kernel(operation);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::host_access(const void* at, std::uint64_t bytes, bool write) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::host_access); !entered) { return entered; }
    if (bytes == 0) { return {}; }
    const Access access = host_acts(write ? OperationKind::host_write : OperationKind::host_read,
                                    simulation::name(write ? OperationKind::host_write : OperationKind::host_read));
    if (where(at, bytes) != Where::pinned) {
        checker_.dead(access, at, bytes, "this is not pinned host memory");
        return failure(ErrorKind::invalid_argument, CallKind::host_access, "this is not pinned host memory", bytes);
    }
    // What still waits for a flag runs after the host's access: the host has yet to raise it.
    const auto later = [&](const Access& earlier) {
        return earlier.actor != host && engine_.held_by_flag(earlier.actor, earlier.sequence);
    };
    if (write) {
        checker_.write(at, bytes, access, host_clock_, false, Content::written, later);
    } else {
        checker_.read(at, bytes, access, host_clock_, false, later);
    }
    return {};
}

// ---- Memory

RESIDENCY_DETAIL_INLINE bool SimulatedDevice::take_bytes(std::uint64_t bytes) {
    reap_pools();
    if (bytes > config_.memory_bytes - used_bytes_) { return false; }
    used_bytes_ += bytes;
    peak_bytes_ = (std::max)(peak_bytes_, used_bytes_);
    return true;
}

RESIDENCY_DETAIL_INLINE std::byte* SimulatedDevice::new_memory(std::uint64_t bytes, Content content,
                                                               const Access& access, std::uint32_t& region) {
    std::byte* at = device_space_.reserve(bytes, AddressSpace::page_bytes());
    if (at == nullptr) { return nullptr; }
    if (config_.real_bytes) {
        if (!AddressSpace::commit(at, bytes)) {
            device_space_.give_back(at, bytes);
            return nullptr;
        }
        std::memset(at, std::to_integer<int>(fresh), bytes);
    }
    region = checker_.add_region(bytes, content, access);
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    map_.insert({begin, begin + bytes, region, 0, true, false, 0});
    return at;
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::drop_memory(std::byte* at, std::uint64_t bytes, std::uint32_t region) {
    map_.erase(at, bytes);
    checker_.remove_region(region);
    device_space_.give_back(at, bytes);
}

RESIDENCY_DETAIL_INLINE Result<void*> SimulatedDevice::allocate(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::allocate); !entered) { return entered.error(); }
    if (bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::allocate, "zero bytes"); }
    if (bytes > config_.memory_bytes) { return out_of_memory(CallKind::allocate, bytes); }
    const std::uint64_t taken = AddressSpace::round_up(bytes, config_.allocation_granularity);
    if (!take_bytes(taken)) { return out_of_memory(CallKind::allocate, bytes); }
    std::uint32_t region = 0;
    const Access access = host_acts(OperationKind::allocate, simulation::name(OperationKind::allocate));
    std::byte* at = new_memory(bytes, Content::uninitialised, access, region);
    if (at == nullptr) {
        used_bytes_ -= taken;
        return failure(ErrorKind::out_of_memory, CallKind::allocate, "the process has no memory left", bytes);
    }
    allocations_.push_back({at, bytes, taken, region, false});
    return static_cast<void*>(at);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::deallocate(void* at) {
    Lock lock = guard();
    if (Status entered = enter(CallKind::deallocate); !entered) { return entered; }
    if (at == nullptr) { return {}; }
    const auto is_it = [&](const Allocation& allocation) { return allocation.at == at; };
    if (std::none_of(allocations_.begin(), allocations_.end(), is_it)) {
        return misuse(ErrorKind::invalid_argument, CallKind::deallocate, "not the start of an allocation that is alive",
                      at);
    }
    if (Status drained = drain(lock, CallKind::deallocate); !drained) { return drained; }
    const auto found = std::find_if(allocations_.begin(), allocations_.end(), is_it);
    if (found == allocations_.end()) {
        return misuse(ErrorKind::invalid_argument, CallKind::deallocate, "another thread has freed it meanwhile", at);
    }
    used_bytes_ -= found->taken_bytes;
    drop_memory(found->at, found->bytes, found->region);
    allocations_.erase(found);
    return {};
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::MemoryPool* SimulatedDevice::find(Pool pool) noexcept {
    MemoryPool* state = pools_.find(pool);
    return state != nullptr && !state->destroyed ? state : nullptr;
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::settle(MemoryPool& pool) {
    pool.settle([&](Marker* marker) { engine_.release(marker); });
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::trim_settled(MemoryPool& pool) {
    std::erase_if(pool.segments, [&](const MemoryPool::Segment& segment) {
        if (!MemoryPool::is_unused(segment)) { return false; }
        pool.held_bytes -= segment.bytes;
        used_bytes_ -= segment.bytes;
        drop_memory(segment.at, segment.bytes, segment.region);
        return true;
    });
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::reap_pools() {
    if (dying_pools_ == 0) { return; }
    std::vector<Pool> empty;
    pools_.for_each_handle([&](Pool handle, MemoryPool& pool) {
        if (!pool.destroyed) { return; }
        settle(pool);
        trim_settled(pool);
        if (pool.segments.empty()) { empty.push_back(handle); }
    });
    for (const Pool handle : empty) {
        pools_.remove(handle);
        --dying_pools_;
    }
}

RESIDENCY_DETAIL_INLINE bool SimulatedDevice::grow(MemoryPool& pool, std::uint64_t bytes) {
    const std::uint64_t segment_bytes = AddressSpace::round_up(bytes, config_.pool_granularity);
    if (segment_bytes > pool.cap_bytes - pool.held_bytes || !take_bytes(segment_bytes)) { return false; }
    MemoryPool::Segment segment;
    segment.bytes = segment_bytes;
    segment.at = new_memory(segment_bytes, Content::freed, Access{}, segment.region);
    if (segment.at == nullptr) {
        used_bytes_ -= segment_bytes;
        return false;
    }
    segment.blocks.push_back({0, segment_bytes, false, nullptr});
    pool.segments.push_back(std::move(segment));
    pool.held_bytes += segment_bytes;
    pool.peak_bytes = (std::max)(pool.peak_bytes, pool.held_bytes);
    return true;
}

RESIDENCY_DETAIL_INLINE Result<SimulatedDevice::Pool> SimulatedDevice::create_pool(std::uint64_t cap_bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_pool); !entered) { return entered.error(); }
    if (cap_bytes == 0 || cap_bytes % config_.pool_granularity != 0) {
        return failure(ErrorKind::invalid_argument, CallKind::create_pool,
                       "a cap of " + std::to_string(cap_bytes) +
                           " bytes; the driver would round it up to a multiple of " +
                           std::to_string(config_.pool_granularity),
                       cap_bytes);
    }
    const Pool pool = pools_.add();
    pools_.find(pool)->cap_bytes = cap_bytes;
    return pool;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::destroy_pool(Pool pool) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_pool); !entered) { return entered; }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::destroy_pool, "pool"); }
    if (const std::uint64_t bytes = state->used_bytes(); bytes != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::destroy_pool,
                      std::to_string(bytes) + " bytes of the pool have not been deallocated", nullptr, bytes);
    }
    state->destroyed = true;
    ++dying_pools_;
    reap_pools();
    return {};
}

RESIDENCY_DETAIL_INLINE Result<void*> SimulatedDevice::allocate(Pool pool, std::uint64_t bytes, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::pool_allocate); !entered) { return entered.error(); }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::pool_allocate, "pool"); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::pool_allocate, "stream"); }
    if (engine_.stream(number).capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::pool_allocate, "refused in a capture: the cap would not hold",
                       bytes);
    }
    if (bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::pool_allocate, "zero bytes"); }
    const auto exhausted = [&] {
        return failure(ErrorKind::out_of_memory, CallKind::pool_allocate,
                       std::to_string(bytes) + " bytes asked for; the pool holds " + std::to_string(state->held_bytes) +
                           " of at most " + std::to_string(state->cap_bytes) + " bytes, " +
                           std::to_string(state->used_bytes()) + " of them in use, and no hole is large enough",
                       bytes);
    };
    if (bytes > state->cap_bytes) { return exhausted(); }
    const std::uint64_t block_bytes = AddressSpace::round_up(bytes, config_.pool_block_bytes);
    StreamState& queue = engine_.stream(number);
    join_host(queue);
    settle(*state);
    // As the driver does: what this stream knows to be free, then more memory, then a dependency on another stream.
    const auto known = [&](const Marker& freed) { return queue.clock.covers(freed.stream, freed.sequence); };
    MemoryPool::Fit fit = state->find(block_bytes, known);
    if (fit.segment == nullptr && grow(*state, block_bytes)) { fit = state->find(block_bytes, known); }
    if (fit.segment == nullptr) {
        trim_settled(*state);
        if (grow(*state, block_bytes)) { fit = state->find(block_bytes, known); }
    }
    if (fit.segment == nullptr) {
        fit = state->find(block_bytes, [](const Marker&) { return true; });
    }
    if (fit.segment == nullptr) { return exhausted(); }
    std::byte* at = state->take(fit, block_bytes, [&](Marker* freed, bool whole) {
        append_wait(number, freed, false);
        if (whole) { engine_.release(freed); }
    });
    Operation* operation = begin(number, OperationKind::allocate, label_of(OperationKind::allocate));
    operation->fill_at = at;
    operation->fill_value = fresh;
    operation->bytes = block_bytes;
    checker_.assign(at, block_bytes, access_of(*operation), Content::uninitialised);
    engine_.append(operation);
    return static_cast<void*>(at);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::deallocate(Pool pool, void* at, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::pool_deallocate); !entered) { return entered; }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::pool_deallocate, "pool"); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::pool_deallocate, "stream"); }
    if (engine_.stream(number).capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::pool_deallocate, "refused in a capture");
    }
    MemoryPool::Segment* segment = state->segment_of(at);
    MemoryPool::Block* block = segment != nullptr ? MemoryPool::block_of(*segment, at) : nullptr;
    if (block == nullptr || !block->used) {
        return misuse(ErrorKind::invalid_argument, CallKind::pool_deallocate,
                      "not the start of an allocation of this pool that is alive", at);
    }
    Operation* operation = begin(number, OperationKind::deallocate, label_of(OperationKind::deallocate));
    operation->fill_at = static_cast<std::byte*>(at);
    operation->fill_value = stale;
    operation->bytes = block->bytes;
    checker_.write(at, block->bytes, access_of(*operation), engine_.stream(number).clock, false, Content::freed,
                   [](const Access&) noexcept { return false; });
    Marker* freed = engine_.make_marker();
    engine_.hold(freed);
    freed->stream = number;
    freed->sequence = operation->sequence;
    operation->marker = freed;
    block->used = false;
    block->freed = freed;
    engine_.append(operation);
    return {};
}

RESIDENCY_DETAIL_INLINE Result<std::uint64_t> SimulatedDevice::held_bytes(Pool pool) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::held_bytes); !entered) { return entered.error(); }
    const MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::held_bytes, "pool"); }
    return state->held_bytes;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::trim(Pool pool) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::trim); !entered) { return entered; }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::trim, "pool"); }
    settle(*state);
    trim_settled(*state);
    return {};
}

RESIDENCY_DETAIL_INLINE Result<MemoryInfo> SimulatedDevice::memory() {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::memory); !entered) { return entered.error(); }
    reap_pools();
    return MemoryInfo{config_.memory_bytes - used_bytes_, config_.memory_bytes};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::add_pinned(std::byte* at, std::uint64_t bytes, bool pinned_only) {
    const Access access = host_acts(OperationKind::host_memory, simulation::name(OperationKind::host_memory));
    const std::uint32_t region = checker_.add_region(bytes, Content::written, access);
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    map_.insert({begin, begin + bytes, region, 0, false, false, 0});
    pinned_.push_back({at, bytes, 0, region, pinned_only});
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::release_pinned(void* at, bool pinned_only, CallKind call) {
    const auto found = std::find_if(pinned_.begin(), pinned_.end(), [&](const Allocation& allocation) {
        return allocation.at == at && allocation.pinned_only == pinned_only;
    });
    if (found == pinned_.end()) {
        return misuse(ErrorKind::invalid_argument, call,
                      pinned_only ? "not the start of a range that is pinned"
                                  : "not the start of a host allocation that is alive",
                      at);
    }
    const Access access = host_acts(OperationKind::host_memory, simulation::name(call));
    if (checker_.check_unused(at, found->bytes, access, host_clock_) != 0) {
        return failure(ErrorKind::wrong_state, call, "work that the host has not synchronised with uses this memory",
                       found->bytes);
    }
    map_.erase(found->at, found->bytes);
    checker_.remove_region(found->region);
    if (!pinned_only) { host_space_.give_back(found->at, found->bytes); }
    pinned_.erase(found);
    return {};
}

RESIDENCY_DETAIL_INLINE Result<void*> SimulatedDevice::allocate_host(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::allocate_host); !entered) { return entered.error(); }
    if (bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::allocate_host, "zero bytes"); }
    std::byte* at = bytes > PTRDIFF_MAX / 2 ? nullptr : host_space_.reserve(bytes, AddressSpace::page_bytes());
    if (at != nullptr && !AddressSpace::commit(at, bytes)) {
        host_space_.give_back(at, bytes);
        at = nullptr;
    }
    if (at == nullptr) {
        return failure(ErrorKind::out_of_memory, CallKind::allocate_host, "the process has no memory left", bytes);
    }
    if (Status added = add_pinned(at, bytes, false); !added) { return added.error(); }
    return static_cast<void*>(at);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::deallocate_host(void* at) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::deallocate_host); !entered) { return entered; }
    if (at == nullptr) { return {}; }
    return release_pinned(at, false, CallKind::deallocate_host);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::pin(void* at, std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::pin); !entered) { return entered; }
    if (at == nullptr || bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::pin, "no bytes to pin"); }
    if (map_.touches(at, bytes) || device_space_.owns(at) || host_space_.owns(at)) {
        return misuse(ErrorKind::invalid_argument, CallKind::pin,
                      "a part of the range is pinned, or is the device's own", at, bytes);
    }
    return add_pinned(static_cast<std::byte*>(at), bytes, true);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::unpin(void* at) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::unpin); !entered) { return entered; }
    return release_pinned(at, true, CallKind::unpin);
}

RESIDENCY_DETAIL_INLINE Result<const void*> SimulatedDevice::device_view(const void* at) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::device_view); !entered) { return entered.error(); }
    const AddressMap::Entry* entry = map_.find(at);
    if (entry == nullptr || entry->on_device) {
        return failure(ErrorKind::invalid_argument, CallKind::device_view, "this is not pinned host memory");
    }
    return at;
}

// ---- Virtual memory

RESIDENCY_DETAIL_INLINE SimulatedDevice::ChunkState* SimulatedDevice::find(Chunk chunk) noexcept {
    ChunkState* state = chunks_.find(chunk);
    return state != nullptr && !state->destroyed ? state : nullptr;
}

RESIDENCY_DETAIL_INLINE Result<void*> SimulatedDevice::reserve(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::reserve); !entered) { return entered.error(); }
    if (bytes == 0 || bytes % config_.chunk_granularity != 0) {
        return failure(ErrorKind::invalid_argument, CallKind::reserve, "not a multiple of the chunk granularity",
                       bytes);
    }
    std::byte* at = bytes > PTRDIFF_MAX / 2 ? nullptr : device_space_.reserve(bytes, config_.chunk_granularity);
    if (at == nullptr) {
        return failure(ErrorKind::out_of_memory, CallKind::reserve, "the process has no addresses left", bytes);
    }
    reservations_.push_back({at, bytes, 0, 0, false});
    return static_cast<void*>(at);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::release(void* at, std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::release); !entered) { return entered; }
    const auto found = std::find_if(reservations_.begin(), reservations_.end(),
                                    [&](const Allocation& range) { return range.at == at && range.bytes == bytes; });
    if (found == reservations_.end()) {
        return misuse(ErrorKind::invalid_argument, CallKind::release, "not a reserved range", at, bytes);
    }
    if (map_.touches(at, bytes)) {
        return misuse(ErrorKind::wrong_state, CallKind::release, "chunks are still mapped in the range", at, bytes);
    }
    device_space_.give_back(found->at, found->bytes);
    reservations_.erase(found);
    return {};
}

RESIDENCY_DETAIL_INLINE Result<SimulatedDevice::Chunk> SimulatedDevice::create_chunk(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_chunk); !entered) { return entered.error(); }
    if (bytes == 0 || bytes % config_.chunk_granularity != 0) {
        return failure(ErrorKind::invalid_argument, CallKind::create_chunk, "not a multiple of the chunk granularity",
                       bytes);
    }
    if (!take_bytes(bytes)) { return out_of_memory(CallKind::create_chunk, bytes); }
    std::uint64_t offset = 0;
    if (config_.real_bytes && !device_space_.create(bytes, offset, fresh)) {
        used_bytes_ -= bytes;
        return failure(ErrorKind::out_of_memory, CallKind::create_chunk, "the process has no memory left", bytes);
    }
    const Access access = host_acts(OperationKind::mapping, simulation::name(CallKind::create_chunk));
    const Chunk chunk = chunks_.add();
    *chunks_.find(chunk) = {offset, bytes, checker_.add_region(bytes, Content::uninitialised, access), 0, false};
    return chunk;
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::forget_chunk(Chunk handle, ChunkState& chunk) {
    checker_.remove_region(chunk.region);
    if (config_.real_bytes) { device_space_.destroy(chunk.offset, chunk.bytes); }
    used_bytes_ -= chunk.bytes;
    chunks_.remove(handle);
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::destroy_chunk(Chunk chunk) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_chunk); !entered) { return entered; }
    ChunkState* state = find(chunk);
    if (state == nullptr) { return dead_handle(CallKind::destroy_chunk, "chunk"); }
    state->destroyed = true;
    if (state->mapped == 0) { forget_chunk(chunk, *state); }
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::map(std::span<const Mapping<Chunk>> mappings, std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::map); !entered) { return entered; }
    if (!captures_.empty()) {
        return failure(ErrorKind::wrong_state, CallKind::map, "refused while a stream captures");
    }
    const auto by_address = [](const MappedChunk& mapped, const std::byte* at) { return mapped.at < at; };
    const auto place = [&](const Mapping<Chunk>& mapping) -> Status {
        auto* at = static_cast<std::byte*>(mapping.at);
        ChunkState* chunk = find(mapping.chunk);
        if (chunk == nullptr) { return dead_handle(CallKind::map, "chunk"); }
        if (chunk->bytes != bytes || reinterpret_cast<std::uintptr_t>(at) % config_.chunk_granularity != 0) {
            return misuse(ErrorKind::invalid_argument, CallKind::map,
                          "a chunk of another size, or an address that is not aligned", at, bytes);
        }
        const bool reserved = std::any_of(reservations_.begin(), reservations_.end(), [&](const Allocation& range) {
            return at >= range.at && at < range.at + range.bytes &&
                   bytes <= static_cast<std::uint64_t>(range.at + range.bytes - at);
        });
        if (!reserved || map_.touches(at, bytes)) {
            return misuse(ErrorKind::invalid_argument, CallKind::map,
                          "the range is not reserved, or something is mapped there", at, bytes);
        }
        if (config_.real_bytes && !device_space_.map(at, chunk->offset, bytes)) {
            return failure(ErrorKind::out_of_memory, CallKind::map, "the process has no mappings left", bytes);
        }
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        map_.insert({begin, begin + bytes, chunk->region, 0, true, true, 0});
        mapped_.insert(std::lower_bound(mapped_.begin(), mapped_.end(), at, by_address), {at, mapping.chunk});
        ++chunk->mapped;
        return {};
    };
    for (std::size_t i = 0; i < mappings.size(); ++i) {
        Status placed = place(mappings[i]);
        if (placed) { continue; }
        while (i-- > 0) {
            auto* at = static_cast<std::byte*>(mappings[i].at);
            if (config_.real_bytes) { AddressSpace::revoke(at, bytes); }
            map_.erase(at, bytes);
            mapped_.erase(std::lower_bound(mapped_.begin(), mapped_.end(), at, by_address));
            --find(mappings[i].chunk)->mapped;
        }
        return placed;
    }
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::unmap(void* at, std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::unmap); !entered) { return entered; }
    if (!captures_.empty()) {
        return failure(ErrorKind::wrong_state, CallKind::unmap, "refused while a stream captures");
    }
    const auto first =
        std::lower_bound(mapped_.begin(), mapped_.end(), static_cast<std::byte*>(at),
                         [](const MappedChunk& mapped, const std::byte* value) { return mapped.at < value; });
    const auto end_of = [&](const MappedChunk& mapped) { return mapped.at + chunks_.find(mapped.chunk)->bytes; };
    const std::byte* end = static_cast<std::byte*>(at) + bytes;
    auto last = first;
    while (last != mapped_.end() && last->at < end) { ++last; }
    const bool cut = (first != mapped_.begin() && end_of(first[-1]) > at) || (first != last && end_of(last[-1]) > end);
    if (first == last || cut) {
        return misuse(ErrorKind::invalid_argument, CallKind::unmap,
                      "the range must hold whole mapped chunks, at least one", at, bytes);
    }
    // Unmapping does not wait: work that still uses the range loses it, which is a report.
    const Access access = host_acts(OperationKind::mapping, simulation::name(CallKind::unmap));
    for (auto mapped = first; mapped != last; ++mapped) {
        ChunkState& chunk = *chunks_.find(mapped->chunk);
        checker_.check_unused(mapped->at, chunk.bytes, access, host_clock_);
        checker_.forget_uses(mapped->at, chunk.bytes);
        if (config_.real_bytes) { AddressSpace::revoke(mapped->at, chunk.bytes); }
        map_.erase(mapped->at, chunk.bytes);
        if (--chunk.mapped == 0 && chunk.destroyed) { forget_chunk(mapped->chunk, chunk); }
    }
    mapped_.erase(first, last);
    return {};
}

// ---- Captures

RESIDENCY_DETAIL_INLINE SimulatedDevice::CaptureState* SimulatedDevice::find_capture(std::uint32_t capture) {
    for (const auto& state : captures_) {
        if (state->number == capture) { return state.get(); }
    }
    return nullptr;
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::CaptureState* SimulatedDevice::capture_of(std::uint32_t number) {
    const std::uint32_t capture = engine_.stream(number).capture;
    return capture == 0 ? nullptr : find_capture(capture);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::invalidate(CaptureState& capture, std::string why) {
    if (capture.invalid.empty()) { capture.invalid = std::move(why); }
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::check_valid(const CaptureState& capture, CallKind call) const {
    if (capture.invalid.empty()) { return {}; }
    return failure(ErrorKind::wrong_state, call, "the capture is invalid: " + capture.invalid);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::join_capture(CaptureState& capture, std::uint32_t number) {
    StreamState& stream = engine_.stream(number);
    stream.capture = capture.number;
    stream.lane = static_cast<std::uint32_t>(capture.streams.size());
    capture.streams.push_back(number);
    capture.clocks.emplace_back();
    capture.positions.push_back(0);
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::Command& SimulatedDevice::add_work(CaptureState& capture, std::uint32_t number,
                                                                            OperationKind kind, std::uint32_t label) {
    const std::uint32_t lane = engine_.stream(number).lane;
    capture.clocks[lane].set(lane, ++capture.positions[lane]);
    Command& command = capture.commands.emplace_back();
    command.kind = kind;
    command.lane = lane;
    command.label = label;
    return command;
}

RESIDENCY_DETAIL_INLINE Result<bool> SimulatedDevice::is_capturing(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::is_capturing); !entered) { return entered.error(); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::is_capturing, "stream"); }
    return engine_.stream(number).capture != 0;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::begin_capture(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::begin_capture); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::begin_capture, "stream"); }
    if (number == first_stream) {
        return misuse(ErrorKind::invalid_argument, CallKind::begin_capture, "the default stream cannot be captured");
    }
    if (engine_.stream(number).capture != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::begin_capture, "the stream is capturing already");
    }
    captures_.push_back(std::make_unique<CaptureState>());
    captures_.back()->number = ++captures_made_;
    join_capture(*captures_.back(), number);
    return {};
}

RESIDENCY_DETAIL_INLINE Result<SimulatedDevice::Graph> SimulatedDevice::end_capture(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::end_capture); !entered) { return entered.error(); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::end_capture, "stream"); }
    CaptureState* capture = capture_of(number);
    if (capture == nullptr) {
        return misuse(ErrorKind::wrong_state, CallKind::end_capture, "the stream is not capturing");
    }
    if (engine_.stream(number).lane != 0) {
        invalidate(*capture, "it was ended on a stream that did not begin it");
        return misuse(ErrorKind::wrong_state, CallKind::end_capture,
                      "the capture ends on the stream that began it; it is now invalid");
    }
    for (const std::uint32_t member : capture->streams) { engine_.stream(member).capture = 0; }
    const auto found =
        std::find_if(captures_.begin(), captures_.end(), [&](const auto& state) { return state.get() == capture; });
    const std::unique_ptr<CaptureState> ended = std::move(*found);
    captures_.erase(found);
    if (!ended->invalid.empty()) {
        return failure(ErrorKind::wrong_state, CallKind::end_capture, "the capture is invalid: " + ended->invalid);
    }
    for (std::uint32_t lane = 1; lane < ended->streams.size(); ++lane) {
        if (!ended->clocks[0].covers(lane, ended->positions[lane])) {
            return misuse(ErrorKind::wrong_state, CallKind::end_capture,
                          "stream '" + names_.name(engine_.stream(ended->streams[lane]).label) +
                              "' was forked into the capture and not joined: let '" +
                              names_.name(engine_.stream(number).label) +
                              "' wait for an event recorded there after its last work");
        }
    }
    const Graph graph = graphs_.add();
    simulation::GraphState& state = *graphs_.find(graph);
    state.commands = std::move(ended->commands);
    state.marks.resize(ended->marks.size());
    state.generation = map_.generation();
    state.streams.push_back(number);
    for (std::uint32_t lane = 1; lane < ended->streams.size(); ++lane) {
        state.streams.push_back(add_stream(names_.name(engine_.stream(ended->streams[lane]).label)));
        engine_.stream(state.streams.back()).internal = true;
    }
    return graph;
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::check_ranges(const simulation::GraphState& graph,
                                                             std::uint32_t number) {
    for (const Command& command : graph.commands) {
        const auto check = [&](const void* at, std::uint64_t bytes, bool pageable_too) -> Status {
            if (bytes == 0) { return {}; }
            const Where place = where(at, bytes);
            if (place == Where::device || place == Where::pinned || (pageable_too && place == Where::pageable)) {
                return {};
            }
            return unusable(CallKind::launch_graph, number, command.kind, command.label, at, bytes);
        };
        if (Status there = check(command.copy.to, command.copy.bytes, true); !there) { return there; }
        if (Status there = check(command.copy.from, command.copy.bytes, true); !there) { return there; }
        if (Status there = check(command.fill_at, command.bytes, false); !there) { return there; }
        for (const auto* ranges : {&command.reads, &command.writes}) {
            for (const simulation::ByteRange& range : ranges->view()) {
                if (Status there = check(range.at, range.bytes, false); !there) { return there; }
            }
        }
    }
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::launch(Graph graph, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::launch_graph, config_.launch_cost); !entered) { return entered; }
    simulation::GraphState* state = graphs_.find(graph);
    if (state == nullptr) { return dead_handle(CallKind::launch_graph, "graph"); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::launch_graph, "stream"); }
    if (engine_.stream(number).capture != 0) {
        return failure(ErrorKind::unsupported, CallKind::launch_graph, "a graph inside of a capture");
    }
    if (state->generation != map_.generation()) {
        if (Status there = check_ranges(*state, number); !there) { return there; }
        state->generation = map_.generation();
    }
    // A launch follows the one before, on whatever stream that was.
    const auto lanes = static_cast<std::uint32_t>(state->streams.size());
    if (state->last != nullptr) {
        append_wait(number, state->last, true);
        engine_.release(std::exchange(state->last, nullptr));
    }
    if (lanes > 1) {
        Marker* start = mark(number);
        for (std::uint32_t lane = 1; lane < lanes; ++lane) { append_wait(state->streams[lane], start, true); }
        engine_.release(start);
    }
    for (const Command& command : state->commands) {
        const std::uint32_t target = command.lane == 0 ? number : state->streams[command.lane];
        switch (command.kind) {
            case OperationKind::record: state->marks[command.mark] = mark(target); break;
            case OperationKind::wait: append_wait(target, state->marks[command.mark], true); break;
            case OperationKind::fill:
                enqueue_fill(target, command.fill_at, command.fill_value, command.bytes, command.duration);
                break;
            case OperationKind::kernel: {
                Operation* operation = begin(target, OperationKind::kernel, command.label);
                operation->duration = command.duration;
                operation->reads = command.reads;
                operation->writes = command.writes;
                operation->shared_body = command.body;
                enqueue_kernel(operation);
                break;
            }
            default: enqueue_copies(target, command.kind, command.duration, {&command.copy, 1}); break;
        }
    }
    for (Marker*& point : state->marks) { engine_.release(std::exchange(point, nullptr)); }
    for (std::uint32_t lane = 1; lane < lanes; ++lane) {
        Marker* end = mark(state->streams[lane]);
        append_wait(number, end, true);
        engine_.release(end);
    }
    state->last = mark(number);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::destroy_graph(Graph graph) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_graph); !entered) { return entered; }
    simulation::GraphState* state = graphs_.find(graph);
    if (state == nullptr) { return dead_handle(CallKind::destroy_graph, "graph"); }
    engine_.release(state->last);
    for (std::size_t lane = 1; lane < state->streams.size(); ++lane) { retire_stream(state->streams[lane]); }
    graphs_.remove(graph);
    return {};
}

// ---- Flags

RESIDENCY_DETAIL_INLINE Result<SimulatedDevice::Flag> SimulatedDevice::create_flag() {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_flag); !entered) { return entered.error(); }
    return flags_.add();
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::destroy_flag(Flag flag) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_flag); !entered) { return entered; }
    const simulation::FlagState* state = flags_.find(flag);
    if (state == nullptr) { return dead_handle(CallKind::destroy_flag, "flag"); }
    if (state->pending != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::destroy_flag, "a stream has yet to wait for this flag");
    }
    flags_.remove(flag);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::wait_flag(Stream stream, Flag flag, std::uint32_t value) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::wait_flag); !entered) { return entered; }
    simulation::FlagState* state = flags_.find(flag);
    if (state == nullptr) { return dead_handle(CallKind::wait_flag, "flag"); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::wait_flag, "stream"); }
    if (engine_.stream(number).capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::wait_flag, "refused in a capture");
    }
    Operation* operation = begin(number, OperationKind::wait_flag, label_of(OperationKind::wait_flag));
    operation->flag = state;
    operation->flag_value = value;
    ++state->pending;
    engine_.append(operation);
    return {};
}

RESIDENCY_DETAIL_INLINE Status SimulatedDevice::raise_flag(Flag flag, std::uint32_t value) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::raise_flag); !entered) { return entered; }
    simulation::FlagState* state = flags_.find(flag);
    if (state == nullptr) { return dead_handle(CallKind::raise_flag, "flag"); }
    if (value <= state->value) { return {}; }
    state->value = value;
    engine_.wake(*state);
    changed_.notify_all();
    return {};
}

// ---- What only a simulated device has

RESIDENCY_DETAIL_INLINE std::vector<SimulatedDevice::Report> SimulatedDevice::reports() const {
    const Lock lock = guard();
    return checker_.reports();
}

RESIDENCY_DETAIL_INLINE std::uint64_t SimulatedDevice::report_count() const {
    const Lock lock = guard();
    return checker_.count();
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::clear_reports() {
    const Lock lock = guard();
    checker_.clear_reports();
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::on_report(std::function<void(const Report&)> handler) {
    const Lock lock = guard();
    checker_.on_report = std::move(handler);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::observe(std::function<void(const ExecutedOperation&)> observer) {
    const Lock lock = guard();
    engine_.observer = std::move(observer);
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::fail(CallKind kind, std::uint64_t nth, ErrorKind error) {
    RESIDENCY_ASSERT(nth > 0, "the next call is number 1");
    const Lock lock = guard();
    failures_.push_back({kind, nth, error});
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::clear_failures() {
    const Lock lock = guard();
    failures_.clear();
}

RESIDENCY_DETAIL_INLINE void SimulatedDevice::lose_device() {
    const Lock lock = guard();
    lost_ = true;
    changed_.notify_all();
}

RESIDENCY_DETAIL_INLINE SimulatedDevice::Statistics SimulatedDevice::statistics() const {
    const Lock lock = guard();
    Statistics result = statistics_;
    result.operations = engine_.executed();
    return result;
}

RESIDENCY_DETAIL_INLINE std::uint64_t SimulatedDevice::peak_used_bytes() const {
    const Lock lock = guard();
    return peak_bytes_;
}

RESIDENCY_DETAIL_INLINE std::uint64_t SimulatedDevice::peak_held_bytes(Pool pool) const {
    const Lock lock = guard();
    const MemoryPool* state = pools_.find(pool);
    return state == nullptr ? 0 : state->peak_bytes;
}

RESIDENCY_DETAIL_INLINE std::vector<SimulatedDevice::Leak> SimulatedDevice::leaks() const {
    const Lock lock = guard();
    std::vector<Leak> result;
    for (std::uint32_t number = first_stream + 1; number < engine_.stream_count(); ++number) {
        const StreamState& stream = engine_.stream(number);
        if (stream.alive && !stream.internal) { result.push_back({"stream '" + names_.name(stream.label) + "'", 0}); }
    }
    events_.for_each([&](const EventState&) { result.push_back({"event", 0}); });
    for (const Allocation& allocation : allocations_) { result.push_back({"allocation", allocation.bytes}); }
    pools_.for_each([&](const MemoryPool& pool) {
        if (!pool.destroyed) { result.push_back({"pool", pool.held_bytes}); }
        for (const MemoryPool::Segment& segment : pool.segments) {
            for (const MemoryPool::Block& block : segment.blocks) {
                if (block.used) { result.push_back({"allocation of a pool", block.bytes}); }
            }
        }
    });
    for (const Allocation& allocation : pinned_) {
        result.push_back({allocation.pinned_only ? "pinned range" : "host allocation", allocation.bytes});
    }
    chunks_.for_each([&](const ChunkState& chunk) { result.push_back({"chunk", chunk.bytes}); });
    for (const Allocation& range : reservations_) { result.push_back({"reserved range", range.bytes}); }
    graphs_.for_each([&](const simulation::GraphState&) { result.push_back({"graph", 0}); });
    flags_.for_each([&](const simulation::FlagState&) { result.push_back({"flag", 0}); });
    for (const auto& capture : captures_) {
        result.push_back({"capture of stream '" + names_.name(engine_.stream(capture->streams[0]).label) + "'", 0});
    }
    return result;
}

}  // namespace residency::inline RESIDENCY_ABI

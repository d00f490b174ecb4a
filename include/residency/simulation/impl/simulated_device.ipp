// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// SimulatedDevice: every call; streams, events and flags; what only a simulated device has.

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

#include "residency/model/number.hpp"
#include "residency/simulation/device_state.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE SimulatedDevice::SimulatedDevice() : SimulatedDevice(Config{}) {}

RESIDENCY_INLINE SimulatedDevice::SimulatedDevice(Config config)
    : SimulatedDevice(std::move(config), std::make_shared<State>()) {}

RESIDENCY_INLINE SimulatedDevice::SimulatedDevice(Config config, SimulatedDevice& beside)
    : SimulatedDevice(std::move(config), beside.state_) {}

RESIDENCY_INLINE SimulatedDevice::SimulatedDevice(Config config, std::shared_ptr<State> state)
    : config_{std::move(config)}, state_{std::move(state)} {
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
    RESIDENCY_ASSERT(residency::detail::is_positive(config_.peer_bytes_per_second),
                     "give peer_bytes_per_second above 0, and finite");
    RESIDENCY_ASSERT(config_.link.call_latency.count() >= 0 && config_.link.node_latency.count() >= 0,
                     "give link.call_latency and link.node_latency of 0 or more");
    RESIDENCY_ASSERT(config_.call_cost.count() >= 0 && config_.copy_cost.count() >= 0 &&
                         config_.copy_piece_cost.count() >= 0 && config_.launch_cost.count() >= 0,
                     "give call_cost, copy_cost, copy_piece_cost and launch_cost of 0 or more");
    RESIDENCY_ASSERT(residency::detail::is_finite(config_.jitter) && config_.jitter >= 1,
                     "give jitter of 1 or more, and finite: the factor by which durations may be longer or shorter");
    const Lock lock{state_->mutex};
    if (state_->gpus.empty()) { make_host(); }
    config_.checker = state_->checker.on;
    config_.real_bytes = state_->simulator.real_bytes;
    config_.max_reports = state_->checker.max_reports;
    const auto is_taken = [&](const std::string& name) {
        return std::any_of(state_->gpus.begin(), state_->gpus.end(),
                           [&](const auto& gpu) { return gpu != nullptr && gpu->device.config_.name == name; });
    };
    const auto number = static_cast<std::uint16_t>(state_->gpus.size());
    if (is_taken(config_.name)) { config_.name += " " + std::to_string(number + 1); }
    state_->gpus.push_back(std::make_unique<Gpu>(*this, number));
    gpu_ = state_->gpus.back().get();
    simulation::EventSimulator::Gpu& gpu = state_->simulator.add_gpu();
    gpu.label = state_->names.number(config_.name);
    gpu.concurrent_kernels = config_.concurrent_kernels;
    gpu.jitter = config_.jitter;
    gpu.random = config_.seed;
    state_->checker.gpus.push_back(gpu.label);
    gpu_->default_stream = add_stream("default stream", number);
}

RESIDENCY_INLINE void SimulatedDevice::make_host() {
    for (std::size_t kind = 0; kind <= static_cast<std::size_t>(OperationKind::mapping); ++kind) {
        state_->kind_labels[kind] = state_->names.number(simulation::name(static_cast<OperationKind>(kind)));
    }
    state_->simulator.real_bytes = config_.real_bytes;
    state_->checker.on = config_.checker;
    state_->checker.max_reports = config_.max_reports;
    state_->simulator.stream(state_->simulator.add_stream()).label = state_->names.number("host");
}

// ---- Several GPUs

RESIDENCY_INLINE SimulatedDevice::~SimulatedDevice() {
    const Lock lock{state_->mutex};
    const auto alive =
        std::count_if(state_->gpus.begin(), state_->gpus.end(), [](const auto& gpu) { return gpu != nullptr; });
    if (alive > 1) { leave_host(); }
}

RESIDENCY_INLINE void SimulatedDevice::drop_work() {
    for (std::size_t i = state_->captures.size(); i-- > 0;) {
        CaptureState& capture = *state_->captures[i];
        const auto is_own = [&](std::uint32_t number) { return state_->simulator.stream(number).gpu == gpu_->number; };
        if (!is_own(capture.streams[0])) {
            if (std::any_of(capture.streams.begin(), capture.streams.end(), is_own)) {
                invalidate(capture, "a device that takes part is lost, or was destroyed");
            }
            continue;
        }
        for (const std::uint32_t member : capture.streams) { state_->simulator.stream(member).capture = 0; }
        state_->gate.leave(capture.owner);
        state_->captures.erase(state_->captures.begin() + static_cast<std::ptrdiff_t>(i));
    }
    state_->simulator.drop(gpu_->number);
    state_->changed.notify_all();
}

RESIDENCY_INLINE void SimulatedDevice::leave_host() {
    drop_work();
    state_->simulator.gpu(gpu_->number).observer = nullptr;
    gpu_->graphs.for_each_handle([&](Graph, simulation::GraphState& graph) {
        state_->simulator.release(graph.last);
        for (std::size_t lane = 1; lane < graph.streams.size(); ++lane) { retire_stream(graph.streams[lane]); }
    });
    gpu_->events.for_each_handle([&](Event, Gpu::EventState& event) { state_->simulator.release(event.marker); });
    // What was dropped is over, as the host knows.
    for (std::uint32_t number = first_stream; number < state_->simulator.stream_count(); ++number) {
        const StreamState& stream = state_->simulator.stream(number);
        if (stream.gpu != gpu_->number) { continue; }
        if (stream.sequence != 0) { state_->host_clock.set(number, stream.sequence); }
        if (stream.alive && !stream.internal) { retire_stream(number); }
    }
    const Access access = host_acts(OperationKind::host_memory, "end of " + config_.name);
    for (const Gpu::Allocation& allocation : gpu_->allocations) {
        state_->checker.check_unused(allocation.at, allocation.bytes, access, state_->host_clock);
        drop_memory(allocation.at, allocation.bytes, allocation.region);
    }
    for (const Gpu::Allocation& range : gpu_->pinned) {
        state_->checker.check_unused(range.at, range.bytes, access, state_->host_clock);
        drop_pinned(range.at, range.bytes, range.region, range.pinned_only);
    }
    leave_pools();
    leave_mappings();
    state_->gpus[gpu_->number].reset();
}

RESIDENCY_INLINE SimulatedDevice::Gpu* SimulatedDevice::gpu_of(const void* owner) const noexcept {
    for (const auto& gpu : state_->gpus) {
        if (gpu != nullptr && &gpu->device == owner) { return gpu.get(); }
    }
    return nullptr;
}

RESIDENCY_INLINE bool SimulatedDevice::reads(const Gpu& reader, const Gpu& read) noexcept {
    return std::find(reader.peers.begin(), reader.peers.end(), read.number) != reader.peers.end();
}

RESIDENCY_INLINE std::string SimulatedDevice::on_this() const {
    return state_->gpus.size() > 1 ? " on '" + config_.name + "'" : std::string{};
}

RESIDENCY_INLINE Status SimulatedDevice::enable_peer(SimulatedDevice& other) {
    const CaptureGate::Call call{state_->gate};
    const Lock lock = guard();
    if (Status entered = enter(CallKind::enable_peer); !entered) { return entered; }
    if (&other == this) { return {}; }
    if (call.is_refused()) {
        return failure(ErrorKind::wrong_state, CallKind::enable_peer,
                       "refused in a thread that captures: call it before begin_capture()");
    }
    const std::string pair = "'" + config_.name + "' and '" + other.config_.name + "'";
    if (other.state_ != state_) {
        return failure(ErrorKind::unsupported, CallKind::enable_peer, pair + " are not of one host");
    }
    if (!config_.peer_access || !other.config_.peer_access) {
        return failure(ErrorKind::unsupported, CallKind::enable_peer, pair + " have no access to each other's memory");
    }
    if (other.gpu_->lost) {
        return failure(ErrorKind::device, CallKind::enable_peer, "'" + other.config_.name + "' is lost");
    }
    if (!reads(*gpu_, *other.gpu_)) { gpu_->peers.push_back(other.gpu_->number); }
    return {};
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
    if (gpu_->lost) { return failure(ErrorKind::device, kind, "the device is lost"); }
    for (std::size_t i = 0; i < gpu_->failures.size(); ++i) {
        Gpu::Failure& planned = gpu_->failures[i];
        if (planned.kind != kind && planned.kind != CallKind::any) { continue; }
        if (--planned.remaining == 0) {
            const ErrorKind error = planned.error;
            gpu_->failures.erase(gpu_->failures.begin() + static_cast<std::ptrdiff_t>(i));
            return failure(error, kind, "made to fail");
        }
    }
    state_->host_now += (config_.call_cost + more).count();
    state_->simulator.advance_to(state_->host_now);
    return {};
}

RESIDENCY_INLINE Error SimulatedDevice::failure(ErrorKind kind, CallKind call, const std::string& text,
                                                std::uint64_t bytes) const {
    const std::string name{simulation::name(call)};
    return {kind, "simulated device: " + name + on_this() + ": " + text,
            DeviceFailure{static_cast<int>(kind) + 1, name, bytes}};
}

RESIDENCY_INLINE Error SimulatedDevice::misuse(ErrorKind kind, CallKind call, const std::string& text, const void* at,
                                               std::uint64_t bytes) {
    const Access access{++state_->sequence, host, state_->simulator.stream(host).label,
                        state_->names.number(simulation::name(call)), OperationKind::host_memory};
    state_->checker.misuse(access, std::string{simulation::name(call)} + on_this() + ": " + text, at, bytes);
    return failure(kind, call, text, bytes);
}

RESIDENCY_INLINE Error SimulatedDevice::out_of_memory(CallKind call, std::uint64_t bytes) const {
    return failure(ErrorKind::out_of_memory, call,
                   residency::detail::in_bytes(bytes) + " asked for, " +
                       residency::detail::in_bytes(config_.memory_bytes - gpu_->used_bytes) + " of " +
                       residency::detail::in_bytes(config_.memory_bytes) + " free",
                   bytes);
}

RESIDENCY_INLINE Error SimulatedDevice::unusable(CallKind call, std::uint32_t number, OperationKind kind,
                                                 std::uint32_t label, const void* at, std::uint64_t bytes) {
    const StreamState& stream = state_->simulator.stream(number);
    const Access access{++state_->sequence, number, stream.label, label, kind, stream.gpu};
    const char* why = "not all of it lies in one living allocation, in pageable memory or in mapped addresses";
    switch (where(at, bytes, stream.gpu)) {
        case Where::pageable:
            why = "this is neither device memory nor pinned host memory: allocate it by the device";
            break;
        case Where::peer: why = "this is memory of another device, which only copies read, by copy()"; break;
        default: break;
    }
    state_->checker.dead(access, at, bytes, why);
    return failure(ErrorKind::invalid_argument, call, why, bytes);
}

// ---- Streams and order

RESIDENCY_INLINE std::uint32_t SimulatedDevice::find(Stream stream) noexcept {
    if (stream == Stream{}) { return gpu_->default_stream; }
    if (stream.device != this) { return 0; }
    if (stream.number >= state_->simulator.stream_count() - first_stream) { return 0; }
    const std::uint32_t number = stream.number + first_stream;
    const StreamState& state = state_->simulator.stream(number);
    return state.alive && state.generation == stream.generation ? number : 0;
}

RESIDENCY_INLINE std::uint32_t SimulatedDevice::add_stream(std::string_view name, std::uint16_t gpu) {
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
    state.gpu = gpu;
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
    const StreamState& stream = state_->simulator.stream(operation.stream);
    return {operation.sequence, operation.stream, stream.label, operation.label, operation.kind, stream.gpu};
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
        if (gpu_->lost) { return failure(ErrorKind::device, call, "the device is lost"); }
        if (state_->simulator.step()) {
            state_->host_now = (std::max)(state_->host_now, state_->simulator.now());
        } else {
            state_->changed.wait(lock);  // the work waits for a flag
        }
    }
    if (gpu_->lost && state_->gpus.size() > 1) { return failure(ErrorKind::device, call, "the device is lost"); }
    if (learns) { host_learns(*marker); }
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::drain(Lock& lock, CallKind call) {
    std::vector<Marker*> pending;
    for (std::uint32_t number = first_stream; number < state_->simulator.stream_count(); ++number) {
        if (state_->simulator.stream(number).gpu != gpu_->number) { continue; }
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
    ++gpu_->streams_made;
    const std::uint32_t number =
        add_stream(name.empty() ? "stream " + std::to_string(gpu_->streams_made) : std::string{name}, gpu_->number);
    return Stream{number - first_stream, state_->simulator.stream(number).generation, this};
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_stream(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_stream); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::destroy_stream, stream); }
    if (number == gpu_->default_stream) {
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
    const Event event = gpu_->events.add();
    gpu_->events.find(event)->timing = timing == Timing::on;
    return event;
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_event(Event event) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_event); !entered) { return entered; }
    Gpu::EventState* state = gpu_->events.find(event);
    if (state == nullptr) { return dead_handle(CallKind::destroy_event, event); }
    state_->simulator.release(state->marker);
    gpu_->events.remove(event);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::record(Event event, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::record); !entered) { return entered; }
    Gpu::EventState* state = gpu_->events.find(event);
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
    Gpu* const maker = gpu_of(event.owner);
    if (maker != nullptr && maker != gpu_ && !reads(*gpu_, *maker) && !reads(*maker, *gpu_)) {
        return misuse(ErrorKind::invalid_argument, CallKind::wait,
                      "the event was made by '" + maker->device.config_.name +
                          "': let one of the two devices enable_peer() the other first");
    }
    const Gpu::EventState* state = maker != nullptr ? maker->events.find(event) : nullptr;
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
            if (number == gpu_->default_stream) {
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
    Gpu::EventState* state = gpu_->events.find(event);
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
    Gpu::EventState* state = gpu_->events.find(event);
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
    const Gpu::EventState* begin = gpu_->events.find(from);
    const Gpu::EventState* end = gpu_->events.find(to);
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
    return gpu_->flags.add();
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_flag(Flag flag) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_flag); !entered) { return entered; }
    const simulation::FlagState* state = gpu_->flags.find(flag);
    if (state == nullptr) { return dead_handle(CallKind::destroy_flag, flag); }
    if (state->pending != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::destroy_flag, "a stream has yet to wait for this flag");
    }
    gpu_->flags.remove(flag);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::wait_flag(Stream stream, Flag flag, std::uint32_t value) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::wait_flag); !entered) { return entered; }
    simulation::FlagState* state = gpu_->flags.find(flag);
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
    simulation::FlagState* state = gpu_->flags.find(flag);
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
    state_->simulator.gpu(gpu_->number).observer = std::move(observer);
}

RESIDENCY_INLINE void SimulatedDevice::fail(CallKind kind, std::uint64_t nth, ErrorKind error) {
    RESIDENCY_ASSERT(nth > 0, "the next call is number 1");
    const Lock lock = guard();
    gpu_->failures.push_back({kind, nth, error});
}

RESIDENCY_INLINE void SimulatedDevice::clear_failures() {
    const Lock lock = guard();
    gpu_->failures.clear();
}

RESIDENCY_INLINE void SimulatedDevice::lose_device() {
    const Lock lock = guard();
    gpu_->lost = true;
    if (state_->gpus.size() > 1) {
        drop_work();
        for (std::uint32_t number = first_stream; number < state_->simulator.stream_count(); ++number) {
            const StreamState& stream = state_->simulator.stream(number);
            if (stream.gpu == gpu_->number) { state_->host_clock.join(stream.clock); }
        }
        ++state_->host_version;
    }
    state_->changed.notify_all();
}

RESIDENCY_INLINE SimulatedDevice::Statistics SimulatedDevice::statistics() const {
    const Lock lock = guard();
    Statistics result = statistics_;
    result.operations = state_->simulator.gpu(gpu_->number).executed;
    return result;
}

RESIDENCY_INLINE std::uint64_t SimulatedDevice::peak_used_bytes() const {
    const Lock lock = guard();
    return gpu_->peak_bytes;
}

RESIDENCY_INLINE std::uint64_t SimulatedDevice::peak_held_bytes(Pool pool) const {
    const Lock lock = guard();
    const MemoryPool* state = gpu_->pools.find(pool);
    return state == nullptr ? 0 : state->peak_bytes;
}

RESIDENCY_INLINE std::vector<SimulatedDevice::Leak> SimulatedDevice::leaks() const {
    const Lock lock = guard();
    std::vector<Leak> result;
    for (std::uint32_t number = first_stream; number < state_->simulator.stream_count(); ++number) {
        const StreamState& stream = state_->simulator.stream(number);
        const bool is_own = stream.gpu == gpu_->number && number != gpu_->default_stream;
        if (is_own && stream.alive && !stream.internal) {
            result.push_back({"stream '" + state_->names.name(stream.label) + "'", 0});
        }
    }
    gpu_->events.for_each([&](const Gpu::EventState&) { result.push_back({"event", 0}); });
    for (const Gpu::Allocation& allocation : gpu_->allocations) { result.push_back({"allocation", allocation.bytes}); }
    gpu_->pools.for_each([&](const MemoryPool& pool) {
        if (!pool.destroyed) { result.push_back({"pool", pool.held_bytes}); }
        for (const MemoryPool::Segment& segment : pool.segments) {
            for (const MemoryPool::Block& block : segment.blocks) {
                if (block.used) { result.push_back({"allocation of a pool", block.bytes}); }
            }
        }
    });
    for (const Gpu::Allocation& allocation : gpu_->pinned) {
        result.push_back({allocation.pinned_only ? "pinned range" : "host allocation", allocation.bytes});
    }
    gpu_->chunks.for_each([&](const ChunkState& chunk) { result.push_back({"chunk", chunk.bytes}); });
    for (const Gpu::Allocation& range : gpu_->reservations) { result.push_back({"reserved range", range.bytes}); }
    gpu_->graphs.for_each([&](const simulation::GraphState&) { result.push_back({"graph", 0}); });
    gpu_->flags.for_each([&](const simulation::FlagState&) { result.push_back({"flag", 0}); });
    for (const auto& capture : state_->captures) {
        const StreamState& stream = state_->simulator.stream(capture->streams[0]);
        if (stream.gpu == gpu_->number) {
            result.push_back({"capture of stream '" + state_->names.name(stream.label) + "'", 0});
        }
    }
    return result;
}

}}  // namespace residency::RESIDENCY_ABI

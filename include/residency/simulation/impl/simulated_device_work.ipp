// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// SimulatedDevice: copies, kernels, and captures of them.

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "residency/simulation/device_state.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

// ---- Work

RESIDENCY_INLINE SimulatedDevice::Where SimulatedDevice::where(const void* at, std::uint64_t bytes) {
    return where(at, bytes, gpu_->number);
}

RESIDENCY_INLINE SimulatedDevice::Where SimulatedDevice::where(const void* at, std::uint64_t bytes, std::uint16_t gpu) {
    if (const simulation::AddressMap::Entry* entry = state_->map.find(at); entry != nullptr) {
        const bool inside = bytes <= entry->end - reinterpret_cast<std::uintptr_t>(at);
        if (!inside && !state_->map.is_one_range(at, bytes)) { return Where::dead; }
        if (!entry->on_device) { return Where::pinned; }
        return entry->gpu == gpu ? Where::device : Where::peer;
    }
    const bool is_foreign =
        !state_->device_space.owns(at) && !state_->host_space.owns(at) && !state_->map.touches(at, bytes);
    return is_foreign ? Where::pageable : Where::dead;
}

RESIDENCY_INLINE std::int64_t SimulatedDevice::copy_duration(OperationKind kind, bool pageable, std::uint64_t bytes,
                                                             bool node) const {
    const LinkModel& link = config_.link;
    double rate = link.on_device_bytes_per_second;
    if (kind == OperationKind::copy_to_device) { rate = link.to_device_bytes_per_second; }
    if (kind == OperationKind::copy_to_host) { rate = link.to_host_bytes_per_second; }
    if (kind == OperationKind::copy_from_peer) { rate = config_.peer_bytes_per_second; }
    if (pageable || kind == OperationKind::copy_on_host) { rate = link.pageable_bytes_per_second; }
    return (node ? link.node_latency : link.call_latency).count() +
           std::llround(static_cast<double>(bytes) / rate * 1e9);
}

RESIDENCY_INLINE Status SimulatedDevice::check_owner(const void* at, CallKind call) {
    const simulation::AddressMap::Entry* entry = state_->map.find(at);
    if (entry == nullptr) { return {}; }
    const Gpu& gpu = *state_->gpus[entry->gpu];
    if (!gpu.lost) { return {}; }
    return failure(ErrorKind::device, call, "this is memory of '" + gpu.device.config_.name + "', which is lost");
}

RESIDENCY_INLINE Status SimulatedDevice::check_peer(const Copy& copy, Where to) {
    const simulation::AddressMap::Entry* entry = state_->map.find(to == Where::peer ? copy.to : copy.from);
    const Gpu& peer = *state_->gpus[entry->gpu];
    const std::string name = "'" + peer.device.config_.name + "'";
    const auto refuse = [&](const std::string& text) {
        return misuse(ErrorKind::unsupported, CallKind::copy, text, to == Where::peer ? copy.to : copy.from,
                      copy.bytes);
    };
    if (to == Where::peer) {
        return refuse("this writes memory of " + name + ": let that device copy, on a stream of its own");
    }
    if (!reads(*gpu_, peer)) { return refuse("this reads memory of " + name + ": enable_peer() first"); }
    if (to != Where::device) {
        return refuse("memory of a peer is copied to the device's own memory only; this is memory of " + name);
    }
    if (!entry->for_peers) {
        return refuse("only what allocate() returned is read by peers; this is memory of a pool, or mapped, of " +
                      name);
    }
    return check_owner(copy.from, CallKind::copy);
}

RESIDENCY_INLINE void SimulatedDevice::enqueue_copies(std::uint32_t number, OperationKind kind, std::int64_t duration,
                                                      std::span<const Copy> copies) {
    Operation* operation = begin(number, kind, label_of(kind));
    operation->copies.assign(copies.begin(), copies.end());
    operation->duration = duration;
    for (const Copy& copy : copies) { operation->bytes += copy.bytes; }
    if (state_->checker.on) {
        const Access access = access_of(*operation);
        const simulation::VectorClock& clock = state_->simulator.stream(number).clock;
        const auto never = [](const Access&) noexcept { return false; };
        for (const Copy& copy : copies) { state_->checker.read(copy.from, copy.bytes, access, clock, true, never); }
        for (const Copy& copy : copies) {
            state_->checker.write(copy.to, copy.bytes, access, clock, true, Content::written, never);
        }
    }
    Statistics& statistics = state_->gpus[state_->simulator.stream(number).gpu]->device.statistics_;
    statistics.copies += copies.size();
    if (kind == OperationKind::copy_to_device) { statistics.bytes_to_device += operation->bytes; }
    if (kind == OperationKind::copy_to_host) { statistics.bytes_to_host += operation->bytes; }
    if (kind == OperationKind::copy_from_peer) { statistics.bytes_from_peers += operation->bytes; }
    state_->simulator.append(operation);
}

RESIDENCY_INLINE void SimulatedDevice::enqueue_fill(std::uint32_t number, std::byte* at, std::byte value,
                                                    std::uint64_t bytes, std::int64_t duration) {
    Operation* operation = begin(number, OperationKind::fill, label_of(OperationKind::fill));
    operation->fill_at = at;
    operation->fill_value = value;
    operation->bytes = bytes;
    operation->duration = duration;
    state_->checker.write(at, bytes, access_of(*operation), state_->simulator.stream(number).clock, false,
                          Content::written, [](const Access&) noexcept { return false; });
    state_->simulator.append(operation);
}

RESIDENCY_INLINE void SimulatedDevice::enqueue_kernel(Operation* operation) {
    const Access access = access_of(*operation);
    const simulation::VectorClock& clock = state_->simulator.stream(operation->stream).clock;
    const auto never = [](const Access&) noexcept { return false; };
    for (const simulation::ByteRange& range : operation->reads.view()) {
        operation->bytes += range.bytes;
        state_->checker.read(range.at, range.bytes, access, clock, false, never);
    }
    for (const simulation::ByteRange& range : operation->writes.view()) {
        operation->bytes += range.bytes;
        state_->checker.write(range.at, range.bytes, access, clock, false, Content::written, never);
    }
    state_->simulator.append(operation);
}

RESIDENCY_INLINE SimulatedDevice::OperationKind SimulatedDevice::copy_kind(Where to, Where from) noexcept {
    if (from == Where::peer) { return OperationKind::copy_from_peer; }
    if (to == Where::device) {
        return from == Where::device ? OperationKind::copy_on_device : OperationKind::copy_to_device;
    }
    return from == Where::device ? OperationKind::copy_to_host : OperationKind::copy_on_host;
}

RESIDENCY_INLINE Status SimulatedDevice::copy(std::span<const Copy> copies, Stream stream) {
    Lock lock = guard();
    Status entered =
        enter(CallKind::copy, config_.copy_cost + config_.copy_piece_cost * static_cast<std::int64_t>(copies.size()));
    if (!entered) {
        // As on CUDA, a call that fails may have enqueued some of its pieces.
        copies = copies.first(gpu_->lost ? 0 : copies.size() / 2);
        if (copies.empty()) { return entered; }
    }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::copy, stream); }
    CaptureState* capture = capture_of(number);
    if (capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::copy); !valid) { return valid; }
    }
    for (State::CopyGroup& group : state_->groups) {
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
        const OperationKind kind = copy_kind(to, from);
        if (to == Where::dead) { return unusable(CallKind::copy, number, kind, label_of(kind), copy.to, copy.bytes); }
        if (from == Where::dead) {
            return unusable(CallKind::copy, number, kind, label_of(kind), copy.from, copy.bytes);
        }
        if (to == Where::peer || from == Where::peer) {
            if (Status checked = check_peer(copy, to); !checked) { return checked; }
        }
        const bool pageable = to == Where::pageable || from == Where::pageable;
        const std::size_t index =
            (static_cast<std::size_t>(kind) - static_cast<std::size_t>(OperationKind::copy_to_device)) * 2;
        State::CopyGroup& group = state_->groups[index + (pageable ? 1 : 0)];
        group.kind = kind;
        group.pageable = pageable;
        group.bytes += copy.bytes;
        group.copies.push_back(copy);
    }
    bool blocks = false, learns = false;
    for (const State::CopyGroup& group : state_->groups) {
        if (group.copies.empty()) { continue; }
        if (capture != nullptr) {
            for (const Copy& copy : group.copies) {
                CapturedCall& captured = add_work(*capture, number, group.kind, label_of(group.kind));
                captured.copy = copy;
                captured.duration = copy_duration(group.kind, group.pageable, copy.bytes, true);
            }
            continue;
        }
        enqueue_copies(number, group.kind, copy_duration(group.kind, group.pageable, group.bytes, false), group.copies);
        blocks = blocks || group.pageable;
        learns = learns || (group.pageable && group.kind != OperationKind::copy_to_device);
    }
    if (!blocks) { return entered; }
    Marker* marker = mark(number);
    // Of pageable memory that goes to the device, CUDA waits only until it has been read, not until it has arrived.
    Status status = block_until(lock, marker, CallKind::copy, learns);
    state_->simulator.release(marker);
    return entered ? std::move(status) : std::move(entered);
}

RESIDENCY_INLINE Status SimulatedDevice::fill(void* at, std::byte value, std::uint64_t bytes, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::fill, config_.copy_cost); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::fill, stream); }
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
        CapturedCall& captured = add_work(*capture, number, OperationKind::fill, label);
        captured.fill_at = static_cast<std::byte*>(at);
        captured.fill_value = value;
        captured.bytes = bytes;
        captured.duration = duration;
        return {};
    }
    enqueue_fill(number, static_cast<std::byte*>(at), value, bytes, duration);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::launch(Stream stream, Kernel kernel) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::launch_kernel, config_.launch_cost); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::launch_kernel, stream); }
    CaptureState* capture = capture_of(number);
    if (capture != nullptr) {
        if (Status valid = check_valid(*capture, CallKind::launch_kernel); !valid) { return valid; }
    }
    const std::uint32_t label = state_->names.number(kernel.name);
    const std::uint32_t group = kernel.group.empty() ? 0 : state_->names.number(kernel.group);
    for (const auto* ranges : {&kernel.reads, &kernel.writes}) {
        for (const simulation::ByteRange& range : ranges->view()) {
            if (range.bytes == 0) { continue; }
            if (const Where place = where(range.at, range.bytes); place != Where::device && place != Where::pinned) {
                return unusable(CallKind::launch_kernel, number, OperationKind::kernel, label, range.at, range.bytes);
            }
        }
    }
    if (capture != nullptr) {
        CapturedCall& captured = add_work(*capture, number, OperationKind::kernel, label);
        captured.group = group;
        captured.duration = kernel.duration.count();
        captured.reads = std::move(kernel.reads);
        captured.writes = std::move(kernel.writes);
        if (kernel.body) { captured.body = std::make_shared<simulation::KernelFunction>(std::move(kernel.body)); }
        return {};
    }
    Operation* operation = begin(number, OperationKind::kernel, label);
    operation->group = group;
    operation->duration = kernel.duration.count();
    operation->reads = std::move(kernel.reads);
    operation->writes = std::move(kernel.writes);
    operation->body = std::move(kernel.body);
    enqueue_kernel(operation);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::host_access(const void* at, std::uint64_t bytes, bool write) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::host_access); !entered) { return entered; }
    if (bytes == 0) { return {}; }
    const Access access = host_acts(write ? OperationKind::host_write : OperationKind::host_read,
                                    simulation::name(write ? OperationKind::host_write : OperationKind::host_read));
    if (where(at, bytes) != Where::pinned) {
        state_->checker.dead(access, at, bytes, "this is not pinned host memory");
        return failure(ErrorKind::invalid_argument, CallKind::host_access, "this is not pinned host memory", bytes);
    }
    // Work that waits for a flag runs after this access: the host will raise the flag later.
    const auto later = [&](const Access& earlier) {
        return earlier.actor != host && state_->simulator.held_by_flag(earlier.actor, earlier.sequence);
    };
    if (write) {
        state_->checker.write(at, bytes, access, state_->host_clock, false, Content::written, later);
    } else {
        state_->checker.read(at, bytes, access, state_->host_clock, false, later);
    }
    return {};
}

// ---- Captures

RESIDENCY_INLINE SimulatedDevice::CaptureState* SimulatedDevice::find_capture(std::uint32_t capture) {
    for (const auto& state : state_->captures) {
        if (state->number == capture) { return state.get(); }
    }
    return nullptr;
}

RESIDENCY_INLINE SimulatedDevice::CaptureState* SimulatedDevice::capture_of(std::uint32_t number) {
    const std::uint32_t capture = state_->simulator.stream(number).capture;
    return capture == 0 ? nullptr : find_capture(capture);
}

RESIDENCY_INLINE void SimulatedDevice::invalidate(CaptureState& capture, std::string why) {
    if (capture.invalid.empty()) { capture.invalid = std::move(why); }
}

RESIDENCY_INLINE Status SimulatedDevice::check_valid(const CaptureState& capture, CallKind call) const {
    if (capture.invalid.empty()) { return {}; }
    return failure(ErrorKind::wrong_state, call, "the capture is invalid: " + capture.invalid);
}

RESIDENCY_INLINE void SimulatedDevice::join_capture(CaptureState& capture, std::uint32_t number) {
    StreamState& stream = state_->simulator.stream(number);
    stream.capture = capture.number;
    stream.lane = static_cast<std::uint32_t>(capture.streams.size());
    capture.streams.push_back(number);
    capture.clocks.emplace_back();
    capture.positions.push_back(0);
}

RESIDENCY_INLINE SimulatedDevice::CapturedCall& SimulatedDevice::add_work(CaptureState& capture, std::uint32_t number,
                                                                          OperationKind kind, std::uint32_t label) {
    const std::uint32_t lane = state_->simulator.stream(number).lane;
    capture.clocks[lane].set(lane, ++capture.positions[lane]);
    CapturedCall& captured = capture.calls.emplace_back();
    captured.kind = kind;
    captured.lane = lane;
    captured.label = label;
    return captured;
}

RESIDENCY_INLINE Result<bool> SimulatedDevice::is_capturing(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::is_capturing); !entered) { return entered.error(); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::is_capturing, stream); }
    return state_->simulator.stream(number).capture != 0;
}

RESIDENCY_INLINE Status SimulatedDevice::begin_capture(Stream stream) {
    state_->gate.enter();
    Status begun = begin_capture_alone(stream);
    if (!begun) { state_->gate.leave(); }
    return begun;
}

RESIDENCY_INLINE Status SimulatedDevice::begin_capture_alone(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::begin_capture); !entered) { return entered; }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::begin_capture, stream); }
    if (number == gpu_->default_stream) {
        return misuse(ErrorKind::invalid_argument, CallKind::begin_capture,
                      "the default stream cannot be captured: make one by create_stream()");
    }
    if (state_->simulator.stream(number).capture != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::begin_capture,
                      "the stream is capturing already: end that capture first");
    }
    state_->captures.push_back(std::make_unique<CaptureState>());
    state_->captures.back()->number = ++state_->captures_made;
    state_->captures.back()->owner = std::this_thread::get_id();
    join_capture(*state_->captures.back(), number);
    return {};
}

RESIDENCY_INLINE Result<SimulatedDevice::Graph> SimulatedDevice::end_capture(Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::end_capture); !entered) { return entered.error(); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::end_capture, stream); }
    CaptureState* capture = capture_of(number);
    if (capture == nullptr) {
        return misuse(ErrorKind::wrong_state, CallKind::end_capture, "the stream is not capturing");
    }
    if (state_->simulator.stream(number).lane != 0) {
        invalidate(*capture, "it was ended on a stream that did not begin it");
        return misuse(ErrorKind::wrong_state, CallKind::end_capture,
                      "the capture ends on the stream that began it; it is now invalid");
    }
    for (const std::uint32_t member : capture->streams) {
        StreamState& stream_state = state_->simulator.stream(member);
        if (stream_state.capture == capture->number) { stream_state.capture = 0; }
    }
    const auto found = std::find_if(state_->captures.begin(), state_->captures.end(),
                                    [&](const auto& state) { return state.get() == capture; });
    const std::unique_ptr<CaptureState> ended = std::move(*found);
    state_->captures.erase(found);
    state_->gate.leave(ended->owner);
    if (!ended->invalid.empty()) {
        return failure(ErrorKind::wrong_state, CallKind::end_capture, "the capture is invalid: " + ended->invalid);
    }
    for (std::uint32_t lane = 1; lane < ended->streams.size(); ++lane) {
        if (!ended->clocks[0].covers(lane, ended->positions[lane])) {
            return misuse(ErrorKind::wrong_state, CallKind::end_capture,
                          "stream '" + state_->names.name(state_->simulator.stream(ended->streams[lane]).label) +
                              "' was forked into the capture and not joined: let '" +
                              state_->names.name(state_->simulator.stream(number).label) +
                              "' wait for an event recorded there after its last work, or call what joins it, such as "
                              "RoutedExperts::join() after guesses");
        }
    }
    const Graph graph = gpu_->graphs.add();
    simulation::GraphState& state = *gpu_->graphs.find(graph);
    state.calls = std::move(ended->calls);
    state.marks.resize(ended->marks.size());
    state.generation = state_->map.generation();
    state.streams.push_back(number);
    for (std::uint32_t lane = 1; lane < ended->streams.size(); ++lane) {
        const StreamState& member = state_->simulator.stream(ended->streams[lane]);
        state.streams.push_back(add_stream(state_->names.name(member.label), member.gpu));
        state_->simulator.stream(state.streams.back()).internal = true;
    }
    return graph;
}

RESIDENCY_INLINE Status SimulatedDevice::check_ranges(const simulation::GraphState& graph, std::uint32_t number) {
    for (const CapturedCall& captured : graph.calls) {
        const std::uint32_t stream = captured.lane == 0 ? number : graph.streams[captured.lane];
        const auto check = [&](const void* at, std::uint64_t bytes, bool pageable_too) -> Status {
            if (bytes == 0) { return {}; }
            const Where place = where(at, bytes, state_->simulator.stream(stream).gpu);
            if (place == Where::device || place == Where::pinned || (pageable_too && place == Where::pageable) ||
                (place == Where::peer && captured.kind == OperationKind::copy_from_peer)) {
                return {};
            }
            return unusable(CallKind::launch_graph, number, captured.kind, captured.label, at, bytes);
        };
        if (Status there = check(captured.copy.to, captured.copy.bytes, true); !there) { return there; }
        if (Status there = check(captured.copy.from, captured.copy.bytes, true); !there) { return there; }
        if (Status there = check(captured.fill_at, captured.bytes, false); !there) { return there; }
        for (const auto* ranges : {&captured.reads, &captured.writes}) {
            for (const simulation::ByteRange& range : ranges->view()) {
                if (Status there = check(range.at, range.bytes, false); !there) { return there; }
            }
        }
    }
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::check_parts(const simulation::GraphState& graph) {
    for (std::size_t lane = 1; lane < graph.streams.size(); ++lane) {
        const Gpu* gpu = state_->gpus[state_->simulator.stream(graph.streams[lane]).gpu].get();
        if (gpu == nullptr) {
            return misuse(ErrorKind::wrong_state, CallKind::launch_graph,
                          "a device that takes part in the graph was destroyed before the graph");
        }
        if (gpu->lost) {
            return failure(ErrorKind::device, CallKind::launch_graph,
                           "'" + gpu->device.config_.name + "', which takes part in the graph, is lost");
        }
    }
    for (const CapturedCall& captured : graph.calls) {
        if (captured.kind == OperationKind::copy_from_peer) {
            if (Status owned = check_owner(captured.copy.from, CallKind::launch_graph); !owned) { return owned; }
        }
        if (captured.event == Event{}) { continue; }
        if (Gpu* maker = gpu_of(captured.event.owner);
            maker == nullptr || maker->events.find(captured.event) == nullptr) {
            return misuse(ErrorKind::wrong_state, CallKind::launch_graph,
                          "an event that the graph records was destroyed before the graph");
        }
    }
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::launch(Graph graph, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::launch_graph, config_.launch_cost); !entered) { return entered; }
    simulation::GraphState* state = gpu_->graphs.find(graph);
    if (state == nullptr) { return dead_handle(CallKind::launch_graph, graph); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::launch_graph, stream); }
    if (state_->simulator.stream(number).capture != 0) {
        return failure(ErrorKind::unsupported, CallKind::launch_graph, "a graph inside of a capture");
    }
    if (state->generation != state_->map.generation()) {
        if (Status there = check_ranges(*state, number); !there) { return there; }
        state->generation = state_->map.generation();
    }
    if (Status there = check_parts(*state); !there) { return there; }
    // A launch follows the previous launch of the same graph, also across streams.
    const auto lanes = static_cast<std::uint32_t>(state->streams.size());
    if (state->last != nullptr) {
        append_wait(number, state->last, true);
        state_->simulator.release(std::exchange(state->last, nullptr));
    }
    if (lanes > 1) {
        Marker* start = mark(number);
        for (std::uint32_t lane = 1; lane < lanes; ++lane) { append_wait(state->streams[lane], start, true); }
        state_->simulator.release(start);
    }
    for (const CapturedCall& captured : state->calls) {
        const std::uint32_t target = captured.lane == 0 ? number : state->streams[captured.lane];
        switch (captured.kind) {
            case OperationKind::record:
                if (captured.event != Event{}) {
                    Gpu::EventState* const event = gpu_of(captured.event.owner)->events.find(captured.event);
                    state_->simulator.release(event->marker);
                    event->marker = mark(target);
                    break;
                }
                state->marks[captured.mark] = mark(target);
                break;
            case OperationKind::wait: append_wait(target, state->marks[captured.mark], true); break;
            case OperationKind::fill:
                enqueue_fill(target, captured.fill_at, captured.fill_value, captured.bytes, captured.duration);
                break;
            case OperationKind::kernel: {
                Operation* operation = begin(target, OperationKind::kernel, captured.label);
                operation->group = captured.group;
                operation->duration = captured.duration;
                operation->reads = captured.reads;
                operation->writes = captured.writes;
                operation->shared_body = captured.body;
                enqueue_kernel(operation);
                break;
            }
            default: enqueue_copies(target, captured.kind, captured.duration, {&captured.copy, 1}); break;
        }
    }
    for (Marker*& point : state->marks) { state_->simulator.release(std::exchange(point, nullptr)); }
    for (std::uint32_t lane = 1; lane < lanes; ++lane) {
        Marker* end = mark(state->streams[lane]);
        append_wait(number, end, true);
        state_->simulator.release(end);
    }
    state->last = mark(number);
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::record_in_graph(Event event, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::record); !entered) { return entered; }
    if (gpu_->events.find(event) == nullptr) { return dead_handle(CallKind::record, event); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::record, stream); }
    CaptureState* const capture = capture_of(number);
    if (capture == nullptr) {
        return misuse(ErrorKind::wrong_state, CallKind::record,
                      "an event is recorded in a graph only while its stream is captured");
    }
    if (Status valid = check_valid(*capture, CallKind::record); !valid) { return valid; }
    CapturedCall captured;
    captured.kind = OperationKind::record;
    captured.lane = state_->simulator.stream(number).lane;
    captured.event = event;
    capture->calls.push_back(std::move(captured));
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_graph(Graph graph) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_graph); !entered) { return entered; }
    simulation::GraphState* state = gpu_->graphs.find(graph);
    if (state == nullptr) { return dead_handle(CallKind::destroy_graph, graph); }
    state_->simulator.release(state->last);
    for (std::size_t lane = 1; lane < state->streams.size(); ++lane) { retire_stream(state->streams[lane]); }
    gpu_->graphs.remove(graph);
    return {};
}

}}  // namespace residency::RESIDENCY_ABI

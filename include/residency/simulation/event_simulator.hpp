// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "residency/simulation/address_space.hpp"
#include "residency/simulation/handle_table.hpp"
#include "residency/simulation/operation.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// A queue of operations that run one after another, and what is known to lie before the next one.
struct StreamState {
    std::uint32_t generation = 0;
    std::uint32_t label = 0;     ///< number of its name
    bool alive = false;          ///< false: nothing is added any more
    bool internal = false;       ///< a lane of a graph: not the user's
    bool busy = false;           ///< the first operation runs, or waits for something
    Operation* first = nullptr;  ///< runs, or is the next to run
    Operation* last = nullptr;
    std::uint64_t sequence = 0;      ///< of the last operation enqueued
    std::uint64_t host_version = 0;  ///< of the host's clock when it was last joined
    VectorClock clock;               ///< what lies before the next operation
    std::uint32_t capture = 0;       ///< number of the capture that it takes part in; 0: none
    std::uint32_t lane = 0;          ///< its number in that capture
    std::uint16_t gpu = 0;           ///< number of the GPU that it belongs to
};

/// Executes operations in virtual time, as discrete events. The clock never goes back, the operations of a stream run one after
/// another. Each direction of a GPU's link runs one copy at a time, in the order in which they could start, and so do its copies from
/// peers. Kernels of different streams run side by side. An operation takes effect on bytes when it ends. Does not judge what it
/// executes (Checker does), and is not thread safe.
class EventSimulator {
    /// A part of the GPU that runs one operation at a time.
    struct Unit {
        bool busy = false;
        Operation* first = nullptr;  ///< waits for the unit for longest; linked by next_ready
        Operation* last = nullptr;
    };
    enum : std::size_t { to_device_unit, to_host_unit, from_peer_unit, compute_unit, units };

public:
    /// One GPU.
    struct Gpu {
        std::uint32_t label = 0;         ///< number of its name
        bool concurrent_kernels = true;  ///< false: one kernel at a time
        double jitter = 1.0;             ///< durations are multiplied by a random factor in [1 / jitter, jitter]
        std::uint64_t random = 0;        ///< the seed of these factors; then the state of the generator
        std::uint64_t executed = 0;      ///< operations that have ended
        std::function<void(const ExecutedOperation&)> observer;  ///< of operations that end
        std::array<Unit, units> parts;                           ///< that run one operation at a time each
    };

    EventSimulator(AddressMap& map, NameTable& names) : map_{map}, names_{names} {}
    EventSimulator(const EventSimulator&) = delete;
    EventSimulator& operator=(const EventSimulator&) = delete;

    bool real_bytes = true;                      ///< false: operations have no effect on bytes, and kernels no bodies
    std::atomic<std::thread::id> body_thread{};  ///< the thread that runs a kernel's body now

    /// Virtual time, ns.
    [[nodiscard]] std::int64_t now() const noexcept { return now_; }

    // GPUs by number.
    [[nodiscard]] Gpu& gpu(std::uint32_t number) noexcept { return gpus_[number]; }
    Gpu& add_gpu() { return gpus_.emplace_back(); }

    // Streams by number. Number 0 is the host, which has no operations.
    [[nodiscard]] StreamState& stream(std::uint32_t number) noexcept { return streams_[number]; }
    [[nodiscard]] const StreamState& stream(std::uint32_t number) const noexcept { return streams_[number]; }
    [[nodiscard]] std::uint32_t stream_count() const noexcept { return static_cast<std::uint32_t>(streams_.size()); }
    std::uint32_t add_stream() {
        streams_.emplace_back();
        return stream_count() - 1;
    }

    /// A blank operation, to be filled in and appended.
    [[nodiscard]] Operation* make() { return operations_.take(); }
    /// A marker with one reference.
    [[nodiscard]] Marker* make_marker() {
        Marker* marker = markers_.take();
        marker->references = 1;
        return marker;
    }
    static void hold(Marker* marker) noexcept { ++marker->references; }
    /// Drops one reference. Null: nothing.
    void release(Marker* marker) {
        if (marker == nullptr || --marker->references != 0) { return; }
        marker->done = false;
        markers_.give(marker);
    }

    /// Enqueues an operation, and starts it if its stream is idle. The clock has been advanced to the time of the call.
    void append(Operation* operation) {
        StreamState& stream = streams_[operation->stream];
        operation->generation = map_.generation();
        (stream.last == nullptr ? stream.first : stream.last->next) = operation;
        stream.last = operation;
        if (!stream.busy) {
            ready_.push_back(operation->stream);
            run_ready();
        }
    }
    /// The flag has risen: starts what waited for it.
    void wake(FlagState& flag) {
        for (const std::uint32_t waiter : flag.waiters) { unblock(waiter); }
        flag.waiters.clear();
        run_ready();
    }

    /// Advances the clock to `time`, and ends all operations that end by then.
    void advance_to(std::int64_t time) {
        while (!completions_.empty() && completions_.front().time <= time) { step(); }
        now_ = (std::max)(now_, time);
    }
    /// Advances the clock to the next end of an operation. False: none is running.
    bool step() {
        if (completions_.empty()) { return false; }
        std::pop_heap(completions_.begin(), completions_.end());
        Operation* operation = completions_.back().operation;
        now_ = (std::max)(now_, completions_.back().time);
        completions_.pop_back();
        finish(operation);
        run_ready();
        return true;
    }
    /// Drops the pending work of a GPU: none of it takes effect, and who waits for it goes on.
    void drop(std::uint32_t gpu) {
        std::erase_if(completions_,
                      [&](const Completion& completion) { return streams_[completion.operation->stream].gpu == gpu; });
        std::make_heap(completions_.begin(), completions_.end());
        gpus_[gpu].parts = {};
        for (std::uint32_t number = 0; number < stream_count(); ++number) {
            StreamState& stream = streams_[number];
            if (stream.gpu != gpu) { continue; }
            while (stream.first != nullptr) {
                Operation& operation = *stream.first;
                operation.next_ready = nullptr;
                if (operation.kind == OperationKind::wait) {
                    std::erase(operation.marker->waiters, number);
                } else if (operation.marker != nullptr) {
                    reach(*operation.marker);
                }
                if (operation.kind == OperationKind::wait_flag) {
                    std::erase(operation.flag->waiters, number);
                    --operation.flag->pending;
                }
                remove_first(stream);
            }
            stream.busy = false;
        }
        run_ready();
    }
    /// Whether operation `sequence` of a stream waits, directly or not, for a flag that has not been raised.
    [[nodiscard]] bool held_by_flag(std::uint32_t stream, std::uint64_t sequence) const {
        for (const Operation* operation = streams_[stream].first;
             operation != nullptr && operation->sequence < sequence; operation = operation->next) {
            if (operation->kind == OperationKind::wait_flag && operation->flag->value < operation->flag_value) {
                return true;
            }
            if (operation->kind == OperationKind::wait && !operation->marker->done &&
                held_by_flag(operation->marker->stream, operation->marker->sequence)) {
                return true;
            }
        }
        return false;
    }

private:
    /// The end of a running operation.
    struct Completion {
        std::int64_t time;    ///< ns
        std::uint64_t order;  ///< of starting; decides between equal times
        Operation* operation;
        bool operator<(const Completion& other) const noexcept {  // the heap's top is the earliest
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    [[nodiscard]] Gpu& gpu_of(const Operation& operation) noexcept { return gpus_[streams_[operation.stream].gpu]; }
    [[nodiscard]] Unit* unit_of(const Operation& operation) noexcept {
        Gpu& gpu = gpu_of(operation);
        switch (operation.kind) {
            case OperationKind::copy_to_device: return &gpu.parts[to_device_unit];
            case OperationKind::copy_to_host: return &gpu.parts[to_host_unit];
            case OperationKind::copy_from_peer: return &gpu.parts[from_peer_unit];
            case OperationKind::kernel: return gpu.concurrent_kernels ? nullptr : &gpu.parts[compute_unit];
            default: return nullptr;
        }
    }

    /// The stream's first operation may be able to start now.
    void unblock(std::uint32_t number) {
        streams_[number].busy = false;
        ready_.push_back(number);
    }
    /// Starts what can start now on the streams that were unblocked.
    void run_ready() {
        for (std::size_t i = 0; i < ready_.size(); ++i) { start_next(ready_[i]); }
        ready_.clear();
    }
    /// Runs the operations of a stream until one takes time or has to wait.
    void start_next(std::uint32_t number) {
        StreamState& stream = streams_[number];
        while (!stream.busy && stream.first != nullptr) {
            Operation* operation = stream.first;
            switch (operation->kind) {
                case OperationKind::wait:
                    if (!operation->marker->done) {
                        if (!std::exchange(operation->has_waited, true)) { operation->start = now_; }
                        operation->marker->waiters.push_back(number);
                        stream.busy = true;
                        return;
                    }
                    break;
                case OperationKind::wait_flag:
                    if (operation->flag->value < operation->flag_value) {
                        operation->flag->waiters.push_back(number);
                        stream.busy = true;
                        return;
                    }
                    --operation->flag->pending;
                    break;
                case OperationKind::record:
                case OperationKind::allocate:
                case OperationKind::deallocate: break;
                default:
                    stream.busy = true;
                    if (Unit* unit = unit_of(*operation); unit != nullptr) {
                        if (unit->busy) {
                            (unit->first == nullptr ? unit->first : unit->last->next_ready) = operation;
                            unit->last = operation;
                            return;
                        }
                        unit->busy = true;
                    }
                    start(operation);
                    return;
            }
            if (!operation->has_waited) { operation->start = now_; }
            apply(*operation);
            remove_first(stream);
        }
    }
    void start(Operation* operation) {
        operation->start = now_;
        completions_.push_back({now_ + jittered(operation->duration, gpu_of(*operation)), order_++, operation});
        std::push_heap(completions_.begin(), completions_.end());
    }
    void finish(Operation* operation) {
        if (Unit* unit = unit_of(*operation); unit != nullptr) {
            if (Operation* next = unit->first; next != nullptr) {
                unit->first = std::exchange(next->next_ready, nullptr);
                start(next);
            } else {
                unit->busy = false;
            }
        }
        apply(*operation);
        const std::uint32_t number = operation->stream;
        remove_first(streams_[number]);
        unblock(number);
    }
    /// Takes the effect of an operation, at its end.
    void apply(Operation& operation) noexcept {
        Gpu& gpu = gpu_of(operation);
        ++gpu.executed;
        if (real_bytes && reachable(operation)) {
            for (const Copy& copy : operation.copies) { std::memmove(copy.to, copy.from, copy.bytes); }
            if (operation.fill_at != nullptr) {
                std::memset(operation.fill_at, std::to_integer<int>(operation.fill_value), operation.bytes);
            }
            if (operation.body || operation.shared_body != nullptr) {
                body_thread.store(std::this_thread::get_id(), std::memory_order_relaxed);
                operation.body ? operation.body() : (*operation.shared_body)();
                body_thread.store(std::thread::id{}, std::memory_order_relaxed);
            }
        }
        if (gpu.observer) {
            ExecutedOperation executed{operation.stream,
                                       names_.name(streams_[operation.stream].label),
                                       names_.name(operation.label),
                                       operation.kind,
                                       operation.sequence,
                                       operation.start,
                                       now_,
                                       operation.bytes,
                                       {},
                                       operation.copies,
                                       0,
                                       0,
                                       names_.name(gpu.label)};
            if (operation.group != 0) { executed.group = names_.name(operation.group); }
            if (operation.kind == OperationKind::wait) {
                executed.awaited_stream = operation.marker->stream;
                executed.awaited_sequence = operation.marker->sequence;
            }
            gpu.observer(executed);
        }
        if (operation.marker != nullptr && operation.kind != OperationKind::wait) { reach(*operation.marker); }
    }
    /// All before the marker has ended: what waits for it may go on.
    void reach(Marker& marker) {
        marker.done = true;
        marker.time = now_;
        for (const std::uint32_t waiter : marker.waiters) { unblock(waiter); }
        marker.waiters.clear();
    }
    /// Whether the operation's memory is still mapped. If not, it has no effect.
    [[nodiscard]] bool reachable(const Operation& operation) {
        if (operation.generation == map_.generation()) { return true; }
        const auto there = [&](const void* at, std::uint64_t bytes) { return bytes == 0 || map_.holds(at, bytes); };
        for (const Copy& copy : operation.copies) {
            const bool on_devices =
                operation.kind == OperationKind::copy_on_device || operation.kind == OperationKind::copy_from_peer;
            const bool to_device = operation.kind == OperationKind::copy_to_device || on_devices;
            const bool from_device = operation.kind == OperationKind::copy_to_host || on_devices;
            if ((to_device && !there(copy.to, copy.bytes)) || (from_device && !there(copy.from, copy.bytes))) {
                return false;
            }
        }
        for (const ByteRange& range : operation.reads.view()) {
            if (!there(range.at, range.bytes)) { return false; }
        }
        for (const ByteRange& range : operation.writes.view()) {
            if (!there(range.at, range.bytes)) { return false; }
        }
        return operation.fill_at == nullptr || there(operation.fill_at, operation.bytes);
    }
    /// Removes the first operation of a stream and keeps it to be used again.
    void remove_first(StreamState& stream) {
        Operation* operation = stream.first;
        stream.first = operation->next;
        if (stream.first == nullptr) { stream.last = nullptr; }
        release(operation->marker);
        operation->marker = nullptr;
        operation->flag = nullptr;
        operation->copies.clear();
        operation->fill_at = nullptr;
        operation->reads.clear();
        operation->writes.clear();
        operation->body.reset();
        operation->shared_body.reset();
        operation->next = nullptr;
        operation->duration = 0;
        operation->bytes = 0;
        operation->group = 0;
        operation->has_waited = false;
        operations_.give(operation);
    }
    /// Multiplies by a factor in [1 / jitter, jitter], uniform in its logarithm (splitmix64).
    static std::int64_t jittered(std::int64_t duration, Gpu& gpu) noexcept {
        if (gpu.jitter <= 1.0) { return duration; }
        gpu.random += 0x9e3779b97f4a7c15U;
        std::uint64_t z = gpu.random;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        z ^= z >> 31U;
        const double exponent = static_cast<double>(z >> 11U) * 0x1p-52 - 1.0;
        return std::llround(static_cast<double>(duration) * std::pow(gpu.jitter, exponent));
    }

    AddressMap& map_;
    NameTable& names_;
    std::deque<StreamState> streams_;
    std::vector<Completion> completions_;  // a heap; the earliest is on top
    std::vector<std::uint32_t> ready_;     // streams that were unblocked
    std::deque<Gpu> gpus_;
    ObjectPool<Operation> operations_;
    ObjectPool<Marker> markers_;
    std::int64_t now_ = 0;     // ns
    std::uint64_t order_ = 0;  // of the next start
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

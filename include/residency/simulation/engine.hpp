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

#include "residency/simulation/address_map.hpp"
#include "residency/simulation/name_table.hpp"
#include "residency/simulation/node_pool.hpp"
#include "residency/simulation/operation.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// A queue of operations, and what is known to lie before the next one.
struct StreamState {
    std::uint32_t generation = 0;
    std::uint32_t label = 0;  ///< its name
    bool alive = false;       ///< otherwise nothing is added any more
    bool internal = false;    ///< a lane of a graph
    bool busy = false;        ///< the first operation runs, or waits for something
    Operation* first = nullptr;
    Operation* last = nullptr;
    std::uint64_t sequence = 0;      ///< of the last operation enqueued
    std::uint64_t host_version = 0;  ///< of the host's clock when it was last joined
    VectorClock clock;
    std::uint32_t capture = 0;  ///< number of the capture it takes part in, 0: none
    std::uint32_t lane = 0;     ///< in that capture
};

/// Discrete events: streams in order, one copy engine a direction in the order of readiness, kernels side by side. Effects
/// on bytes take place when an operation ends. Knows nothing of what is right or wrong, and takes no lock.
class Engine {
public:
    Engine(AddressMap& map, NameTable& names) : map_{map}, names_{names} {}
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    bool concurrent_kernels = true;
    bool real_bytes = true;
    double jitter = 1.0;
    std::function<void(const ExecutedOperation&)> observer;
    std::atomic<std::thread::id> body_thread{};  ///< where a kernel's body runs

    void seed(std::uint64_t value) noexcept { random_ = value; }
    [[nodiscard]] std::int64_t now() const noexcept { return now_; }
    [[nodiscard]] std::uint64_t executed() const noexcept { return executed_; }

    // Streams: number 0 is the host.
    [[nodiscard]] StreamState& stream(std::uint32_t number) noexcept { return streams_[number]; }
    [[nodiscard]] const StreamState& stream(std::uint32_t number) const noexcept { return streams_[number]; }
    [[nodiscard]] std::uint32_t stream_count() const noexcept { return static_cast<std::uint32_t>(streams_.size()); }
    std::uint32_t add_stream() {
        streams_.emplace_back();
        return stream_count() - 1;
    }

    [[nodiscard]] Operation* make() { return operations_.take(); }
    [[nodiscard]] Marker* make_marker() {
        Marker* marker = markers_.take();
        marker->references = 1;
        return marker;
    }
    static void hold(Marker* marker) noexcept { ++marker->references; }
    void release(Marker* marker) {
        if (marker == nullptr || --marker->references != 0) { return; }
        marker->done = false;
        markers_.give(marker);
    }

    /// Enqueues. The clock has been advanced to the time of the call.
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
    /// A flag has risen.
    void wake(FlagState& flag) {
        for (const std::uint32_t waiter : flag.waiters) { unblock(waiter); }
        flag.waiters.clear();
        run_ready();
    }

    /// Lets everything happen that ends by `time`.
    void advance_to(std::int64_t time) {
        while (!timeline_.empty() && timeline_.front().time <= time) { step(); }
        now_ = (std::max)(now_, time);
    }
    /// Advances to the next end of an operation; false where there is none.
    bool step() {
        if (timeline_.empty()) { return false; }
        std::pop_heap(timeline_.begin(), timeline_.end());
        Operation* operation = timeline_.back().operation;
        now_ = (std::max)(now_, timeline_.back().time);
        timeline_.pop_back();
        finish(operation);
        run_ready();
        return true;
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
    struct Event {
        std::int64_t time;
        std::uint64_t order;
        Operation* operation;
        bool operator<(const Event& other) const noexcept {  // the heap's top is the earliest
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    /// What takes one operation at a time.
    struct Unit {
        bool busy = false;
        Operation* first = nullptr;
        Operation* last = nullptr;
    };
    enum : std::size_t { to_device_unit, to_host_unit, compute_unit, units };

    [[nodiscard]] Unit* unit_of(const Operation& operation) noexcept {
        switch (operation.kind) {
            case OperationKind::copy_to_device: return &units_[to_device_unit];
            case OperationKind::copy_to_host: return &units_[to_host_unit];
            case OperationKind::kernel: return concurrent_kernels ? nullptr : &units_[compute_unit];
            default: return nullptr;
        }
    }

    void unblock(std::uint32_t number) {
        streams_[number].busy = false;
        ready_.push_back(number);
    }
    /// Starts what can start now.
    void run_ready() {
        for (std::size_t i = 0; i < ready_.size(); ++i) { pump(ready_[i]); }
        ready_.clear();
    }
    void pump(std::uint32_t number) {
        StreamState& stream = streams_[number];
        while (!stream.busy && stream.first != nullptr) {
            Operation* operation = stream.first;
            switch (operation->kind) {
                case OperationKind::wait:
                    if (!operation->marker->done) {
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
            operation->start = now_;
            apply(*operation);
            pop(stream);
        }
    }
    void start(Operation* operation) {
        operation->start = now_;
        timeline_.push_back({now_ + jittered(operation->duration), order_++, operation});
        std::push_heap(timeline_.begin(), timeline_.end());
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
        pop(streams_[number]);
        unblock(number);
    }
    /// The effect of an operation, at its end.
    void apply(Operation& operation) noexcept {
        ++executed_;
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
        if (observer) {
            observer({operation.stream, names_.name(streams_[operation.stream].label), names_.name(operation.label),
                      operation.kind, operation.sequence, operation.start, now_, operation.bytes});
        }
        if (operation.marker != nullptr && operation.kind != OperationKind::wait) {
            Marker& marker = *operation.marker;
            marker.done = true;
            marker.time = now_;
            for (const std::uint32_t waiter : marker.waiters) { unblock(waiter); }
            marker.waiters.clear();
        }
    }
    /// False where memory was unmapped under an operation: it has no effect then.
    [[nodiscard]] bool reachable(const Operation& operation) {
        if (operation.generation == map_.generation()) { return true; }
        const auto there = [&](const void* at, std::uint64_t bytes) { return bytes == 0 || map_.holds(at, bytes); };
        for (const Copy& copy : operation.copies) {
            const bool to_device =
                operation.kind == OperationKind::copy_to_device || operation.kind == OperationKind::copy_on_device;
            const bool from_device =
                operation.kind == OperationKind::copy_to_host || operation.kind == OperationKind::copy_on_device;
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
    void pop(StreamState& stream) {
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
        operations_.give(operation);
    }
    /// A factor in [1 / jitter, jitter], uniform in its logarithm (splitmix64).
    std::int64_t jittered(std::int64_t duration) noexcept {
        if (jitter <= 1.0) { return duration; }
        random_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = random_;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        z ^= z >> 31U;
        const double exponent = static_cast<double>(z >> 11U) * 0x1p-52 - 1.0;
        return std::llround(static_cast<double>(duration) * std::pow(jitter, exponent));
    }

    AddressMap& map_;
    NameTable& names_;
    std::deque<StreamState> streams_;
    std::vector<Event> timeline_;
    std::vector<std::uint32_t> ready_;
    std::array<Unit, units> units_;
    NodePool<Operation> operations_;
    NodePool<Marker> markers_;
    std::int64_t now_ = 0;
    std::uint64_t order_ = 0;
    std::uint64_t executed_ = 0;
    std::uint64_t random_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The recorded points of one stream, numbered 1, 2, 3, … in stream order, on a ring of reused events. If a point is complete, so are all
/// before it; point 0 is complete from the start.
template <Device D>
class EventSequence {
public:
    using EventPoint = std::uint64_t;

    EventSequence() = default;
    EventSequence(const EventSequence&) = delete;
    EventSequence& operator=(const EventSequence&) = delete;
    ~EventSequence() { close(); }

    /// Creates `capacity` events. record() counts its waits in `host_waits`, which outlives this object. On failure nothing is left
    /// behind.
    [[nodiscard]] Status open(D& device, typename D::Stream stream, std::uint32_t capacity, std::uint64_t& host_waits);
    /// The points are recorded in a stream capture: the device cannot be asked about them, and none completes.
    void record_in_capture() noexcept { in_capture_ = true; }
    void swap(EventSequence& other) noexcept;
    void close() noexcept;
    /// Forgets the events without a device call.
    void abandon() noexcept { events_.clear(); }

    /// Records a point after all work enqueued on the stream so far. Blocks only if max_points are outstanding.
    [[nodiscard]] Result<EventPoint> record();
    /// Makes stream `other` wait for a point. Enqueues nothing if the point is known to be complete.
    [[nodiscard]] Status order_after(EventPoint point, typename D::Stream other);
    /// Asks the device which points are complete. Does not block.
    [[nodiscard]] Status poll();
    /// Blocks the host until every point is complete.
    [[nodiscard]] Status drain();
    /// Continues on another stream. Precondition: every point is complete.
    void rebind(typename D::Stream stream) noexcept {
        RESIDENCY_ASSERT(is_idle(), "an event sequence changes its stream only when all its points are complete");
        stream_ = stream;
    }
    /// Every point is complete: the device, or the stream, was drained.
    void assume_complete() noexcept { complete_ = issued_; }

    [[nodiscard]] typename D::Stream stream() const noexcept { return stream_; }
    [[nodiscard]] EventPoint last() const noexcept { return issued_; }
    [[nodiscard]] bool is_idle() const noexcept { return complete_ == issued_; }
    [[nodiscard]] bool known_complete(EventPoint point) const noexcept { return point <= complete_; }

private:
    static constexpr std::size_t max_points = 8192;

    [[nodiscard]] typename D::Event event(EventPoint point) const noexcept {
        return events_[(point - 1) % events_.size()];
    }

    [[nodiscard]] Status make_room();
    /// Adds events, and assigns the outstanding points to the larger ring.
    [[nodiscard]] Status grow(std::size_t more);

    D* device_ = nullptr;
    typename D::Stream stream_{};
    std::vector<typename D::Event> events_;
    EventPoint issued_ = 0;
    EventPoint complete_ = 0;
    std::uint64_t* host_waits_ = nullptr;
    bool in_capture_ = false;
};

template <Device D>
Status EventSequence<D>::open(D& device, typename D::Stream stream, std::uint32_t capacity, std::uint64_t& host_waits) {
    device_ = &device;
    host_waits_ = &host_waits;
    stream_ = stream;
    return grow(capacity);
}

template <Device D>
void EventSequence<D>::swap(EventSequence& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    events_.swap(other.events_);
    std::swap(issued_, other.issued_);
    std::swap(complete_, other.complete_);
    std::swap(host_waits_, other.host_waits_);
    std::swap(in_capture_, other.in_capture_);
}

template <Device D>
void EventSequence<D>::close() noexcept {
    for (const auto event : events_) { static_cast<void>(device_->destroy_event(event).has_value()); }
    events_.clear();
    issued_ = complete_ = 0;
}

template <Device D>
auto EventSequence<D>::record() -> Result<EventPoint> {
    if (issued_ - complete_ == events_.size()) {
        if (auto made = make_room(); !made) { return made.error(); }
    }
    if (auto done = device_->record(event(issued_ + 1), stream_); !done) { return done.error(); }
    return ++issued_;
}

template <Device D>
Status EventSequence<D>::order_after(EventPoint point, typename D::Stream other) {
    RESIDENCY_ASSERT(point <= issued_, "wait only for points that were recorded");
    if (point <= complete_) { return {}; }
    return device_->wait(other, event(point));
}

template <Device D>
Status EventSequence<D>::poll() {
    if (in_capture_ || complete_ == issued_) { return {}; }
    // If the host has waited, the last point is complete, and so are all: ask for that one first.
    auto all = device_->is_complete(event(issued_));
    if (!all) { return all.error(); }
    if (*all) {
        complete_ = issued_;
        return {};
    }
    // Otherwise halve the range: a point is complete only if all before it are.
    EventPoint last = issued_;
    while (complete_ + 1 < last) {
        const EventPoint middle = complete_ + (last - complete_) / 2;
        const auto done = device_->is_complete(event(middle));
        if (!done) { return done.error(); }
        (*done ? complete_ : last) = middle;
    }
    return {};
}

template <Device D>
Status EventSequence<D>::drain() {
    if (complete_ == issued_) { return {}; }
    if (auto done = device_->synchronize(event(issued_)); !done) { return done; }
    complete_ = issued_;
    return {};
}

template <Device D>
Status EventSequence<D>::make_room() {
    if (auto polled = poll(); !polled) { return polled; }
    if (issued_ - complete_ < events_.size()) { return {}; }
    if (in_capture_ || events_.size() < max_points) { return grow(events_.size()); }
    ++*host_waits_;
    if (auto done = device_->synchronize(event(complete_ + 1)); !done) { return done; }
    ++complete_;
    return {};
}

template <Device D>
Status EventSequence<D>::grow(std::size_t more) {
    std::vector<typename D::Event> grown(events_.size() + more);
    std::vector<typename D::Event> created_events;
    created_events.reserve(more);
    for (std::size_t i = 0; i < more; ++i) {
        auto created = device_->create_event(Timing::off);
        if (!created) {
            for (const auto made : created_events) { static_cast<void>(device_->destroy_event(made).has_value()); }
            return created.error();
        }
        created_events.push_back(*created);
    }
    std::size_t next_created = 0;
    for (EventPoint point = complete_ + 1; point <= complete_ + grown.size(); ++point) {
        const bool outstanding = point <= complete_ + events_.size();
        grown[(point - 1) % grown.size()] = outstanding ? event(point) : created_events[next_created++];
    }
    events_ = std::move(grown);
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core

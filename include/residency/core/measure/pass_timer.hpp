// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Times passes on the device, from the first to the last operation on their stream. Two event records cost the GPU microseconds between
/// kernels, so that few passes are timed while everything is resident.
template <Device D>
class PassTimer {
public:
    /// After a failure, close() destroys the events that exist.
    [[nodiscard]] Status open(D& device);
    void close(D& device) noexcept;

    [[nodiscard]] Status start(D& device, typename D::Stream stream, bool is_streaming);
    [[nodiscard]] Status stop(D& device, typename D::Stream stream);
    /// An event that is not in use until stop().
    [[nodiscard]] typename D::Event spare_event() const noexcept { return times_[timed_ % times_.size()].to; }

    /// The time of the last pass that was timed and is complete. Does not block.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> last(D& device) const;

private:
    struct Time {
        typename D::Event from{}, to{};
        bool is_set = false;
    };
    [[nodiscard]] Time& time() noexcept { return times_[timed_ % times_.size()]; }

    std::array<Time, 4> times_;
    std::vector<typename D::Event> events_;
    std::uint64_t timed_ = 0;            // passes
    std::uint64_t resident_passes_ = 0;  // in a row
    bool is_timed_ = false;              // the pass that runs
};

template <Device D>
Status PassTimer<D>::open(D& device) {
    for (Time& time : times_) {
        for (auto* event : {&time.from, &time.to}) {
            auto created = device.create_event(Timing::on);
            if (!created) { return created.error(); }
            *event = *created;
            events_.push_back(*created);
        }
    }
    return {};
}

template <Device D>
void PassTimer<D>::close(D& device) noexcept {
    for (const auto event : events_) { static_cast<void>(device.destroy_event(event).has_value()); }
    events_.clear();
}

template <Device D>
Status PassTimer<D>::start(D& device, typename D::Stream stream, bool is_streaming) {
    resident_passes_ = is_streaming ? 0 : resident_passes_ + 1;
    is_timed_ = resident_passes_ <= 16 || resident_passes_ % 16 == 0;
    time().is_set = false;
    return is_timed_ ? device.record(time().from, stream) : Status{};
}

template <Device D>
Status PassTimer<D>::stop(D& device, typename D::Stream stream) {
    if (!is_timed_) { return {}; }
    auto recorded = device.record(time().to, stream);
    time().is_set = recorded.has_value();
    ++timed_;
    return recorded;
}

template <Device D>
std::optional<std::chrono::nanoseconds> PassTimer<D>::last(D& device) const {
    for (std::size_t back = 1; back <= std::min<std::size_t>(times_.size(), timed_); ++back) {
        const Time& time = times_[(timed_ - back) % times_.size()];
        if (!time.is_set) { continue; }
        const auto done = device.is_complete(time.to);
        if (!done || !*done) { continue; }
        if (const auto elapsed = device.elapsed(time.from, time.to)) { return *elapsed; }
    }
    return std::nullopt;
}

}}}  // namespace residency::RESIDENCY_ABI::core

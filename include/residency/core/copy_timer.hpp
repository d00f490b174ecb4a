// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/sort.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What a copy call takes: `latency_seconds`, and `seconds_per_byte` for each byte.
struct CopyCost {
    double seconds_per_byte = 0;  ///< 0: not measured
    double latency_seconds = 0;
};

/// Times copies between two buffers of its own, on a stream of its own. Gives everything back when it is destroyed.
template <Device D>
class CopyTimer {
public:
    explicit CopyTimer(D& device) noexcept : device_{&device} {}
    CopyTimer(const CopyTimer&) = delete;
    CopyTimer& operator=(const CopyTimer&) = delete;
    ~CopyTimer();

    /// Blocks. The copies go to the device from pinned host memory, or from the device (`within_device`: twice the bytes there).
    [[nodiscard]] Status open(std::uint64_t bytes, bool within_device);
    /// Blocks. The line through the median times of calls of two sizes; of one size where they are equal, without a latency.
    /// Precondition: short_bytes <= long_bytes <= the bytes that it was opened with.
    [[nodiscard]] Result<CopyCost> measure(std::uint64_t short_bytes, std::uint64_t long_bytes);

private:
    [[nodiscard]] Result<double> seconds_per_call(std::uint64_t bytes);

    D* device_;
    void* host_ = nullptr;
    void* from_ = nullptr;  // on the device
    void* to_ = nullptr;
    typename D::Stream stream_{};
    bool has_stream_ = false;
    std::array<typename D::Event, 2> events_{};
    std::size_t created_ = 0;  // events
};

template <Device D>
CopyTimer<D>::~CopyTimer() {
    // Released in the reverse order, whatever fails.
    if (has_stream_) { static_cast<void>(device_->synchronize(stream_).has_value()); }
    for (std::size_t i = 0; i < created_; ++i) { static_cast<void>(device_->destroy_event(events_[i]).has_value()); }
    if (has_stream_) { static_cast<void>(device_->destroy_stream(stream_).has_value()); }
    if (to_ != nullptr) { static_cast<void>(device_->deallocate(to_).has_value()); }
    if (from_ != nullptr) { static_cast<void>(device_->deallocate(from_).has_value()); }
    if (host_ != nullptr) { static_cast<void>(device_->deallocate_host(host_).has_value()); }
}

template <Device D>
Status CopyTimer<D>::open(std::uint64_t bytes, bool within_device) {
    auto source = within_device ? device_->allocate(bytes) : device_->allocate_host(bytes);
    if (!source) { return source.error(); }
    (within_device ? from_ : host_) = *source;
    auto to = device_->allocate(bytes);
    if (!to) { return to.error(); }
    to_ = *to;
    auto stream = device_->create_stream();
    if (!stream) { return stream.error(); }
    stream_ = *stream;
    has_stream_ = true;
    for (auto& event : events_) {
        auto made = device_->create_event(Timing::on);
        if (!made) { return made.error(); }
        event = *made;
        ++created_;
    }
    // Device memory is read only after it was written.
    return within_device ? device_->fill(from_, std::byte{0}, bytes, stream_) : Status{};
}

template <Device D>
Result<CopyCost> CopyTimer<D>::measure(std::uint64_t short_bytes, std::uint64_t long_bytes) {
    const auto long_call = seconds_per_call(long_bytes);
    if (!long_call) { return long_call.error(); }
    if (short_bytes == long_bytes) { return CopyCost{*long_call / static_cast<double>(long_bytes), 0}; }
    const auto short_call = seconds_per_call(short_bytes);
    if (!short_call) { return short_call.error(); }
    const double slope = (*long_call - *short_call) / static_cast<double>(long_bytes - short_bytes);
    if (!(slope > 0)) { return CopyCost{}; }
    const double latency = *short_call - static_cast<double>(short_bytes) * slope;
    return CopyCost{slope, latency > 0 ? latency : 0};
}

template <Device D>
Result<double> CopyTimer<D>::seconds_per_call(std::uint64_t bytes) {
    // Several calls between two events, so that the events' own cost vanishes.
    const int calls = host_ != nullptr ? 8 : 4;
    const Copy copy{to_, host_ != nullptr ? host_ : from_, bytes};
    std::vector<double> seconds;
    for (int repeat = 0; repeat < 5; ++repeat) {
        if (auto done = device_->record(events_[0], stream_); !done) { return done.error(); }
        for (int i = 0; i < calls; ++i) {
            if (auto done = device_->copy({&copy, 1}, stream_); !done) { return done.error(); }
        }
        if (auto done = device_->record(events_[1], stream_); !done) { return done.error(); }
        if (auto done = device_->synchronize(stream_); !done) { return done.error(); }
        auto elapsed = device_->elapsed(events_[0], events_[1]);
        if (!elapsed) { return elapsed.error(); }
        if (repeat > 0) { seconds.push_back(std::chrono::duration<double>(*elapsed).count() / calls); }
    }
    residency::detail::sort(seconds);
    return (seconds[1] + seconds[2]) / 2;
}

}}}  // namespace residency::RESIDENCY_ABI::core

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The link: its rate measured by bursts, and watched in the copies of passes.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/measure/mark.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What a copy call takes: `latency_seconds`, and `seconds_per_byte` for each byte.
struct CopyCost {
    double seconds_per_byte = 0;  ///< 0: not measured
    double latency_seconds = 0;
};

/// Keeps the two shortest of some times.
struct Shortest {
    static constexpr double none = (std::numeric_limits<double>::max)();
    double first = none;
    double second = none;

    void add(double seconds) noexcept {
        second = (std::min)(second, (std::max)(first, seconds));
        first = (std::min)(first, seconds);
    }
    /// Whether the second one lies within that factor.
    [[nodiscard]] bool agrees(double factor) const noexcept { return second < none && second <= first * factor; }
};

/// Where a measurement takes device memory from, and gives it back to.
class MemorySource {
public:
    virtual ~MemorySource() = default;
    [[nodiscard]] virtual Result<void*> allocate(std::uint64_t bytes) = 0;  ///< as D::allocate()
    [[nodiscard]] virtual Status deallocate(void* memory) = 0;              ///< as D::deallocate()
    /// The same, tried twice: what stays behind would be held beside the budget.
    void give_back(void* memory) {
        if (!deallocate(memory)) { static_cast<void>(deallocate(memory).has_value()); }
    }
};

/// The device's own allocations.
template <Device D>
class DeviceMemory final : public MemorySource {
public:
    explicit DeviceMemory(D& device) noexcept : device_{&device} {}
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes) override { return device_->allocate(bytes); }
    [[nodiscard]] Status deallocate(void* memory) override { return device_->deallocate(memory); }

private:
    D* device_;
};

/// Memory that somebody lends. One allocation at a time.
class LentMemory final : public MemorySource {
public:
    explicit LentMemory(std::span<std::byte> memory) noexcept : memory_{memory} {}
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes) override {
        if (bytes > memory_.size()) { return Error{ErrorKind::out_of_memory, "less memory was lent"}; }
        return static_cast<void*>(memory_.data());
    }
    [[nodiscard]] Status deallocate(void*) override { return {}; }

private:
    std::span<std::byte> memory_;
};

/// Times copies between two buffers of its own, on a stream of its own. Gives everything back when it is destroyed.
template <Device D>
class CopyTimer {
public:
    CopyTimer(D& device, MemorySource& memory) noexcept : device_{&device}, memory_{&memory} {}
    CopyTimer(const CopyTimer&) = delete;
    CopyTimer& operator=(const CopyTimer&) = delete;
    ~CopyTimer();

    /// Blocks. The copies go to the device from pinned host memory, or from the device (`within_device`: twice the bytes there).
    [[nodiscard]] Status open(std::uint64_t bytes, bool within_device);
    /// Blocks. The line through the least times of calls of two sizes; of one size where they are equal, without a latency. Calls of both
    /// sizes are timed by turns, in bursts, until two bursts of each agree: what else the link carries only lengthens them.
    /// `send(copies, stream)` enqueues a call. Precondition: short_bytes <= long_bytes <= the bytes that it was opened with.
    template <class Send>
    [[nodiscard]] Result<CopyCost> measure(std::uint64_t short_bytes, std::uint64_t long_bytes, const Send& send);

private:
    /// Bursts of one size, at most: a link that others use is watched for as long as that.
    static constexpr std::size_t most_bursts = 16;
    /// How far the two shortest bursts may lie apart.
    static constexpr double agreement = 1.005;

    /// Blocks. The seconds that one call takes, of a few in a row.
    template <class Send>
    [[nodiscard]] Result<double> burst(std::uint64_t bytes, const Send& send);

    D* device_;
    MemorySource* memory_;
    void* host_ = nullptr;
    void* from_ = nullptr;  // on the device
    void* to_ = nullptr;
    typename D::Stream stream_{};
    bool has_stream_ = false;
    std::array<typename D::Event, 2> events_{};
    std::size_t created_ = 0;  // events
};

/// Says how fast long calls of copies are that a Residency makes, timed one at a time, so that a link that was busy while it was measured
/// is not planned for ever. After `most_calls` calls none is wanted any more.
class LinkWatch {
public:
    /// Shorter calls say more of the latency than of the rate.
    static constexpr std::uint64_t least_bytes = std::uint64_t{4} << 20;
    static constexpr std::uint32_t most_calls = 64;

    /// A call of copies begins. Whether its marks are to be read.
    [[nodiscard]] bool begin_call(std::uint64_t bytes) noexcept {
        if (is_timed_ || calls_ == most_calls || bytes < least_bytes) { return false; }
        return is_timed_ = true;
    }
    /// Reads the next mark of a call that was wanted.
    void read(const Mark& mark) noexcept {
        if (mark.point == Point::copies_begin) {
            start_ = mark.time;
            return;
        }
        is_timed_ = false;
        if (!start_ || !mark.time || mark.bytes == 0) { return; }
        ++calls_;
        if (*mark.time > *start_) {
            per_byte_.add(std::chrono::duration<double>(*mark.time - *start_).count() /
                          static_cast<double>(mark.bytes));
        }
    }
    /// Bytes per second that two calls have reached; 0: none yet.
    [[nodiscard]] double bytes_per_second() const noexcept { return 1 / per_byte_.second; }

private:
    bool is_timed_ = false;  // a call, whose end is not read yet
    std::optional<std::chrono::nanoseconds> start_;
    std::uint32_t calls_ = 0;  // that were read
    Shortest per_byte_;        // seconds
};

template <Device D>
CopyTimer<D>::~CopyTimer() {
    // Released in the reverse order, whatever fails.
    if (has_stream_) { static_cast<void>(device_->synchronize(stream_).has_value()); }
    for (std::size_t i = 0; i < created_; ++i) { static_cast<void>(device_->destroy_event(events_[i]).has_value()); }
    if (has_stream_) { static_cast<void>(device_->destroy_stream(stream_).has_value()); }
    if (to_ != nullptr) { memory_->give_back(to_); }
    if (from_ != nullptr) { memory_->give_back(from_); }
    if (host_ != nullptr) { static_cast<void>(device_->deallocate_host(host_).has_value()); }
}

template <Device D>
Status CopyTimer<D>::open(std::uint64_t bytes, bool within_device) {
    auto source = within_device ? memory_->allocate(bytes) : device_->allocate_host(bytes);
    if (!source) { return source.error(); }
    (within_device ? from_ : host_) = *source;
    auto to = memory_->allocate(bytes);
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
template <class Send>
Result<CopyCost> CopyTimer<D>::measure(std::uint64_t short_bytes, std::uint64_t long_bytes, const Send& send) {
    const bool is_one_size = short_bytes == long_bytes;
    Shortest long_call, short_call;
    const auto is_known = [&] { return long_call.agrees(agreement) && (is_one_size || short_call.agrees(agreement)); };
    for (std::size_t bursts = 0; bursts <= most_bursts && !is_known(); ++bursts) {
        const auto in_long = burst(long_bytes, send);
        if (!in_long) { return in_long.error(); }
        const auto in_short = is_one_size ? in_long : burst(short_bytes, send);
        if (!in_short) { return in_short.error(); }
        if (bursts == 0) { continue; }  // the first one warms up
        long_call.add(*in_long);
        short_call.add(*in_short);
    }
    if (is_one_size) { return CopyCost{long_call.first / static_cast<double>(long_bytes), 0}; }
    const double slope = (long_call.first - short_call.first) / static_cast<double>(long_bytes - short_bytes);
    if (!residency::detail::is_positive(slope)) { return CopyCost{}; }
    const double latency = short_call.first - static_cast<double>(short_bytes) * slope;
    return CopyCost{slope, latency > 0 ? latency : 0};
}

template <Device D>
template <class Send>
Result<double> CopyTimer<D>::burst(std::uint64_t bytes, const Send& send) {
    // Several calls between two events, so that the events' own cost vanishes.
    const int calls = host_ != nullptr ? 8 : 4;
    const Copy copy{to_, host_ != nullptr ? host_ : from_, bytes};
    if (auto done = device_->record(events_[0], stream_); !done) { return done.error(); }
    for (int i = 0; i < calls; ++i) {
        if (auto done = send(std::span{&copy, 1}, stream_); !done) { return done.error(); }
    }
    if (auto done = device_->record(events_[1], stream_); !done) { return done.error(); }
    if (auto done = device_->synchronize(stream_); !done) { return done.error(); }
    const auto elapsed = device_->elapsed(events_[0], events_[1]);
    if (!elapsed) { return elapsed.error(); }
    return std::chrono::duration<double>(*elapsed).count() / calls;
}

}}}  // namespace residency::RESIDENCY_ABI::core

namespace residency { inline namespace RESIDENCY_ABI {

namespace core {

/// What sends a call of copies: the device's own copy().
template <Device D>
struct CopiesOf {
    D& device;
    [[nodiscard]] Status operator()(std::span<const Copy> copies, typename D::Stream stream) const {
        return device.copy(copies, stream);
    }
};

/// Opens a timer of `bytes`, or of half of them, and so on, where others hold the device. No timer: there is not even a unit.
template <Device D>
[[nodiscard]] Status open_timer(std::optional<CopyTimer<D>>& timer, D& device, MemorySource& memory,
                                std::uint64_t& bytes, std::uint64_t unit, bool within_device) {
    for (; bytes > 0; bytes = bytes / 2 / unit * unit) {
        auto opened = timer.emplace(device, memory).open(bytes, within_device);
        if (opened) { return opened; }
        timer.reset();
        if (opened.error().kind() != ErrorKind::out_of_memory) { return opened; }
    }
    return {};
}

/// As try_measure_link(), with device memory from there, and `send(copies, stream)` in place of the device's copy().
template <Device D, class Send>
[[nodiscard]] Result<plan::Link> try_measure_calls(D& device, std::uint64_t device_bytes, MemorySource& memory,
                                                   const Send& send) {
    constexpr std::uint64_t granule = std::uint64_t{64} << 10;
    // What an allocation takes is a multiple of its granularity.
    const std::uint64_t unit = (std::max)(granule, device.allocation_granularity());
    std::uint64_t long_bytes = (std::min)(device_bytes, std::uint64_t{32} << 20) / unit * unit;
    std::optional<CopyTimer<D>> timer;
    if (auto opened = open_timer(timer, device, memory, long_bytes, unit, false); !opened) { return opened.error(); }
    if (!timer) { return plan::Link{}; }
    const std::uint64_t short_bytes = (std::max)(granule, long_bytes / 32 / granule * granule);
    const auto cost = timer->measure(short_bytes, long_bytes, send);
    if (!cost) { return cost.error(); }
    plan::Link link;
    if (!residency::detail::is_positive(cost->seconds_per_byte)) { return link; }
    link.bytes_per_second = 1 / cost->seconds_per_byte;
    if (short_bytes < long_bytes) {
        const double node_ratio = link.node_latency_seconds / link.latency_seconds;
        link.latency_seconds = cost->latency_seconds;
        link.node_latency_seconds = link.latency_seconds * node_ratio;
    }
    return link;
}

/// As try_measure_link(), in device memory from there.
template <Device D>
[[nodiscard]] Result<plan::Link> try_measure_link(D& device, std::uint64_t device_bytes, MemorySource& memory) {
    return try_measure_calls(device, device_bytes, memory, CopiesOf<D>{device});
}

}  // namespace core

/// Blocks for 20 to 90 ms: the longer, the more others use the link. Measures rate and latency of copies to the device: the least time of
/// calls of two sizes, and the line through both. Uses at most `device_bytes` of device memory during the call, and as much pinned host
/// memory; 32 MiB are enough. The latency of a graph's copy node cannot be measured from outside: it keeps its default ratio to that of a
/// call. With less than 64 KiB nothing is measured, and the defaults are returned.
template <Device D>
[[nodiscard]] Result<plan::Link> try_measure_link(D& device, std::uint64_t device_bytes = std::uint64_t{32} << 20) {
    core::DeviceMemory<D> memory{device};
    return core::try_measure_link(device, device_bytes, memory);
}

namespace core {

/// Blocks for 20 to 90 ms a neighbour, and three times for all. Measures what copies out of the memory of neighbours bring, each by itself, all
/// of them, and beside the own link or all links, which bring `links_rate` together; tells the transport.
template <PeerDevice D, class Transport>
[[nodiscard]] Status measure_neighbours_memory(D& device, std::uint64_t device_bytes, MemorySource& memory,
                                               Transport& transport, double links_rate) {
    auto& held = transport.memory();
    transport.set_joint_rate(links_rate);
    held.open_sample((std::min)(device_bytes, std::uint64_t{32} << 20));
    const auto measure = [&](double share) {
        return try_measure_calls(device, device_bytes, memory,
                                 [&](std::span<const Copy> copies, typename D::Stream stream) {
                                     return transport.copy_sample(copies, share, stream);
                                 });
    };
    std::vector<double> rates(transport.neighbours(), 0.0);
    double sum = 0;
    for (std::size_t i = 0; i < rates.size(); ++i) {
        if (!held.uses(i)) { continue; }
        for (std::size_t other = 0; other < rates.size(); ++other) { held.set_rate(other, other == i ? 1 : 0); }
        const auto alone = measure(1);
        if (!alone) { return alone.error(); }
        rates[i] = held.uses(i) ? alone->bytes_per_second : 0;
        sum += rates[i];
    }
    for (std::size_t i = 0; i < rates.size(); ++i) { held.set_rate(i, rates[i]); }
    const auto joint = measure(1);
    if (!joint) { return joint.error(); }
    held.set_joint_rate((std::min)(joint->bytes_per_second, sum));
    for (const bool is_by_all : {false, true}) {
        transport.set_forwards_rest(is_by_all);
        const auto both = measure(held.best_share(transport.host_rate(is_by_all)));
        if (!both) { return both.error(); }
        transport.set_measured(is_by_all, {both->bytes_per_second, both->latency_seconds});
    }
    held.close_sample();
    return {};
}

/// Blocks for 20 to 90 ms a link. Measures what a transport brings that uses the links of neighbours, each of these in its bounce buffers, and
/// tells it the rate of each. A neighbour that brings less than a twentieth more is left out. The device's memory comes from `memory`.
template <PeerDevice D, class Transport>
[[nodiscard]] Result<plan::Link> try_measure_links(D& device, std::uint64_t device_bytes, MemorySource& memory,
                                                   Transport& transport) {
    auto best = core::try_measure_link(device, device_bytes, memory);
    if (!best) { return best; }
    const double own_rate = best->bytes_per_second, node_latency = best->node_latency_seconds;
    // Shorter calls take the own link alone: nothing could be measured, and neighbours are taken to be as fast.
    if (device_bytes < std::uint64_t{8} << 20 || transport.neighbours() == 0) { return best; }
    transport.set_own_rate(own_rate);
    std::vector<double> rates;
    for (std::size_t i = 0; i < transport.neighbours(); ++i) {
        rates.push_back(0);
        if (!transport.uses(i)) { continue; }
        const std::span<std::byte> bounce = transport.bounce_memory(i);
        LentMemory lent{bounce};
        auto own = core::try_measure_link(transport.neighbour(i),
                                          (std::min<std::uint64_t>)(device_bytes, bounce.size()), lent);
        rates.back() = own ? own->bytes_per_second : 0;
        transport.set_rate(i, rates.back(), own ? "it is not measured yet" : own.error().message());
    }
    const auto send = [&](std::span<const Copy> copies, typename D::Stream stream) {
        return transport.copy(copies, stream);
    };
    for (std::size_t i = 0; i < rates.size(); ++i) {
        if (!residency::detail::is_positive(rates[i])) { continue; }
        transport.set_rate(i, rates[i], {});
        auto all = try_measure_calls(device, device_bytes, memory, send);
        if (!all) { return all; }
        if (!transport.uses(i)) { continue; }  // it failed
        if (all->bytes_per_second >= best->bytes_per_second * 1.05) {
            best = std::move(all);
            continue;
        }
        transport.set_rate(i, rates[i],
                           "it brings nothing: " + std::to_string(std::llround(all->bytes_per_second / 1e9)) +
                               " GB/s come with it, " + std::to_string(std::llround(best->bytes_per_second / 1e9)) +
                               " without");
    }
    transport.close_unused();
    best->node_latency_seconds = node_latency;
    if (transport.holds()) {
        auto measured = measure_neighbours_memory(device, device_bytes, memory, transport, best->bytes_per_second);
        if (!measured) { return measured.error(); }
    }
    transport.set_own_rate(own_rate);  // what was measured is not counted
    return best;
}

}  // namespace core

namespace core {

/// As try_measure_memory(), in device memory from there.
template <Device D>
[[nodiscard]] Result<double> try_measure_memory(D& device, std::uint64_t device_bytes, MemorySource& memory) {
    const std::uint64_t unit = (std::max)(std::uint64_t{64} << 10, device.allocation_granularity());
    std::uint64_t bytes = (std::min)(device_bytes / 2, std::uint64_t{64} << 20) / unit * unit;
    std::optional<CopyTimer<D>> timer;
    if (auto opened = open_timer(timer, device, memory, bytes, unit, true); !opened) { return opened.error(); }
    if (!timer) { return plan::default_memory_bytes_per_second; }
    const auto cost = timer->measure(bytes / 2, bytes, CopiesOf<D>{device});
    if (!cost) { return cost.error(); }
    return residency::detail::is_positive(cost->seconds_per_byte) ? 2 / cost->seconds_per_byte
                                                                  : plan::default_memory_bytes_per_second;
}

}  // namespace core

/// Blocks for a few milliseconds. Measures how many bytes of device memory kernels read per second: copies within the device, of
/// which every byte is read and written. Uses at most `device_bytes` of device memory during the call; 128 MiB are enough, and with less
/// than a cache holds the cache is measured. With less than two allocations nothing is measured, and the default is returned.
template <Device D>
[[nodiscard]] Result<double> try_measure_memory(D& device, std::uint64_t device_bytes = std::uint64_t{128} << 20) {
    core::DeviceMemory<D> memory{device};
    return core::try_measure_memory(device, device_bytes, memory);
}

#if RESIDENCY_EXCEPTIONS
template <Device D>
[[nodiscard]] plan::Link measure_link(D& device, std::uint64_t device_bytes = std::uint64_t{32} << 20) {
    return unwrap(try_measure_link(device, device_bytes));
}
template <Device D>
[[nodiscard]] double measure_memory(D& device, std::uint64_t device_bytes = std::uint64_t{128} << 20) {
    return unwrap(try_measure_memory(device, device_bytes));
}
#endif

}}  // namespace residency::RESIDENCY_ABI

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "residency/codec/task.hpp"
#include "residency/core/measure/measure_link.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/layout.hpp"
#include "residency/packed/packer.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

namespace detail {

/// What a measurement holds. Gives everything back when it is destroyed.
template <Device D>
struct UnpackTimer {
    D& device;
    core::MemorySource& source;
    void* memory = nullptr;
    void* table = nullptr;  // pinned
    std::optional<typename D::Stream> stream{};
    std::array<std::optional<typename D::Event>, 2> events{};

    ~UnpackTimer() {
        if (stream) {
            static_cast<void>(device.synchronize(*stream).has_value());
            static_cast<void>(device.destroy_stream(*stream).has_value());
        }
        for (const auto& event : events) {
            if (event) { static_cast<void>(device.destroy_event(*event).has_value()); }
        }
        if (table != nullptr) { static_cast<void>(device.deallocate_host(table).has_value()); }
        if (memory != nullptr) { source.give_back(memory); }
    }
};

/// Parts of a model that an unpacker is measured on, and where they lie in the memory for it.
struct UnpackSample {
    static constexpr std::uint64_t enough = std::uint64_t{256} << 20;  // raw: more than the caches of a device hold
    static constexpr std::uint64_t unit = 512;

    std::vector<PackedPart> parts{};
    std::vector<const std::byte*> host{};
    std::vector<std::uint64_t> packed_at{}, raw_at{};
    std::uint64_t raw_bytes = 0, end = 0;

    /// The first parts of the model, as many as there is room for beside their tasks.
    UnpackSample(std::span<const Form> forms, std::uint64_t room) {
        for (const Form& form : forms) {
            if (!form.unpacks) { continue; }
            for (const PackedPart& part : *form.parts) {
                if (part.form == PackedForm::raw) { continue; }
                const std::uint64_t raw = end + pool::round_up(part.packed_bytes, unit);
                const std::uint64_t next = raw + pool::round_up(part.raw_bytes, unit);
                if (raw_bytes >= enough || next + (parts.size() + 1) * sizeof(codec::UnpackTask) > room) { break; }
                parts.push_back(part);
                host.push_back(form.host + part.offset_bytes);
                packed_at.push_back(end);
                raw_at.push_back(raw);
                raw_bytes += part.raw_bytes;
                end = next;
            }
        }
    }
};

}  // namespace detail

/// Blocks for some milliseconds. Measures an unpacker on parts of the model, up to 256 MiB raw, in one launch, in two that do the same, and
/// in a row of launches that share the parts: by as much longer as that row takes than one launch, launches take in addition. The median
/// times of five turns. Uses at most `device_bytes` of device memory, from `source`. Where there is nothing to measure, or no room for it, the
/// defaults are returned.
template <Device D>
[[nodiscard]] Result<UnpackRate> try_measure_unpacker(D& device, const Unpacker<D>& unpacker,
                                                      std::span<const Form> forms, std::uint64_t device_bytes,
                                                      core::MemorySource& source) {
    constexpr std::size_t most_launches = 16;
    const detail::UnpackSample sample{forms,
                                      device_bytes / device.allocation_granularity() * device.allocation_granularity()};
    const auto& parts = sample.parts;
    if (parts.empty()) { return UnpackRate{}; }
    const std::uint64_t table_bytes = parts.size() * sizeof(codec::UnpackTask);
    detail::UnpackTimer<D> timer{device, source};
    auto memory = source.allocate(sample.end + table_bytes);
    if (!memory) { return memory.error(); }
    timer.memory = *memory;
    auto table = device.allocate_host(table_bytes);
    if (!table) { return table.error(); }
    timer.table = *table;
    auto stream = device.create_stream();
    if (!stream) { return stream.error(); }
    timer.stream = *stream;
    for (auto& event : timer.events) {
        auto made = device.create_event(Timing::on);
        if (!made) { return made.error(); }
        event = *made;
    }
    std::byte* const base = static_cast<std::byte*>(timer.memory);
    std::vector<codec::UnpackTask> tasks;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const Copy bytes{base + sample.packed_at[i], sample.host[i], parts[i].packed_bytes};
        if (auto sent = device.copy({&bytes, 1}, *timer.stream); !sent) { return sent.error(); }
        tasks.push_back({base + sample.packed_at[i], base + sample.raw_at[i]});
    }
    std::memcpy(timer.table, tasks.data(), static_cast<std::size_t>(table_bytes));
    const Copy packed_tasks{base + sample.end, timer.table, table_bytes};
    if (auto sent = device.copy({&packed_tasks, 1}, *timer.stream); !sent) { return sent.error(); }
    // The median time of `times` rounds of `launches` launches, among which the parts of a round are shared out.
    const auto seconds_of = [&](std::size_t launches, std::size_t times) -> Result<double> {
        std::array<double, 5> seconds{};
        for (std::size_t turn = 0; turn <= seconds.size(); ++turn) {  // the first warms up
            if (auto done = device.record(*timer.events[0], *timer.stream); !done) { return done.error(); }
            for (std::size_t n = 0; n < times * launches; ++n) {
                const std::size_t i = n % launches;
                const std::size_t at = parts.size() * i / launches, count = parts.size() * (i + 1) / launches - at;
                if (auto done = unpacker.enqueue(device, std::span{tasks}.subspan(at, count),
                                                 std::span<const PackedPart>{parts}.subspan(at, count),
                                                 reinterpret_cast<const codec::UnpackTask*>(base + sample.end) + at,
                                                 *timer.stream);
                    !done) {
                    return done.error();
                }
            }
            if (auto done = device.record(*timer.events[1], *timer.stream); !done) { return done.error(); }
            if (auto done = device.synchronize(*timer.stream); !done) { return done.error(); }
            auto elapsed = device.elapsed(*timer.events[0], *timer.events[1]);
            if (!elapsed) { return elapsed.error(); }
            if (turn > 0) { seconds[turn - 1] = std::chrono::duration<double>(*elapsed).count(); }
        }
        std::sort(seconds.begin(), seconds.end());
        return seconds[seconds.size() / 2];
    };
    UnpackRate rate;
    const auto once = seconds_of(1, 1);
    if (!once) { return once.error(); }
    const auto twice = seconds_of(1, 2);
    if (!twice) { return twice.error(); }
    const std::size_t launches = (std::min)(parts.size(), most_launches);
    if (launches > 1) {
        const auto in_a_row = seconds_of(launches, 1);
        if (!in_a_row) { return in_a_row.error(); }
        rate.launch_seconds = (std::max)(0.0, (*in_a_row - *once) / static_cast<double>(launches - 1));
    }
    const double bytes_seconds = *twice - *once - rate.launch_seconds;  // without what only the first launch waits for
    if (bytes_seconds > 0) { rate.bytes_per_second = static_cast<double>(sample.raw_bytes) / bytes_seconds; }
    return rate;
}

}}}  // namespace residency::RESIDENCY_ABI::packed

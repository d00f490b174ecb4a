// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "residency/codec/checksum.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/codec/tiers.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/packed/packer.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Packs on the simulated device: a kernel that takes 3 µs and the raw bytes over a rate. Its body is the host's codec.
class SimulatedPacker final : public Packer<SimulatedDevice> {
public:
    /// `bytes_per_second`: of raw bytes.
    explicit SimulatedPacker(double bytes_per_second = 1e11) noexcept : bytes_per_second_{bytes_per_second} {}

    /// As Packer says.
    /// @{
    [[nodiscard]] bool takes(PackedForm form) const noexcept override { return codec::tiers::is_tiers(form); }
    [[nodiscard]] std::uint64_t workspace_bytes(std::size_t) const noexcept override { return 0; }
    [[nodiscard]] Status enqueue(SimulatedDevice& device, const PackBatch& batch,
                                 SimulatedDevice::Stream stream) const override {
        SimulatedDevice::Kernel kernel;
        kernel.name = "pack";
        std::vector<simulation::ByteRange> reads{{batch.on_device, batch.tasks.size_bytes()}};
        std::vector<simulation::ByteRange> writes{{batch.results, batch.tasks.size() * sizeof(codec::PackResult)},
                                                  {batch.differing, sizeof *batch.differing}};
        std::uint64_t bytes = 0;
        for (const codec::PackTask& task : batch.tasks) {
            reads.push_back({task.raw, task.raw_bytes});
            writes.push_back({task.packed, task.raw_bytes});
            bytes += task.raw_bytes;
        }
        kernel.reads = reads;
        kernel.writes = writes;
        kernel.duration = std::chrono::nanoseconds{
            3000 + static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_second_ * 1e9)};
        kernel.body = [tasks = std::vector(batch.tasks.begin(), batch.tasks.end()), results = batch.results,
                       differing = batch.differing,
                       scratch = std::vector<std::byte>(static_cast<std::size_t>(codec::part_bytes))]() mutable {
            *differing = 0;
            for (std::size_t i = 0; i < tasks.size(); ++i) {
                const codec::PackTask& task = tasks[i];
                const std::span raw{task.raw, task.raw_bytes};
                const std::span back = std::span{scratch}.first(raw.size());
                std::size_t packed = 0;
                codec::tiers::for_each_format([&](auto format) {
                    if (task.form != format.form) { return; }
                    constexpr codec::Tiers<decltype(format)> tiers;
                    packed = tiers.pack({}, raw, {task.packed, task.room_bytes});
                    if (packed == 0) { return; }
                    const bool is_unpacked = tiers.unpack({}, {task.packed, packed}, back).has_value();
                    if (!is_unpacked || std::memcmp(back.data(), raw.data(), raw.size()) != 0) { ++*differing; }
                });
                const std::span made{task.packed, packed != 0 ? packed : raw.size()};
                if (packed == 0) { std::memcpy(task.packed, raw.data(), raw.size()); }
                results[i] = {codec::checksum(made), static_cast<std::uint32_t>(packed), 0};
            }
        };
        return device.launch(stream, std::move(kernel));
    }
    /// @}

private:
    double bytes_per_second_;
};

/// Unpacks on the simulated device: a kernel that takes 3 µs and the raw bytes over a rate. Its body unpacks and checks on the host; a
/// part that was changed becomes 0xDB.
class SimulatedUnpacker final : public Unpacker<SimulatedDevice> {
public:
    /// `bytes_per_second`: of raw bytes.
    explicit SimulatedUnpacker(double bytes_per_second = 1.3e12) noexcept : bytes_per_second_{bytes_per_second} {}

    /// As Unpacker says.
    /// @{
    [[nodiscard]] bool takes(PackedForm form) const noexcept override { return codec::tiers::is_tiers(form); }
    [[nodiscard]] Status enqueue(SimulatedDevice& device, std::span<const codec::UnpackTask> tasks,
                                 std::span<const PackedPart> parts, const codec::UnpackTask*,
                                 SimulatedDevice::Stream stream) const override {
        SimulatedDevice::Kernel kernel;
        kernel.name = "unpack";
        std::vector<simulation::ByteRange> reads, writes;
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            reads.push_back({tasks[i].packed, parts[i].packed_bytes});
            writes.push_back({tasks[i].raw, parts[i].raw_bytes});
            bytes += parts[i].raw_bytes;
        }
        kernel.reads = reads;
        kernel.writes = writes;
        kernel.duration = std::chrono::nanoseconds{
            3000 + static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_second_ * 1e9)};
        kernel.body = [tasks = std::vector(tasks.begin(), tasks.end()),
                       parts = std::vector(parts.begin(), parts.end())] {
            for (std::size_t i = 0; i < tasks.size(); ++i) {
                const std::span packed{tasks[i].packed, static_cast<std::size_t>(parts[i].packed_bytes)};
                const std::span raw{tasks[i].raw, static_cast<std::size_t>(parts[i].raw_bytes)};
                if (!codec::unpack_part(parts[i], packed, raw)) { std::memset(raw.data(), 0xDB, raw.size()); }
            }
        };
        return device.launch(stream, std::move(kernel));
    }
    /// @}

private:
    double bytes_per_second_;
};

}}  // namespace residency::RESIDENCY_ABI

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/codec/pack_task.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What a launch of a packer works on. All of it but `tasks` is device memory, and lies there until the launch is over.
struct PackBatch {
    std::span<const codec::PackTask> tasks{};    ///< in host memory, during the call
    const codec::PackTask* on_device = nullptr;  ///< the same tasks
    codec::PackResult* results = nullptr;        ///< one a task
    unsigned long long* differing = nullptr;     ///< how many places, of all tasks, are not unpacked to what was packed
    std::byte* workspace = nullptr;  ///< as many bytes as Packer::workspace_bytes() says, at a multiple of 16
};

/// Packs weights on a device. Its calls come from one thread at a time. CudaPacker (packed/cuda_packer.cuh) and SimulatedPacker
/// (packed/simulated_packer.hpp) are its models.
template <Device D>
class Packer {
public:
    Packer() = default;
    Packer(const Packer&) = delete;
    Packer& operator=(const Packer&) = delete;
    virtual ~Packer() = default;

    /// Whether it packs that form, in parts of codec::part_bytes.
    [[nodiscard]] virtual bool takes(PackedForm form) const noexcept = 0;
    /// Bytes of device memory that a batch of `tasks` tasks needs beside its input and output.
    [[nodiscard]] virtual std::uint64_t workspace_bytes(std::size_t tasks) const noexcept = 0;
    /// Enqueues what packs each task, to be of a form that it takes, into the bytes that the host's codec makes of it, unpacks them again and compares. A task that has no
    /// room for them becomes a copy of its raw bytes, for which there always is room. Does not block. Errors: the device's own.
    [[nodiscard]] virtual Status enqueue(D& device, const PackBatch& batch, typename D::Stream stream) const = 0;
};

}}  // namespace residency::RESIDENCY_ABI

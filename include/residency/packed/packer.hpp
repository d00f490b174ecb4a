// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What packs and unpacks on a device.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "residency/codec/task.hpp"
#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"

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
/// (simulation/simulated_unpacker.hpp) are its models.
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

/// Turns packed bytes on a device into the weights that kernels read. Its calls come from one thread at a time; it outlives whoever was
/// given it. CudaUnpacker (packed/cuda_unpacker.cuh) and SimulatedUnpacker (simulation/simulated_unpacker.hpp) are its models.
template <Device D>
class Unpacker {
public:
    Unpacker() = default;
    Unpacker(const Unpacker&) = delete;
    Unpacker& operator=(const Unpacker&) = delete;
    virtual ~Unpacker() = default;

    /// Whether it unpacks that form. Weights of other packed forms are read as they are (Lease::packed).
    [[nodiscard]] virtual bool takes(PackedForm form) const noexcept = 0;
    /// Enqueues what unpacks these parts, all of a form that it takes: tasks[i] says where parts[i] lies, and `on_device` are the same tasks
    /// in device memory; null: they go with the launch. `tasks` and `parts` end with the call. Does not block, and works in a capture.
    /// Errors: the device's own.
    [[nodiscard]] virtual Status enqueue(D& device, std::span<const codec::UnpackTask> tasks,
                                         std::span<const PackedPart> parts, const codec::UnpackTask* on_device,
                                         typename D::Stream stream) const = 0;
};

}}  // namespace residency::RESIDENCY_ABI

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// How the bytes of a storage travel.
struct Form {
    std::shared_ptr<const std::vector<PackedPart>> parts{};  ///< null: raw
    const std::byte* host = nullptr;                         ///< where the first part lies; kept alive by the catalog
    std::uint64_t raw_bytes = 0;                             ///< of the storage
    bool unpacks = false;                                    ///< false: kernels read what travels
};

}}}  // namespace residency::RESIDENCY_ABI::packed

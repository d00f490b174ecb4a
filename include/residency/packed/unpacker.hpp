// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "residency/codec/unpack_task.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Turns packed bytes on a device into the weights that kernels read. Its calls come from one thread at a time; it outlives whoever was
/// given it. CudaUnpacker (packed/cuda_unpacker.cuh) and SimulatedUnpacker (packed/simulated_unpacker.hpp) are its models.
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

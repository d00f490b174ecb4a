// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>

#include "residency/codec/task.hpp"
#include "residency/device/device.hpp"
#include "residency/packed/packer.hpp"
#include "residency/routed/routed_experts.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/simulation/simulated_server.hpp"
#include "residency/simulation/simulated_unpacker.hpp"

namespace attack {

/// A simulated device that can also lie: a call does its work and says that it failed, as CUDA does where it reports an earlier,
/// asynchronous error on a later call. And a call may take a second.
class Device : public residency::SimulatedDevice {
public:
    using SimulatedDevice::SimulatedDevice;

    /// The nth call from now on of copy, record or wait lies; 0: none does.
    void lie(int nth) noexcept { lie_in_ = nth; }
    /// The nth of these calls from now on takes a second of the host's time; 0: none does.
    void delay(int nth) noexcept { delay_in_ = nth; }

    residency::Status copy(std::span<const residency::Copy> copies, Stream stream) {
        return said(SimulatedDevice::copy(copies, stream));
    }
    residency::Status record(Event event, Stream stream) { return said(SimulatedDevice::record(event, stream)); }
    residency::Status wait(Stream stream, Event event) { return said(SimulatedDevice::wait(stream, event)); }

private:
    residency::Status said(residency::Status done) {
        if (delay_in_ > 0 && --delay_in_ == 0) { spend(std::chrono::seconds{1}); }
        if (lie_in_ > 0 && --lie_in_ == 0 && done) {
            return residency::Error{residency::ErrorKind::device, "a call that worked says that it failed"};
        }
        return done;
    }

    std::atomic<int> lie_in_ = 0, delay_in_ = 0;
};

using Stream = Device::Stream;

/// What unpacks there.
class Unpacker final : public residency::Unpacker<Device> {
public:
    [[nodiscard]] bool takes(residency::PackedForm form) const noexcept override { return simulated_.takes(form); }
    [[nodiscard]] residency::Status enqueue(Device& device, std::span<const residency::codec::UnpackTask> tasks,
                                            std::span<const residency::PackedPart> parts,
                                            const residency::codec::UnpackTask* on_device,
                                            Stream stream) const override {
        return simulated_.enqueue(device, tasks, parts, on_device, stream);
    }

private:
    residency::SimulatedUnpacker simulated_;
};

/// What serves experts there.
class Server final : public residency::routed::Server<Device, residency::routed::ExpectedUse> {
public:
    using Tables = residency::routed::Tables<residency::routed::ExpectedUse>;

    [[nodiscard]] residency::Status serve(Device& device, const Tables& tables, const residency::routed::Call& call,
                                          Stream stream) const override {
        return simulated_.serve(device, tables, call, stream);
    }
    [[nodiscard]] residency::Status unpack(Device& device, const Tables& tables,
                                           const residency::routed::Unpacking& unpacking,
                                           Stream stream) const override {
        return simulated_.unpack(device, tables, unpacking, stream);
    }
    [[nodiscard]] residency::Status guess(Device& device, const Tables& tables, const residency::routed::Call& call,
                                          Stream stream) const override {
        return simulated_.guess(device, tables, call, stream);
    }

private:
    residency::SimulatedServer<> simulated_;
};

}  // namespace attack

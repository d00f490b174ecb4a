// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <span>

#include "residency/device/device.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace attack {

/// A simulated device that can also lie: a call does its work and says that it failed, as CUDA does where it reports an earlier,
/// asynchronous error on a later call.
class Device : public residency::SimulatedDevice {
public:
    using SimulatedDevice::SimulatedDevice;

    /// The nth call from now on of copy, record or wait lies; 0: none does.
    void lie(int nth) noexcept { lie_in_ = nth; }

    residency::Status copy(std::span<const residency::Copy> copies, Stream stream) {
        return said(SimulatedDevice::copy(copies, stream));
    }
    residency::Status record(Event event, Stream stream) { return said(SimulatedDevice::record(event, stream)); }
    residency::Status wait(Stream stream, Event event) { return said(SimulatedDevice::wait(stream, event)); }

private:
    residency::Status said(residency::Status done) {
        if (lie_in_ > 0 && --lie_in_ == 0 && done) {
            return residency::Error{residency::ErrorKind::device, "a call that worked says that it failed"};
        }
        return done;
    }

    std::atomic<int> lie_in_ = 0;
};

using Stream = Device::Stream;

}  // namespace attack

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>
#include <vector>

#include "examples/support/memory.hpp"
#include "residency/device/cuda.hpp"
#include "residency/error.hpp"
#include "residency/interop/perfetto.hpp"

namespace examples {

inline void check(cudaError_t code, const std::string& what) {
    if (code != cudaSuccess) {
        residency::throw_error({residency::ErrorKind::device, what + ": " + cudaGetErrorString(code)});
    }
}

inline void check_launch(cudaError_t code, const char* kernel) {
    if (code != cudaSuccess) { check(code, std::string{"the kernel "} + kernel); }
}

/// The part of a GPU's back end that knows no kernels: a stream, memory, and the times of what is launched.
class CudaBackend {
public:
    using Device = residency::CudaDevice;

    CudaBackend() : device_{0}, memory_{device_}, stream_{residency::unwrap(device_.create_stream())} {}
    ~CudaBackend() {
        static_cast<void>(device_.synchronize().has_value());
        for (const Timed& each : timed_) {
            static_cast<void>(device_.destroy_event(each.begin).has_value());
            static_cast<void>(device_.destroy_event(each.end).has_value());
        }
        static_cast<void>(device_.destroy_stream(stream_).has_value());
    }
    CudaBackend(const CudaBackend&) = delete;
    CudaBackend& operator=(const CudaBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }
    [[nodiscard]] Memory<Device>& memory() noexcept { return memory_; }

    /// Of what is launched from now on, kernel by kernel.
    void begin_timeline() { recording_ = true; }
    void end_timeline() { recording_ = false; }
    /// Says what is in it.
    [[nodiscard]] std::string save_timeline(const std::string& path) {
        residency::PerfettoTrace timeline;
        for (const Timed& each : timed_) {
            timeline.event("compute", each.name, residency::unwrap(device_.elapsed(timed_.front().begin, each.begin)),
                           residency::unwrap(device_.elapsed(timed_.front().begin, each.end)));
        }
        timeline.save(path);
        return "kernels of the last pass; what lies between them is waiting for copies";
    }
    /// Nothing checks accesses here.
    [[nodiscard]] static std::vector<std::string> reports() { return {}; }

protected:
    /// Calls `enqueue`, which launches something on the stream.
    template <class Enqueue>
    void timed(const char* name, Enqueue&& enqueue) {
        if (!recording_) { return enqueue(); }
        const auto event = [&] { return residency::unwrap(device_.create_event(residency::Timing::on)); };
        timed_.push_back({name, event(), event()});
        residency::unwrap(device_.record(timed_.back().begin, stream_));
        enqueue();
        residency::unwrap(device_.record(timed_.back().end, stream_));
    }

private:
    struct Timed {
        const char* name;
        Device::Event begin, end;
    };

    Device device_;
    Memory<Device> memory_;
    Device::Stream stream_;
    std::vector<Timed> timed_;
    bool recording_ = false;
};

}  // namespace examples

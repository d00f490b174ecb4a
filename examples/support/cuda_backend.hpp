// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/memory.hpp"
#include "residency/device/cuda.hpp"
#include "residency/error.hpp"
#include "residency/interop/pass_timeline.hpp"
#include "residency/model/catalog.hpp"

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
    void begin_timeline(const residency::Catalog&) { drawing_ = true; }
    void end_timeline() { drawing_ = false; }
    [[nodiscard]] bool is_drawing() const noexcept { return drawing_; }
    /// What is launched from now on belongs to this step. While a timeline is recorded.
    void begin_step(std::string name, std::uint64_t held_bytes, std::uint64_t budget_bytes) {
        steps_.push_back({std::move(name), timed_.size(), held_bytes, budget_bytes});
    }
    /// Says what is in it.
    [[nodiscard]] std::string save_timeline(const std::string& path) {
        residency::PassTimeline timeline;
        const auto time = [&](Device::Event event) {
            return residency::unwrap(device_.elapsed(timed_.front().begin, event));
        };
        std::size_t next = 0;
        std::string step;
        for (std::size_t i = 0; i < timed_.size(); ++i) {
            for (; next < steps_.size() && steps_[next].first_kernel == i; ++next) {
                step = steps_[next].name;
                timeline.add_memory(time(timed_[i].begin), steps_[next].held_bytes, steps_[next].budget_bytes);
            }
            timeline.add_kernel({step, timed_[i].name, time(timed_[i].begin), time(timed_[i].end)});
        }
        timeline.trace().save(path);
        return "kernels of the last pass, by step; what lies between them is waiting for copies";
    }
    /// Nothing checks accesses here.
    [[nodiscard]] static std::vector<std::string> reports() { return {}; }

protected:
    /// Calls `enqueue`, which launches something on the stream.
    template <class Enqueue>
    void timed(const char* name, Enqueue&& enqueue) {
        if (!drawing_) { return enqueue(); }
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

    struct Step {
        std::string name;
        std::size_t first_kernel = 0;
        std::uint64_t held_bytes = 0, budget_bytes = 0;
    };

    Device device_;
    Memory<Device> memory_;
    Device::Stream stream_;
    std::vector<Timed> timed_;
    std::vector<Step> steps_;
    bool drawing_ = false;
};

}  // namespace examples

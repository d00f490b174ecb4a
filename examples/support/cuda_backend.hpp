// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>
#include <vector>

#include "examples/support/memory.hpp"
#include "examples/support/recorded.hpp"
#include "residency/device/cuda.hpp"
#include "residency/error.hpp"

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

    /// On that GPU, which is the calling thread's current one from now on.
    explicit CudaBackend(int ordinal = 0)
        : device_{ordinal}, memory_{device_}, stream_{residency::unwrap(device_.create_stream())} {
        use();
    }
    ~CudaBackend() {
        static_cast<void>(device_.synchronize().has_value());
        static_cast<void>(device_.destroy_stream(stream_).has_value());
    }
    CudaBackend(const CudaBackend&) = delete;
    CudaBackend& operator=(const CudaBackend&) = delete;

    /// The GPU becomes the calling thread's current one: kernels are launched there.
    void use() const { check(cudaSetDevice(device_.ordinal()), "the GPU"); }
    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }
    [[nodiscard]] Memory<Device>& memory() noexcept { return memory_; }

    /// What is recorded of passes.
    [[nodiscard]] Recorded<Device>& recorded() noexcept { return recorded_; }
    /// Nothing checks accesses here.
    [[nodiscard]] static std::vector<std::string> reports() { return {}; }

protected:
    /// Calls `enqueue`, which launches something on the stream.
    template <class Enqueue>
    void timed(const char* name, Enqueue&& enqueue) {
        recorded_.kernel(name, stream_, std::forward<Enqueue>(enqueue));
    }

private:
    Device device_;
    Memory<Device> memory_;
    Device::Stream stream_;
    Recorded<Device> recorded_{device_};
};

}  // namespace examples

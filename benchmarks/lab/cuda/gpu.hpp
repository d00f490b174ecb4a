// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "benchmarks/lab/cuda/spin.hpp"
#include "benchmarks/lab/gpu.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/packed/pinned_memory.hpp"
#include "residency/timeline/perfetto.hpp"

namespace lab {

/// See measure(). One at a time.
class Gpu {
public:
    explicit Gpu(residency::CudaDevice device, std::chrono::nanoseconds kernel_cost)
        : device_{std::move(device)}, kernel_cost_{kernel_cost} {}

    [[nodiscard]] residency::CudaDevice& device() { return device_; }
    /// Pinned once and kept, at most 8 GiB: pinning takes longer than most runs.
    [[nodiscard]] residency::Result<std::shared_ptr<const residency::HostBytes>> host(std::uint64_t bytes) {
        bytes = std::clamp<std::uint64_t>(bytes, 1, std::uint64_t{8} << 30);
        if (host_ != nullptr && host_->span().size() >= bytes) { return host_; }
        host_ = nullptr;
        auto memory = residency::packed::try_allocate_pinned(device_, bytes);
        if (!memory) { return memory.error(); }
        host_ = std::move(memory->bytes);
        return host_;
    }
    /// Pinned, with these bytes.
    [[nodiscard]] residency::Result<std::shared_ptr<const residency::HostBytes>> new_host(
        std::span<const std::byte> bytes) {
        auto memory = residency::packed::try_allocate_pinned(device_, std::max<std::uint64_t>(bytes.size(), 1));
        if (!memory) { return memory.error(); }
        std::copy(bytes.begin(), bytes.end(), memory->writable.begin());
        return std::move(memory->bytes);
    }
    [[nodiscard]] residency::Status launch(residency::CudaDevice::Stream stream, std::string_view,
                                           std::chrono::nanoseconds duration) {
        const auto rest = std::max(duration - kernel_cost_, std::chrono::nanoseconds{0});
        if (const cudaError_t code = spin(rest, stream); code != cudaSuccess) {
            return residency::Error{residency::ErrorKind::device,
                                    std::string{"the laboratory's kernel: "} + cudaGetErrorString(code)};
        }
        return {};
    }
    // A timeline is of the simulated device; the command line says so.
    void observe(const residency::Catalog&) {}
    void begin_step(const std::string&, const residency::Statistics&) {}
    [[nodiscard]] residency::PerfettoTrace end_observing() { return {}; }

private:
    residency::CudaDevice device_;
    std::chrono::nanoseconds kernel_cost_;  // of one that does nothing, in a row of them
    std::shared_ptr<const residency::HostBytes> host_;
};

}  // namespace lab

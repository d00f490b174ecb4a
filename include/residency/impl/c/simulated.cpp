// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <utility>

#include "residency/impl/c/opened_model.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace c {

/// Its number and its generation, in the two halves of the pointer.
template <>
struct StreamPointer<SimulatedDevice> {
    [[nodiscard]] static SimulatedDevice::Stream from(const SimulatedDevice& device, void* pointer) noexcept {
        const auto bits = reinterpret_cast<std::uintptr_t>(pointer);
        if (bits == 0) { return {}; }
        return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32), &device};
    }
    [[nodiscard]] static void* to(SimulatedDevice::Stream stream) noexcept {
        const std::uintptr_t bits = std::uintptr_t{stream.generation} << 32 | stream.number;
        return reinterpret_cast<void*>(bits);  // NOLINT(performance-no-int-to-ptr): it is no address
    }
};

Result<std::unique_ptr<Model>> open_simulated(OpenRequest request) {
    return open_on(std::make_unique<SimulatedDevice>(), std::move(request));
}

}}}  // namespace residency::RESIDENCY_ABI::c

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The contracts of pools and transports on the real device.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "residency/conformance/memory_pool.hpp"
#include "residency/conformance/transport_policy.hpp"
#include "residency/device/cuda.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/transport/pinned.hpp"
#include "residency/transport/staged.hpp"
#include "tests/gpu/support.hpp"

namespace policies_on_gpu {

namespace conformance = residency::conformance;
using residency::CudaDevice;
using Staged = residency::transport::Staged<CudaDevice>;

TEST_CASE("conformance: pool::Slab") {
    CudaDevice device{0};
    conformance::check_memory_pool<residency::pool::Slab<CudaDevice>>(
        device, {.runs = 4, .operations = 60, .unit_bytes = gpu::MiB, .own_bytes = gpu::driver_own_bytes});
}
TEST_CASE("conformance: pool::StreamOrdered") {
    CudaDevice device{0};
    conformance::check_memory_pool<residency::pool::StreamOrdered<CudaDevice>>(
        device,
        {.runs = 4, .operations = 60, .fragments = true, .unit_bytes = gpu::MiB, .own_bytes = gpu::driver_own_bytes});
}
TEST_CASE("conformance: transport::Pinned") {
    CudaDevice device{0};
    conformance::check_transport_policy<residency::transport::Pinned<CudaDevice>>(device,
                                                                                  {.runs = 4, .operations = 60});
}
TEST_CASE("conformance: transport::Staged") {
    CudaDevice device{0};
    conformance::TransportSuite<CudaDevice> suite{.runs = 4, .operations = 60};
    suite.model = [](CudaDevice& on, std::uint32_t seed) {
        return conformance::host_model(on, seed, residency::HostMemory::pageable);
    };
    conformance::check_transport_policy<Staged>(device, suite, [] {
        Staged::Config config;
        config.ring_bytes = 32768;
        config.slot_bytes = 4096;
        config.threads = 2;
        return std::make_unique<Staged>(config);
    });
}

}  // namespace policies_on_gpu

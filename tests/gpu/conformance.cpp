// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The rules of device.hpp on the real device.
#include "residency/conformance/device.hpp"

#include <doctest/doctest.h>

#include "tests/gpu/cuda_harness.hpp"

namespace conformance_on_gpu {

using gpu::CudaHarness;

TEST_CASE("conformance: device") { residency::conformance::device_conformance<CudaHarness>(); }
TEST_CASE("conformance: capture") { residency::conformance::capture_conformance<CudaHarness>(); }
TEST_CASE("conformance: virtual memory") { residency::conformance::virtual_memory_conformance<CudaHarness>(); }
TEST_CASE("conformance: flags") { residency::conformance::flag_conformance<CudaHarness>(); }

}  // namespace conformance_on_gpu

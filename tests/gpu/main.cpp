// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The main function of the GPU tests: without a device they say why and are skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <string_view>

#include "residency/device/cuda.hpp"
#include "tests/gpu/support.hpp"

int main(int argc, char** argv) {
    if (argc > 1 && std::string_view{argv[1]} == gpu::lost_device_argument) { return gpu::lose_device(); }
    if (auto device = residency::CudaDevice::try_open(0); !device) {
        const auto* failure = device.error().detail<residency::DeviceFailure>();
        std::fprintf(stderr, "skipped: %s\n", device.error().message().c_str());
        return failure != nullptr && (failure->code == 35 || failure->code == 100) ? 77 : 1;
    }
    doctest::Context context;
    context.applyCommandLine(argc, argv);
    return context.run();
}

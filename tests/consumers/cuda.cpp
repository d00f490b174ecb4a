// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A plain C++ file that uses the CUDA component: built and linked without nvcc, run with or without a device.
#include <cuda_runtime_api.h>

#include <cstdio>

#include "residency/error.hpp"

int main() {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    const residency::Error error{residency::ErrorKind::device, cudaGetErrorString(code)};
    std::printf("consumer of residency::cuda works: %d devices (%s)\n", devices, error.message().c_str());
}

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The main function of gpu_tests: without a usable device it says so and exits with 77, which counts as skipped.
#include <cuda_runtime_api.h>

#include <cstdio>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess || devices == 0) {
        std::printf("SKIPPED: no CUDA device (%s)\n", code == cudaSuccess ? "none" : cudaGetErrorString(code));
        return 77;
    }
    return doctest::Context{argc, argv}.run();
}

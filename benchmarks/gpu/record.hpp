// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/record.hpp"
#include "residency/device/cuda.hpp"

/// The same for those that measure on a GPU.
namespace bench {

/// Ends the program with the call, where a CUDA call of the benchmark itself fails.
inline void require(cudaError_t code, const char* call, const char* file, int line) {
    if (code == cudaSuccess) { return; }
    std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(code));
    std::exit(1);
}
#define BENCH_CUDA(call) ::bench::require((call), #call, __FILE__, __LINE__)

/// The first GPU. Ends the program with 77, which stands for skipped, where there is none.
[[nodiscard]] inline residency::CudaDevice open_gpu() {
    auto opened = residency::CudaDevice::try_open(0);
    if (!opened) {
        std::fprintf(stderr, "skipped: %s\n", opened.error().message().c_str());
        std::exit(77);
    }
    return std::move(*opened);
}

/// Seconds between two events around what `work` enqueues. The host waits for the end.
class StreamTimer {
public:
    explicit StreamTimer(cudaStream_t stream) : stream_{stream} {
        BENCH_CUDA(cudaEventCreate(&begin_));
        BENCH_CUDA(cudaEventCreate(&end_));
    }
    StreamTimer(const StreamTimer&) = delete;
    StreamTimer& operator=(const StreamTimer&) = delete;
    ~StreamTimer() {
        static_cast<void>(cudaEventDestroy(begin_));
        static_cast<void>(cudaEventDestroy(end_));
    }
    template <class Work>
    [[nodiscard]] double seconds(Work&& work) {
        BENCH_CUDA(cudaEventRecord(begin_, stream_));
        work();
        BENCH_CUDA(cudaEventRecord(end_, stream_));
        BENCH_CUDA(cudaEventSynchronize(end_));
        float milliseconds = 0;
        BENCH_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return static_cast<double>(milliseconds) / 1e3;
    }
    /// The median of `runs`, after one that is not counted.
    template <class Work>
    [[nodiscard]] double median_seconds(int runs, Work&& work) {
        static_cast<void>(seconds(work));
        std::vector<double> times;
        for (int i = 0; i < runs; ++i) { times.push_back(seconds(work)); }
        return median(std::move(times));
    }

private:
    cudaStream_t stream_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Records that name the current GPU.
class Records : public HostRecords {
public:
    Records(std::string file, int argc, char** argv) : HostRecords{std::move(file), argc, argv} {
        int device = 0;
        cudaDeviceProp properties{};
        if (cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
            gpu_ = properties.name;
        }
    }
};

}  // namespace bench

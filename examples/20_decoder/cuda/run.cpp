// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run.hpp"

#include <cublas_v2.h>

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "residency/device/cuda.hpp"
#include "residency/error.hpp"
#include "residency/trace/perfetto.hpp"

namespace decoder {
namespace {

using residency::unwrap;

void check(cudaError_t code, const std::string& what) {
    if (code != cudaSuccess) {
        residency::throw_error({residency::ErrorKind::device, what + ": " + cudaGetErrorString(code)});
    }
}
void check(cublasStatus_t code, const std::string& what) {
    if (code != CUBLAS_STATUS_SUCCESS) {
        residency::throw_error({residency::ErrorKind::device, what + ": " + cublasGetStatusString(code)});
    }
}

/// cuBLAS on one stream, with a workspace of its own, so that its work can be captured, and always takes the same way.
class Multiplier {
public:
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;  ///< what cuBLAS asks for on Hopper

    Multiplier(residency::CudaDevice& device, cudaStream_t stream) : device_{device} {
        check(cublasCreate(&handle_), "cublasCreate");
        try {
            workspace_ = unwrap(device.allocate(workspace_bytes));
            check(cublasSetStream(handle_, stream), "cublasSetStream");  // resets the workspace: first
            check(cublasSetWorkspace(handle_, workspace_, workspace_bytes), "cublasSetWorkspace");
            check(cublasSetMathMode(
                      handle_, cublasMath_t(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
                  "cublasSetMathMode");
            check(cublasSetAtomicsMode(handle_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
        } catch (...) {
            close();
            throw;
        }
    }
    ~Multiplier() { close(); }
    Multiplier(const Multiplier&) = delete;
    Multiplier& operator=(const Multiplier&) = delete;

    /// Rows of ours are columns of cuBLAS: outᵀ = weight × inᵀ, and what lies in `out` is added where there is a bias.
    void multiply(const char* name, const Linear& o) {
        const float one = 1, kept = o.bias != nullptr ? 1.0F : 0.0F;
        const bool is_logits = o.logits != nullptr;
        void* const out = is_logits ? static_cast<void*>(o.logits) : o.out;
        check(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, int(o.to), int(o.tokens), int(o.from), &one, o.weight,
                           CUDA_R_16BF, int(o.from), o.in, CUDA_R_16BF, int(o.from), &kept, out,
                           is_logits ? CUDA_R_32F : CUDA_R_16BF, int(o.to), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              std::string{"the matrix product "} + name);
    }

private:
    void close() noexcept {
        if (handle_ != nullptr) { static_cast<void>(cublasDestroy(handle_)); }
        if (workspace_ != nullptr) { static_cast<void>(device_.deallocate(workspace_).has_value()); }
    }

    residency::CudaDevice& device_;
    cublasHandle_t handle_ = nullptr;
    void* workspace_ = nullptr;
};

/// Runs operations as kernels of a GPU.
class CudaBackend {
public:
    using Device = residency::CudaDevice;
    static constexpr bool learns = true;  ///< how long the steps take
    static constexpr std::uint64_t scratch_bytes = Multiplier::workspace_bytes;

    CudaBackend() : device_{0}, stream_{unwrap(device_.create_stream())} {
        multiplier_.emplace(device_, stream_);
        check(prepare_kernels(), "the kernels");
    }
    ~CudaBackend() {
        static_cast<void>(device_.synchronize().has_value());
        for (void* at : memory_) { static_cast<void>(device_.deallocate(at).has_value()); }
        for (void* at : pinned_) { static_cast<void>(device_.deallocate_host(at).has_value()); }
        for (const Timed& each : timed_) {
            static_cast<void>(device_.destroy_event(each.begin).has_value());
            static_cast<void>(device_.destroy_event(each.end).has_value());
        }
        multiplier_.reset();
        static_cast<void>(device_.destroy_stream(stream_).has_value());
    }
    CudaBackend(const CudaBackend&) = delete;
    CudaBackend& operator=(const CudaBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }
    template <class T>
    [[nodiscard]] T* allocate_host(std::size_t count) {
        return static_cast<T*>(pinned_.emplace_back(unwrap(device_.allocate_host(count * sizeof(T)))));
    }
    template <class T>
    [[nodiscard]] T* allocate_device(std::size_t count) {
        return static_cast<T*>(memory_.emplace_back(unwrap(device_.allocate(count * sizeof(T)))));
    }
    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        if (recording_) { begin(name); }
        if constexpr (std::same_as<Operation, Linear>) {
            if (operation.bias != nullptr) {
                check(launch_spread(operation.bias, operation.out, operation.tokens, operation.to, stream_),
                      "the bias");
            }
            multiplier_->multiply(name, operation);
        } else {
            check(decoder::launch(operation, stream_), std::string{"the kernel "} + name);
        }
        if (recording_) { unwrap(device_.record(timed_.back().end, stream_)); }
    }

    void begin_timeline() { recording_ = true; }
    void end_timeline() { recording_ = false; }
    [[nodiscard]] std::string save_timeline(const std::string& path) {
        residency::trace::Perfetto timeline;
        for (const Timed& each : timed_) {
            timeline.event("compute", each.name, unwrap(device_.elapsed(timed_.front().begin, each.begin)),
                           unwrap(device_.elapsed(timed_.front().begin, each.end)));
        }
        timeline.save(path);
        return "kernels of the last step; what lies between them is waiting for copies";
    }
    [[nodiscard]] static std::vector<std::string> reports() { return {}; }

private:
    struct Timed {
        const char* name;
        Device::Event begin, end;
    };
    void begin(const char* name) {
        timed_.push_back({name, unwrap(device_.create_event(residency::Timing::on)),
                          unwrap(device_.create_event(residency::Timing::on))});
        unwrap(device_.record(timed_.back().begin, stream_));
    }

    Device device_;
    Device::Stream stream_;
    std::optional<Multiplier> multiplier_;
    std::vector<void*> memory_, pinned_;
    std::vector<Timed> timed_;
    bool recording_ = false;
};

}  // namespace

Results run_cuda(const Job& job, const Checkpoint& model) {
    CudaBackend backend;
    return run_all(backend, job, model);
}

bool has_gpu(std::string& why_not) {
    const auto device = residency::CudaDevice::try_open(0);
    if (!device) { why_not = device.error().message(); }
    return device.has_value();
}

}  // namespace decoder

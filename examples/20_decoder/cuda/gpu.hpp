// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublas_v2.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "../cold_start.hpp"
#include "../config.hpp"
#include "../generate_text.hpp"
#include "../operations.hpp"
#include "../ranks.hpp"
#include "collectives.hpp"
#include "direct_products.hpp"
#include "examples/support/cuda_backend.hpp"
#include "kernels.hpp"
#include "residency/device/cuda.hpp"
#include "residency/error.hpp"
#include "residency/model/host_bytes.hpp"

namespace decoder {

inline void check(cublasStatus_t code, const std::string& what) {
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
            workspace_ = residency::unwrap(device.allocate(workspace_bytes));
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
class Gpu : public examples::CudaBackend {
public:
    static constexpr bool learns = true;  ///< how long the steps take

    /// `direct`: products of few tokens by DirectProducts, those with packed weights among them; otherwise all by cuBLAS.
    /// `communicator`: with the other GPUs that run the model, and outlives it; for one that is alone, none.
    Gpu(const Config& config, bool direct, int ordinal = 0, Communicator* communicator = nullptr)
        : CudaBackend{ordinal}, multiplier_{device(), stream()}, communicator_{communicator} {
        if (direct) { direct_.emplace(device(), config); }
        examples::check(prepare_kernels(), "the kernels");
    }
    ~Gpu() {
        static_cast<void>(cudaSetDevice(device().ordinal()));
        static_cast<void>(device().synchronize().has_value());  // before what it uses ends
    }
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    /// Device memory that products take.
    [[nodiscard]] std::uint64_t scratch_bytes() const noexcept {
        return Multiplier::workspace_bytes + (direct_ ? direct_->workspace_bytes() : 0);
    }
    /// What unpacks weights before kernels read them.
    [[nodiscard]] static const residency::Unpacker<Device>& unpacker() { return decoder::unpacker(); }

    [[nodiscard]] Rank& rank() noexcept { return rank_; }
    // Pinned memory is that of every GPU.
    static void share(const residency::HostBytes&) noexcept {}
    static void unshare(const residency::HostBytes&) noexcept {}
    /// Blocks until the stream is done; throws where another rank has failed, for whose kernels ours would wait.
    void wait() {
        if (rank_.is_alone()) { return residency::unwrap(device().synchronize(stream())); }
        while (true) {
            const cudaError_t now = cudaStreamQuery(stream());
            if (now == cudaSuccess) { return; }
            if (now != cudaErrorNotReady) { examples::check(now, "the pass"); }
            static_cast<void>(cudaGetLastError());  // is kept as an error, and the next launch would find it
            rank_.check();
            communicator_->check();
            std::this_thread::yield();
        }
    }
    /// The other ranks go on without this one, and it without them.
    void fail(const std::exception_ptr& why) noexcept {
        if (rank_.is_alone()) { return; }
        rank_.fail(why);
        communicator_->abort();
    }

    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        timed(name, [&] {
            if constexpr (std::same_as<Operation, Linear>) {
                if (direct_ && DirectProducts::takes(operation)) {
                    return examples::check_launch(direct_->multiply(operation, stream()), name);
                }
                if (operation.bias != nullptr) {
                    examples::check(
                        launch_spread(operation.bias, operation.out, operation.tokens, operation.to, stream()),
                        "the bias");
                }
                multiplier_.multiply(name, operation);
            } else if constexpr (std::same_as<Operation, Sum> || std::same_as<Operation, Gather>) {
                communicator_->launch(operation, stream());
            } else {
                examples::check_launch(decoder::launch(operation, stream()), name);
            }
        });
    }

private:
    Multiplier multiplier_;
    std::optional<DirectProducts> direct_;
    Communicator* communicator_;
    Rank rank_;
};

extern template ColdStart start_cold(Gpu&, const ColdJob&, Workspace<Gpu>&);
extern template Outcome generate_packed(Gpu&, const TextJob<Gpu>&);

}  // namespace decoder

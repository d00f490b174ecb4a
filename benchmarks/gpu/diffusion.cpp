// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Steps of a diffusion transformer at the shapes of FLUX.1 (19 double and 38 single blocks, 24 GB in bf16), its matrix products by
// cuBLAS, the host waiting once a step: time against the exact bound and against everything resident, in turns with that and with
// bare copies. Attention between the products is left out. Compute and copies are of one order: where compute covers the copies,
// the bound is the resident time.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/pinned_weights.hpp"
#include "benchmarks/gpu/record.hpp"
#include "benchmarks/gpu/turns.hpp"
#include "residency/device/cuda.hpp"
#include "residency/planned.hpp"
#include "tests/gpu/harness.hpp"

namespace {

using residency::Budget;
using residency::CudaDevice;
using residency::Schedule;
using residency::WeightId;
using Weights = residency::Planned<CudaDevice>;
using Stream = CudaDevice::Stream;

constexpr std::uint64_t hidden = 3072, wide = 4 * hidden, image_tokens = 4096, text_tokens = 512;

void require_blas(cublasStatus_t code, const char* call) {
    if (code == CUBLAS_STATUS_SUCCESS) { return; }
    std::fprintf(stderr, "%s: %s\n", call, cublasGetStatusString(code));
    std::exit(1);
}

/// out (tokens × rows) = a multiple of in (tokens × columns) · weightᵀ (rows × columns), a token's row after the other.
struct Product {
    WeightId weight;
    std::uint64_t rows, columns, tokens;
};

/// The matrices in the order of use.
struct Model : bench::PinnedWeights {
    std::vector<std::vector<Product>> steps;  // what is launched together; tokens of one image

    explicit Model(CudaDevice& device) {
        struct Matrix {
            const char* name;
            std::uint64_t rows, columns;
        };
        std::vector<std::vector<WeightId>> reads;
        const auto step = [&](const std::string& block, std::uint64_t tokens, std::initializer_list<Matrix> matrices) {
            steps.emplace_back();
            reads.emplace_back();
            for (const Matrix& each : matrices) {
                reads.back().push_back(add(block + each.name, each.rows * each.columns));
                steps.back().push_back({reads.back().back(), each.rows, each.columns, tokens});
            }
        };
        for (int i = 0; i < 19; ++i) {
            const std::string block = "double_blocks." + std::to_string(i) + ".";
            step(block, 1, {{"img_mod", 6 * hidden, hidden}, {"txt_mod", 6 * hidden, hidden}});
            step(block, image_tokens, {{"img_attn.qkv", 3 * hidden, hidden}});
            step(block, text_tokens, {{"txt_attn.qkv", 3 * hidden, hidden}});
            step(block, image_tokens,
                 {{"img_attn.proj", hidden, hidden}, {"img_mlp.0", wide, hidden}, {"img_mlp.2", hidden, wide}});
            step(block, text_tokens,
                 {{"txt_attn.proj", hidden, hidden}, {"txt_mlp.0", wide, hidden}, {"txt_mlp.2", hidden, wide}});
        }
        for (int i = 0; i < 38; ++i) {
            const std::string block = "single_blocks." + std::to_string(i) + ".";
            step(block, 1, {{"modulation", 3 * hidden, hidden}});
            step(block, image_tokens + text_tokens, {{"linear1", 3 * hidden + wide, hidden}});
            step(block, image_tokens + text_tokens, {{"linear2", hidden, hidden + wide}});
        }
        // Four numbers ± 2⁻⁷ … 2⁻⁶: random signs and fractions.
        build(device, reads,
              [](std::uint64_t pattern) { return (pattern & 0x807F'807F'807F'807FU) | 0x3C00'3C00'3C00'3C00U; });
    }
};

/// What lies on the device beside the weights, and cuBLAS. Every product reads what the one before it wrote, and what still lies
/// behind it from others.
class Denoiser {
public:
    Denoiser(CudaDevice& device, const Model& model, std::uint64_t images, Stream stream)
        : device_{device}, model_{model}, images_{images}, stream_{stream} {
        for (const auto& products : model.steps) {
            for (const Product& each : products) {
                state_bytes_ = std::max(state_bytes_, 2 * images * each.tokens * std::max(each.rows, each.columns));
            }
        }
        for (void** each : {&noise_, &state_[0], &state_[1]}) { *each = BENCH_RESULT(device.allocate(state_bytes_)); }
        workspace_ = BENCH_RESULT(device.allocate(workspace_bytes));
        sums_ = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(8 * sums())));
        // The same kind of numbers as the weights are: copied from them.
        for (std::uint64_t done = 0; done < state_bytes_;) {
            const std::uint64_t some = std::min(state_bytes_ - done, model.bytes);
            BENCH_CUDA(cudaMemcpy(static_cast<std::byte*>(noise_) + done, model.host, some, cudaMemcpyHostToDevice));
            done += some;
        }
        require_blas(cublasCreate(&blas_), "cublasCreate");
        require_blas(cublasSetStream(blas_, stream), "cublasSetStream");
        require_blas(cublasSetWorkspace(blas_, workspace_, workspace_bytes), "cublasSetWorkspace");
        require_blas(cublasSetAtomicsMode(blas_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
        reset();
    }
    ~Denoiser() {
        static_cast<void>(cudaDeviceSynchronize());
        static_cast<void>(cublasDestroy(blas_));
        for (void* each : {noise_, state_[0], state_[1], workspace_, static_cast<void*>(sums_)}) {
            static_cast<void>(device_.deallocate(each).has_value());
        }
    }
    Denoiser(const Denoiser&) = delete;
    Denoiser& operator=(const Denoiser&) = delete;

    /// One step of denoising. With `checks`, the checksum of each weight as its kernel finds it.
    void run(Weights& weights, bool checks = false) {
        auto pass = BENCH_RESULT(weights.try_begin(stream_));
        for (const Schedule::Step& step : weights.schedule()) {
            const auto lease = BENCH_RESULT(pass.try_acquire(step));
            for (const Product& each : model_.steps[step.position]) {
                multiply(each, lease.data(each.weight));
                if (checks) {
                    BENCH_CUDA(gpu::launch_checksum({lease.data(each.weight), model_.sizes[index(each.weight)]},
                                                    sums_ + index(each.weight), stream_));
                }
            }
        }
        BENCH_RESULT(pass.try_end());
    }
    /// The checksums of every weight, then of the image, after a step from the noise. Blocks.
    [[nodiscard]] std::vector<std::uint64_t> checked_run(Weights& weights) {
        reset();
        BENCH_CUDA(cudaMemsetAsync(sums_, 0, 8 * sums(), stream_));
        run(weights, true);
        for (const void* each : state_) {
            BENCH_CUDA(gpu::launch_checksum({each, state_bytes_}, sums_ + sums() - 1, stream_));
        }
        std::vector<std::uint64_t> found(sums());
        BENCH_CUDA(cudaStreamSynchronize(stream_));
        BENCH_CUDA(cudaMemcpy(found.data(), sums_, 8 * found.size(), cudaMemcpyDeviceToHost));
        return found;
    }
    /// Blocks.
    void reset() {
        for (void* each : state_) {
            BENCH_CUDA(cudaMemcpyAsync(each, noise_, state_bytes_, cudaMemcpyDeviceToDevice, stream_));
        }
        BENCH_CUDA(cudaStreamSynchronize(stream_));
    }

private:
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

    [[nodiscard]] std::size_t sums() const { return model_.sizes.size() + 1; }
    void multiply(const Product& product, const void* weight) {
        // So that what comes out is as large as what goes in.
        const auto alpha = static_cast<float>(128 / std::sqrt(static_cast<double>(product.columns) * 7 / 3));
        const float beta = 0;
        const auto rows = static_cast<int>(product.rows), columns = static_cast<int>(product.columns);
        const auto tokens = static_cast<int>(images_ * product.tokens);
        require_blas(cublasGemmEx(blas_, CUBLAS_OP_T, CUBLAS_OP_N, rows, tokens, columns, &alpha, weight, CUDA_R_16BF,
                                  columns, state_[0], CUDA_R_16BF, columns, &beta, state_[1], CUDA_R_16BF, rows,
                                  CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     "cublasGemmEx");
        std::swap(state_[0], state_[1]);
    }

    CudaDevice& device_;
    const Model& model_;
    std::uint64_t images_;
    Stream stream_;
    std::uint64_t state_bytes_ = 0;
    void* noise_ = nullptr;
    void* state_[2] = {};
    void* workspace_ = nullptr;
    std::uint64_t* sums_ = nullptr;  // of each weight, and of the image
    cublasHandle_t blas_ = nullptr;
};

Weights make(CudaDevice& device, const Model& model, const Schedule& schedule, std::uint64_t budget, bool learn,
             const residency::plan::Link& link) {
    Weights::Options options;
    options.budget = Budget::bytes(budget);
    options.schedule = schedule;
    options.learn = learn;
    options.policies.link = link;
    return BENCH_RESULT(Weights::try_create(device, model.catalog, std::move(options)));
}

void measure(CudaDevice& device, const Model& model, std::uint64_t images, std::span<const int> percents,
             residency::plan::Link link, Stream stream, bench::BareCopies& bare, bench::Records& records) {
    const std::string name = "diffusion." + std::to_string(images) + (images == 1 ? "_image." : "_images.");
    Denoiser denoiser{device, model, images, stream};
    auto resident = make(device, model, model.schedule, 2 * model.bytes, false, link);
    bench::Turns alone{bare, stream, 12};
    const auto alone_turn = alone.add(true, [&] { denoiser.run(resident); }, [&] { denoiser.reset(); });
    alone.run();
    auto learning = make(device, model, model.schedule, model.bytes / 2, true, link);
    const Schedule timed = bench::timed_steps(learning, [&] { denoiser.run(learning); }, alone.seconds(alone_turn));
    BENCH_RESULT(learning.try_suspend());
    records.add(name + "sum_of_steps", bench::seconds_of(timed) * 1e3, "ms");
    const std::vector<std::uint64_t> expected = denoiser.checked_run(resident);
    for (std::size_t i = 0; i < model.sizes.size(); i += 37) {
        if (expected[i] != gpu::checksum(model.bytes_of(i))) {
            std::fprintf(stderr, "weight %zu: the resident checksum is wrong\n", i);
            std::exit(1);
        }
    }
    for (const int percent : percents) {
        const std::string cell = name + std::to_string(percent) + "%.";
        link.bytes_per_second = bare.rate();
        auto weights = make(device, model, timed, model.bytes / 100 * static_cast<std::uint64_t>(percent), false, link);
        std::size_t wrong = 0;
        for (int i = 0; i < 2; ++i) {
            const std::vector<std::uint64_t> found = denoiser.checked_run(weights);
            for (std::size_t k = 0; k < found.size(); ++k) { wrong += found[k] != expected[k] ? 1U : 0U; }
        }
        records.add(cell + "wrong_weights_and_images", static_cast<double>(wrong), "of 2 steps", "<= 0");
        bench::Turns turns{bare, stream, 24};
        const auto prepare = [&] { denoiser.reset(); };
        // The pass that is not measured: its copies ahead went during the other's steps.
        const auto ours = turns.add(true, [&] { denoiser.run(weights); }, prepare);
        const auto theirs = turns.add(true, [&] { denoiser.run(resident); }, prepare);
        turns.run();
        const double over_resident = turns.ratio(ours, theirs);
        const double bound = weights.plan().bound_seconds(), steps = weights.plan().compute_seconds();
        records.add(cell + "time", turns.seconds(ours) * 1e3, "ms");
        records.add(cell + "resident.time", turns.seconds(theirs) * 1e3, "ms");
        records.add(cell + "link.rate", turns.rate() / 1e9, "GB/s");
        records.add(cell + "link.rate_planned", link.bytes_per_second / 1e9, "GB/s");
        records.add(cell + "copies_over_compute",
                    static_cast<double>(weights.plan().bytes_per_pass()) / link.bytes_per_second / steps, "ratio");
        records.add(cell + "planned_bound", bound * 1e3, "ms");
        records.add(cell + "time_over_resident", over_resident, "ratio");
        records.add(cell + "predicted_over_bound", weights.plan().predicted_seconds() / bound, "ratio");
        // Where the link binds, the bound is at the rate of the copies beside it. Kernels at full load do not keep the clock at which
        // their steps were timed one by one: where compute covers the copies, the bound is the resident time in turns with ours.
        double over_bound = over_resident;
        if (bound > 1.1 * steps) { over_bound = std::min(over_bound, turns.ratio(ours, bound, link.bytes_per_second)); }
        records.add(cell + "time_over_bound", over_bound, "ratio", "<= 1.01");
        if (weights.failure()) { std::fprintf(stderr, "failed: %s\n", weights.failure()->message().c_str()); }
    }
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-diffusion", argc, argv};
    const Model model{device};
    const Stream stream = BENCH_RESULT(device.create_stream());
    const auto link = BENCH_RESULT(residency::try_measure_link(device));
    records.add("diffusion.weights", static_cast<double>(model.bytes) / 1e9, "GB");
    records.add("diffusion.link.rate", link.bytes_per_second / 1e9, "GB/s");
    constexpr int of_one[] = {90, 75, 50}, of_two[] = {90, 75, 50, 25};
    {
        bench::BareCopies bare{device, model, stream};
        measure(device, model, 1, of_one, link, stream, bare, records);
        measure(device, model, 2, of_two, link, stream, bare, records);
    }
    BENCH_RESULT(device.destroy_stream(stream));
    BENCH_RESULT(device.deallocate_host(model.host));
    return 0;
}

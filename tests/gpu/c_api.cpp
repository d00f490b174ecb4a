// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The C API on a real GPU: what kernels on the caller's stream read of a lease are the bytes of the file, eagerly and as a graph.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "residency/c.h"
#include "tests/c_api/model.h"
#include "tests/gpu/support.hpp"

namespace c_api_on_gpu {

namespace {

constexpr std::uint32_t weights = 2 * layers;

std::uint64_t bytes_of(std::uint32_t weight) { return weight % 2 == 0 ? up_bytes : down_bytes; }

std::vector<std::byte> content(std::uint32_t weight) {
    std::vector<std::byte> bytes(bytes_of(weight));
    for (std::uint64_t i = 0; i < bytes.size(); ++i) { bytes[i] = std::byte{expected_byte(weight, i)}; }
    return bytes;
}

void must_c(residency_status status) {
    if (status != RESIDENCY_OK) { FAIL(residency_status_name(status) << ": " << residency_error_text()); }
}

/// A model on the GPU whose layers are steps, a stream of CUDA's, and a checksum on the device for each weight.
struct OnGpu {
    std::string path = std::filesystem::temp_directory_path() / ("residency_c_api_" + std::to_string(getpid()));
    residency_model* model = nullptr;
    cudaStream_t stream = nullptr;
    std::uint64_t* sums = nullptr;
    std::vector<std::uint64_t> expected;

    explicit OnGpu(const char* budget, const char* tier = nullptr) {
        write_model(path.c_str());
        std::array<std::array<std::string, 2>, layers> names;
        std::array<std::array<const char*, 2>, layers> pointers{};
        std::array<residency_step, layers> steps{};
        for (std::size_t layer = 0; layer < layers; ++layer) {
            names[layer] = {"l" + std::to_string(layer) + ".up", "l" + std::to_string(layer) + ".down"};
            pointers[layer] = {names[layer][0].c_str(), names[layer][1].c_str()};
            steps[layer] = {nullptr, pointers[layer].data(), 2, 0};
        }
        residency_options options{};
        options.size = sizeof options;
        options.device = "cuda:0";
        options.budget = budget;
        options.tier = tier;
        options.steps = steps.data();
        options.step_count = steps.size();
        must_c(residency_open(path.c_str(), &options, &model));
        gpu::must_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        gpu::must_cuda(cudaMalloc(reinterpret_cast<void**>(&sums), weights * sizeof *sums));
        for (std::uint32_t weight = 0; weight < weights; ++weight) {
            expected.push_back(gpu::checksum(content(weight)));
        }
    }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;
    ~OnGpu() {
        residency_close(model);
        cudaFree(sums);
        cudaStreamDestroy(stream);
        std::filesystem::remove(path);
    }

    void clear_sums() const { gpu::must_cuda(cudaMemsetAsync(sums, 0, weights * sizeof *sums, stream)); }
    /// Each sum is that of so many reads.
    void check_sums(std::uint64_t reads) const {
        std::array<std::uint64_t, weights> found{};
        gpu::must_cuda(cudaMemcpyAsync(found.data(), sums, sizeof found, cudaMemcpyDeviceToHost, stream));
        gpu::must_cuda(cudaStreamSynchronize(stream));
        for (std::uint32_t weight = 0; weight < weights; ++weight) {
            CAPTURE(weight);
            CHECK(found[weight] == reads * expected[weight]);
        }
    }
    /// Reads every weight under its lease.
    void read_all() const {
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            residency_lease* lease = nullptr;
            must_c(residency_acquire_step(model, layer, stream, &lease));
            for (std::uint32_t number = 2 * layer; number < 2 * layer + 2; ++number) {
                residency_weight weight{};
                weight.size = sizeof weight;
                must_c(residency_get_leased_weight(lease, number, &weight));
                CHECK(weight.bytes == bytes_of(number));
                gpu::must_cuda(gpu::launch_checksum({weight.data, weight.bytes}, sums + number, stream));
            }
            must_c(residency_release(lease));
        }
    }
    void run_pass() const {
        clear_sums();
        must_c(residency_begin_pass(model, stream));
        read_all();
        must_c(residency_end_pass(model));
        check_sums(1);
    }
    [[nodiscard]] residency_statistics statistics() const {
        residency_statistics result{};
        result.size = sizeof result;
        must_c(residency_get_statistics(model, &result));
        return result;
    }
};

}  // namespace

TEST_CASE("C API: kernels read the bytes of the file, from pinned memory and from a file, inside the budget") {
    for (const char* tier : {"pinned", "pageable", "file"}) {
        CAPTURE(tier);
        OnGpu on{"50%", tier};
        for (int pass = 0; pass < 4; ++pass) { on.run_pass(); }
        CHECK(on.statistics().is_streaming == 1);
        CHECK(on.statistics().held_bytes <= on.statistics().budget_bytes);
        CHECK(on.statistics().budget_bytes <= model_bytes / 2);

        // The host reads them through the API too, on a stream that it made.
        void* stream = nullptr;
        must_c(residency_create_stream(on.model, &stream));
        CHECK(cudaStreamQuery(static_cast<cudaStream_t>(stream)) == cudaSuccess);
        std::vector<std::byte> bytes(up_bytes);
        residency_lease* lease = nullptr;
        must_c(residency_begin_pass(on.model, stream));
        must_c(residency_acquire_step(on.model, 5, stream, &lease));
        must_c(residency_read_leased_weight(lease, 10, 0, up_bytes, bytes.data()));
        CHECK(bytes == content(10));
        must_c(residency_release(lease));
        must_c(residency_end_pass(on.model));
        must_c(residency_drain(on.model));
        must_c(residency_destroy_stream(on.model, stream));

        must_c(residency_set_budget(on.model, "100%"));
        on.run_pass();
        CHECK(on.statistics().is_streaming == 0);
        must_c(residency_set_budget(on.model, "0"));
        on.run_pass();
        CHECK(on.statistics().budget_bytes == on.statistics().floor_bytes);
    }
}

TEST_CASE("C API: a pass as a graph reads the bytes of the file, until the budget changes") {
    OnGpu on{"50%", "pinned"};
    residency_graph* graph = nullptr;
    const auto body = [](void* context) {
        static_cast<const OnGpu*>(context)->read_all();
        return 0;
    };
    must_c(residency_capture(on.model, on.stream, body, &on, &graph));
    on.clear_sums();
    for (int launch = 0; launch < 3; ++launch) { must_c(residency_launch(graph, on.stream)); }
    on.check_sums(3);
    on.run_pass();
    must_c(residency_set_budget(on.model, "0"));
    CHECK(residency_launch(graph, on.stream) == RESIDENCY_STALE);
    on.run_pass();
}

TEST_CASE("C API: a GPU that is not there is an error with a text") {
    residency_options options{};
    options.size = sizeof options;
    options.device = "cuda:1000";
    residency_model* model = nullptr;
    const std::string path = std::filesystem::temp_directory_path() / ("residency_c_api_" + std::to_string(getpid()));
    write_model(path.c_str());
    CHECK(residency_open(path.c_str(), &options, &model) != RESIDENCY_OK);
    CHECK(std::string{residency_error_text()}.find("1000") != std::string::npos);
    CHECK(model == nullptr);
    std::filesystem::remove(path);
}

}  // namespace c_api_on_gpu

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Packed weights: how small they are, how fast kernels unpack, pack and compare them, and matrix × vector over all the matrices of
// Llama-3-8B with packed and with plain weights. Every result is checked bit for bit.
// Argument: a file of bf16 values, of which the size and the rate are recorded too.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "examples/60_packed/matvec.cuh"
#include "residency/codec/bf16_tiles.cuh"
#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/tiers.cuh"
#include "residency/codec/tiers.hpp"

namespace {

namespace codec = residency::codec;
namespace tiers = codec::tiers;
namespace tiles = codec::bf16_tiles;
using Bytes = std::vector<std::byte>;

constexpr std::size_t chunk_bytes = std::size_t{2} << 20;
constexpr std::size_t MiB = std::size_t{1} << 20;

void require(bool condition, const char* what) {
    if (condition) { return; }
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
}

/// Runs work(i) for each i below `count`, on all cores.
template <class Work>
void on_all_cores(std::size_t count, Work&& work) {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (std::size_t first = 0; first < cores; ++first) {
        threads.emplace_back([&, first] {
            for (std::size_t i = first; i < count; i += cores) { work(i); }
        });
    }
}

/// The bits of a value of a normal distribution; those of fp8 are scaled, as the weights of a channel are.
template <class F>
typename F::Value bits_of(float value) {
    if constexpr (F::form == residency::PackedForm::f8_e4m3_tiers) {
        const float scaled = std::abs(value) * (448.0F / (0.02F * 4.5F));
        const int exponent = std::clamp(scaled > 0 ? std::ilogb(scaled) : -6, -6, 8);
        const auto bits = static_cast<int>(std::ldexp(scaled, 3 - exponent)) + 8 * (exponent + 6);
        return static_cast<std::uint8_t>(std::min(bits, 126) | (value < 0 ? 128 : 0));
    } else if constexpr (F::form == residency::PackedForm::bf16_tiers) {
        return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000U) >> 16);
    } else {
        return std::bit_cast<std::uint32_t>(value);
    }
}

/// Values of a normal distribution, as trained weights have their exponents.
template <class F = tiers::Bf16>
Bytes weights(std::size_t values, std::uint32_t seed) {
    constexpr std::size_t each = sizeof(typename F::Value);
    Bytes raw(each * values);
    constexpr std::size_t part = std::size_t{1} << 20;
    on_all_cores((values + part - 1) / part, [&](std::size_t which) {
        std::mt19937 random{seed + static_cast<std::uint32_t>(which)};
        std::normal_distribution<float> normal{0, 0.02F};
        for (std::size_t i = which * part; i < std::min(values, (which + 1) * part); ++i) {
            const auto bits = bits_of<F>(normal(random));
            std::memcpy(raw.data() + each * i, &bits, each);
        }
    });
    return raw;
}

class DeviceBytes {
public:
    explicit DeviceBytes(std::size_t bytes) { BENCH_CUDA(cudaMalloc(&at_, bytes)); }
    explicit DeviceBytes(std::span<const std::byte> from) : DeviceBytes{from.size()} {
        BENCH_CUDA(cudaMemcpy(at_, from.data(), from.size(), cudaMemcpyHostToDevice));
    }
    DeviceBytes(const DeviceBytes&) = delete;
    DeviceBytes& operator=(const DeviceBytes&) = delete;
    ~DeviceBytes() { static_cast<void>(cudaFree(at_)); }
    template <class T = std::byte>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(at_);
    }

private:
    void* at_ = nullptr;
};

double gigabytes(std::size_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

/// Chunks packed on the host and on the GPU, unpacked by more and more blocks.
template <class F = tiers::Bf16>
void measure_tiers(bench::Records& records, const std::string& name, const Bytes& raw, const char* size_target,
                   bool is_target, cudaStream_t stream) {
    constexpr std::uint32_t chunk_values = chunk_bytes / sizeof(typename F::Value);
    bench::StreamTimer timer{stream};
    const std::size_t chunks = (raw.size() + chunk_bytes - 1) / chunk_bytes;
    const auto part = [&](std::size_t i) {
        return std::span{raw}.subspan(i * chunk_bytes, std::min(chunk_bytes, raw.size() - i * chunk_bytes));
    };
    std::vector<Bytes> packed(chunks);
    const double pack_seconds = bench::host_seconds([&] {
        on_all_cores(chunks, [&](std::size_t i) {
            packed[i].resize(2 * chunk_bytes);
            packed[i].resize(codec::Tiers<F>{}.pack({}, part(i), packed[i]));
        });
    });
    std::size_t bytes = 0;
    for (const Bytes& each : packed) {
        bytes += (each.size() + codec::packed_alignment_bytes - 1) / codec::packed_alignment_bytes *
                 codec::packed_alignment_bytes;
    }
    const double ratio = static_cast<double>(bytes) / static_cast<double>(raw.size());
    records.add("packed.tiers." + name + ".size", ratio, "of raw", size_target);
    records.add(
        "packed.tiers." + name + ".host_pack." + std::to_string(std::thread::hardware_concurrency()) + "_threads",
        gigabytes(raw.size(), pack_seconds), "GB/s");
    std::vector<std::uint8_t> is_same(chunks);
    const double unpack_seconds = bench::host_seconds([&] {
        on_all_cores(chunks, [&](std::size_t i) {
            Bytes back(part(i).size());
            const auto unpacked = codec::Tiers<F>{}.unpack({}, packed[i], back);
            is_same[i] = unpacked && std::memcmp(back.data(), part(i).data(), back.size()) == 0 ? 1 : 0;
        });
    });
    for (const std::uint8_t same : is_same) { require(same != 0, "the host's unpacking"); }
    records.add(
        "packed.tiers." + name + ".host_unpack." + std::to_string(std::thread::hardware_concurrency()) + "_threads",
        gigabytes(raw.size(), unpack_seconds), "GB/s");

    const DeviceBytes raw_device{raw}, out{raw.size()}, packed_device{chunks * chunk_bytes}, sizes{4 * chunks},
        differing{8};
    std::vector<tiers::PackTask> pack_tasks;
    std::vector<tiers::UnpackTask> tasks, compare_tasks;
    for (std::size_t i = 0; i < chunks; ++i) {
        std::byte* const at = packed_device.as() + i * chunk_bytes;
        pack_tasks.push_back({raw_device.as() + i * chunk_bytes, at, static_cast<std::uint32_t>(part(i).size()),
                              static_cast<std::uint32_t>(chunk_bytes), F::form});
        tasks.push_back({at, out.as() + i * chunk_bytes});
        compare_tasks.push_back({at, raw_device.as() + i * chunk_bytes});
    }
    const DeviceBytes pack_list{std::as_bytes(std::span{pack_tasks})}, list{std::as_bytes(std::span{tasks})},
        compare_list{std::as_bytes(std::span{compare_tasks})};
    const auto count = static_cast<std::uint32_t>(chunks);
    const double gpu_pack = timer.median_seconds(5, [&] {
        BENCH_CUDA(
            tiers::enqueue_pack<F>(pack_list.as<tiers::PackTask>(), count, sizes.as<std::uint32_t>(), 132, stream));
    });
    records.add("packed.tiers." + name + ".gpu_pack", gigabytes(raw.size(), gpu_pack), "GB/s", ">= 55");
    std::vector<std::uint32_t> gpu_sizes(chunks);
    BENCH_CUDA(cudaMemcpy(gpu_sizes.data(), sizes.as(), 4 * chunks, cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < chunks; ++i) {
        require(gpu_sizes[i] == packed[i].size(), "the size of what the GPU packed");
        Bytes made(packed[i].size());
        BENCH_CUDA(cudaMemcpy(made.data(), packed_device.as() + i * chunk_bytes, made.size(), cudaMemcpyDeviceToHost));
        require(made == packed[i], "the bytes that the GPU packed");
    }
    for (const unsigned blocks : {4U, 8U, 16U, 32U, 66U, 132U, 264U}) {
        BENCH_CUDA(cudaMemset(out.as(), 0, raw.size()));
        const double seconds = timer.median_seconds(5, [&] {
            BENCH_CUDA(tiers::enqueue_unpack<F>(list.as<tiers::UnpackTask>(), count, chunk_values, blocks, stream));
        });
        const char* target = !is_target ? "" : blocks == 16 ? ">= 250" : blocks == 132 ? ">= 1300" : "";
        records.add("packed.tiers." + name + ".unpack.blocks_" + std::to_string(blocks), gigabytes(raw.size(), seconds),
                    "GB/s", target);
        Bytes back(raw.size());
        BENCH_CUDA(cudaMemcpy(back.data(), out.as(), raw.size(), cudaMemcpyDeviceToHost));
        require(back == raw, "the bytes that the GPU unpacked");
    }
    BENCH_CUDA(cudaMemset(differing.as(), 0, 8));
    const double compare = timer.median_seconds(5, [&] {
        BENCH_CUDA(tiers::enqueue_compare<F>(compare_list.as<tiers::UnpackTask>(), count, chunk_values, 132,
                                             differing.as<unsigned long long>(), stream));
    });
    unsigned long long wrong = 1;
    BENCH_CUDA(cudaMemcpy(&wrong, differing.as(), 8, cudaMemcpyDeviceToHost));
    require(wrong == 0, "the comparison");
    records.add("packed.tiers." + name + ".gpu_compare", gigabytes(raw.size(), compare), "GB/s");
}

struct MatrixShape {
    std::uint32_t rows, columns;
};

/// The same values in plain tiles.
Bytes plain_tiles(const codec::Extents& extents, const Bytes& raw) {
    Bytes plain(static_cast<std::size_t>(*codec::Bf16Tiles::plain_bytes(extents)));
    tiles::Header header;
    header.packed = {static_cast<std::uint32_t>(codec::Bf16Tiles::form), tiles::version, raw.size(), plain.size()};
    header.rows = static_cast<std::uint32_t>(extents.rows);
    header.columns = static_cast<std::uint32_t>(extents.columns);
    header.row_groups = header.rows / 16;
    header.tiles_across = header.columns / 64;
    header.words = tiles::plain_words;
    header.escapes_at = plain.size();
    std::memcpy(plain.data(), &header, sizeof header);
    on_all_cores(header.row_groups, [&](std::size_t group) {
        for (std::uint32_t in_row = 0; in_row < 16; ++in_row) {
            for (std::uint32_t column = 0; column < header.columns; ++column) {
                const std::uint32_t lane = in_row % 8 * 4 + column % 64 / 16, pair = in_row / 8 * 8 + column % 16 / 2;
                std::memcpy(plain.data() + codec::packed_header_bytes +
                                (group * header.tiles_across + column / 64) * tiles::tile_bytes(tiles::plain_words) +
                                2 * tiles::place_of(lane, pair, column % 2),
                            raw.data() + 2 * ((group * 16 + in_row) * header.columns + column), 2);
            }
        }
    });
    return plain;
}

/// Matrices in device memory, one after another as a model reads them: a layer over and over at addresses of its own, so that no
/// cache has it.
struct Model {
    std::vector<tiles::DeviceMatrix> matrices;
    std::size_t bytes = 0;
    DeviceBytes memory;

    Model(const std::vector<Bytes>& layer, std::size_t layers, const Bytes& last)
        : memory{[&] {
              std::size_t sum = last.size() + 512;
              for (const Bytes& each : layer) { sum += layers * (each.size() + 512); }
              return sum;
          }()} {
        std::byte* at = memory.as();
        const auto add = [&](const Bytes& packed, const std::byte* from) {
            BENCH_CUDA(cudaMemcpy(at, from != nullptr ? from : packed.data(), packed.size(), cudaMemcpyDefault));
            tiles::Header header;
            std::memcpy(&header, packed.data(), sizeof header);
            matrices.push_back(tiles::device_matrix(header, at));
            bytes += packed.size();
            at += (packed.size() + 511) / 512 * 512;
        };
        for (std::size_t i = 0; i < layers; ++i) {
            for (std::size_t k = 0; k < layer.size(); ++k) { add(layer[k], i == 0 ? nullptr : matrices[k].packed); }
        }
        add(last, nullptr);
    }
};

void measure_products(bench::Records& records, cudaStream_t stream, std::uint32_t multiprocessors) {
    bench::StreamTimer timer{stream};
    constexpr MatrixShape layer[] = {{4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
                                     {14336, 4096}, {14336, 4096}, {4096, 14336}};
    constexpr MatrixShape last{128256, 4096};
    constexpr std::size_t layers = 32;
    constexpr std::size_t most_rows = last.rows, most_columns = 14336;

    std::vector<Bytes> packed, plain;
    std::size_t raw_bytes = 0, packed_bytes = 0;
    double pack_seconds = 0;
    const auto pack = [&](const MatrixShape& shape, std::uint32_t seed) {
        const codec::Extents extents{shape.rows, shape.columns};
        const Bytes raw = weights(std::size_t{shape.rows} * shape.columns, seed);
        Bytes made(raw.size());
        pack_seconds += bench::host_seconds([&] { made.resize(codec::Bf16Tiles{}.pack(extents, raw, made)); });
        require(!made.empty(), "packing a matrix");
        plain.push_back(plain_tiles(extents, raw));
        raw_bytes += raw.size();
        packed_bytes += made.size();
        // The bits on the device.
        const DeviceBytes on_device{made}, out{raw.size()};
        tiles::Header header;
        std::memcpy(&header, made.data(), sizeof header);
        const double seconds = timer.median_seconds(3, [&] {
            BENCH_CUDA(tiles::enqueue_unpack(tiles::device_matrix(header, on_device.as()), out.as(), 264, stream));
        });
        Bytes back(raw.size());
        BENCH_CUDA(cudaMemcpy(back.data(), out.as(), raw.size(), cudaMemcpyDeviceToHost));
        require(back == raw, "the unpacked bits of a matrix");
        if (shape.rows == 14336 && seed == 4000) {
            records.add("packed.tiles.unpack", gigabytes(raw.size(), seconds), "GB/s");
        }
        packed.push_back(std::move(made));
    };
    for (std::uint32_t i = 0; i < std::size(layer); ++i) { pack(layer[i], i * 1000); }
    records.add("packed.tiles.host_pack.1_thread", gigabytes(raw_bytes, pack_seconds), "GB/s");
    pack({last.rows, last.columns}, 100000);
    const Bytes last_packed = std::move(packed.back()), last_plain = std::move(plain.back());
    packed.pop_back();
    plain.pop_back();
    records.add("packed.tiles.size", static_cast<double>(packed_bytes) / static_cast<double>(raw_bytes), "of raw",
                "<= 0.753");

    const Model small{packed, layers, last_packed}, large{plain, layers, last_plain};
    const Bytes x = weights(most_columns * matvec::most_vectors, 7);
    const DeviceBytes x_device{x}, y{4 * most_rows * matvec::most_vectors},
        y_plain{4 * most_rows * matvec::most_vectors};
    std::size_t workspace_bytes = 0;
    for (const tiles::DeviceMatrix& matrix : small.matrices) {
        for (const std::uint32_t vectors : {1U, 4U, 8U}) {
            workspace_bytes =
                std::max(workspace_bytes,
                         matvec::workspace_bytes(matrix, vectors, matvec::cut_of(matrix, vectors, multiprocessors)));
        }
    }
    const DeviceBytes workspace{workspace_bytes};
    BENCH_CUDA(cudaMemset(workspace.as(), 0, matvec::counter_bytes));
    const auto multiply = [&](const tiles::DeviceMatrix& matrix, std::uint32_t vectors, float* to, bool overlaps) {
        BENCH_CUDA(matvec::enqueue({matrix, x_device.as<std::uint16_t>(), to, vectors, workspace.as(),
                                    matvec::cut_of(matrix, vectors, multiprocessors), matrix.scale()},
                                   overlaps, stream));
    };
    for (const std::uint32_t vectors : {1U, 4U, 8U}) {
        const std::string name = ".vectors_" + std::to_string(vectors);
        for (std::size_t i = 0; i < small.matrices.size(); ++i) {
            if (i >= std::size(layer) && i + 1 != small.matrices.size()) { continue; }
            const std::size_t values = std::size_t{small.matrices[i].rows} * vectors;
            multiply(small.matrices[i], vectors, y.as<float>(), false);
            multiply(large.matrices[i], vectors, y_plain.as<float>(), false);
            BENCH_CUDA(cudaStreamSynchronize(stream));
            std::vector<float> a(values), b(values);
            BENCH_CUDA(cudaMemcpy(a.data(), y.as(), 4 * values, cudaMemcpyDeviceToHost));
            BENCH_CUDA(cudaMemcpy(b.data(), y_plain.as(), 4 * values, cudaMemcpyDeviceToHost));
            require(std::memcmp(a.data(), b.data(), 4 * values) == 0, "packed and plain products have the same bits");
        }
        for (const bool overlaps : {false, true}) {
            const auto pass = [&](const Model& model) {
                return timer.median_seconds(7, [&] {
                    for (const tiles::DeviceMatrix& matrix : model.matrices) {
                        multiply(matrix, vectors, y.as<float>(), overlaps);
                    }
                });
            };
            const std::string how = overlaps ? ".overlapping" : ".one_by_one";
            const double plain_seconds = pass(large), packed_seconds = pass(small);
            records.add("packed.product" + name + how + ".plain", plain_seconds * 1e3, "ms");
            records.add("packed.product" + name + how + ".packed", packed_seconds * 1e3, "ms");
            records.add("packed.product" + name + how + ".packed_over_plain", packed_seconds / plain_seconds, "ratio",
                        "<= 1");
            // As a graph, as an engine runs it.
            const auto graph_seconds = [&](const Model& model) {
                cudaGraph_t graph = nullptr;
                cudaGraphExec_t executable = nullptr;
                BENCH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
                for (const tiles::DeviceMatrix& matrix : model.matrices) {
                    multiply(matrix, vectors, y.as<float>(), overlaps);
                }
                BENCH_CUDA(cudaStreamEndCapture(stream, &graph));
                BENCH_CUDA(cudaGraphInstantiate(&executable, graph, 0));
                const double seconds =
                    timer.median_seconds(7, [&] { BENCH_CUDA(cudaGraphLaunch(executable, stream)); });
                BENCH_CUDA(cudaGraphExecDestroy(executable));
                BENCH_CUDA(cudaGraphDestroy(graph));
                return seconds;
            };
            const double plain_graph = graph_seconds(large), packed_graph = graph_seconds(small);
            records.add("packed.product" + name + how + ".graph.plain", plain_graph * 1e3, "ms");
            records.add("packed.product" + name + how + ".graph.packed", packed_graph * 1e3, "ms");
        }
    }
    records.add("packed.product.gigabytes_read.plain", static_cast<double>(large.bytes) / 1e9, "GB");
    records.add("packed.product.gigabytes_read.packed", static_cast<double>(small.bytes) / 1e9, "GB");
}

}  // namespace

int main(int argc, char** argv) {
    residency::CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-packed", argc, argv};
    cudaDeviceProp properties{};
    BENCH_CUDA(cudaGetDeviceProperties(&properties, 0));
    const auto stream = BENCH_RESULT(device.create_stream());
    measure_tiers(records, "normal", weights(128 * MiB / 2, 1), "<= 0.675", true, stream);
    measure_tiers<tiers::F8E4m3>(records, "f8_e4m3", weights<tiers::F8E4m3>(128 * MiB, 1), "<= 0.86", false, stream);
    measure_tiers<tiers::F32>(records, "f32", weights<tiers::F32>(128 * MiB / 4, 1), "<= 0.85", false, stream);
    {
        Bytes mixed = weights(64 * MiB / 2, 2);
        std::mt19937 random{3};
        for (std::size_t i = 0; i < mixed.size(); i += 10) { mixed[i] = static_cast<std::byte>(random()); }
        const Bytes odd(mixed.begin(), mixed.end() - 12345);
        measure_tiers(records, "a_tenth_random", odd, "", false, stream);
    }
    if (argc > 1) {
        std::ifstream file{argv[1], std::ios::binary};
        const std::vector<char> content{std::istreambuf_iterator<char>{file}, {}};
        require(!content.empty(), "the file can be read");
        Bytes raw(content.size());
        std::memcpy(raw.data(), content.data(), content.size());
        measure_tiers(records, "file", raw, "<= 0.675", false, stream);
    }
    measure_products(records, stream, static_cast<std::uint32_t>(properties.multiProcessorCount));
}

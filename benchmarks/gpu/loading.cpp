// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// From a file to the GPU: cached file → pinned memory, and streaming through transport::Staged from the page cache, from pageable
// memory and from the disk, against a pinned model, the driver's own pageable copy and a plain direct reader. And opening: models of
// many tensors and of many files, to the catalog.
// Arguments: GiB (default 8), folder for the file (default /tmp), GiB that are read from the disk at a time (default 1).
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/direct_reader.hpp"
#include "benchmarks/gpu/record.hpp"
#include "benchmarks/models.hpp"
#include "residency/device/cuda.hpp"
#include "residency/format/open.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/host/loading.hpp"
#include "residency/transport/pinned.hpp"
#include "residency/transport/staged.hpp"

namespace {

using residency::Catalog;
using residency::CudaDevice;
using residency::StorageId;

constexpr std::uint64_t tensor_bytes = std::uint64_t{96} << 20;
constexpr unsigned threads = 8;

/// Different words everywhere.
void make_model(const std::string& path, std::uint64_t tensors) {
    std::vector<residency::format::SafetensorsTensor> list;
    for (std::uint64_t i = 0; i < tensors; ++i) {
        list.push_back({"layers." + std::to_string(i) + ".weight", residency::dtype::bf16, {tensor_bytes / 2}});
    }
    auto writer = BENCH_RESULT(residency::format::SafetensorsWriter::try_create(path, list));
    std::vector<std::uint64_t> block(tensor_bytes / 8);
    for (std::uint64_t i = 0; i < tensors; ++i) {
        for (std::uint64_t k = 0; k < block.size(); ++k) { block[k] = (i * block.size() + k) * 0x9E3779B97F4A7C15U; }
        BENCH_RESULT(writer.try_append(std::as_bytes(std::span{block})));
    }
    BENCH_RESULT(writer.try_finish());
    const int fd = ::open(path.c_str(), O_RDONLY);
    ::fsync(fd);
    ::close(fd);
}

/// GB/s of sending the first `tensors` storages to the device in pieces of 2 MiB, as chunks travel; the median of `rounds`
/// after one that is not counted.
template <class Transport>
double stream_model(CudaDevice& device, Transport transport, const Catalog& catalog, std::uint64_t tensors,
                    std::byte* place, int rounds) {
    constexpr std::uint64_t chunk = std::uint64_t{2} << 20;
    BENCH_RESULT(transport.open(device, catalog));
    cudaStream_t stream = nullptr;
    BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    bench::StreamTimer timer{stream};
    const double seconds = timer.median_seconds(rounds, [&] {
        std::vector<residency::transport::Fetch> fetches;
        for (std::uint32_t i = 0; i < tensors; ++i) {
            fetches.clear();
            for (std::uint64_t at = 0; at < tensor_bytes; at += chunk) {
                fetches.push_back({StorageId{i}, at, chunk, place + i * tensor_bytes + at});
            }
            BENCH_RESULT(transport.enqueue(fetches, CudaDevice::Stream{stream}));
        }
    });
    if constexpr (requires { transport.status(); }) { BENCH_RESULT(transport.status()); }
    transport.close();
    std::vector<std::uint64_t> back(tensor_bytes / 8);
    for (const std::uint64_t i : {std::uint64_t{0}, tensors / 2, tensors - 1}) {
        BENCH_CUDA(cudaMemcpy(back.data(), place + i * tensor_bytes, tensor_bytes, cudaMemcpyDeviceToHost));
        for (std::uint64_t k = 0; k < back.size(); ++k) {
            if (back[k] != (i * back.size() + k) * 0x9E3779B97F4A7C15U) {
                std::fprintf(stderr, "the bytes on the device differ: tensor %llu\n",
                             static_cast<unsigned long long>(i));
                std::exit(1);
            }
        }
    }
    BENCH_CUDA(cudaMemset(place, 0, tensors * tensor_bytes));
    BENCH_CUDA(cudaStreamDestroy(stream));
    return static_cast<double>(tensors * tensor_bytes) / seconds / 1e9;
}

/// GB/s of the plain way: each of `threads` threads reads its share of the file into new memory, and when all have ended the driver
/// pins the whole.
double plain_load_rate(const std::string& path, std::uint64_t bytes, bool huge_pages) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    std::atomic<bool> failed = fd < 0;
    std::byte* memory = nullptr;
    const double seconds = bench::host_seconds([&] {
        void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) { std::exit((std::perror("mmap"), 1)); }
        ::madvise(at, bytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        memory = static_cast<std::byte*>(at);
        const std::uint64_t share = (bytes / threads + 4095) / 4096 * 4096;
        std::vector<std::thread> readers;
        for (unsigned t = 0; t < threads; ++t) {
            readers.emplace_back([&, t] {
                for (std::uint64_t i = std::min(t * share, bytes); i < std::min((t + 1) * share, bytes);) {
                    const auto got =
                        ::pread(fd, memory + i, std::min((t + 1) * share, bytes) - i, static_cast<off_t>(i));
                    if (got <= 0) {
                        failed = true;
                        return;
                    }
                    i += static_cast<std::uint64_t>(got);
                }
            });
        }
        for (std::thread& reader : readers) { reader.join(); }
        BENCH_CUDA(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
    });
    BENCH_CUDA(cudaHostUnregister(memory));
    ::munmap(memory, bytes);
    ::close(fd);
    if (failed) {
        std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
        std::exit(1);
    }
    return static_cast<double>(bytes) / seconds / 1e9;
}

/// Opens the model at `path` five times, its files in the page cache.
void measure_opening(bench::Records& records, const bench::OpenedModel& opened, const std::string& path) {
    std::vector<double> times;
    for (int round = 0; round < 5; ++round) {
        times.push_back(bench::host_seconds([&] {
            const Catalog catalog = BENCH_RESULT(BENCH_RESULT(residency::format::try_read_model(path)).try_catalog());
            if (catalog.weights().size() != opened.tensors) {
                std::fprintf(stderr, "%s: not the model that was written\n", path.c_str());
                std::exit(1);
            }
        }));
    }
    records.add(std::string{"loading.open."} + opened.name, bench::median(times), "s", "<= 0.5");
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-loading", argc, argv};
    const std::string folder = argc > 2 ? argv[2] : "/tmp";
    {
        const bench::Models models{folder};
        for (const bench::OpenedModel& opened : bench::opened_models) {
            measure_opening(records, opened, opened.make(models));
        }
    }
    const std::uint64_t tensors = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8) * 1024 / 96;
    const std::string path = folder + "/residency-loading.safetensors";
    const std::uint64_t disk_tensors =
        std::min<std::uint64_t>(tensors, (argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1) * 1024 / 96 + 1);
    make_model(path, tensors);
    const Catalog catalog = BENCH_RESULT(BENCH_RESULT(residency::format::try_read_model(path)).try_catalog());
    const double model_bytes = static_cast<double>(catalog.total_bytes());

    // A virtual machine may get its memory only now: the first load is not counted.
    for (const bool huge : {true, false}) {
        std::vector<double> rates;
        std::vector<double> pin_shares;
        std::vector<double> plain_rates;
        std::vector<double> ratios;
        double memory = 0;
        for (int round = 0; round < 8; ++round) {
            residency::host::LoadOptions options;
            options.tier = residency::host::Tier::pinned;
            options.threads = threads;
            options.huge_pages = huge;
            residency::host::LoadReport report;
            double seconds = 0;
            {
                residency::host::Loaded loaded;
                seconds = bench::host_seconds(
                    [&] { loaded = BENCH_RESULT(residency::host::try_load(device, catalog, options)); });
                report = loaded.report;
            }
            const double plain = plain_load_rate(path, tensors * tensor_bytes, huge);
            if (round == 0) { continue; }
            rates.push_back(model_bytes / seconds / 1e9);
            plain_rates.push_back(plain);
            ratios.push_back(rates.back() / plain);
            pin_shares.push_back(std::chrono::duration<double>(report.pin_time).count() / seconds);
            memory = static_cast<double>(report.host_bytes) / model_bytes;
        }
        const std::string name = std::string{"loading.cached_to_pinned."} + (huge ? "huge_pages" : "small_pages");
        records.add(name, bench::median(rates), "GB/s", huge ? ">= 20" : ">= 10");
        records.add(name + ".plain", bench::median(plain_rates), "GB/s");
        records.add(name + ".over_plain", bench::median(ratios), "times", ">= 1");
        records.add(name + ".pinning", bench::median(pin_shares), "of the time");
        if (huge) { records.add("loading.host_memory", memory, "of weights", "<= 1.02"); }
    }

    auto* const place = static_cast<std::byte*>(BENCH_RESULT(device.allocate(tensors * tensor_bytes)));
    {
        const auto loaded = BENCH_RESULT(residency::host::try_load(device, catalog));
        records.add("streaming.pinned",
                    stream_model(device, residency::transport::Pinned<CudaDevice>{}, loaded.catalog, tensors, place, 9),
                    "GB/s");
    }
    using Staged = residency::transport::Staged<CudaDevice>;
    for (const std::uint64_t slot_mib : {1, 2, 4, 8}) {
        Staged::Config config;
        config.threads = threads;
        config.slot_bytes = slot_mib << 20;
        config.file_access = residency::host::FileAccess::cached;
        records.add("streaming.staged.page_cache.slot_" + std::to_string(slot_mib) + "MiB",
                    stream_model(device, Staged{config}, catalog, tensors, place, 9), "GB/s",
                    slot_mib == 4 ? ">= 45" : "");
    }
    {
        residency::host::LoadOptions options;
        options.tier = residency::host::Tier::pageable;
        const auto loaded = BENCH_RESULT(residency::host::try_load(device, catalog, options));
        Staged::Config config;
        config.threads = threads;
        records.add("streaming.staged.pageable",
                    stream_model(device, Staged{config}, loaded.catalog, tensors, place, 9), "GB/s", ">= 45");
        const double driver = bench::host_seconds([&] {
            for (std::uint32_t i = 0; i < 16 && i < tensors; ++i) {
                BENCH_CUDA(
                    cudaMemcpy(place, loaded.catalog.host_bytes(StorageId{i}), tensor_bytes, cudaMemcpyHostToDevice));
            }
        });
        records.add("streaming.driver.pageable",
                    static_cast<double>(std::min<std::uint64_t>(16, tensors) * tensor_bytes) / driver / 1e9, "GB/s");
    }
    {
        // Cold, to the end of the first pass: streaming while the rest is still loading, and after all is loaded.
        residency::host::LoadOptions options;
        options.threads = threads;
        cudaStream_t stream = nullptr;
        BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        const auto pass = [&](auto& transport) {
            for (std::uint32_t i = 0; i < tensors; ++i) {
                const residency::transport::Fetch fetch{StorageId{i}, 0, tensor_bytes, place + i * tensor_bytes};
                BENCH_RESULT(transport.enqueue({&fetch, 1}, CudaDevice::Stream{stream}));
            }
            BENCH_CUDA(cudaStreamSynchronize(stream));
        };
        // What is given back at the end is not part of it.
        double seconds[2] = {};
        for (const auto pinning : {residency::host::Pinning::as_loaded, residency::host::Pinning::after_loading}) {
            options.pinning = pinning;
            std::shared_ptr<residency::host::Loading> loading;
            std::optional<Staged> staged;
            seconds[static_cast<int>(pinning)] = bench::host_seconds([&] {
                loading = BENCH_RESULT(residency::host::Loading::try_start(device, catalog, options));
                Staged::Config config;
                config.threads = threads;
                config.loading = loading;
                staged.emplace(config);
                BENCH_RESULT(staged->open(device, loading->catalog()));
                pass(*staged);
            });
            BENCH_RESULT(staged->status());
            BENCH_RESULT(loading->wait());
            staged->close();
        }
        options.pinning = residency::host::Pinning::as_loaded;
        double one_after_the_other = 0;
        {
            residency::host::Loaded loaded;
            residency::transport::Pinned<CudaDevice> pinned;
            one_after_the_other = bench::host_seconds([&] {
                loaded = BENCH_RESULT(residency::host::try_load(device, catalog, options));
                BENCH_RESULT(pinned.open(device, loaded.catalog));
                pass(pinned);
            });
            pinned.close();
        }
        BENCH_CUDA(cudaStreamDestroy(stream));
        records.add("loading.then_first_pass", model_bytes / one_after_the_other / 1e9, "GB/s");
        records.add("loading.first_pass_while_loading", model_bytes / seconds[0] / 1e9, "GB/s");
        records.add("loading.first_pass_while_loading.pinned_after", model_bytes / seconds[1] / 1e9, "GB/s");
    }
    {
        Staged::Config config;
        config.threads = threads;
        config.file_access = residency::host::FileAccess::direct;
        // Into memory of the same kind: reads into small pages that nothing has touched yet take twice the time. Which of the two
        // reads first changes from round to round: what is below a virtual disk has caches of its own.
        auto* const memory = static_cast<std::byte*>(BENCH_RESULT(device.allocate_host(config.ring_bytes)));
        const auto plain = [&] {
            bench::drop_cache(path);
            const auto read = [&] {
                return bench::plain_direct_rate(path, disk_tensors * tensor_bytes, config.slot_bytes, threads,
                                                {memory, config.ring_bytes});
            };
            static_cast<void>(read());  // as stream_model does
            return read();
        };
        const auto staged = [&] {
            bench::drop_cache(path);
            return stream_model(device, Staged{config}, catalog, disk_tensors, place, 1);
        };
        std::vector<double> ratios;
        std::vector<double> ours;
        std::vector<double> theirs;
        for (int round = 0; round < 16; ++round) {
            if (round % 2 == 0) { theirs.push_back(plain()); }
            ours.push_back(staged());
            if (round % 2 != 0) { theirs.push_back(plain()); }
            ratios.push_back(ours.back() / theirs.back());
        }
        BENCH_RESULT(device.deallocate_host(memory));
        records.add("streaming.staged.disk", bench::median(ours), "GB/s");
        records.add("streaming.plain_direct_reader", bench::median(theirs), "GB/s");
        records.add("streaming.staged.disk.ratio", bench::median(ratios), "times", ">= 0.95");
    }
    BENCH_RESULT(device.deallocate(place));
    ::unlink(path.c_str());
    return 0;
}

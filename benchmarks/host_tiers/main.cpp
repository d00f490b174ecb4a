// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The tiers of the host without a GPU: the simulated device copies real bytes, and the host works on them. What is measured is
// the host's time: reading from the disk against a plain direct reader, what reading ahead gains where the host pauses between
// passes, a first pass while the model loads against one after it, and the memory that a load takes.
// Arguments: MiB (default 512), folder for the file (default /tmp), rounds (default 9).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/direct_reader.hpp"
#include "benchmarks/host_tiers/passes.hpp"
#include "benchmarks/record.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/host/loading.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/transport/staged.hpp"

namespace {

using namespace host_tiers;
using residency::Catalog;
using residency::SimulatedDevice;
using residency::StorageId;
using Staged = residency::transport::Staged<SimulatedDevice>;

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
}

/// GB/s of everything through the ring, once, in pieces of so many bytes.
double staged_rate(const Catalog& catalog, unsigned file_threads, std::uint64_t piece_bytes) {
    SimulatedDevice device{plain_device()};
    auto* const place = static_cast<std::byte*>(BENCH_RESULT(device.allocate(tensor_bytes)));
    const auto stream = BENCH_RESULT(device.create_stream());
    Staged::Config config;
    config.slot_bytes = slot_bytes;
    config.ring_bytes = ring_bytes;
    config.threads = file_threads;
    config.file_access = residency::host::FileAccess::direct;
    Staged staged{config};
    BENCH_RESULT(staged.open(device, catalog));
    if (!staged.statistics().direct_io) {
        std::fprintf(stderr, "no direct reads\n");
        std::exit(1);
    }
    std::vector<residency::transport::Fetch> fetches;
    const double seconds = bench::host_seconds([&] {
        for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
            fetches.clear();
            for (std::uint64_t at = 0; at < tensor_bytes; at += piece_bytes) {
                fetches.push_back({StorageId{i}, at, piece_bytes, place + at});
            }
            BENCH_RESULT(staged.enqueue(fetches, stream));
        }
        BENCH_RESULT(device.synchronize(stream));
    });
    BENCH_RESULT(staged.status());
    staged.close();
    BENCH_RESULT(device.deallocate(place));
    BENCH_RESULT(device.destroy_stream(stream));
    return static_cast<double>(catalog.total_bytes()) / seconds / 1e9;
}

/// Of the file's pages, how many are in the page cache.
double cached_share(const std::string& path, std::uint64_t bytes) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    if (fd < 0 || at == MAP_FAILED || ::mincore(at, bytes, pages.data()) != 0) { std::exit(1); }
    ::munmap(at, bytes);
    ::close(fd);
    const auto there = std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
    return static_cast<double>(there) / static_cast<double>(pages.size());
}

/// The most that the process has had beyond what it has now, while it loads, over the weights.
double peak_of_load(const Catalog& catalog) {
    const auto status = [](const char* key) {
        const auto kib =
            residency::host::detail::number_after(residency::host::detail::read_system_file("/proc/self/status"), key);
        return static_cast<double>(kib.value_or(0)) * 1024;
    };
    std::ofstream{"/proc/self/clear_refs"} << 5 << std::flush;
    const double before = status("VmRSS:");
    SimulatedDevice device{plain_device()};
    const auto loaded = BENCH_RESULT(residency::host::try_load(device, catalog));
    return (status("VmHWM:") - before) / static_cast<double>(catalog.total_bytes());
}

}  // namespace

int main(int argc, char** argv) {
    bench::HostRecords records{"host-tiers", argc, argv};
    const std::uint64_t tensors = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512) / 32;
    const std::string path = std::string{argc > 2 ? argv[2] : "/tmp"} + "/residency-host-tiers.safetensors";
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 9;
    make_model(path, tensors);
    const Catalog catalog = BENCH_RESULT(BENCH_RESULT(residency::format::try_read_safetensors(path)).try_catalog());
    {
        // Into memory of the same kind: reads into small pages that nothing has touched yet take twice the time. Which of the two
        // reads first changes from round to round: what is below a virtual disk has caches of its own.
        SimulatedDevice device{plain_device()};
        auto* const memory = static_cast<std::byte*>(BENCH_RESULT(device.allocate_host(ring_bytes + 4096)));
        auto* const aligned = memory + (4096 - reinterpret_cast<std::uintptr_t>(memory) % 4096) % 4096;
        std::fill(aligned, aligned + ring_bytes, std::byte{1});
        const auto plain = [&] {
            bench::drop_cache(path);
            return bench::plain_direct_rate(path, catalog.total_bytes(), slot_bytes, threads, {aligned, ring_bytes});
        };
        struct Way {
            const char* name;
            std::uint64_t piece_bytes;
            std::vector<double> rates = {}, ratios = {};
        };
        // Storages as wholes, as chunks of a plan, and as small weights that are neighbours.
        Way ways[] = {
            {"", tensor_bytes}, {".in_chunks", std::uint64_t{2} << 20}, {".in_small_pieces", std::uint64_t{64} << 10}};
        const auto staged = [&](const Way& way) {
            bench::drop_cache(path);
            return staged_rate(catalog, threads, way.piece_bytes);
        };
        static_cast<void>(plain());
        static_cast<void>(staged(ways[0]));
        std::vector<double> theirs;
        for (int round = 0; round < rounds; ++round) {
            for (Way& way : ways) {
                if (round % 2 == 0) { theirs.push_back(plain()); }
                way.rates.push_back(staged(way));
                if (round % 2 != 0) { theirs.push_back(plain()); }
                way.ratios.push_back(way.rates.back() / theirs.back());
            }
        }
        records.add("disk.cached_afterwards", cached_share(path, catalog.total_bytes()), "of the file", "<= 0.01");
        records.add("disk.plain_direct_reader", bench::median(theirs), "GB/s");
        for (const Way& way : ways) {
            const std::string name = std::string{"disk"} + way.name;
            records.add(name + ".staged", bench::median(way.rates), "GB/s");
            records.add(name + ".ratio", bench::median(way.ratios), "times", ">= 0.95");
        }
        BENCH_RESULT(device.deallocate_host(memory));

        const double pause = static_cast<double>(ahead_ring_bytes) / (bench::median(ways[0].rates) * 1e9);
        std::vector<double> gains;
        for (int round = 0; round < rounds; ++round) {
            const bool ahead_first = round % 2 == 0;
            const double first = paused_pass_seconds(catalog, ahead_first, pause, 3);
            const double second = paused_pass_seconds(catalog, !ahead_first, pause, 3);
            gains.push_back(ahead_first ? second / first : first / second);
        }
        records.add("disk.read_ahead.pass_time_without_over_with", bench::median(gains), "times");
    }
    enum class Source : std::uint8_t { cached, cold, paced };
    for (const Source source : {Source::cached, Source::cold, Source::paced}) {
        const std::chrono::duration<double> pace{source == Source::paced ? 0.2 : 0};
        std::vector<double> ratios, after, during;
        for (int round = 0; round < (source == Source::paced ? 3 : rounds); ++round) {
            for (const bool overlapped : {round % 2 == 0, round % 2 != 0}) {
                bench::drop_cache(path);
                if (source != Source::cold) {
                    std::ifstream file{path, std::ios::binary};
                    std::vector<char> block(slot_bytes);
                    while (file.read(block.data(), static_cast<std::streamsize>(block.size()))) {}
                }
                (overlapped ? during : after).push_back(first_pass_seconds(catalog, overlapped, pace));
            }
            ratios.push_back(after.back() / during.back());
        }
        constexpr const char* names[] = {"cached", "cold", "paced"};
        const std::string name = std::string{"first_pass."} + names[static_cast<int>(source)];
        records.add(name + ".after_loading", bench::median(after), "s");
        records.add(name + ".while_loading", bench::median(during), "s");
        // Where reading is work for the same few cores as the steps, there is nothing to win by doing both at once.
        records.add(name + ".after_over_while", bench::median(ratios), "times",
                    source == Source::paced ? ">= 1.5" : "");
    }
    records.add("loading.peak_memory", peak_of_load(catalog), "of the weights", "<= 1.02");
    ::unlink(path.c_str());
    return 0;
}

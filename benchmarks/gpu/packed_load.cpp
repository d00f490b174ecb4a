// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Loading packed: a file of raw weights that is packed on the GPU, or by threads of the host, while it is read, and a packed file, each beside
// loading the same weights raw into pinned memory; from the page cache, and from the disk. The bytes are those of Llama-3-8B's tensors, with
// the exponents of trained weights; what the GPU packs is compared with what the host does.
// Arguments: GiB (default 6), folder for the files (default /tmp).
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "benchmarks/direct_reader.hpp"
#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "residency/format/open.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/host/loading.hpp"
#include "residency/packed.hpp"
#include "tests/gpu/unpacker.hpp"

namespace {

using residency::Catalog;
using residency::CudaDevice;
using residency::packed::PackedModel;
using Bytes = std::vector<std::byte>;

/// bf16 values of a normal distribution.
Bytes normal_values(std::size_t values) {
    Bytes bytes(2 * values);
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (std::size_t core = 0; core < cores; ++core) {
        threads.emplace_back([&, core] {
            std::mt19937 random{static_cast<std::uint32_t>(core)};
            std::normal_distribution<float> normal{0, 0.02F};
            for (std::size_t i = core * values / cores; i < (core + 1) * values / cores; ++i) {
                const auto bits =
                    static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(normal(random)) + 0x8000U) >> 16U);
                std::memcpy(bytes.data() + 2 * i, &bits, 2);
            }
        });
    }
    threads.clear();
    return bytes;
}

/// Tensors of Llama-3-8B, layer by layer, up to about so many bytes. Each begins elsewhere in the same values.
void make_model(const std::string& path, std::uint64_t bytes) {
    std::vector<residency::format::SafetensorsTensor> list;
    std::uint64_t total = 0;
    const auto add = [&](const std::string& name, residency::Shape shape) {
        std::uint64_t own = 2;
        for (const std::uint64_t extent : shape) { own *= extent; }
        total += own;
        list.push_back({name, residency::dtype::bf16, std::move(shape)});
    };
    if (bytes >= std::uint64_t{3} << 30) { add("embedding", {128256, 4096}); }
    for (int layer = 0; total < bytes; ++layer) {
        const std::string name = "layers." + std::to_string(layer) + ".";
        add(name + "norm", {4096});
        add(name + "q", {4096, 4096});
        add(name + "k", {1024, 4096});
        add(name + "v", {1024, 4096});
        add(name + "o", {4096, 4096});
        add(name + "gate", {14336, 4096});
        add(name + "up", {14336, 4096});
        add(name + "down", {4096, 14336});
    }
    const Bytes values = normal_values(std::size_t{48} << 20);
    auto writer = BENCH_RESULT(residency::format::SafetensorsWriter::try_create(path, list));
    Bytes tensor;
    std::size_t at = 0;
    for (const auto& each : list) {
        std::uint64_t own = 2;
        for (const std::uint64_t extent : each.shape) { own *= extent; }
        tensor.resize(static_cast<std::size_t>(own));
        for (std::size_t done = 0; done < tensor.size();) {
            const std::size_t some = std::min(tensor.size() - done, values.size() - at);
            std::memcpy(tensor.data() + done, values.data() + at, some);
            done += some;
            at = (at + some) % values.size();
        }
        at = (at + 98'766) % values.size();
        BENCH_RESULT(writer.try_append(tensor));
    }
    BENCH_RESULT(writer.try_finish());
}

/// How much of a file is in the page cache, 0 to 1.
double cached_share(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about{};
    if (fd < 0 || ::fstat(fd, &about) != 0) { return 1; }
    const auto bytes = static_cast<std::size_t>(about.st_size);
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED) { return 1; }
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    const int code = ::mincore(at, bytes, pages.data());
    ::munmap(at, bytes);
    if (code != 0) { return 1; }
    const auto there = std::ranges::count_if(pages, [](unsigned char page) { return (page & 1U) != 0; });
    return static_cast<double>(there) / static_cast<double>(pages.size());
}

void require(bool condition, const char* what) {
    if (condition) { return; }
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
}

void require_same(const PackedModel& ours, const PackedModel& theirs) {
    for (std::size_t s = 0; s < ours.catalog.storages().size(); ++s) {
        const auto* const a = std::get_if<residency::PackedHostSource>(&ours.catalog.storages()[s].source);
        const auto* const b = std::get_if<residency::PackedHostSource>(&theirs.catalog.storages()[s].source);
        require((a == nullptr) == (b == nullptr), "what the GPU packs");
        if (a == nullptr) { continue; }
        require(*a->parts == *b->parts && a->bytes == b->bytes &&
                    std::memcmp(a->host->data() + a->offset_bytes, b->host->data() + b->offset_bytes, a->bytes) == 0,
                "the bytes that the GPU packs");
    }
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-packed-load", argc, argv};
    const std::uint64_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 6) << 30;
    const std::string folder = argc > 2 ? argv[2] : "/tmp";
    const std::string raw_path = folder + "/residency-packed-load.safetensors",
                      packed_path = folder + "/residency-packed-load.packed";
    make_model(raw_path, bytes);
    const auto model = BENCH_RESULT(residency::format::try_read_model(raw_path));
    const Catalog raw = BENCH_RESULT(model.try_catalog());
    const double raw_bytes = static_cast<double>(raw.total_bytes());

    const auto load_raw = [&] {
        residency::host::Loaded loaded;
        residency::host::LoadOptions options;
        options.tier = residency::host::Tier::pinned;
        return bench::host_seconds([&] { loaded = BENCH_RESULT(residency::host::try_load(device, raw, options)); });
    };
    const auto pack = [&](const residency::Packer<CudaDevice>* packer, PackedModel& made) {
        return bench::host_seconds([&] { made = BENCH_RESULT(residency::packed::try_pack(device, raw, {}, packer)); });
    };
    // A virtual machine may get its memory only now: the first round is not counted. Rounds go there and back.
    PackedModel by_host, by_gpu;
    std::vector<double> raw_seconds, gpu_seconds, gpu_ratios, host_seconds;
    for (int round = 0; round < 7; ++round) {
        by_gpu = {};
        double ours = 0, theirs = 0;
        if (round % 2 == 0) { theirs = load_raw(); }
        ours = pack(&gpu::packer(), by_gpu);
        if (round % 2 != 0) { theirs = load_raw(); }
        if (!by_gpu.why_host.empty()) {
            std::fprintf(stderr, "threads of the host packed: %s\n", by_gpu.why_host.c_str());
            return 1;
        }
        if (round < 2) {
            by_host = {};
            const double seconds = pack(nullptr, by_host);
            if (round == 0) { require_same(by_gpu, by_host); }
            if (round == 1) { host_seconds.push_back(seconds); }
            by_host = {};
        }
        if (round == 0) { continue; }
        raw_seconds.push_back(theirs);
        gpu_seconds.push_back(ours);
        gpu_ratios.push_back(ours / theirs);
    }
    const double packed_share = static_cast<double>(by_gpu.packed_bytes) / static_cast<double>(by_gpu.raw_bytes);
    by_gpu = {};
    records.add("packed.load.size", packed_share, "of raw");
    records.add("packed.load.raw", raw_bytes / bench::median(raw_seconds) / 1e9, "GB/s");
    records.add("packed.load.gpu_packed", raw_bytes / bench::median(gpu_seconds) / 1e9, "GB/s of raw bytes");
    records.add("packed.load.gpu_packed.over_raw", bench::median(gpu_ratios), "times", "<= 1.15");
    records.add("packed.load.host_packed.over_raw", bench::median(host_seconds) / bench::median(raw_seconds), "times");

    residency::format::PackOptions options;
    static_cast<void>(BENCH_RESULT(residency::format::try_write_packed(model, packed_path, options)));
    const Catalog packed = BENCH_RESULT(BENCH_RESULT(residency::format::try_read_model(packed_path)).try_catalog());
    const auto load_packed = [&] {
        PackedModel loaded;
        return bench::host_seconds([&] { loaded = BENCH_RESULT(residency::packed::try_load(device, packed)); });
    };
    for (const bool from_disk : {false, true}) {
        std::vector<double> ours, theirs, ratios;
        bool is_dropped = true;
        const auto drop = [&](const std::string& path) {
            if (!from_disk) { return; }
            bench::drop_cache(path);
            is_dropped = is_dropped && cached_share(path) < 0.02;
        };
        for (int round = 0; round < (from_disk ? 3 : 7) && is_dropped; ++round) {
            double raw_time = 0;
            const auto measure_raw = [&] {
                drop(raw_path);
                raw_time = load_raw();
            };
            if (round % 2 == 0) { measure_raw(); }
            drop(packed_path);
            const double packed_time = load_packed();
            if (round % 2 != 0) { measure_raw(); }
            if (round == 0 && !from_disk) { continue; }
            ours.push_back(packed_time);
            theirs.push_back(raw_time);
            ratios.push_back(packed_time / raw_time);
        }
        if (!is_dropped) {
            std::printf("skipped: the page cache cannot be dropped here: nothing is read from the disk\n");
            continue;
        }
        const std::string name = std::string{"packed.load.file."} + (from_disk ? "disk" : "page_cache");
        records.add(name + ".raw", raw_bytes / bench::median(theirs) / 1e9, "GB/s");
        records.add(name + ".packed", raw_bytes / bench::median(ours) / 1e9, "GB/s of raw bytes");
        records.add(name + ".over_raw", bench::median(ratios), "times", from_disk ? "<= 0.72" : "");
    }
    ::unlink(raw_path.c_str());
    ::unlink(packed_path.c_str());
    return 0;
}

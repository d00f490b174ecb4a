// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// pool::Virtual on the real device: physical use exactly as held, and no wrong word under aliases, eager and in a graph.
#include "residency/pool/virtual.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "residency/device/cuda.hpp"
#include "tests/gpu/support.hpp"

namespace virtual_on_gpu {

using gpu::MiB;
using gpu::must;
using gpu::must_cuda;
using residency::Copy;
using residency::CudaDevice;
using residency::Timing;
using Virtual = residency::pool::Virtual<CudaDevice>;

namespace {

constexpr std::uint32_t chunks = 200, residents = 40, ring = 16;
constexpr std::uint64_t chunk_bytes = 2 * MiB;

/// Every fifth chunk has a slot of its own; the others share the ring in order.
std::vector<std::uint32_t> make_table() {
    std::vector<std::uint32_t> table(chunks);
    std::uint32_t own = 0;
    std::uint32_t shared = 0;
    for (std::uint32_t c = 0; c < chunks; ++c) { table[c] = c % 5 == 0 ? own++ : residents + shared++ % ring; }
    return table;
}

/// One pass over the image: copies ahead of reads, each slot's copy after the read of what was there before.
class Sweep {
public:
    Sweep(CudaDevice& device, Virtual& pool, const std::byte* host, std::uint64_t* sums)
        : device_{device}, pool_{pool}, host_{host}, sums_{sums}, copies_{must(device.create_stream())} {
        for (std::uint32_t s = 0; s < residents + ring; ++s) {
            read_.push_back(must(device.create_event(Timing::off)));
            arrived_.push_back(must(device.create_event(Timing::off)));
        }
        begin_ = must(device.create_event(Timing::off));
        end_ = must(device.create_event(Timing::off));
    }
    Sweep(const Sweep&) = delete;
    Sweep& operator=(const Sweep&) = delete;
    ~Sweep() {
        for (const auto event : read_) { static_cast<void>(device_.destroy_event(event).has_value()); }
        for (const auto event : arrived_) { static_cast<void>(device_.destroy_event(event).has_value()); }
        static_cast<void>(device_.destroy_event(begin_).has_value());
        static_cast<void>(device_.destroy_event(end_).has_value());
        static_cast<void>(device_.destroy_stream(copies_).has_value());
    }

    /// The checksum of each chunk goes to its own sum.
    void enqueue(CudaDevice::Stream stream) {
        must(device_.record(begin_, stream));
        must(device_.wait(copies_, begin_));
        std::vector<bool> was_read(read_.size(), false);
        for (std::uint32_t c = 0; c < chunks; ++c) {
            const std::uint32_t slot = pool_.slot_of(c);
            std::byte* const at = pool_.base() + c * chunk_bytes;
            if (slot >= residents) {
                if (was_read[slot]) { must(device_.wait(copies_, read_[slot])); }
                const Copy copy{at, host_ + c * chunk_bytes, chunk_bytes};
                must(device_.copy({&copy, 1}, copies_));
                must(device_.record(arrived_[slot], copies_));
                must(device_.wait(stream, arrived_[slot]));
            }
            must_cuda(gpu::launch_checksum({at, chunk_bytes}, sums_ + c, stream));
            must(device_.record(read_[slot], stream));
            was_read[slot] = true;
        }
        must(device_.record(end_, copies_));
        must(device_.wait(stream, end_));
    }

private:
    CudaDevice& device_;
    Virtual& pool_;
    const std::byte* host_;
    std::uint64_t* sums_;
    CudaDevice::Stream copies_;
    std::vector<CudaDevice::Event> read_, arrived_;
    CudaDevice::Event begin_, end_;
};

}  // namespace

TEST_CASE("the virtual pool holds exactly its slots, and streams an image over a small ring without a wrong word") {
    CudaDevice device{0};
    const auto stream = must(device.create_stream());
    auto* const host = static_cast<std::byte*>(must(device.allocate_host(chunks * chunk_bytes)));
    auto* const sums = static_cast<std::uint64_t*>(must(device.allocate(chunks * 8)));
    CHECK(device.chunk_granularity() == chunk_bytes);
    must(device.synchronize());
    const std::uint64_t before = must(device.memory()).free_bytes;
    Virtual pool;
    must(pool.open(device, chunks * chunk_bytes - 5));
    CHECK(must(device.memory()).free_bytes == before);
    const auto table = make_table();
    must(pool.arrange(residents + ring, table));
    CHECK(pool.held_bytes() == (residents + ring) * chunk_bytes);
    CHECK(before - must(device.memory()).free_bytes == pool.held_bytes());

    const auto bring_residents = [&] {
        std::vector<Copy> copies;
        for (std::uint32_t c = 0; c < chunks; c += 5) {
            copies.push_back({pool.base() + c * chunk_bytes, host + c * chunk_bytes, chunk_bytes});
        }
        must(device.copy(copies, stream));
    };
    const auto wrong = [&] {
        std::vector<std::uint64_t> got(chunks);
        must_cuda(cudaMemcpyAsync(got.data(), sums, chunks * 8, cudaMemcpyDeviceToHost, stream));
        must(device.synchronize(stream));
        std::size_t count = 0;
        for (std::uint32_t c = 0; c < chunks; ++c) {
            count += got[c] != gpu::checksum({host + c * chunk_bytes, chunk_bytes}) ? 1U : 0U;
        }
        return count;
    };
    {
        Sweep sweep{device, pool, host, sums};
        for (std::uint64_t round = 0; round < 2; ++round) {
            gpu::fill_pattern({host, chunks * chunk_bytes}, round);
            bring_residents();
            must_cuda(cudaMemsetAsync(sums, 0, chunks * 8, stream));
            sweep.enqueue(stream);
            CHECK(wrong() == 0);
        }
        must(device.begin_capture(stream));
        sweep.enqueue(stream);
        const auto graph = must(device.end_capture(stream));
        for (std::uint64_t round = 2; round < 4; ++round) {
            gpu::fill_pattern({host, chunks * chunk_bytes}, round);
            bring_residents();
            must_cuda(cudaMemsetAsync(sums, 0, chunks * 8, stream));
            must(device.launch(graph, stream));
            CHECK(wrong() == 0);
        }
        must(device.destroy_graph(graph));
    }
    // A smaller ring: the residents keep their bytes, the driver gets the difference back.
    std::vector<std::uint32_t> smaller = table;
    for (std::uint32_t c = 0; c < chunks; ++c) {
        if (smaller[c] >= residents) { smaller[c] = residents + (smaller[c] - residents) % 4; }
    }
    must(device.synchronize());
    must(pool.arrange(residents + 4, smaller));
    CHECK(before - must(device.memory()).free_bytes == (residents + 4) * chunk_bytes);
    {
        Sweep sweep{device, pool, host, sums};
        must_cuda(cudaMemsetAsync(sums, 0, chunks * 8, stream));
        sweep.enqueue(stream);
        CHECK(wrong() == 0);
    }
    // One chunk on another slot.
    must(device.synchronize());
    must(pool.remap(1, residents + 3));
    CHECK(pool.slot_of(1) == residents + 3);
    CHECK(before - must(device.memory()).free_bytes == (residents + 4) * chunk_bytes);
    pool.close();
    CHECK(must(device.memory()).free_bytes == before);
    must(device.deallocate(sums));
    must(device.deallocate_host(host));
    must(device.destroy_stream(stream));
}

}  // namespace virtual_on_gpu

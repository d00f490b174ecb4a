// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/device/cuda.hpp"
#include "residency/device/cuda_driver.hpp"
#include "residency/device/cuda_error.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/support.hpp"

namespace device_on_gpu {

using namespace std::chrono_literals;
using gpu::KiB;
using gpu::MiB;
using gpu::must;
using gpu::must_cuda;
using residency::Copy;
using residency::CudaDevice;
using residency::DeviceFailure;
using residency::ErrorKind;
using residency::Timing;

namespace {

std::uint64_t resident_kib() {
    std::FILE* file = std::fopen("/proc/self/status", "r");
    REQUIRE(file != nullptr);
    char line[256];
    unsigned long long kib = 0;
    while (std::fgets(line, sizeof line, file) != nullptr && std::sscanf(line, "VmRSS: %llu", &kib) != 1) {}
    std::fclose(file);
    return kib;
}

bool contains(const residency::Error& error, const std::string& text) {
    return error.message().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("opening says which ordinals there are") {
    for (const int ordinal : {-1, 1000}) {
        const auto device = CudaDevice::try_open(ordinal);
        REQUIRE_FALSE(device);
        CHECK(device.error().kind() == ErrorKind::invalid_argument);
        CHECK(contains(device.error(), "no GPU " + std::to_string(ordinal)));
        CHECK(contains(device.error(), "CUDA_VISIBLE_DEVICES"));
        CHECK_THROWS_AS(CudaDevice{ordinal}, residency::InvalidArgument);
    }
    CudaDevice device{0};
    CHECK(device.ordinal() == 0);
    CHECK_FALSE(device.name().empty());
    CHECK_FALSE(device.is_lost());
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("each code has its own advice") {
    const auto error = [](int code) { return residency::detail::cuda_error(code, "call", 5); };
    CHECK(error(35).kind() == ErrorKind::unsupported);
    CHECK(contains(error(35), "newer NVIDIA driver"));
    CHECK(error(100).kind() == ErrorKind::device);
    CHECK(contains(error(100), "nvidia-smi"));
    CHECK(error(2).kind() == ErrorKind::out_of_memory);
    CHECK(contains(error(2), "of 5 bytes"));
    CHECK(error(801).kind() == ErrorKind::unsupported);
    CHECK(error(719).kind() == ErrorKind::device);
    CHECK(contains(error(719), "lost"));
    for (const int of_stream : {400, 709}) {
        CHECK(contains(error(of_stream),
                       "is not valid: it was destroyed, or is of another device or context: pass a stream of"));
    }
    CHECK_FALSE(contains(error(2), "lost"));
    CHECK(error(905).kind() == ErrorKind::wrong_state);
}

TEST_CASE("the calling thread's device and context are left as found") {
    int count = 0;
    must_cuda(cudaGetDeviceCount(&count));
    CudaDevice device{count - 1};
    const auto driver = must(residency::detail::CudaDriver::load());
    std::atomic<bool> had_context{true}, has_context{true}, worked{false};
    std::thread{[&] {
        CUcontext context = nullptr;
        had_context = driver.context_get_current(&context) != CUDA_SUCCESS || context != nullptr;
        auto stream = device.create_stream();
        auto event = device.create_event(Timing::off);
        auto chunk = device.create_chunk(device.chunk_granularity());
        worked = stream && event && chunk && device.record(*event, *stream) && device.is_complete(*event) &&
                 device.memory() && device.synchronize(*stream) && device.destroy_event(*event) &&
                 device.destroy_stream(*stream) && device.destroy_chunk(*chunk) && !device.allocate(UINT64_MAX / 2);
        has_context = driver.context_get_current(&context) != CUDA_SUCCESS || context != nullptr;
    }}.join();
    CHECK(worked);
    CHECK_FALSE(had_context);
    CHECK_FALSE(has_context);
    // The main thread has device 0, also where the device in use is another one.
    must_cuda(cudaSetDevice(0));
    auto stream = must(device.create_stream());
    void* const at = must(device.allocate(MiB));
    must(device.fill(at, std::byte{1}, MiB, stream));
    must(device.synchronize(stream));
    must(device.deallocate(at));
    must(device.destroy_stream(stream));
    int current = -1;
    must_cuda(cudaGetDevice(&current));
    CHECK(current == 0);
    if (count < 2) { MESSAGE("one GPU only: another current device was not tried"); }
}

TEST_CASE("too little memory: the bytes are named, the device stays usable, CUDA's last error is clear") {
    CudaDevice device{0};
    const auto all = must(device.memory());
    const auto refused = device.allocate(all.total_bytes + 1);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::out_of_memory);
    const auto* failure = refused.error().detail<DeviceFailure>();
    REQUIRE(failure != nullptr);
    CHECK(failure->code == cudaErrorMemoryAllocation);
    CHECK(failure->bytes == all.total_bytes + 1);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    must(device.deallocate(must(device.allocate(MiB))));
    CHECK(must(device.memory()).free_bytes == all.free_bytes);
    const auto chunk =
        device.create_chunk((all.total_bytes / device.chunk_granularity() + 1) * device.chunk_granularity());
    REQUIRE_FALSE(chunk);
    CHECK(chunk.error().kind() == ErrorKind::out_of_memory);
    CHECK_FALSE(device.is_lost());
    const auto host = device.allocate_host(std::uint64_t{1} << 60);
    REQUIRE_FALSE(host);
    CHECK(host.error().kind() == ErrorKind::out_of_memory);
    CHECK(host.error().message().find("RLIMIT_MEMLOCK is") != std::string::npos);  // the limits were read first
}

TEST_CASE("a pool's cap is a multiple of 32 MiB, and hard") {
    CudaDevice device{0};
    const auto stream = must(device.create_stream());
    CHECK(device.pool_granularity() == 32 * MiB);
    for (const std::uint64_t odd : {std::uint64_t{0}, std::uint64_t{1}, MiB, 33 * MiB, 100 * MiB, 64 * MiB - 1}) {
        const auto refused = device.create_pool(odd);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::invalid_argument);
        CHECK(contains(refused.error(), std::to_string((odd / (32 * MiB) + 1) * 32 * MiB)));
    }
    for (const std::uint64_t cap : {32 * MiB, 96 * MiB, 256 * MiB}) {
        const std::uint64_t free_before = must(device.memory()).free_bytes;
        const auto pool = must(device.create_pool(cap));
        CHECK(must(device.held_bytes(pool)) == 0);
        for (int round = 0; round < 3; ++round) {
            std::vector<void*> blocks;
            for (;;) {
                auto block = device.allocate(pool, 16 * MiB, stream);
                if (!block) {
                    CHECK(block.error().kind() == ErrorKind::out_of_memory);
                    break;
                }
                blocks.push_back(*block);
                REQUIRE(blocks.size() <= cap / (16 * MiB));
                CHECK(must(device.held_bytes(pool)) <= cap);
            }
            CHECK(blocks.size() == cap / (16 * MiB));
            CHECK(must(device.held_bytes(pool)) == cap);
            CHECK(free_before - must(device.memory()).free_bytes == cap);
            for (void* const block : blocks) { must(device.deallocate(pool, block, stream)); }
            must(device.synchronize(stream));
            CHECK(must(device.held_bytes(pool)) == cap);
        }
        must(device.trim(pool));
        CHECK(must(device.held_bytes(pool)) == 0);
        CHECK(must(device.memory()).free_bytes == free_before);
        must(device.destroy_pool(pool));
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("pinned memory takes its own size and no more") {
    CudaDevice device{0};
    const gpu::Sum sum{device};
    const auto stream = must(device.create_stream());
    const std::uint64_t bytes = 513 * MiB + 5;
    const std::uint64_t before = resident_kib();
    auto* const at = static_cast<std::byte*>(must(device.allocate_host(bytes)));
    const std::uint64_t taken = (resident_kib() - before) * KiB;
    CHECK(taken + 8 * MiB >= bytes);
    CHECK(taken <= bytes + 16 * MiB);
    CHECK(reinterpret_cast<std::uintptr_t>(at) % (2 * MiB) == 0);
    gpu::fill_pattern({at, bytes}, 7);
    // Every byte of it is pinned: kernels read it in place, also from within.
    CHECK(sum.of(must(device.device_view(at)), bytes, stream) == gpu::checksum({at, bytes}));
    CHECK(sum.of(must(device.device_view(at + 1001)), 3 * MiB, stream) == gpu::checksum({at + 1001, 3 * MiB}));
    CHECK(must(device.device_view(at + bytes - 1)) != nullptr);
    must(device.deallocate_host(at));
    CHECK(resident_kib() * KiB <= before * KiB + 16 * MiB);
    CHECK(device.deallocate_host(at).error().kind() == ErrorKind::invalid_argument);

    for (const std::uint64_t small : {std::uint64_t{1}, std::uint64_t{4096}, 2 * MiB - 1, 2 * MiB, 2 * MiB + 1}) {
        void* const some = must(device.allocate_host(small));
        std::memset(some, 3, small);
        CHECK(sum.of(some, small, stream) == gpu::checksum({static_cast<std::byte*>(some), small}));
        must(device.deallocate_host(some));
    }
    CHECK(device.allocate_host(0).error().kind() == ErrorKind::invalid_argument);
    must(device.destroy_stream(stream));
}

TEST_CASE("pinned memory is filled by several threads, each byte once") {
    CudaDevice device{0, {.host_threads = 5}};
    const std::uint64_t bytes = 100 * MiB + 4321;
    std::atomic<std::uint64_t> written{0};
    auto* const at = static_cast<std::byte*>(
        must(device.allocate_host(bytes, [&](std::byte* first, std::uint64_t offset, std::uint64_t count) {
            for (std::uint64_t i = 0; i < count; ++i) { first[i] = static_cast<std::byte>((offset + i) % 251); }
            written += count;
        })));
    CHECK(written == bytes);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < bytes; ++i) { wrong += at[i] != static_cast<std::byte>(i % 251) ? 1U : 0U; }
    CHECK(wrong == 0);
    must(device.deallocate_host(at));
}

TEST_CASE("without pinning, host memory is ordinary memory") {
    CudaDevice device{0, {.pin = false}};
    const gpu::Sum sum{device};
    const auto stream = must(device.create_stream());
    auto* const at = static_cast<std::byte*>(must(device.allocate_host(3 * MiB)));
    gpu::fill_pattern({at, 3 * MiB}, 2);
    const auto view = device.device_view(at);
    REQUIRE_FALSE(view);
    CHECK(view.error().kind() == ErrorKind::unsupported);
    auto* const there = static_cast<std::byte*>(must(device.allocate(3 * MiB)));
    const Copy copies[] = {{there, at, MiB}, {there + MiB, at + MiB, 2 * MiB}};
    must(device.copy(copies, stream));
    must(device.synchronize(stream));
    CHECK(sum.of(there, 3 * MiB, stream) == gpu::checksum({at, 3 * MiB}));
    must(device.deallocate(there));
    must(device.deallocate_host(at));
    must(device.destroy_stream(stream));
}

TEST_CASE("pin and unpin take the caller's memory, and refuse what must not be pinned") {
    CudaDevice device{0};
    const gpu::Sum sum{device};
    const auto stream = must(device.create_stream());
    std::vector<std::byte> mine = gpu::pattern(5 * MiB + 3, 11);
    must(device.pin(mine.data(), mine.size()));
    CHECK(sum.of(must(device.device_view(mine.data())), mine.size(), stream) == gpu::checksum(mine));
    const auto twice = device.pin(mine.data(), mine.size());
    REQUIRE_FALSE(twice);
    CHECK(contains(twice.error(), "pinned already"));
    must(device.unpin(mine.data()));
    const auto again = device.unpin(mine.data());
    REQUIRE_FALSE(again);
    CHECK(contains(again.error(), "not pinned"));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(device.pin(nullptr, 5).error().kind() == ErrorKind::invalid_argument);

    // Pinning a mapped file may never return, so it is refused first.
    char path[] = "/tmp/residency_gpu_test_XXXXXX";
    const int file = mkstemp(path);
    REQUIRE(file >= 0);
    REQUIRE(ftruncate(file, 1 << 20) == 0);
    void* const mapped = mmap(nullptr, 1 << 20, PROT_READ, MAP_PRIVATE, file, 0);
    REQUIRE(mapped != MAP_FAILED);
    const auto refused = device.pin(mapped, 1 << 20);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    CHECK(contains(refused.error(), path));
    munmap(mapped, 1 << 20);
    close(file);
    unlink(path);
    must(device.destroy_stream(stream));
}

TEST_CASE("copies of many pieces, empty ones among them, in both directions and on every kind of stream") {
    CudaDevice device{0};
    const gpu::Sum sum{device};
    const auto own = must(device.create_stream());
    constexpr std::uint64_t bytes = 32 * MiB;
    auto* const host = static_cast<std::byte*>(must(device.allocate_host(bytes)));
    auto* const back = static_cast<std::byte*>(must(device.allocate_host(bytes)));
    auto* const there = static_cast<std::byte*>(must(device.allocate(bytes)));
    const unsigned seed = 20260101;
    MESSAGE("seed " << seed);
    std::mt19937_64 random{seed};
    const CudaDevice::Stream streams[] = {own, CudaDevice::Stream{}, CudaDevice::Stream{cudaStreamLegacy},
                                          CudaDevice::Stream{cudaStreamPerThread}};
    for (const auto stream : streams) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{511},
                                        std::size_t{512}, std::size_t{513}, std::size_t{1500}}) {
            gpu::fill_pattern({host, bytes}, random());
            std::memset(back, 0xEE, bytes);
            std::vector<std::byte> expected(bytes, std::byte{0xEE});
            must(device.fill(there, std::byte{0xEE}, bytes, stream));
            std::vector<Copy> up, down;
            std::uint64_t at = 0;
            for (std::size_t i = 0; i < count; ++i) {
                const std::uint64_t piece = i % 7 == 3 ? 0 : random() % 20000;
                up.push_back({there + at, piece == 0 ? nullptr : host + at, piece});
                down.push_back({back + at, there + at, piece});
                std::memcpy(expected.data() + at, host + at, piece);
                at += piece + random() % 900;
            }
            REQUIRE(at <= bytes);
            must(device.copy(up, stream));
            CHECK(sum.of(there, bytes, stream) == gpu::checksum(expected));
            must(device.copy(down, stream));
            must(device.synchronize(stream));
            CHECK(std::memcmp(back, expected.data(), bytes) == 0);
        }
    }
    // Nothing but empty pieces is nothing.
    const Copy empty[] = {{}, {there, host, 0}, {}};
    must(device.copy(empty, own));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    must(device.deallocate(there));
    must(device.deallocate_host(host));
    must(device.deallocate_host(back));
    must(device.destroy_stream(own));
}

TEST_CASE("copies from pageable memory") {
    CudaDevice device{0};
    const gpu::Sum sum{device};
    const auto stream = must(device.create_stream());
    const auto mine = gpu::pattern(6 * MiB, 3);
    auto* const there = static_cast<std::byte*>(must(device.allocate(mine.size())));
    std::vector<Copy> pieces;
    for (std::uint64_t at = 0; at < mine.size(); at += MiB) { pieces.push_back({there + at, mine.data() + at, MiB}); }
    must(device.copy(pieces, stream));
    must(device.synchronize(stream));
    CHECK(sum.of(there, mine.size(), stream) == gpu::checksum(mine));
    must(device.deallocate(there));
    must(device.destroy_stream(stream));
}

TEST_CASE("a batch of copies in a capture: every piece is in the graph") {
    CudaDevice device{0};
    const gpu::Sum sum{device};
    const auto stream = must(device.create_stream());
    constexpr std::uint64_t piece = 64 * KiB, count = 100;
    auto* const host = static_cast<std::byte*>(must(device.allocate_host(piece * count)));
    auto* const there = static_cast<std::byte*>(must(device.allocate(piece * count)));
    std::vector<Copy> copies;
    for (std::uint64_t i = 0; i < count; ++i) {
        copies.push_back({there + i * piece, host + i * piece, piece});
        copies.push_back({there, host, 0});
    }
    must(device.begin_capture(stream));
    CHECK(must(device.is_capturing(stream)));
    must(device.copy(copies, stream));
    must_cuda(gpu::launch_checksum({there, piece * count}, sum.at(), stream));
    const auto graph = must(device.end_capture(stream));
    CHECK_FALSE(must(device.is_capturing(stream)));
    for (std::uint64_t round = 0; round < 5; ++round) {
        gpu::fill_pattern({host, piece * count}, round);
        must_cuda(cudaMemsetAsync(sum.at(), 0, 8, stream));
        must(device.launch(graph, stream));
        std::uint64_t got = 0;
        must_cuda(cudaMemcpyAsync(&got, sum.at(), 8, cudaMemcpyDeviceToHost, stream));
        must(device.synchronize(stream));
        CHECK(got == gpu::checksum({host, piece * count}));
    }
    must(device.destroy_graph(graph));
    must(device.deallocate(there));
    must(device.deallocate_host(host));
    must(device.destroy_stream(stream));
}

TEST_CASE("a capture survives what other streams and threads do, and what it cannot hold is refused without harm") {
    CudaDevice device{0};
    const auto captured = must(device.create_stream());
    const auto other = must(device.create_stream());
    const auto pool = must(device.create_pool(64 * MiB));
    const auto flag = must(device.create_flag());
    const auto event = must(device.create_event(Timing::off));
    void* const there = must(device.allocate(MiB));
    void* const range = must(device.reserve(device.chunk_granularity()));
    const auto chunk = must(device.create_chunk(device.chunk_granularity()));
    const residency::Mapping<CudaDevice::Chunk> mapping{range, chunk};
    must_cuda(gpu::launch_spin(20ms, other));
    must(device.record(event, other));
    must(device.begin_capture(captured));
    must(device.fill(there, std::byte{1}, MiB, captured));
    const auto work_beside = [&] {
        bool good = static_cast<bool>(device.is_complete(event));
        auto memory = device.allocate(4 * MiB);
        auto pooled = device.allocate(pool, MiB, other);
        auto host = device.allocate_host(MiB);
        auto made = device.create_event(Timing::off);
        auto stream = device.create_stream();
        good = good && memory && pooled && host && made && stream && device.memory();
        return good && device.deallocate(pool, *pooled, other) && device.destroy_event(*made) &&
               device.destroy_stream(*stream) && device.deallocate_host(*host) && device.deallocate(*memory);
    };
    CHECK(work_beside());
    std::thread{[&] { CHECK(work_beside()); }}.join();
    // Refused at once.
    CHECK(device.allocate(pool, MiB, captured).error().kind() == ErrorKind::wrong_state);
    CHECK(device.wait_flag(captured, flag, 1).error().kind() == ErrorKind::wrong_state);
    CHECK(device.synchronize(captured).error().kind() == ErrorKind::wrong_state);
    CHECK(device.synchronize().error().kind() == ErrorKind::wrong_state);
    CHECK(device.map({&mapping, 1}, device.chunk_granularity()).error().kind() == ErrorKind::wrong_state);
    CHECK(device.unmap(range, device.chunk_granularity()).error().kind() == ErrorKind::wrong_state);
    const auto graph = device.end_capture(captured);
    REQUIRE_MESSAGE(graph.has_value(), (graph ? std::string{} : graph.error().message()));
    must(device.launch(*graph, captured));
    must(device.synchronize(captured));
    must(device.destroy_graph(*graph));
    must(device.map({&mapping, 1}, device.chunk_granularity()));
    must(device.unmap(range, device.chunk_granularity()));
    CHECK(device.begin_capture(CudaDevice::Stream{}).error().kind() == ErrorKind::invalid_argument);
    CHECK_FALSE(device.end_capture(other));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    must(device.synchronize());
    must(device.destroy_chunk(chunk));
    must(device.release(range, device.chunk_granularity()));
    must(device.destroy_flag(flag));
    must(device.destroy_event(event));
    must(device.destroy_pool(pool));
    must(device.deallocate(there));
    must(device.destroy_stream(captured));
    must(device.destroy_stream(other));
}

TEST_CASE("a failed capture leaves the stream and later captures usable") {
    CudaDevice device{0};
    const auto stream = must(device.create_stream());
    const auto fork = must(device.create_stream());
    const auto outside = must(device.create_event(Timing::off));
    const auto inside = must(device.create_event(Timing::off));
    must(device.record(outside, fork));
    must(device.begin_capture(stream));
    CHECK_FALSE(device.wait(stream, outside));
    CHECK_FALSE(device.end_capture(stream));
    CHECK_FALSE(must(device.is_capturing(stream)));

    must(device.begin_capture(stream));
    must(device.record(inside, stream));
    must(device.wait(fork, inside));
    must_cuda(gpu::launch_nothing(fork));
    const auto unjoined = device.end_capture(stream);
    REQUIRE_FALSE(unjoined);
    CHECK(contains(unjoined.error(), "not joined"));
    CHECK_FALSE(must(device.is_capturing(stream)));
    CHECK_FALSE(must(device.is_capturing(fork)));

    must(device.begin_capture(stream));
    must_cuda(gpu::launch_nothing(stream));
    const auto graph = must(device.end_capture(stream));
    must(device.launch(graph, stream));
    must(device.synchronize(stream));
    must(device.synchronize());
    must(device.destroy_graph(graph));
    must(device.destroy_event(outside));
    must(device.destroy_event(inside));
    must(device.destroy_stream(stream));
    must(device.destroy_stream(fork));
}

TEST_CASE("streams, events and graphs are destroyed while their work runs") {
    CudaDevice device{0};
    const auto stream = must(device.create_stream());
    must(device.begin_capture(stream));
    must_cuda(gpu::launch_spin(20ms, stream));
    const auto graph = must(device.end_capture(stream));
    const auto begin = device.host_time();
    must(device.launch(graph, stream));
    const auto event = must(device.create_event(Timing::off));
    must(device.record(event, stream));
    CHECK_FALSE(must(device.is_complete(event)));
    must(device.destroy_graph(graph));
    must(device.destroy_event(event));
    must(device.destroy_stream(stream));
    const auto destroyed_after = device.host_time() - begin;
    must(device.synchronize());
    CHECK(device.host_time() - begin >= 20ms);
    MESSAGE("destroyed after " << std::chrono::duration<double, std::milli>(destroyed_after).count() << " ms of 20 ms");
}

TEST_CASE("an event that comes from the store stands for nothing") {
    CudaDevice device{0, {.events = 2, .timing_events = 0}};
    const auto busy = must(device.create_stream());
    const auto idle = must(device.create_stream());
    must_cuda(gpu::launch_spin(50ms, busy));
    for (int i = 0; i < 10; ++i) {
        const auto event = must(device.create_event(Timing::off));
        CHECK(must(device.is_complete(event)));
        must(device.record(event, busy));
        must(device.destroy_event(event));
    }
    const auto fresh = must(device.create_event(Timing::off));
    CHECK(must(device.is_complete(fresh)));
    must(device.wait(idle, fresh));
    must(device.synchronize(idle));
    const auto end = must(device.create_event(Timing::off));
    must(device.record(end, busy));
    CHECK_FALSE(must(device.is_complete(end)));
    must(device.synchronize(end));
    CHECK(must(device.is_complete(end)));
    must(device.destroy_event(end));
    must(device.destroy_event(fresh));
    CHECK(device.destroy_event({}).error().kind() == ErrorKind::invalid_argument);
    must(device.destroy_stream(busy));
    must(device.destroy_stream(idle));
}

TEST_CASE("elapsed time is the device's") {
    CudaDevice device{0};
    const auto stream = must(device.create_stream());
    const auto from = must(device.create_event(Timing::on));
    const auto to = must(device.create_event(Timing::on));
    must(device.record(from, stream));
    must_cuda(gpu::launch_spin(5ms, stream));
    must(device.record(to, stream));
    must(device.synchronize(to));
    CHECK(must(device.elapsed(from, to)) >= 5ms - 100us);
    const auto untimed = must(device.create_event(Timing::off));
    must(device.record(untimed, stream));
    must(device.synchronize(untimed));
    CHECK_FALSE(device.elapsed(from, untimed));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    must(device.destroy_event(untimed));
    must(device.destroy_event(from));
    must(device.destroy_event(to));
    must(device.destroy_stream(stream));
}

TEST_CASE("chunks count in the driver's free memory, their mappings do not") {
    CudaDevice device{0};
    const gpu::Sum sum{device};
    const auto stream = must(device.create_stream());
    const std::uint64_t chunk_bytes = device.chunk_granularity();
    constexpr std::size_t chunks = 16, places = 8;
    auto* const host = static_cast<std::byte*>(must(device.allocate_host(chunks * chunk_bytes)));
    auto* const range = static_cast<std::byte*>(must(device.reserve(places * chunks * chunk_bytes)));
    const std::uint64_t before = must(device.memory()).free_bytes;
    std::vector<CudaDevice::Chunk> ring;
    for (std::size_t i = 0; i < chunks; ++i) {
        ring.push_back(must(device.create_chunk(chunk_bytes)));
        CHECK(before - must(device.memory()).free_bytes == (i + 1) * chunk_bytes);
    }
    // Each chunk at eight places, in another order at each.
    std::vector<residency::Mapping<CudaDevice::Chunk>> mappings;
    for (std::size_t place = 0; place < places; ++place) {
        for (std::size_t i = 0; i < chunks; ++i) {
            mappings.push_back({range + (place * chunks + i) * chunk_bytes, ring[(i * 5 + place) % chunks]});
        }
    }
    must(device.map(mappings, chunk_bytes));
    CHECK(before - must(device.memory()).free_bytes == chunks * chunk_bytes);
    for (std::size_t place = 0; place < places; ++place) {
        gpu::fill_pattern({host, chunks * chunk_bytes}, place);
        std::vector<Copy> copies;
        for (std::size_t i = 0; i < chunks; ++i) {
            copies.push_back({range + (place * chunks + i) * chunk_bytes, host + i * chunk_bytes, chunk_bytes});
        }
        must(device.copy(copies, stream));
        CHECK(sum.of(range + place * chunks * chunk_bytes, chunks * chunk_bytes, stream) ==
              gpu::checksum({host, chunks * chunk_bytes}));
        // The same physical bytes under the other places' addresses.
        const std::size_t other = (place + 3) % places;
        for (std::size_t i = 0; i < chunks; ++i) {
            const std::size_t physical = (i * 5 + place) % chunks;
            std::size_t j = 0;
            while ((j * 5 + other) % chunks != physical) { ++j; }
            CHECK(sum.of(range + (other * chunks + j) * chunk_bytes, chunk_bytes, stream) ==
                  gpu::checksum({host + i * chunk_bytes, chunk_bytes}));
        }
    }
    must(device.synchronize(stream));
    must(device.unmap(range, places * chunks * chunk_bytes));
    CHECK(before - must(device.memory()).free_bytes == chunks * chunk_bytes);
    for (const auto chunk : ring) { must(device.destroy_chunk(chunk)); }
    CHECK(must(device.memory()).free_bytes == before);
    must(device.release(range, places * chunks * chunk_bytes));
    must(device.deallocate_host(host));
    must(device.destroy_stream(stream));
}

TEST_CASE("mapping is all or nothing, and unmapping takes whole chunks") {
    CudaDevice device{0};
    const auto stream = must(device.create_stream());
    const std::uint64_t bytes = device.chunk_granularity();
    auto* const range = static_cast<std::byte*>(must(device.reserve(6 * bytes)));
    const auto a = must(device.create_chunk(bytes));
    const auto b = must(device.create_chunk(bytes));
    using Mapping = residency::Mapping<CudaDevice::Chunk>;
    const Mapping taken{range + 4 * bytes, a};
    must(device.map({&taken, 1}, bytes));
    const Mapping clash[] = {{range, a}, {range + bytes, b}, {range + 2 * bytes, a}, {range + 4 * bytes, b}};
    CHECK_FALSE(device.map(clash, bytes));
    const Mapping fits[] = {{range, a}, {range + bytes, b}, {range + 2 * bytes, a}};
    must(device.map(fits, bytes));
    must(device.fill(range, std::byte{9}, 3 * bytes, stream));
    must(device.synchronize(stream));
    CHECK(device.map(fits, bytes + 1).error().kind() == ErrorKind::invalid_argument);
    CHECK(device.unmap(range, bytes / 2).error().kind() == ErrorKind::invalid_argument);
    CHECK(device.unmap(range + bytes / 2, bytes).error().kind() == ErrorKind::invalid_argument);
    CHECK(device.unmap(range + 3 * bytes, bytes).error().kind() == ErrorKind::invalid_argument);
    must(device.unmap(range + bytes, bytes));
    const Mapping back{range + bytes, a};
    must(device.map({&back, 1}, bytes));
    must(device.unmap(range, 5 * bytes));
    CHECK(device.reserve(bytes + 1).error().kind() == ErrorKind::invalid_argument);
    CHECK(device.create_chunk(bytes / 2).error().kind() == ErrorKind::invalid_argument);
    must(device.destroy_chunk(a));
    must(device.destroy_chunk(b));
    must(device.release(range, 6 * bytes));
    must(device.destroy_stream(stream));
}

TEST_CASE("a stream waits for a flag, and then sees what was written before it was raised") {
    CudaDevice device{0};
    const gpu::Sum sum{device};
    const auto stream = must(device.create_stream());
    const auto done = must(device.create_event(Timing::off));
    auto* const host = static_cast<std::byte*>(must(device.allocate_host(4 * MiB)));
    auto* const there = static_cast<std::byte*>(must(device.allocate(4 * MiB)));
    for (std::uint32_t round = 1; round <= 20; ++round) {
        const auto flag = must(device.create_flag());
        gpu::fill_pattern({host, 4 * MiB}, 0);
        must(device.wait_flag(stream, flag, 3));
        const Copy copy{there, host, 4 * MiB};
        must(device.copy({&copy, 1}, stream));
        must(device.record(done, stream));
        CHECK_FALSE(must(device.is_complete(done)));
        must(device.raise_flag(flag, 2));
        CHECK_FALSE(must(device.is_complete(done)));
        std::thread{[&] {
            gpu::fill_pattern({host, 4 * MiB}, round);
            static_cast<void>(device.raise_flag(flag, 5).has_value());
            static_cast<void>(device.raise_flag(flag, 1).has_value());  // a flag never falls
        }}.join();
        CHECK(sum.of(there, 4 * MiB, stream) == gpu::checksum({host, 4 * MiB}));
        must(device.wait_flag(stream, flag, 5));
        must(device.synchronize(stream));
        must(device.destroy_flag(flag));
    }
    CHECK(device.destroy_flag({}).error().kind() == ErrorKind::invalid_argument);
    must(device.destroy_event(done));
    must(device.deallocate(there));
    must(device.deallocate_host(host));
    must(device.destroy_stream(stream));
}

TEST_CASE("several threads share one device") {
    CudaDevice device{0};
    std::atomic<int> good{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t) {
        threads.emplace_back([&device, &good, t] {
            constexpr std::uint64_t bytes = MiB;
            auto stream = device.create_stream();
            auto host = device.allocate_host(2 * bytes);
            auto there = device.allocate(bytes);
            if (!stream || !host || !there) { return; }
            auto* const from = static_cast<std::byte*>(*host);
            bool fine = true;
            for (unsigned round = 0; round < 50 && fine; ++round) {
                gpu::fill_pattern({from, bytes}, t * 1000 + round);
                auto event = device.create_event(Timing::off);
                const Copy up[] = {{*there, from, bytes / 2},
                                   {static_cast<std::byte*>(*there) + bytes / 2, from + bytes / 2, bytes / 2}};
                const Copy down{from + bytes, *there, bytes};
                fine = event && device.copy(up, *stream) && device.copy({&down, 1}, *stream) &&
                       device.record(*event, *stream) && device.synchronize(*event) && device.destroy_event(*event) &&
                       std::memcmp(from, from + bytes, bytes) == 0;
            }
            fine = device.deallocate(*there) && fine;
            fine = device.deallocate_host(*host) && fine;
            fine = device.destroy_stream(*stream) && fine;
            good += fine ? 1 : 0;
        });
    }
    for (auto& thread : threads) { thread.join(); }
    CHECK(good == 8);
}

}  // namespace device_on_gpu

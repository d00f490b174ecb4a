// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "residency/device/memory_node.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

inline constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;

/// Blocks. Calls `work(first, last)` for ranges that cover [0, bytes) and are cut at multiples of `block` bytes, from up to `threads`
/// threads at once; the caller's is one of them. `work` must not throw.
template <class Work>
void for_blocks_in_parallel(std::uint64_t bytes, std::uint64_t block, unsigned threads, Work& work) {
    struct Shared {
        Work* work;
        std::uint64_t bytes, block;
        std::atomic<std::uint64_t> next{0};
        static void* run(void* self) {
            auto& shared = *static_cast<Shared*>(self);
            for (;;) {
                const std::uint64_t first = shared.next.fetch_add(shared.block, std::memory_order_relaxed);
                if (first >= shared.bytes) { return nullptr; }
                (*shared.work)(first, (std::min)(first + shared.block, shared.bytes));
            }
        }
    };
    constexpr unsigned most = 64;
    Shared shared{&work, bytes, block};
    const std::uint64_t blocks = (bytes + block - 1) / block;
    const auto helpers = static_cast<unsigned>(std::min<std::uint64_t>((std::min)(threads, most), blocks));
    pthread_t started[most];
    unsigned running = 0;
    // If a thread cannot be started, the others do its share.
    while (running + 1 < helpers && pthread_create(&started[running], nullptr, &Shared::run, &shared) == 0) {
        ++running;
    }
    Shared::run(&shared);
    for (unsigned i = 0; i < running; ++i) { pthread_join(started[i], nullptr); }
}

/// Maps anonymous memory of `bytes` bytes, rounded up to whole pages. Memory of 2 MiB or more is aligned to 2 MiB, and backed by huge
/// pages if the system has them; they are asked for on `node`. No page is touched. Null: the system refuses; errno says why.
[[nodiscard]] inline void* map_host(std::uint64_t bytes, bool huge_pages, std::optional<unsigned> node) noexcept {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    if (bytes == 0 || bytes > UINT64_MAX - huge_page_bytes - page) {
        errno = ENOMEM;
        return nullptr;
    }
    const std::uint64_t exact = (bytes + page - 1) / page * page;
    const bool large = bytes >= huge_page_bytes;
    const std::uint64_t asked = large ? exact + huge_page_bytes : exact;
    void* const raw = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) { return nullptr; }
    auto* at = static_cast<std::byte*>(raw);
    if (large) {
        const auto misaligned = reinterpret_cast<std::uintptr_t>(raw) % huge_page_bytes;
        const std::uint64_t before = misaligned == 0 ? 0 : huge_page_bytes - misaligned;
        if (before != 0) { munmap(at, before); }
        at += before;
        munmap(at + exact, asked - before - exact);
        if (huge_pages) { madvise(at, exact, MADV_HUGEPAGE); }
    }
    if (node) { prefer_memory_node(at, exact, *node); }  // a wish: refusal costs speed only
    return at;
}

/// Unmaps what map_host(bytes, …) returned.
inline void unmap_host(void* at, std::uint64_t bytes) noexcept {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    munmap(at, (bytes + page - 1) / page * page);
}

/// Blocks. Makes every page of anonymous memory present, so that pinning finds them all. One thread takes 0.8 s for 2 GiB.
inline void touch_host(void* at, std::uint64_t bytes, unsigned threads) {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    auto touch = [at, page](std::uint64_t first, std::uint64_t last) {
        auto* const begin = static_cast<std::byte*>(at) + first;
#ifdef MADV_POPULATE_WRITE
        if (madvise(begin, (last - first + page - 1) / page * page, MADV_POPULATE_WRITE) == 0) { return; }
#endif
        for (std::uint64_t i = 0; i < last - first; i += page) {
            volatile std::byte& byte = begin[i];
            byte = byte;
        }
    };
    for_blocks_in_parallel(bytes, std::uint64_t{32} << 20, threads, touch);
}

/// Of a file system in memory (tmpfs), as statfs() says it.
inline constexpr auto memory_file_system = 0x01021994;

/// Whether a path of /proc/self/maps names memory instead of a file on a disk: such a mapping can be pinned.
[[nodiscard]] inline bool is_path_in_memory(std::string_view path) {
    for (const std::string_view start : {"/memfd:", "/dev/shm/", "/dev/zero", "/SYSV", "/anon_hugepage"}) {
        if (path.starts_with(start)) { return true; }
    }
    struct statfs system = {};
    const std::string whole{path};
    const std::string folder{path.substr(0, path.rfind('/') + 1)};  // of a file that was removed
    return (statfs(whole.c_str(), &system) == 0 || statfs(folder.c_str(), &system) == 0) &&
           system.f_type == memory_file_system;
}

/// The path of the first mapping of a file on a disk inside [at, at + bytes). Empty: there is none. To pin one may never return.
[[nodiscard]] inline std::string file_mapping_in(const void* at, std::uint64_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    std::FILE* const maps = std::fopen("/proc/self/maps", "re");
    if (maps == nullptr) { return {}; }
    std::string found;
    char line[512];
    bool at_line_start = true;
    while (found.empty() && std::fgets(line, sizeof line, maps) != nullptr) {
        const bool whole_line = std::strchr(line, '\n') != nullptr;
        if (at_line_start) {
            std::uint64_t first = 0, last = 0, inode = 0;
            int name = 0;
            if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*x %*x:%*x %" SCNu64 " %n", &first, &last, &inode,
                            &name) == 3 &&
                inode != 0 && first < begin + bytes && begin < last) {
                const std::string_view path{line + name};
                const std::string_view whole = path.substr(0, path.find('\n'));
                if (!is_path_in_memory(whole)) { found = whole; }
            }
        }
        at_line_start = whole_line;
    }
    std::fclose(maps);
    return found;
}

/// " (limit on locked memory: …)", for errors about pinning.
[[nodiscard]] inline std::string locked_memory_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) { return {}; }
    return " (RLIMIT_MEMLOCK is " +
           (limit.rlim_cur == RLIM_INFINITY ? std::string{"unlimited"} : residency::detail::in_bytes(limit.rlim_cur)) +
           ")";
}

}}}  // namespace residency::RESIDENCY_ABI::detail

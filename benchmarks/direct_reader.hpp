// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/record.hpp"

namespace bench {

/// Pages of the file leave the page cache.
inline void drop_cache(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return; }
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
}

/// GB/s of a plain reader with O_DIRECT: each of `threads` threads reads the next block of the file into the next of its share of
/// `memory`, one read at a time, so that as many are under way as there are threads. `memory` is what the other reader would
/// read into: of the same kind, touched, aligned to 4 KiB.
[[nodiscard]] inline double plain_direct_rate(const std::string& path, std::uint64_t bytes, std::uint64_t block_bytes,
                                              unsigned threads, std::span<std::byte> memory) {
    const std::uint64_t blocks = bytes / block_bytes;
    const std::uint64_t places = memory.size() / block_bytes;
    std::atomic<std::uint64_t> next = 0;
    std::atomic<bool> failed = places < threads;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    const double seconds = host_seconds([&] {
        std::vector<std::thread> readers;
        for (unsigned t = 0; t < threads && !failed; ++t) {
            readers.emplace_back([&] {
                for (std::uint64_t i = next.fetch_add(1); i < blocks; i = next.fetch_add(1)) {
                    std::byte* const to = memory.data() + i % places * block_bytes;
                    if (::pread(fd, to, block_bytes, static_cast<off_t>(i * block_bytes)) !=
                        static_cast<ssize_t>(block_bytes)) {
                        failed = true;
                    }
                }
            });
        }
        for (std::thread& reader : readers) { reader.join(); }
    });
    if (fd >= 0) { ::close(fd); }
    if (failed || fd < 0) {
        std::fprintf(stderr, "%s: no direct reads\n", path.c_str());
        std::exit(1);
    }
    return static_cast<double>(blocks * block_bytes) / seconds / 1e9;
}

}  // namespace bench

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

struct FileCloser {
    void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
};
using FileHandle = std::unique_ptr<std::FILE, FileCloser>;

/// Closes a file descriptor. Movable; the source has none afterwards.
class Descriptor {
public:
    explicit Descriptor(int fd = -1) noexcept : fd_{fd} {}
    Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() {
        if (fd_ >= 0) { ::close(fd_); }
    }
    /// Below 0: none.
    [[nodiscard]] int get() const noexcept { return fd_; }

private:
    int fd_;
};

/// Blocks. Opens a regular file for reading. A folder, a pipe or a device is refused, and none of them is waited for. Error io.
[[nodiscard]] RESIDENCY_INLINE Result<FileHandle> open_regular_file(const std::string& path);

/// Blocks. All bytes that an open file still has. `source` names it in errors: io; malformed where there are more than `max_bytes`.
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<std::byte>> read_all(std::FILE& file, const std::string& source,
                                                                       std::uint64_t max_bytes);

/// Blocks. All bytes of a regular file. Errors: io; malformed where the file is longer than `max_bytes`.
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<std::byte>> read_file(const std::string& path,
                                                                        std::uint64_t max_bytes);

/// Blocks. Writes a file beside `path`, then moves it there, so that a reader sees the old bytes or the new. What is no regular
/// file, such as a link or a device, is written through instead. Error io.
[[nodiscard]] RESIDENCY_INLINE Status write_file(const std::string& path, std::span<const std::byte> bytes);

}}}  // namespace residency::RESIDENCY_ABI::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/file.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "residency/error.hpp"
#include "residency/model/file_identity.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/storage.hpp"

namespace residency::inline RESIDENCY_ABI::host {

/// How a file is read.
enum class FileAccess : std::uint8_t {
    cached,  ///< through the page cache
    direct,  ///< past it (O_DIRECT); where the file system cannot, through it, dropping what was read
};

/// A file of a catalog, open for reading from any thread, that notices when it is no longer the file that the catalog was made
/// from: when it is opened, and after every read, of which the bytes count only if the file is still unchanged after it. A
/// file that another takes the place of (as by a rename) stays open, and as it was.
class WeightFile {
public:
    /// Offsets, sizes and addresses of direct reads are multiples of it.
    static constexpr std::size_t direct_alignment_bytes = 4096;

    /// ErrorKind::mismatch where it is not the file that the catalog was made from: another size, or, where the catalog knows
    /// the identity, another file, or the same one written to since. Blocks.
    [[nodiscard]] static Result<WeightFile> try_open(const SourceFile& source, FileAccess access) {
        int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
        WeightFile file;
        file.path_ = source.path;
        if (access == FileAccess::direct) {
            file.fd_ = ::open(source.path.c_str(), flags | O_DIRECT);
            file.is_direct_ = file.fd_ >= 0;
        }
        if (file.fd_ < 0) { file.fd_ = ::open(source.path.c_str(), flags); }
        if (file.fd_ < 0) { return file.system_error(0, "cannot be opened"); }
        file.drops_cache_ = access == FileAccess::direct && !file.is_direct_;
        const auto identity = file.identify();
        if (!identity) { return identity.error(); }
        file.identity_ = *identity;
        if (file.identity_.bytes != source.bytes) {
            return Error{
                ErrorKind::mismatch,
                residency::detail::quoted(source.path) + ": it has " + std::to_string(file.identity_.bytes) +
                    " bytes now, and had " + std::to_string(source.bytes) + " when the catalog was made",
                Place{source.path, 0, std::to_string(file.identity_.bytes) + " bytes", std::to_string(source.bytes)}};
        }
        if (source.identity && *source.identity != file.identity_) {
            const std::string how = residency::detail::difference(*source.identity, file.identity_);
            return Error{
                ErrorKind::mismatch,
                residency::detail::quoted(source.path) + ": the file was changed since the catalog was made: " + how,
                Place{source.path, 0, how, "the file that the catalog was made from"}};
        }
        return file;
    }

    WeightFile(WeightFile&& other) noexcept
        : fd_{std::exchange(other.fd_, -1)},
          path_{std::move(other.path_)},
          identity_{other.identity_},
          is_direct_{other.is_direct_},
          drops_cache_{other.drops_cache_} {}
    WeightFile& operator=(WeightFile&& other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(path_, other.path_);
        std::swap(identity_, other.identity_);
        std::swap(is_direct_, other.is_direct_);
        std::swap(drops_cache_, other.drops_cache_);
        return *this;
    }
    ~WeightFile() {
        if (fd_ >= 0) { ::close(fd_); }
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return identity_.bytes; }
    [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }
    /// Whether reads go past the page cache, and so have to be aligned.
    [[nodiscard]] bool is_direct() const noexcept { return is_direct_; }

    /// Fills `out` from `offset` on, then makes sure that the file is still the one that was opened. Of a direct file all are
    /// aligned, and the end may lie beyond the file's: `needed` bytes have to be there. Thread safe. Blocks.
    [[nodiscard]] Status try_read(std::uint64_t offset, std::span<std::byte> out, std::size_t needed) const {
        std::size_t have = 0;
        while (have < needed) {
            const ssize_t got = ::pread(fd_, out.data() + have, out.size() - have, static_cast<off_t>(offset + have));
            if (got < 0) {
                if (errno == EINTR) { continue; }
                Error error = system_error(offset + have, "cannot be read");
                if (Status same = check(); !same) { return same; }  // an aligned read may not end at the new end
                return error;
            }
            if (got == 0) { return changed(offset + have, "it ends here"); }
            have += static_cast<std::size_t>(got);
        }
        if (drops_cache_) {
            ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(needed), POSIX_FADV_DONTNEED);
        }
        return check();
    }
    [[nodiscard]] Status try_read(std::uint64_t offset, std::span<std::byte> out) const {
        return try_read(offset, out, out.size());
    }

    /// An error where the file was changed since it was opened.
    [[nodiscard]] Status check() const {
        const auto now = identify();
        if (!now) { return now.error(); }
        if (*now == identity_) { return {}; }
        return changed((std::min)(now->bytes, identity_.bytes), residency::detail::difference(identity_, *now));
    }

private:
    WeightFile() = default;

    [[nodiscard]] Result<FileIdentity> identify() const {
        struct stat status = {};
        if (::fstat(fd_, &status) != 0) { return system_error(0, "cannot be examined"); }
        if (!S_ISREG(status.st_mode)) {
            return Error{ErrorKind::io, residency::detail::quoted(path_) + ": not a regular file",
                         Place{path_, 0, {}, {}}};
        }
        return residency::detail::identity_of(status);
    }
    [[nodiscard]] Error changed(std::uint64_t offset, const std::string& how) const {
        return {ErrorKind::io,
                residency::detail::quoted(path_) + ": the file was changed while it was in use: " + how + "; it had " +
                    std::to_string(identity_.bytes) + " bytes",
                Place{path_, offset, how, std::to_string(identity_.bytes) + " bytes"}};
    }
    [[nodiscard]] Error system_error(std::uint64_t offset, const std::string& what) const {
        const std::string why = std::generic_category().message(errno);
        return {ErrorKind::io,
                residency::detail::quoted(path_) + ": byte " + std::to_string(offset) + ": " + what + ": " + why,
                Place{path_, offset, why, {}}};
    }

    int fd_ = -1;
    std::string path_;
    FileIdentity identity_;
    bool is_direct_ = false;
    bool drops_cache_ = false;
};

}  // namespace residency::inline RESIDENCY_ABI::host

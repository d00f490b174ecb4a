// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "residency/codec/checksum.hpp"
#include "residency/device/cuda_host_memory.hpp"
#include "residency/device/memory_node.hpp"
#include "residency/host/shared_bytes.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

namespace detail {

static_assert(std::is_trivially_copyable_v<SharedHeader> && sizeof(SharedHeader) <= Region::page_bytes);

/// The bytes of a file of shared bytes.
[[nodiscard]] inline std::uint64_t shared_file_bytes(std::uint64_t bytes) noexcept {
    return SharedHeader::bytes_at + (bytes + Region::page_bytes - 1) / Region::page_bytes * Region::page_bytes;
}
[[nodiscard]] inline std::uint64_t sum_of(SharedHeader header) noexcept {
    header.header_sum = 0;
    return codec::checksum(std::as_bytes(std::span{&header, 1}));
}
[[nodiscard]] inline std::uint64_t size_of(int descriptor) noexcept {
    struct stat status = {};
    return ::fstat(descriptor, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}
/// The header as it is; none: the file has fewer bytes.
[[nodiscard]] inline std::optional<SharedHeader> raw_header(int descriptor) noexcept {
    SharedHeader header;
    const auto got = ::pread(descriptor, static_cast<void*>(&header), sizeof header, 0);
    return got == static_cast<ssize_t>(sizeof header) ? std::optional{header} : std::nullopt;
}
/// How to be rid of a file.
[[nodiscard]] inline std::string remove_it(const std::string& path) {
    const std::size_t file = path.rfind('/') + 1;
    const std::string folder = path.substr(0, file - 1);
    std::string text = "remove it by host::SharedHostBytes::remove(" +
                       residency::detail::quoted(path.substr(file + std::string_view{"residency-"}.size()));
    if (folder != SharedOptions{}.folder) { text += ", {.folder = " + residency::detail::quoted(folder) + "}"; }
    return text + ")";
}

/// The path of shared bytes. Errors: invalid_argument for a name that cannot be; io and unsupported for the folder.
[[nodiscard]] inline Result<std::string> shared_path(const std::string& name, const SharedOptions& options) {
    if (name.empty() || name.size() > 200 || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
        return Error{ErrorKind::invalid_argument, "shared host bytes: " + residency::detail::quoted(name) +
                                                      " cannot be a name: give 1 to 200 characters without a slash"};
    }
    struct statfs system = {};
    if (::statfs(options.folder.c_str(), &system) != 0) {
        const std::string why = std::generic_category().message(errno);
        return Error{ErrorKind::io,
                     "shared host bytes: the folder " + residency::detail::quoted(options.folder) +
                         " cannot be used: " + why + ": give one in memory as SharedOptions::folder, such as /dev/shm",
                     FileLocation{options.folder, 0, why, {}}};
    }
    if (system.f_type != residency::detail::memory_file_system) {
        return Error{ErrorKind::unsupported,
                     "shared host bytes: the folder " + residency::detail::quoted(options.folder) +
                         " is not in memory: give one of a tmpfs as SharedOptions::folder, such as /dev/shm"};
    }
    return options.folder + "/residency-" + name;
}

/// Error out_of_memory: the file system or the process has no room.
[[nodiscard]] inline Status check_room(std::uint64_t bytes, const SharedOptions& options) {
    struct statvfs system = {};
    const bool is_limited = ::statvfs(options.folder.c_str(), &system) == 0 && system.f_blocks != 0;
    const std::uint64_t file_room =
        is_limited ? std::uint64_t{system.f_bavail} * std::uint64_t{system.f_frsize} : UINT64_MAX;
    const MemoryLimits limits = options.limits ? *options.limits : read_memory_limits();
    if (bytes > (std::uint64_t{1} << 62) || bytes + Region::page_bytes > (std::min)(file_room, limits.room_bytes())) {
        using residency::detail::in_bytes;
        return Error{ErrorKind::out_of_memory,
                     "there is no room to share " + in_bytes(bytes) + ": " + residency::detail::quoted(options.folder) +
                         " has " + (is_limited ? in_bytes(file_room) + " left" : std::string{"no limit"}) + "; " +
                         limits.text() + ": remove what is shared and not used, or raise the limit (mount -o size=)",
                     DeviceFailure{0, "share", bytes}};
    }
    return {};
}

/// Who has the lock of users, by /proc/locks.
[[nodiscard]] inline std::vector<std::int64_t> users_of(int descriptor) {
    std::vector<std::int64_t> users;
    struct stat status = {};
    if (::fstat(descriptor, &status) != 0) { return users; }
    const std::uint64_t device =
        status.st_dev;  // as the system encodes it: macros of these names would be seen by every program
    const std::uint64_t its_major = (device >> 8 & 0xfff) | (device >> 32 & ~std::uint64_t{0xfff});
    const std::uint64_t its_minor = (device & 0xff) | (device >> 12 & 0xffffff00U);
    const std::string locks = read_system_file("/proc/locks");
    for (std::size_t line = 0; line < locks.size(); line = (std::min)(locks.find('\n', line), locks.size() - 1) + 1) {
        std::int64_t process = 0;
        unsigned device_major = 0, device_minor = 0;
        std::uint64_t inode = 0;
        if (std::sscanf(locks.c_str() + line, "%*d: FLOCK %*s READ %" SCNd64 " %x:%x:%" SCNu64, &process, &device_major,
                        &device_minor, &inode) == 4 &&
            device_major == its_major && device_minor == its_minor && inode == status.st_ino) {
            users.push_back(process);
        }
    }
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
    return users;
}

[[nodiscard]] inline SharedState state_of(const SharedFile& file, const std::optional<SharedHeader>& header) {
    SharedState state;
    state.path = file.path();
    if (header) {
        state.contents = header->contents;
        state.is_whole = header->is_whole != 0;
        state.maker = header->maker;
        state.made_at = std::chrono::system_clock::time_point{std::chrono::seconds{header->made_at}};
    }
    state.users = users_of(file.descriptor());
    return state;
}

/// The checksums that a header has, and one of them as the bytes are now.
/// @{
[[nodiscard]] inline std::uint64_t part_count(const SharedHeader& header) noexcept {
    return (header.contents.bytes + header.part_bytes - 1) / header.part_bytes;
}
[[nodiscard]] inline std::uint64_t part_sum(const SharedHeader& header, std::span<const std::byte> all,
                                            std::uint64_t part) noexcept {
    const auto first = static_cast<std::size_t>(part * header.part_bytes);
    const auto bytes = (std::min)(static_cast<std::size_t>(header.part_bytes), all.size() - first);
    return codec::checksum(all.subspan(first, bytes));
}
/// @}

RESIDENCY_INLINE Result<std::optional<SharedFile>> SharedFile::try_open(const std::string& path, bool creates,
                                                                        const SharedOptions& options) {
    SharedFile file;
    file.path_ = path;
    constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    while (file.descriptor_.get() < 0) {
        file.descriptor_ = residency::detail::Descriptor{::open(path.c_str(), flags)};
        if (file.descriptor_.get() >= 0) { break; }
        if (errno != ENOENT) { return file.system_error("cannot be opened"); }
        if (!creates) { return std::optional<SharedFile>{}; }
        file.descriptor_ = residency::detail::Descriptor{
            ::open(path.c_str(), flags | O_CREAT | O_EXCL, static_cast<mode_t>(options.permissions))};
        if (file.descriptor_.get() < 0 && errno != EEXIST) { return file.system_error("cannot be made"); }
    }
    struct stat status = {};
    if (::fstat(file.descriptor_.get(), &status) != 0) { return file.system_error("cannot be examined"); }
    if (!S_ISREG(status.st_mode)) {
        return Error{ErrorKind::mismatch,
                     residency::detail::quoted(path) + " is not a regular file: share under another name, or move it"};
    }
    if (status.st_uid != ::geteuid() && !options.any_owner) {
        return Error{ErrorKind::mismatch, residency::detail::quoted(path) + " belongs to user " +
                                              std::to_string(status.st_uid) + ", and this process runs as user " +
                                              std::to_string(::geteuid()) +
                                              ": share under another name, or trust it by SharedOptions::any_owner"};
    }
    return std::optional{std::move(file)};
}

RESIDENCY_INLINE bool SharedFile::is_at_path() const noexcept {
    struct stat mine = {}, there = {};
    return ::fstat(descriptor_.get(), &mine) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

RESIDENCY_INLINE Status SharedFile::lock(const SharedOptions& options) const {
    struct flock range = {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_len = 1;
    if (::fcntl(descriptor_.get(), F_OFD_SETLK, &range) == 0) { return {}; }
    if (errno != EAGAIN && errno != EACCES) { return system_error("cannot be locked"); }
    const auto header = raw_header(descriptor_.get());
    if (!options.wait && (!header || header->is_whole == 0)) {
        return Error{ErrorKind::wrong_state,
                     residency::detail::quoted(path_) + " is being written by " +
                         (header ? "process " + std::to_string(header->maker) : std::string{"another process"}) +
                         ": try again later, or wait for it by SharedOptions::wait"};
    }
    while (::fcntl(descriptor_.get(), F_OFD_SETLKW, &range) !=
           0) {  // who only looks at a whole file has it for a moment
        if (errno != EINTR) { return system_error("cannot be locked"); }
    }
    return {};
}

RESIDENCY_INLINE void SharedFile::use() const noexcept {
    ::flock(descriptor_.get(), LOCK_SH);  // nobody takes it alone, so that it is there at once
    struct flock range = {};
    range.l_type = F_UNLCK;
    range.l_whence = SEEK_SET;
    range.l_len = 1;
    ::fcntl(descriptor_.get(), F_OFD_SETLK, &range);
}

RESIDENCY_INLINE Result<std::optional<SharedHeader>> SharedFile::read_header() const {
    const std::uint64_t bytes = size_of(descriptor_.get());
    if (bytes == 0) { return std::optional<SharedHeader>{}; }
    SharedHeader header;
    header.magic = {};
    const auto got = ::pread(descriptor_.get(), static_cast<void*>(&header), sizeof header, 0);
    if (got < 0) { return system_error("cannot be read"); }

    if (header.magic != SharedHeader::right_magic) {
        return Error{ErrorKind::mismatch,
                     residency::detail::quoted(path_) +
                         " is another file, not one of shared host bytes: share under another name, or move it",
                     FileLocation{path_, 0, "other bytes", "\"ResShare\""}};
    }
    if (got != static_cast<ssize_t>(sizeof header)) {
        return malformed(bytes, "it was cut to " + residency::detail::in_bytes(bytes));
    }
    if (header.version != SharedHeader::right_version) {
        return Error{ErrorKind::mismatch, residency::detail::quoted(path_) + " has version " +
                                              std::to_string(header.version) +
                                              " of shared host bytes, and this library knows version " +
                                              std::to_string(SharedHeader::right_version) +
                                              ": share under another name, or " + remove_it(path_)};
    }
    if (header.header_sum != sum_of(header)) { return malformed(0, "its header was changed"); }
    return std::optional{header};
}

RESIDENCY_INLINE Status SharedFile::write_header(SharedHeader header) const {
    header.header_sum = sum_of(header);
    if (::pwrite(descriptor_.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
        return system_error("cannot be written");
    }
    return {};
}

RESIDENCY_INLINE Error SharedFile::system_error(const std::string& what) const {
    const std::string why = std::generic_category().message(errno);
    return {ErrorKind::io, residency::detail::quoted(path_) + " " + what + ": " + why, FileLocation{path_, 0, why, {}}};
}

RESIDENCY_INLINE Error SharedFile::malformed(std::uint64_t offset, const std::string& found) const {
    return {ErrorKind::malformed,
            residency::detail::quoted(path_) + ": byte " + std::to_string(offset) + ": " + found +
                ": end the processes that use it, and " + remove_it(path_),
            FileLocation{path_, offset, found, {}}};
}

}  // namespace detail

RESIDENCY_INLINE Result<SharedHostBytes> SharedHostBytes::try_open(const std::string& name,
                                                                   const SharedContents& contents, const Fill& fill,
                                                                   const SharedOptions& options) {
    if (contents.bytes == 0) {
        return Error{ErrorKind::invalid_argument, "shared host bytes: there is nothing to share in 0 bytes"};
    }
    const auto path = detail::shared_path(name, options);
    if (!path) { return path.error(); }
    for (;;) {
        auto file = detail::SharedFile::try_open(*path, fill != nullptr, options);
        if (!file) { return file.error(); }
        if (*file) {
            if (Status locked = (**file).lock(options); !locked) { return locked.error(); }
            if (!(**file).is_at_path()) { continue; }  // it was removed while this process waited
            const auto header = (**file).read_header();
            if (!header) { return header.error(); }
            if (!*header && !detail::users_of((**file).descriptor()).empty()) {
                return (**file).malformed(0, "it was emptied while processes map it");
            }
            if (*header && (**header).is_whole != 0) { return map(std::move(**file), **header, contents, options); }
            if (fill) { return make(std::move(**file), contents, fill, options); }
        }
        return Error{ErrorKind::wrong_state,
                     residency::detail::quoted(*path) + (*file ? " was not written to its end" : " is not there") +
                         ": no process shares these bytes, and this one was given nothing to write them with"};
    }
}

RESIDENCY_INLINE Result<SharedHostBytes> SharedHostBytes::make(detail::SharedFile file, const SharedContents& contents,
                                                               const Fill& fill, const SharedOptions& options) {
    auto mapping = std::make_shared<Mapping>();
    mapping->file = std::move(file);
    mapping->is_maker = true;
    mapping->header.contents = contents;
    mapping->header.maker = ::getpid();
    mapping->header.made_at =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::uint64_t even = (contents.bytes - 1) / detail::SharedHeader::most_parts / Region::page_bytes + 1;
    mapping->header.part_bytes = (std::max)(even * Region::page_bytes, std::uint64_t{16} << 20);

    struct Unfinished {  // also where `fill` throws
        const detail::SharedFile& file;
        bool is_whole = false;
        ~Unfinished() {
            if (!is_whole && file.is_at_path()) { ::unlink(file.path().c_str()); }
        }
    } unfinished{mapping->file};
    if (Status written = write(*mapping, fill, options); !written) { return written.error(); }
    unfinished.is_whole = true;
    mapping->file.use();
    return SharedHostBytes{std::move(mapping)};
}

RESIDENCY_INLINE Status SharedHostBytes::write(Mapping& mapping, const Fill& fill, const SharedOptions& options) {
    const detail::SharedFile& file = mapping.file;
    const int descriptor = file.descriptor();
    const std::uint64_t bytes = mapping.header.contents.bytes;
    mapping.threads = options.threads;
    if (::ftruncate(descriptor, 0) != 0) { return file.system_error("cannot be emptied"); }
    if (Status room = detail::check_room(bytes, options); !room) { return room; }
    if (::fchmod(descriptor, static_cast<mode_t>(options.permissions)) != 0) {
        return file.system_error("cannot be given its permissions");
    }
    if (Status said = file.write_header(mapping.header); !said) { return said; }
    if (::ftruncate(descriptor, static_cast<off_t>(detail::shared_file_bytes(bytes))) != 0) {
        return file.system_error("cannot be made as large as its bytes");
    }
    auto region = Region::try_map_shared(descriptor, detail::SharedHeader::bytes_at, bytes);
    if (!region) { return region.error(); }
    mapping.region = std::move(*region);
    if (options.memory_node) {  // a wish: refusal costs speed only
        static_cast<void>(residency::detail::prefer_memory_node(mapping.region->data(), bytes, *options.memory_node));
    }
    // Every page is taken now: a page that is missing later would end the process instead of failing a call.
    constexpr std::uint64_t step = std::uint64_t{256} << 20;
    for (std::uint64_t at = 0; at < bytes; at += step) {
        int code = EINTR;
        while (code == EINTR) {
            code = ::posix_fallocate(descriptor, static_cast<off_t>(detail::SharedHeader::bytes_at + at),
                                     static_cast<off_t>((std::min)(step, bytes - at)));
        }
        if (code != 0) {
            return Error{ErrorKind::out_of_memory,
                         residency::detail::quoted(file.path()) + " has no room for " +
                             residency::detail::in_bytes(bytes) + ": " + std::generic_category().message(code),
                         DeviceFailure{code, "posix_fallocate", bytes}};
        }
    }
    if (Status filled = fill(mapping.region->span()); !filled) { return filled; }
    mapping.region->set_writable(false);
    auto sum = [&mapping](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t part = first; part < last; ++part) {
            mapping.header.part_sums[part] = detail::part_sum(mapping.header, mapping.region->span(), part);
        }
    };
    residency::detail::for_blocks_in_parallel(detail::part_count(mapping.header), 1,
                                              detail::threads_of(mapping.threads), sum);
    mapping.header.is_whole = 1;
    return file.write_header(mapping.header);
}

RESIDENCY_INLINE Result<SharedHostBytes> SharedHostBytes::map(detail::SharedFile file,
                                                              const detail::SharedHeader& header,
                                                              const SharedContents& contents,
                                                              const SharedOptions& options) {
    using residency::detail::in_bytes;

    const auto& had = header.contents;
    const bool is_other_model = had.model != contents.model || had.bytes != contents.bytes;
    if (is_other_model || (had.sources != 0 && contents.sources != 0 && had.sources != contents.sources)) {
        return Error{ErrorKind::mismatch,
                     residency::detail::quoted(file.path()) +
                         (is_other_model ? " holds another model: " + in_bytes(had.bytes) + " of hash " +
                                               std::to_string(had.model) + ", and not " + in_bytes(contents.bytes) +
                                               " of hash " + std::to_string(contents.model)
                                         : std::string{" holds the same weights from other files, or as the files were "
                                                       "before they were changed"}) +
                         "; process " + std::to_string(header.maker) + " wrote it: share under another name, or " +
                         detail::remove_it(file.path())};
    }
    if (const std::uint64_t bytes = detail::size_of(file.descriptor()); bytes != detail::shared_file_bytes(had.bytes)) {
        return file.malformed(bytes, "it has " + in_bytes(bytes) + " now, and had " +
                                         in_bytes(detail::shared_file_bytes(had.bytes)) + " when it was written");
    }
    auto mapping = std::make_shared<Mapping>();
    auto region = Region::try_map_shared(file.descriptor(), detail::SharedHeader::bytes_at, had.bytes);
    if (!region) { return region.error(); }
    mapping->region = std::move(*region);
    mapping->region->set_writable(false);
    mapping->header = header;
    mapping->threads = options.threads;
    mapping->file = std::move(file);
    mapping->file.use();
    SharedHostBytes shared{std::move(mapping)};
    if (options.verify) {
        if (Status same = shared.try_verify(); !same) { return same.error(); }
    }
    return shared;
}

RESIDENCY_INLINE Status SharedHostBytes::try_verify() const {
    const Mapping& mapping = *mapping_;
    const detail::SharedHeader& header = mapping.header;
    if (const std::uint64_t bytes = detail::size_of(mapping.file.descriptor());
        bytes != detail::shared_file_bytes(header.contents.bytes)) {
        return mapping.file.malformed(bytes, "it was cut to " + residency::detail::in_bytes(bytes));
    }
    std::atomic<std::uint64_t> first_changed = UINT64_MAX;
    auto compare = [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t part = first; part < last; ++part) {
            if (detail::part_sum(header, mapping.region->span(), part) == header.part_sums[part]) { continue; }
            std::uint64_t known = first_changed.load(std::memory_order_relaxed);
            while (part < known && !first_changed.compare_exchange_weak(known, part)) {}
        }
    };
    residency::detail::for_blocks_in_parallel(detail::part_count(header), 1, detail::threads_of(mapping.threads),
                                              compare);
    const std::uint64_t part = first_changed.load();
    if (part == UINT64_MAX) { return {}; }
    const std::uint64_t at = part * header.part_bytes;
    const std::uint64_t bytes = (std::min)(header.part_bytes, header.contents.bytes - at);
    return mapping.file.malformed(detail::SharedHeader::bytes_at + at,
                                  "some of the " + residency::detail::in_bytes(bytes) +
                                      " from here on were changed since process " + std::to_string(header.maker) +
                                      " wrote them");
}

RESIDENCY_INLINE SharedState SharedHostBytes::state() const {
    return detail::state_of(mapping_->file, mapping_->header);
}

RESIDENCY_INLINE Result<std::optional<SharedState>> SharedHostBytes::try_find(const std::string& name,
                                                                              const SharedOptions& options) {
    const auto path = detail::shared_path(name, options);
    if (!path) { return path.error(); }
    const auto file = detail::SharedFile::try_open(*path, false, options);
    if (!file) { return file.error(); }
    if (!*file) { return std::optional<SharedState>{}; }
    const auto header = (**file).read_header();
    if (!header) { return header.error(); }
    return std::optional{detail::state_of(**file, *header)};
}

RESIDENCY_INLINE Result<std::optional<SharedState>> SharedHostBytes::try_remove(const std::string& name,
                                                                                const SharedOptions& options) {
    const auto path = detail::shared_path(name, options);
    if (!path) { return path.error(); }
    const auto file = detail::SharedFile::try_open(*path, false, options);
    if (!file) { return file.error(); }
    if (!*file) { return std::optional<SharedState>{}; }
    const auto header = (**file).read_header();
    const auto raw = detail::raw_header((**file).descriptor());
    const bool is_ours = header || (raw ? raw->magic == detail::SharedHeader::right_magic
                                        : header.error().kind() == ErrorKind::malformed);
    if (!is_ours) { return header.error(); }
    SharedState state = detail::state_of(**file, header ? *header : std::nullopt);
    if (::unlink(path->c_str()) != 0 && errno != ENOENT) { return (**file).system_error("cannot be removed"); }
    return std::optional{std::move(state)};
}

}}}  // namespace residency::RESIDENCY_ABI::host

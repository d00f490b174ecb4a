// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Host bytes that several processes of a machine share, and that outlive each of them.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/device/memory_limits.hpp"
#include "residency/error.hpp"
#include "residency/host/region.hpp"
#include "residency/host/tier.hpp"
#include "residency/model/file.hpp"
#include "residency/model/host_bytes.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// How host bytes are shared.
struct SharedOptions {
    std::string folder = "/dev/shm";  ///< of a file system in memory (tmpfs), which all processes see
    /// For a process that writes the bytes now; the kernel wakes those who wait, also where that process dies. False: error
    /// wrong_state, which names the process.
    bool wait = true;
    /// Reads all bytes that another process wrote, and compares their checksums. That takes about as long as pinning them. Without it the
    /// header, the size and what the bytes are for are checked: users map the bytes read-only, so that only a foreign program changes
    /// them, and it may do so a moment after any check.
    bool verify = false;
    bool any_owner = false;       ///< takes bytes of another user of the machine too; false: error mismatch
    unsigned permissions = 0600;  ///< of a file that is made; who uses it needs both to read and to write
    unsigned threads = 0;         ///< that read and check; 0: as many as the machine has, at most 8
    Tier tier = Tier::automatic;  ///< of try_share(): pinned or an error, pageable, or automatic: pinned if it can be
    std::optional<unsigned> memory_node{};  ///< of pages that are made; try_share() takes the device's
    std::optional<MemoryLimits> limits{};   ///< none: those of this process
};

/// What shared bytes are for: bytes for something else are refused.
struct SharedContents {
    std::uint64_t bytes = 0;  ///< at least 1
    std::uint64_t model = 0;  ///< a hash of what they are, such as that of the catalog
    std::uint64_t sources =
        0;  ///< a hash of what they are read from, such as files and their times; 0: not known, and not compared
    friend bool operator==(const SharedContents&, const SharedContents&) = default;  ///< compares all members
};

/// A file of shared bytes, as it was when somebody looked.
struct SharedState {
    std::string path;                               ///< of the file
    SharedContents contents;                        ///< what it is for
    bool is_whole = false;                          ///< false: it is being written, or who wrote it died
    std::int64_t maker = 0;                         ///< the process that wrote it, as it numbers itself
    std::chrono::system_clock::time_point made_at;  ///< when that process began to write
    /// The processes that opened it and have not ended or given it up, in increasing order, without those of other PID namespaces. A
    /// child that inherited it counts as its parent.
    std::vector<std::int64_t> users;
};

namespace detail {

/// The first page of a file of shared bytes. Numbers are as the machine has them: the file never leaves it.
struct SharedHeader {
    static constexpr std::array<char, 8> right_magic{'R', 'e', 's', 'S', 'h', 'a', 'r', 'e'};
    static constexpr std::uint32_t right_version = 1;
    static constexpr std::size_t most_parts = 256;
    static constexpr std::uint64_t bytes_at = Region::alignment_bytes;  ///< where the shared bytes begin in the file

    std::array<char, 8> magic = right_magic;
    std::uint32_t version = right_version;
    std::uint32_t is_whole = 0;
    std::uint64_t header_sum = 0;  ///< checksum of the header, with 0 here
    SharedContents contents;
    std::int64_t maker = 0;                             ///< process
    std::int64_t made_at = 0;                           ///< seconds since the epoch
    std::uint64_t part_bytes = 0;                       ///< of each part but the last
    std::array<std::uint64_t, most_parts> part_sums{};  ///< checksums of the parts
};

/// A file of shared bytes that is open: closes it, which gives its locks back.
class SharedFile {
public:
    /// None: there is no file at the path, and `creates` is false. Errors: io; mismatch where it belongs to another user.
    [[nodiscard]] static Result<std::optional<SharedFile>> try_open(const std::string& path, bool creates,
                                                                    const SharedOptions& options);
    [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// Whether the path still names this file.
    [[nodiscard]] bool is_at_path() const noexcept;
    /// Takes the lock of who looks at the header or writes the file; one at a time has it. Error wrong_state: somebody else writes, and
    /// the options do not wait.
    [[nodiscard]] Status lock(const SharedOptions& options) const;
    /// Says that this process uses the bytes, and gives the lock back.
    void use() const noexcept;
    /// None: the file is empty. Errors: malformed where it was cut; mismatch where it is another file, or of another version.
    [[nodiscard]] Result<std::optional<SharedHeader>> read_header() const;
    [[nodiscard]] Status write_header(SharedHeader header) const;
    /// In the words of an error of a system call.
    [[nodiscard]] Error system_error(const std::string& what) const;
    /// That the file is not what it has to be: `found`, and what to do.
    [[nodiscard]] Error malformed(std::uint64_t offset, const std::string& found) const;

private:
    residency::detail::Descriptor descriptor_;
    std::string path_;
};

}  // namespace detail

/// Bytes in host memory that every process of a machine has under one name, and that stay until somebody removes them: a process that
/// begins again maps them without a read of a disk. They are a file in memory, in which the first process writes them. One process at a
/// time writes. If it dies, the next one finds the file unfinished, and writes it anew. Who uses the bytes maps them read-only. Copies
/// share one mapping, which ends with the last of them and of bytes(). Whoever may write the file can cut it: a read of what was cut off
/// ends the process (SIGBUS), while bytes that are pinned stay for the device. After fork() the child holds what its parent had opened.
class SharedHostBytes {
public:
    /// Writes all bytes of a span, or says why not. Its error is that of try_open(), and nothing is left behind. It must not open the same
    /// name.
    using Fill = std::function<Status(std::span<std::byte>)>;

    /// Maps the bytes of that name, a part of a file's name. Blocks. If there are none, or who wrote them died, this process has `fill`
    /// write them; without one that is an error. Room is checked first: that of the file system, and MemoryLimits. Errors, which say what to
    /// do: invalid_argument for a name or contents that cannot be; wrong_state where the bytes are being written and the options do not
    /// wait, or where there are none and no `fill`; mismatch where the bytes are for something else, of another version of the library
    /// or of another user, or where the file was never one of shared bytes; malformed where it was cut or changed; out_of_memory,
    /// with the numbers; unsupported for a folder that is not in memory; io.
    [[nodiscard]] static Result<SharedHostBytes> try_open(const std::string& name, const SharedContents& contents,
                                                          const Fill& fill, const SharedOptions& options = {});
    /// Who made the bytes of that name, and who uses them; none: there are no such bytes. Uses `folder` and `any_owner` of the options.
    /// Errors: as try_open().
    [[nodiscard]] static Result<std::optional<SharedState>> try_find(const std::string& name,
                                                                     const SharedOptions& options = {});
    /// Removes the name, and returns who used the bytes; none: there were none. Those who map them go on, and the memory is free
    /// when the last of them ends. The next try_open() writes new ones. Errors: as try_open(); a file that was cut, or is of another
    /// version, is removed; one that was never one of shared bytes is not.
    [[nodiscard]] static Result<std::optional<SharedState>> try_remove(const std::string& name,
                                                                       const SharedOptions& options = {});

    /// Pins the bytes for a device, which must outlive them. bytes() are pinned from then on. Blocks. Errors: the device's; wrong_state
    /// where they are pinned already.
    template <Device D>
    [[nodiscard]] Status try_pin(D& device) {
        Mapping& mapping = *mapping_;
        if (mapping.is_pinned) { return Error{ErrorKind::wrong_state, "these shared bytes are pinned already"}; }
        mapping.region->set_writable(true);  // a driver pins what the process may write
        Status pinned = mapping.region->try_pin(device);
        mapping.region->set_writable(false);
        mapping.is_pinned = pinned.has_value();
        return pinned;
    }
    /// Compares the checksums of all bytes with those that their maker noted. Blocks. Error malformed, which names the first part that was
    /// changed.
    [[nodiscard]] Status try_verify() const;
#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] static SharedHostBytes open(const std::string& name, const SharedContents& contents, const Fill& fill,
                                              const SharedOptions& options = {}) {
        return unwrap(try_open(name, contents, fill, options));
    }
    [[nodiscard]] static std::optional<SharedState> find(const std::string& name, const SharedOptions& options = {}) {
        return unwrap(try_find(name, options));
    }
    static std::optional<SharedState> remove(const std::string& name, const SharedOptions& options = {}) {
        return unwrap(try_remove(name, options));
    }
    template <Device D>
    void pin(D& device) {
        unwrap(try_pin(device));
    }
    void verify() const { unwrap(try_verify()); }
    /// @}
#endif

    /// For a catalog: they keep the mapping.
    [[nodiscard]] std::shared_ptr<const HostBytes> bytes() const {
        return HostBytes::borrow(mapping_->region->span(),
                                 mapping_->is_pinned ? HostMemory::pinned : HostMemory::pageable, mapping_);
    }
    /// Whether this process wrote them.
    [[nodiscard]] bool is_maker() const noexcept { return mapping_->is_maker; }
    /// Who made the bytes and who uses them, now.
    [[nodiscard]] SharedState state() const;

private:
    struct Mapping {
        detail::SharedFile file;  // its lock says that this process uses the bytes
        std::shared_ptr<Region> region;
        detail::SharedHeader header;
        unsigned threads = 0;
        bool is_maker = false;
        bool is_pinned = false;
    };

    explicit SharedHostBytes(std::shared_ptr<Mapping> mapping) noexcept : mapping_{std::move(mapping)} {}

    /// Writes the file, whose lock is held.
    [[nodiscard]] static Result<SharedHostBytes> make(detail::SharedFile file, const SharedContents& contents,
                                                      const Fill& fill, const SharedOptions& options);
    /// make() without its end: on an error the file is to be removed.
    [[nodiscard]] static Status write(Mapping& mapping, const Fill& fill, const SharedOptions& options);
    /// Maps a whole file, whose lock is held.
    [[nodiscard]] static Result<SharedHostBytes> map(detail::SharedFile file, const detail::SharedHeader& header,
                                                     const SharedContents& contents, const SharedOptions& options);

    std::shared_ptr<Mapping> mapping_;
};

}}}  // namespace residency::RESIDENCY_ABI::host

#if RESIDENCY_HEADER_ONLY
#include "residency/host/impl/shared_bytes.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/file.hpp"
#include "residency/model/file_identity.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// How a file is read.
enum class FileAccess : std::uint8_t {
    cached,  ///< through the page cache
    direct,  ///< past it (O_DIRECT); through it, dropping what was read, where the file system has no direct reads
};

/// A file of a catalog, or the pieces of one, open for reading: what it returns was read from the file that the catalog was made from. It checks that
/// when it is opened and after every read. A file that another one has replaced, as by a rename, stays open as it was. Any thread
/// may read.
class WeightFile {
public:
    /// Offsets, sizes and addresses of direct reads are multiples of it.
    static constexpr std::size_t direct_alignment_bytes = 4096;

    /// Blocks. Errors: io; mismatch where it is not the file that the catalog was made from: it has another size or, if the catalog
    /// knows the identity, it is another file or was written to since.
    [[nodiscard]] static Result<WeightFile> try_open(const SourceFile& source, FileAccess access);

    /// The path of the file, or of its first piece.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// Its size.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return identity_.bytes; }
    /// Precondition: it is no file in pieces.
    [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }
    /// Whether reads go past the page cache and must be aligned. Those of a file in pieces do not.
    [[nodiscard]] bool is_direct() const noexcept { return is_direct_; }

    /// Blocks. Fills `out` from `offset` on, then checks that the file is still the one that was opened. For direct reads, offset,
    /// size and address are aligned and the end may lie beyond that of the file: `needed` bytes must be there. Thread safe. Errors:
    /// io, mismatch.
    [[nodiscard]] Status try_read(std::uint64_t offset, std::span<std::byte> out, std::size_t needed) const;
    /// As above, where all of `out` is needed.
    [[nodiscard]] Status try_read(std::uint64_t offset, std::span<std::byte> out) const {
        return try_read(offset, out, out.size());
    }

    /// Error mismatch: the file was changed since it was opened.
    [[nodiscard]] Status check() const;

private:
    WeightFile() = default;

    [[nodiscard]] static Result<WeightFile> try_open_pieces(const SourceFile& source, FileAccess access);
    [[nodiscard]] static Error other_size(const SourceFile& source, std::uint64_t bytes);
    [[nodiscard]] Result<FileIdentity> identify() const;
    [[nodiscard]] Error changed(std::uint64_t offset, const std::string& how) const;
    [[nodiscard]] Error system_error(std::uint64_t offset, const std::string& what) const;

    residency::detail::Descriptor fd_;
    std::string path_;
    FileIdentity identity_;
    bool is_direct_ = false;
    bool drops_cache_ = false;        // after each read, as direct reads were asked for and are not possible
    std::vector<WeightFile> pieces_;  // in the order of their bytes; the identity holds their size alone then
};

namespace detail {

/// Where the bytes of a storage lie in a file.
struct InFile {
    const SourceFile* file = nullptr;                ///< null: they lie in none
    std::uint64_t offset = 0;                        ///< of the first of them
    const std::vector<PackedPart>* parts = nullptr;  ///< null: they are raw
};
[[nodiscard]] inline InFile in_file(const Storage& storage) noexcept {
    if (const auto* raw = std::get_if<FileSource>(&storage.source)) { return {raw->file.get(), raw->offset_bytes}; }
    const auto* packed = std::get_if<PackedSource>(&storage.source);
    if (packed == nullptr) { return {}; }
    const std::vector<PackedPart>& parts = *packed->parts;
    return {packed->file.get(), parts.empty() ? 0 : parts.front().offset_bytes, &parts};
}
/// Reads raw bytes of weights, which begin at `offset`; those of a part of packed ones, which begins there, are unpacked. `packed`: memory
/// that the thread reuses. Errors: those of WeightFile::try_read() and of codec::unpack_part(), with the file and the byte.
[[nodiscard]] RESIDENCY_INLINE Status read_raw(const WeightFile& file, std::uint64_t offset, const PackedPart* part,
                                               std::span<std::byte> to, std::vector<std::byte>& packed);

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::host

#if RESIDENCY_HEADER_ONLY
#include "residency/host/impl/weight_file.ipp"
#endif

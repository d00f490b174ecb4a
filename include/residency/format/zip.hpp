// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// The directory of a ZIP archive (PKWARE APPNOTE 6.3, with ZIP64) in a part of a file; its entries do not overlap, and zeros may follow
/// it. Only entries without compression and encryption can be located: they are read where they are.
class ZipDirectory {
public:
    struct Entry {
        std::string name;
        std::uint64_t header = 0;  ///< of its local header, from the start of the file
        std::uint64_t bytes = 0;
        std::uint64_t packed_bytes = 0;
        std::uint16_t method = 0;
        std::uint16_t flags = 0;
    };
    struct Range {
        std::uint64_t offset = 0;  ///< from the start of the file
        std::uint64_t bytes = 0;
    };

    /// Blocks. Reads the directory of the archive in [begin, begin + bytes) of the input. Errors: malformed, unsupported, io.
    [[nodiscard]] static Result<ZipDirectory> try_read(const Input& input, std::uint64_t begin, std::uint64_t bytes);

    [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
    [[nodiscard]] const Entry* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &entries_[found->second];
    }
    /// The range of a stored entry's bytes in the file.
    [[nodiscard]] Result<Range> try_locate(const Input& input, const Entry& entry) const;

private:
    /// What the record at the end of the archive says of the directory.
    struct End {
        std::uint64_t place = 0;                           ///< of the record, from the start of the file
        std::uint64_t count = 0;                           ///< of entries
        std::uint64_t directory = 0, directory_bytes = 0;  ///< from begin
        std::uint64_t directory_end = 0;                   ///< that the directory must not pass; the same
    };
    [[nodiscard]] static Result<End> find_end(const Input& input, std::uint64_t begin, std::uint64_t bytes);
    /// Replaces the numbers by those of the ZIP64 record before it.
    [[nodiscard]] static Status read_end64(const Input& input, std::uint64_t begin, End& end);
    /// Appends the entries of the directory, which is `text`. `path`: for errors.
    [[nodiscard]] Status read_entries(const std::string& path, std::string_view text, std::uint64_t count);
    /// Of the entry at `place`, which moves behind it.
    [[nodiscard]] Status read_entry(const std::string& path, std::string_view text, std::size_t& place);
    /// How many zeros end that part of the input; not all where they are very many.
    [[nodiscard]] static Result<std::uint64_t> zeros_before(const Input& input, std::uint64_t begin,
                                                            std::uint64_t bytes);
    /// `count` bytes of `text` as a little-endian number. Precondition: `text` has them.
    [[nodiscard]] static std::uint64_t little(std::string_view text, std::uint64_t at, std::size_t count) noexcept;
    /// Reads the ZIP64 sizes, which replace sizes whose bits are all ones.
    static void read_extra(std::string_view extra, Entry& entry) noexcept;

    std::uint64_t begin_ = 0;
    std::uint64_t data_end_ = 0;  ///< from begin_
    std::vector<Entry> entries_;
    std::vector<std::uint64_t> headers_;  ///< from begin_, ascending
    std::unordered_map<std::string, std::size_t> by_name_;
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/zip.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "residency/format/zip.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

inline constexpr std::uint64_t zip_entry_bytes = 46;  // of a directory's entry, without what follows it

RESIDENCY_INLINE Result<ZipDirectory> ZipDirectory::try_read(const Input& input, std::uint64_t begin,
                                                             std::uint64_t bytes) {
    constexpr std::uint64_t longest_directory = std::uint64_t{1} << 28;
    const std::string& path = input.path();
    auto end = find_end(input, begin, bytes);
    if (!end) { return end.error(); }
    if (end->count == 0xffff || end->directory_bytes == 0xffffffff || end->directory == 0xffffffff) {
        if (Status read = read_end64(input, begin, *end); !read) { return read.error(); }
    }
    if (!residency::detail::lies_inside(end->directory, end->directory_bytes, end->directory_end) ||
        end->count > end->directory_bytes / zip_entry_bytes || end->directory_bytes > longest_directory) {
        return malformed(path, end->place, "the ZIP directory is not valid",
                         std::to_string(end->count) + " entries in " +
                             residency::detail::in_bytes(end->directory_bytes) + " at " +
                             std::to_string(end->directory));
    }
    const auto text = input.try_text(begin + end->directory, end->directory_bytes);
    if (!text) { return text.error(); }

    ZipDirectory zip;
    zip.begin_ = begin;
    zip.data_end_ = end->directory;
    if (Status read = zip.read_entries(path, *text, end->count); !read) { return read.error(); }
    for (const Entry& entry : zip.entries_) { zip.headers_.push_back(entry.header); }
    std::sort(zip.headers_.begin(), zip.headers_.end());
    if (std::adjacent_find(zip.headers_.begin(), zip.headers_.end()) != zip.headers_.end()) {
        return malformed(path, begin + end->directory, "two ZIP entries begin at the same byte");
    }
    return zip;
}

RESIDENCY_INLINE auto ZipDirectory::find_end(const Input& input, std::uint64_t begin, std::uint64_t bytes)
    -> Result<End> {
    constexpr std::uint64_t tail_bytes = 22;
    constexpr std::uint64_t longest_comment = 65535;
    const std::string& path = input.path();
    if (bytes < tail_bytes) {
        return malformed(path, begin, "too short for a ZIP archive", residency::detail::in_bytes(bytes));
    }
    const auto padding = zeros_before(input, begin, bytes);
    if (!padding) { return padding.error(); }
    // Zeros behind the archive are padding, but those of the end itself.
    const std::uint64_t end = bytes - *padding + (std::min)(*padding, tail_bytes);
    const std::uint64_t search = (std::min)(end, tail_bytes + tail_bytes + longest_comment);
    const std::uint64_t search_start = begin + end - search;
    const auto tail = input.try_text(search_start, search);
    if (!tail) { return tail.error(); }
    const std::uint64_t used = search - (end - (bytes - *padding));  // up to the padding
    std::size_t at = static_cast<std::size_t>(search - tail_bytes);
    const auto is_tail = [&] {
        if (std::string_view{*tail}.substr(at, 4) != "PK\5\6") { return false; }
        const std::uint64_t after = at + tail_bytes + little(*tail, at + 20, 2);
        return after >= used && search_start + after <= begin + bytes;
    };
    while (at != 0 && !is_tail()) { --at; }
    if (!is_tail()) {
        const auto start = input.try_text(begin, 4);
        if (!start) { return start.error(); }
        return *start == "PK\3\4"
                   ? malformed(path, begin + bytes,
                               "no end of a ZIP directory: the file is cut off: download or save it again",
                               residency::detail::in_bytes(bytes), "more, and the directory after them")
                   : malformed(path, search_start, "no end of a ZIP directory, and no ZIP archive begins the file");
    }
    const std::uint64_t place = search_start + at;
    if (little(*tail, at + 4, 2) != 0 && little(*tail, at + 4, 2) != 0xffff) {
        return malformed(path, place, "a ZIP archive of several parts");
    }
    return End{place, little(*tail, at + 10, 2), little(*tail, at + 16, 4), little(*tail, at + 12, 4), place - begin};
}

RESIDENCY_INLINE Status ZipDirectory::read_end64(const Input& input, std::uint64_t begin, End& end) {
    constexpr std::uint64_t locator_bytes = 20;
    constexpr std::uint64_t end64_bytes = 56;
    const std::string& path = input.path();
    if (end.directory_end < locator_bytes) { return malformed(path, end.place, "the ZIP64 locator is missing"); }
    const std::uint64_t locator_at = end.directory_end - locator_bytes;
    const auto locator = input.try_text(begin + locator_at, locator_bytes);
    if (!locator) { return locator.error(); }
    const std::uint64_t end64_at = little(*locator, 8, 8);
    if (!locator->starts_with("PK\6\7") || !residency::detail::lies_inside(end64_at, end64_bytes, locator_at)) {
        return malformed(path, begin + locator_at, "the ZIP64 locator is not valid");
    }
    const auto end64 = input.try_text(begin + end64_at, end64_bytes);
    if (!end64) { return end64.error(); }
    if (!end64->starts_with("PK\6\6")) {
        return malformed(path, begin + end64_at, "the end of the ZIP64 directory is not valid");
    }
    end.count = little(*end64, 32, 8);
    end.directory_bytes = little(*end64, 40, 8);
    end.directory = little(*end64, 48, 8);
    end.directory_end = end64_at;
    return {};
}

RESIDENCY_INLINE Status ZipDirectory::read_entries(const std::string& path, std::string_view text,
                                                   std::uint64_t count) {
    std::size_t place = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        if (Status read = read_entry(path, text, place); !read) { return read; }
    }
    return {};
}

RESIDENCY_INLINE Status ZipDirectory::read_entry(const std::string& path, std::string_view text, std::size_t& place) {
    const std::uint64_t where = begin_ + data_end_ + place;
    const auto what = [&] { return "entry " + std::to_string(entries_.size()) + " of the ZIP directory"; };
    if (text.size() - place < zip_entry_bytes || text.substr(place, 4) != "PK\1\2") {
        return malformed(path, where, what() + " is not valid");
    }
    Entry entry;
    entry.flags = static_cast<std::uint16_t>(little(text, place + 8, 2));
    entry.method = static_cast<std::uint16_t>(little(text, place + 10, 2));
    entry.packed_bytes = little(text, place + 20, 4);
    entry.bytes = little(text, place + 24, 4);
    entry.header = little(text, place + 42, 4);
    const std::uint64_t name_bytes = little(text, place + 28, 2);
    const std::uint64_t extra_bytes = little(text, place + 30, 2);
    const std::uint64_t all = zip_entry_bytes + name_bytes + extra_bytes + little(text, place + 32, 2);
    if (all > text.size() - place) { return malformed(path, where, what() + " is cut off"); }
    entry.name = text.substr(place + zip_entry_bytes, static_cast<std::size_t>(name_bytes));
    if (!is_utf8(entry.name)) {
        return malformed(path, where, "the name of a ZIP entry is not UTF-8", shown(entry.name));
    }
    read_extra(text.substr(static_cast<std::size_t>(place + zip_entry_bytes + name_bytes),
                           static_cast<std::size_t>(extra_bytes)),
               entry);
    if (!by_name_.try_emplace(entry.name, entries_.size()).second) {
        return malformed(path, where, "the ZIP entry " + shown(entry.name) + " is given twice");
    }
    entries_.push_back(std::move(entry));
    place += static_cast<std::size_t>(all);
    return {};
}

RESIDENCY_INLINE auto ZipDirectory::try_locate(const Input& input, const Entry& entry) const -> Result<Range> {
    constexpr std::uint64_t header_bytes = 30;
    const std::string what = "the ZIP entry " + shown(entry.name);
    if (!residency::detail::lies_inside(entry.header, header_bytes, data_end_)) {
        return malformed(input.path(), begin_, what + " starts outside of the archive", std::to_string(entry.header));
    }
    const std::uint64_t where = begin_ + entry.header;
    const auto header = input.try_text(where, header_bytes);
    if (!header) { return header.error(); }
    if (!header->starts_with("PK\3\4")) { return malformed(input.path(), where, what + " has no local header"); }
    if ((entry.flags & 1) != 0) { return unsupported(input.path(), where, what + " is encrypted"); }
    if (entry.method != 0) {
        return unsupported(input.path(), where, what + " is compressed", "method " + std::to_string(entry.method),
                           "0, stored: pack the archive again without compression, as zip -0 does");
    }
    if (entry.packed_bytes != entry.bytes) {
        return malformed(input.path(), where, what + " is stored with another size");
    }
    const std::uint64_t data = entry.header + header_bytes + little(*header, 26, 2) + little(*header, 28, 2);
    const auto next = std::upper_bound(headers_.begin(), headers_.end(), entry.header);
    const std::uint64_t end = next == headers_.end() ? data_end_ : (std::min)(*next, data_end_);
    if (!residency::detail::lies_inside(data, entry.bytes, end)) {
        return malformed(input.path(), where, what + " reaches beyond the next one, or the archive's data",
                         residency::detail::in_bytes(entry.bytes));
    }
    return Range{begin_ + data, entry.bytes};
}

RESIDENCY_INLINE Result<std::uint64_t> ZipDirectory::zeros_before(const Input& input, std::uint64_t begin,
                                                                  std::uint64_t bytes) {
    constexpr std::uint64_t longest_padding = std::uint64_t{1} << 24;
    constexpr std::uint64_t window_bytes = 4096;
    std::uint64_t zeros = 0;
    while (zeros < (std::min)(bytes, longest_padding)) {
        const std::uint64_t count = (std::min)(bytes - zeros, window_bytes);
        const auto text = input.try_text(begin + bytes - zeros - count, count);
        if (!text) { return text.error(); }
        const std::size_t last = text->find_last_not_of('\0');
        if (last != std::string::npos) { return zeros + count - 1 - last; }
        zeros += count;
    }
    return zeros;
}

RESIDENCY_INLINE std::uint64_t ZipDirectory::little(std::string_view text, std::uint64_t at,
                                                    std::size_t count) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = count; i-- > 0;) {
        value = value << 8 | static_cast<unsigned char>(text[static_cast<std::size_t>(at) + i]);
    }
    return value;
}

RESIDENCY_INLINE void ZipDirectory::read_extra(std::string_view extra, Entry& entry) noexcept {
    while (extra.size() >= 4) {
        const std::uint64_t kind = little(extra, 0, 2);
        const std::uint64_t bytes = little(extra, 2, 2);
        if (bytes > extra.size() - 4) { return; }
        if (kind == 1) {
            std::string_view values = extra.substr(4, static_cast<std::size_t>(bytes));
            for (std::uint64_t* field : {&entry.bytes, &entry.packed_bytes, &entry.header}) {
                if (*field == 0xffffffff && values.size() >= 8) {
                    *field = little(values, 0, 8);
                    values.remove_prefix(8);
                }
            }
            return;
        }
        extra.remove_prefix(static_cast<std::size_t>(4 + bytes));
    }
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

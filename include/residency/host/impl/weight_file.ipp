// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "residency/codec/packed_part.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/stat_identity.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

RESIDENCY_INLINE Result<WeightFile> WeightFile::try_open(const SourceFile& source, FileAccess access) {
    if (!source.pieces.empty()) { return try_open_pieces(source, access); }
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    WeightFile file;
    file.path_ = source.path;
    if (access == FileAccess::direct) {
        file.fd_ = residency::detail::Descriptor{::open(source.path.c_str(), flags | O_DIRECT)};
        file.is_direct_ = file.fd_.get() >= 0;
    }
    if (file.fd_.get() < 0) { file.fd_ = residency::detail::Descriptor{::open(source.path.c_str(), flags)}; }
    if (file.fd_.get() < 0) { return file.system_error(0, "cannot be opened"); }
    file.drops_cache_ = access == FileAccess::direct && !file.is_direct_;
    const auto identity = file.identify();
    if (!identity) { return identity.error(); }
    file.identity_ = *identity;
    if (file.identity_.bytes != source.bytes) { return other_size(source, file.identity_.bytes); }
    if (source.identity && *source.identity != file.identity_) {
        const std::string how = residency::detail::difference(*source.identity, file.identity_);
        return Error{
            ErrorKind::mismatch,
            residency::detail::quoted(source.path) + ": the file was changed since the catalog was made: " + how,
            FileLocation{source.path, 0, how, "the file that the catalog was made from"}};
    }
    return file;
}

RESIDENCY_INLINE Error WeightFile::other_size(const SourceFile& source, std::uint64_t bytes) {
    return {
        ErrorKind::mismatch,
        residency::detail::quoted(source.path) + ": it has " + residency::detail::in_bytes(bytes) + " now, and had " +
            residency::detail::in_bytes(source.bytes) + " when the catalog was made",
        FileLocation{source.path, 0, residency::detail::in_bytes(bytes), residency::detail::in_bytes(source.bytes)}};
}

RESIDENCY_INLINE Result<WeightFile> WeightFile::try_open_pieces(const SourceFile& source, FileAccess access) {
    WeightFile file;
    file.path_ = source.path;
    file.identity_ = {};
    for (const SourceFile& each : source.pieces) {
        auto piece = try_open(each, FileAccess::cached);  // pieces end anywhere: no read of two of them is aligned
        if (!piece) { return piece.error(); }
        piece->drops_cache_ = access == FileAccess::direct;
        file.identity_.bytes += piece->bytes();
        file.pieces_.push_back(std::move(*piece));
    }
    if (file.identity_.bytes != source.bytes) { return other_size(source, file.identity_.bytes); }
    return file;
}

RESIDENCY_INLINE Status WeightFile::try_read(std::uint64_t offset, std::span<std::byte> out, std::size_t needed) const {
    if (!pieces_.empty()) {
        out = out.first(needed);
        for (const WeightFile& piece : pieces_) {
            if (out.empty()) { return {}; }
            if (offset >= piece.bytes()) {
                offset -= piece.bytes();
                continue;
            }
            const auto here = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), piece.bytes() - offset));
            if (Status read = piece.try_read(offset, out.first(here)); !read) { return read; }
            out = out.subspan(here);
            offset = 0;
        }
        return out.empty() ? Status{} : Status{changed(offset, "it ends here")};
    }
    std::size_t have = 0;
    while (have < needed) {
        const ssize_t got = ::pread(fd_.get(), out.data() + have, out.size() - have, static_cast<off_t>(offset + have));
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
        ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(needed), POSIX_FADV_DONTNEED);
    }
    return check();
}

RESIDENCY_INLINE Status WeightFile::check() const {
    for (const WeightFile& piece : pieces_) {
        if (Status same = piece.check(); !same) { return same; }
    }
    if (!pieces_.empty()) { return {}; }
    const auto now = identify();
    if (!now) { return now.error(); }
    if (*now == identity_) { return {}; }
    return changed((std::min)(now->bytes, identity_.bytes), residency::detail::difference(identity_, *now));
}

RESIDENCY_INLINE Result<FileIdentity> WeightFile::identify() const {
    struct stat status = {};
    if (::fstat(fd_.get(), &status) != 0) { return system_error(0, "cannot be examined"); }
    if (!S_ISREG(status.st_mode)) {
        return Error{ErrorKind::io, residency::detail::quoted(path_) + ": not a regular file",
                     FileLocation{path_, 0, {}, {}}};
    }
    return residency::detail::identity_of(status);
}

RESIDENCY_INLINE Error WeightFile::changed(std::uint64_t offset, const std::string& how) const {
    return {ErrorKind::io,
            residency::detail::quoted(path_) + ": the file was changed while it was in use: " + how + "; it had " +
                residency::detail::in_bytes(identity_.bytes),
            FileLocation{path_, offset, how, residency::detail::in_bytes(identity_.bytes)}};
}

RESIDENCY_INLINE Error WeightFile::system_error(std::uint64_t offset, const std::string& what) const {
    const std::string why = std::generic_category().message(errno);
    return {ErrorKind::io,
            residency::detail::quoted(path_) + ": byte " + std::to_string(offset) + ": " + what + ": " + why,
            FileLocation{path_, offset, why, {}}};
}

RESIDENCY_INLINE Status detail::read_raw(const WeightFile& file, std::uint64_t offset, const PackedPart* part,
                                         std::span<std::byte> to, std::vector<std::byte>& packed) {
    if (part == nullptr) { return file.try_read(offset, to); }
    packed.resize(static_cast<std::size_t>(part->packed_bytes));
    if (Status there = file.try_read(offset, packed); !there) { return there; }
    if (Status unpacked = codec::unpack_part(*part, packed, to); !unpacked) {
        return Error{unpacked.error().kind(),
                     residency::detail::quoted(file.path()) + ": byte " + std::to_string(offset) + ": " +
                         unpacked.error().message(),
                     FileLocation{file.path(), offset, {}, {}}};
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::host

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/file.hpp"
#include "residency/model/file_identity.hpp"
#include "residency/model/number.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Random access to the bytes of one regular file, of the pieces of one that was cut, or of memory; the size is that of the moment of opening.
/// Never maps a file, so that a file that shrinks gives an error and no signal. Movable; closes the file.
class Input {
public:
    /// Blocks. Whether there may be something of that name. False only where it is certain that there is nothing.
    [[nodiscard]] static bool exists(const std::string& path) noexcept;
    /// Blocks. Opens a regular file. Error io.
    [[nodiscard]] static Result<Input> try_open(const std::string& path);
    /// Blocks. Opens files whose bytes one after another are those of one file. Its path is that of the first. Errors: io;
    /// invalid_argument where there is none, or 64 bits do not hold their size.
    [[nodiscard]] static Result<Input> try_open_pieces(const std::vector<std::string>& paths);
    /// Blocks. Opens the file or the pieces that `source` stands for. Error io.
    [[nodiscard]] static Result<Input> try_open(const SourceFile& source);
    /// An input over bytes that the caller keeps. `name` stands for them in errors.
    [[nodiscard]] static Input over(std::span<const std::byte> memory, std::string name) {
        Input input{-1, std::move(name)};
        input.memory_ = memory;
        input.bytes_ = memory.size();
        return input;
    }

    /// The path of the file, or of its first piece.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// Its size when it was opened.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    /// The file as a source, with the identity that it had when it was opened.
    [[nodiscard]] SourceFile source() const;
    /// Error mismatch: the file was changed since it was opened.
    [[nodiscard]] Status check() const;
    /// Error mismatch: it is not the file that `source` stands for.
    [[nodiscard]] Status check(const SourceFile& source) const;

    /// Blocks. Fills `out` from `offset` on. Errors: malformed where the range is not in the file; io.
    [[nodiscard]] Status try_read(std::uint64_t offset, std::span<std::byte> out) const;
    /// Blocks. The bytes [offset, offset + count). Checks them against the size before it allocates.
    [[nodiscard]] Result<std::string> try_text(std::uint64_t offset, std::uint64_t count) const;

private:
    Input(int fd, std::string path) noexcept : fd_{fd}, path_{std::move(path)} {}

    /// The error of a range that is not in the file.
    [[nodiscard]] Error ends_before(std::uint64_t offset, std::uint64_t count) const;
    [[nodiscard]] Error changed(const FileIdentity& before, const FileIdentity& now, const char* when) const;

    residency::detail::Descriptor fd_;
    std::string path_;
    std::span<const std::byte> memory_;
    std::uint64_t bytes_ = 0;
    std::optional<FileIdentity> identity_;  // none: bytes in memory, or pieces
    std::vector<Input> pieces_;             // in the order of their bytes
};

}}}  // namespace residency::RESIDENCY_ABI::format

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Whether `text` is well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] RESIDENCY_INLINE bool is_utf8(std::string_view text) noexcept;

/// `text` in quotes, for a message of one line; the hexadecimal bytes of what is not UTF-8.
[[nodiscard]] RESIDENCY_INLINE std::string shown(std::string_view text);

/// The error of a call of the system that failed just now on a file. `offset`: the byte that it was about; 0: none.
[[nodiscard]] RESIDENCY_INLINE Error system_error(const std::string& path, std::uint64_t offset,
                                                  const std::string& what);
/// Error io: a path with a zero byte, which the system would cut there.
[[nodiscard]] RESIDENCY_INLINE Status check_path(const std::string& path);

/// An error at byte `offset` of `source`, with what is wrong and, if given, what was found and expected.
[[nodiscard]] RESIDENCY_INLINE Error error_at(ErrorKind kind, const std::string& source, std::uint64_t offset,
                                              const std::string& what, std::string found, std::string expected);
/// The error of a broken file.
[[nodiscard]] inline Error malformed(const std::string& source, std::uint64_t offset, const std::string& what,
                                     std::string found = {}, std::string expected = {}) {
    return error_at(ErrorKind::malformed, source, offset, what, std::move(found), std::move(expected));
}
/// The error of a whole file of a kind that no reader takes.
[[nodiscard]] inline Error unsupported(const std::string& source, std::uint64_t offset, const std::string& what,
                                       std::string found = {}, std::string expected = {}) {
    return error_at(ErrorKind::unsupported, source, offset, what, std::move(found), std::move(expected));
}

/// What the error of a file says that ends before its time.
inline constexpr const char* cut_off = "the file is cut off: download it again";
/// What an error says of a type that no reader knows.
inline constexpr const char* unknown_type =
    "an unknown type: save the weights as a type that is known, such as F32, F16, BF16 or I8";
/// What an error says of a file that cannot be written from its beginning.
inline constexpr const char* cannot_create =
    "cannot be created: name a file in a folder that is there and may be written";
/// What a message expects of a file that should have that many bytes or more. Nothing: more than 64 bits can count.
[[nodiscard]] inline std::string at_least(std::optional<std::uint64_t> bytes) {
    return bytes ? "at least " + residency::detail::in_bytes(*bytes) : std::string{"an end within 64 bits"};
}

/// The folder of a path, with its slash; empty where the path has none.
[[nodiscard]] inline std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string{} : path.substr(0, slash + 1);
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/input.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/text.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// A tensor to be written.
struct SafetensorsTensor {
    std::string name;  ///< UTF-8, unique
    DType type;        ///< one that the format has
    Shape shape;       ///< outermost extent first
};

/// Writes one safetensors file front to back: the header when it is created, then the bytes of the tensors, in parts of any size.
/// Removes a file that is not finished. Movable.
class SafetensorsWriter {
public:
    /// Blocks. Creates or replaces `path` and writes the header, padded to a multiple of 8 bytes. The data follow in this order
    /// without gaps; put larger types first if readers want aligned data. Errors: invalid_argument for what the format cannot
    /// hold; io.
    [[nodiscard]] static Result<SafetensorsWriter> try_create(const std::string& path,
                                                              std::span<const SafetensorsTensor> tensors,
                                                              std::span<const ModelFile::Metadata> metadata = {}) {
        std::uint64_t bytes = 0;
        auto header = try_header(tensors, metadata, bytes);
        if (!header) { return header.error().in(detail::shown(path)); }
        if (path.find('\0') != std::string::npos) {
            return Error{ErrorKind::io, detail::shown(path) + ": a path cannot hold a zero byte",
                         FileLocation{path, 0, {}, {}}};
        }
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) { return failed(path, 0, "cannot be created"); }
        SafetensorsWriter writer{fd, path, bytes};
        if (Status written = writer.write(std::as_bytes(std::span{*header})); !written) { return written.error(); }
        return writer;
    }

    /// As above, with a list.
    [[nodiscard]] static Result<SafetensorsWriter> try_create(
        const std::string& path, std::initializer_list<SafetensorsTensor> tensors,
        std::initializer_list<ModelFile::Metadata> metadata = {}) {
        return try_create(path, std::span{tensors.begin(), tensors.size()},
                          std::span{metadata.begin(), metadata.size()});
    }

    /// The source is empty afterwards.
    /// @{
    SafetensorsWriter(SafetensorsWriter&& other) noexcept
        : fd_{std::exchange(other.fd_, -1)},
          path_{std::move(other.path_)},
          written_{other.written_},
          left_{other.left_} {}
    SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(path_, other.path_);
        std::swap(written_, other.written_);
        std::swap(left_, other.left_);
        return *this;
    }
    /// @}
    ~SafetensorsWriter() {
        if (fd_ >= 0) {
            ::close(fd_);
            ::unlink(path_.c_str());
        }
    }

    /// Bytes of data that are still to be given.
    [[nodiscard]] std::uint64_t left_bytes() const noexcept { return left_; }

    /// Blocks. Writes the next bytes of the data. Error invalid_argument, and nothing is written: more than left_bytes().
    [[nodiscard]] Status try_append(std::span<const std::byte> data) {
        if (fd_ < 0) { return Error{ErrorKind::wrong_state, detail::shown(path_) + ": already finished"}; }
        if (data.size() > left_) {
            return Error{ErrorKind::invalid_argument, detail::shown(path_) + ": " + std::to_string(data.size()) +
                                                          " bytes given, only " + std::to_string(left_) + " are left"};
        }
        if (Status written = write(data); !written) { return written; }
        left_ -= data.size();
        return {};
    }
    /// Blocks. Closes the file. Error wrong_state: data are missing.
    [[nodiscard]] Status try_finish() {
        if (fd_ < 0) { return Error{ErrorKind::wrong_state, detail::shown(path_) + ": already finished"}; }
        if (left_ != 0) {
            return Error{ErrorKind::wrong_state,
                         detail::shown(path_) + ": " + std::to_string(left_) + " bytes are still missing"};
        }
        if (::close(std::exchange(fd_, -1)) != 0) {
            Error error = failed(path_, written_, "cannot be closed");
            ::unlink(path_.c_str());
            return error;
        }
        return {};
    }
#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] static SafetensorsWriter create(const std::string& path, std::span<const SafetensorsTensor> tensors,
                                                  std::span<const ModelFile::Metadata> metadata = {}) {
        return unwrap(try_create(path, tensors, metadata));
    }
    [[nodiscard]] static SafetensorsWriter create(const std::string& path,
                                                  std::initializer_list<SafetensorsTensor> tensors,
                                                  std::initializer_list<ModelFile::Metadata> metadata = {}) {
        return unwrap(try_create(path, tensors, metadata));
    }
    void append(std::span<const std::byte> data) { unwrap(try_append(data)); }
    void finish() { unwrap(try_finish()); }
    /// @}
#endif

private:
    SafetensorsWriter(int fd, std::string path, std::uint64_t left) noexcept
        : fd_{fd}, path_{std::move(path)}, left_{left} {}

    [[nodiscard]] static Error failed(const std::string& path, std::uint64_t offset, const std::string& what) {
        const int code = errno;
        return {ErrorKind::io,
                detail::shown(path) + ": byte " + std::to_string(offset) + ": " + what + ": " +
                    std::generic_category().message(code),
                FileLocation{path, offset, {}, {}}};
    }
    /// The length and the padded header. `data_bytes` is set to the bytes of all tensors.
    [[nodiscard]] static Result<std::string> try_header(std::span<const SafetensorsTensor> tensors,
                                                        std::span<const ModelFile::Metadata> metadata,
                                                        std::uint64_t& data_bytes);
    [[nodiscard]] Status write(std::span<const std::byte> data) {
        while (!data.empty()) {
            const ssize_t done = ::write(fd_, data.data(), (std::min)(data.size(), std::size_t{1} << 30));
            if (done < 0) {
                if (errno == EINTR) { continue; }
                return failed(path_, written_, "cannot be written");
            }
            data = data.subspan(static_cast<std::size_t>(done));
            written_ += static_cast<std::uint64_t>(done);
        }
        return {};
    }

    int fd_;
    std::string path_;
    std::uint64_t written_ = 0;
    std::uint64_t left_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/safetensors_writer.ipp"
#endif

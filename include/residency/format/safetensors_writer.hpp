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
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "residency/error.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/safetensors_dtype.hpp"
#include "residency/format/text.hpp"
#include "residency/model/checked.hpp"

namespace residency::inline RESIDENCY_ABI::format {

/// A tensor to be written.
struct SafetensorsTensor {
    std::string name;
    DType type;
    Shape shape;
};

/// Writes one safetensors file front to back: the tensors' descriptions first, then their bytes, in any pieces. A file that is
/// not finished is removed. Movable.
class SafetensorsWriter {
public:
    /// Creates or replaces `path` and writes the header, padded to a multiple of 8 bytes. The data follow in this order without
    /// gaps; put larger types first where readers want aligned data. Errors: invalid_argument for what the format cannot
    /// hold; io.
    [[nodiscard]] static Result<SafetensorsWriter> try_create(const std::string& path,
                                                              std::span<const SafetensorsTensor> tensors,
                                                              std::span<const ModelFile::Metadata> metadata = {}) {
        std::uint64_t bytes = 0;
        auto header = try_header(tensors, metadata, bytes);
        if (!header) { return header.error().in(detail::shown(path)); }
        if (path.find('\0') != std::string::npos) {
            return Error{ErrorKind::io, detail::shown(path) + ": a path cannot hold a zero byte",
                         Place{path, 0, {}, {}}};
        }
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) { return failed(path, 0, "cannot be created"); }
        SafetensorsWriter writer{fd, path, bytes};
        if (Status written = writer.write(std::as_bytes(std::span{*header})); !written) { return written.error(); }
        return writer;
    }

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
    ~SafetensorsWriter() {
        if (fd_ >= 0) {
            ::close(fd_);
            ::unlink(path_.c_str());
        }
    }

    /// Bytes of data that are still to come.
    [[nodiscard]] std::uint64_t left_bytes() const noexcept { return left_; }

    /// The next bytes of the data. More than left_bytes() is refused and changes nothing. Blocks.
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
    /// Closes the file; all its data must have been given.
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
    [[nodiscard]] static SafetensorsWriter create(const std::string& path, std::span<const SafetensorsTensor> tensors,
                                                  std::span<const ModelFile::Metadata> metadata = {}) {
        return unwrap(try_create(path, tensors, metadata));
    }
    void append(std::span<const std::byte> data) { unwrap(try_append(data)); }
    void finish() { unwrap(try_finish()); }
#endif

private:
    SafetensorsWriter(int fd, std::string path, std::uint64_t left) noexcept
        : fd_{fd}, path_{std::move(path)}, left_{left} {}

    [[nodiscard]] static Error failed(const std::string& path, std::uint64_t offset, const std::string& what) {
        const int code = errno;
        return {ErrorKind::io,
                detail::shown(path) + ": byte " + std::to_string(offset) + ": " + what + ": " +
                    std::generic_category().message(code),
                Place{path, offset, {}, {}}};
    }
    [[nodiscard]] static std::string json_text(const std::string& text) {
        return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    /// The length and the padded header; `data_bytes` gets the bytes of all tensors.
    [[nodiscard]] static Result<std::string> try_header(std::span<const SafetensorsTensor> tensors,
                                                        std::span<const ModelFile::Metadata> metadata,
                                                        std::uint64_t& data_bytes) {
        const auto refuse = [](const std::string& what) { return Error{ErrorKind::invalid_argument, what}; };
        std::string header(8, '\0');
        header += '{';
        std::unordered_set<std::string_view> names;
        if (!metadata.empty()) {
            header += "\"__metadata__\":{";
            for (const auto& [key, value] : metadata) {
                if (!detail::is_utf8(key) || !detail::is_utf8(value)) {
                    return refuse("metadata " + detail::shown(key) + " is not UTF-8");
                }
                if (!names.insert(key).second) { return refuse("metadata " + detail::shown(key) + " is given twice"); }
                header += (header.back() == '{' ? "" : ",") + json_text(key) + ':' + json_text(value);
            }
            header += '}';
            names.clear();
        }
        std::uint64_t offset = 0;
        for (const SafetensorsTensor& tensor : tensors) {
            const std::string what = "tensor " + detail::shown(tensor.name) + ": ";
            const std::string_view dtype = safetensors_name(tensor.type);
            const auto elements = detail::count_elements(tensor.shape);
            if (!detail::is_utf8(tensor.name)) { return refuse(what + "its name is not UTF-8"); }
            if (tensor.name == "__metadata__") { return refuse(what + "the format keeps this name for itself"); }
            if (!names.insert(tensor.name).second) { return refuse(what + "it is given twice"); }
            if (dtype.empty()) { return refuse(what + "safetensors has no type " + std::string{tensor.type.name()}); }
            if (!elements) { return refuse(what + "its elements do not fit in 64 bits"); }
            const auto bytes = tensor.type.bytes_of(*elements);
            if (!bytes) { return bytes.error().in("tensor " + detail::shown(tensor.name)); }
            const auto end = residency::detail::checked_add(offset, *bytes);
            if (!end) { return refuse(what + "the data do not fit in 64 bits"); }
            header += (header.size() > 9 ? "," : "") + json_text(tensor.name) + ":{\"dtype\":\"" + std::string{dtype} +
                      "\",\"shape\":[";
            for (const std::uint64_t extent : tensor.shape) {
                if (header.back() != '[') { header += ','; }
                header += std::to_string(extent);
            }
            header += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(*end) + "]}";
            offset = *end;
        }
        header += '}';
        header.resize((header.size() + 7) / 8 * 8, ' ');
        std::uint64_t length = header.size() - 8;
        if (length > safetensors_header_limit) {
            return refuse("the header of " + std::to_string(length) + " bytes is larger than the format's limit of " +
                          std::to_string(safetensors_header_limit));
        }
        for (std::size_t i = 0; i < 8; ++i, length >>= 8) { header[i] = static_cast<char>(length & 255); }
        data_bytes = offset;
        return header;
    }
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

}  // namespace residency::inline RESIDENCY_ABI::format

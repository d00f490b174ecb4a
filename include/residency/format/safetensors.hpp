// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// The format's limit on the bytes of a header; here of an index too.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// Blocks. Reads the header of one safetensors file, from a file or from memory. Lists the weights in the order of their data,
/// each with a storage of its own. Errors: malformed, with a FileLocation; io.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const Input& input,
                                                                      const ReadOptions& options = {});

/// Blocks. Reads a sharded model by its index (model.safetensors.index.json) and the headers of all its files, which lie in or
/// below the folder of the index. The index says which file a tensor comes from: what another file holds too, or what the index
/// does not list, is passed over. Error malformed: a tensor is not in the file that the index names, or the index lists nothing.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors_index(const Input& input,
                                                                            const ReadOptions& options = {});

/// Blocks. Reads an index where the path ends in ".json", one file otherwise; a note says if an index beside the file lists it.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const std::string& path,
                                                                      const ReadOptions& options = {});

#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_safetensors(const std::string& path, const ReadOptions& options = {}) {
    return unwrap(try_read_safetensors(path, options));
}
#endif

/// A type as safetensors spells it.
struct SafetensorsDType {
    std::string_view name;  ///< in files
    DType type;             ///< what the weight is then
};

/// Every type of the format, as of safetensors 0.8. Its F8_E4M3 is the one without infinities.
inline constexpr std::array safetensors_dtypes{
    SafetensorsDType{"BOOL", dtype::boolean},
    SafetensorsDType{"F4", dtype::f4},
    SafetensorsDType{"F6_E2M3", dtype::f6_e2m3},
    SafetensorsDType{"F6_E3M2", dtype::f6_e3m2},
    SafetensorsDType{"U8", dtype::u8},
    SafetensorsDType{"I8", dtype::i8},
    SafetensorsDType{"F8_E5M2", dtype::f8_e5m2},
    SafetensorsDType{"F8_E4M3", dtype::f8_e4m3fn},
    SafetensorsDType{"F8_E8M0", dtype::f8_e8m0},
    SafetensorsDType{"F8_E4M3FNUZ", dtype::f8_e4m3fnuz},
    SafetensorsDType{"F8_E5M2FNUZ", dtype::f8_e5m2fnuz},
    SafetensorsDType{"I16", dtype::i16},
    SafetensorsDType{"U16", dtype::u16},
    SafetensorsDType{"F16", dtype::f16},
    SafetensorsDType{"BF16", dtype::bf16},
    SafetensorsDType{"I32", dtype::i32},
    SafetensorsDType{"U32", dtype::u32},
    SafetensorsDType{"F32", dtype::f32},
    SafetensorsDType{"C64", dtype::complex64},
    SafetensorsDType{"F64", dtype::f64},
    SafetensorsDType{"I64", dtype::i64},
    SafetensorsDType{"U64", dtype::u64},
};

[[nodiscard]] constexpr std::optional<DType> find_safetensors_dtype(std::string_view name) noexcept {
    for (const SafetensorsDType& known : safetensors_dtypes) {
        if (known.name == name) { return known.type; }
    }
    return std::nullopt;
}
/// How the format spells a type; empty where it has no such type.
[[nodiscard]] constexpr std::string_view safetensors_name(const DType& type) noexcept {
    for (const SafetensorsDType& known : safetensors_dtypes) {
        if (known.type == type) { return known.name; }
    }
    return {};
}

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
        if (Status valid = detail::check_path(path); !valid) { return valid.error(); }
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) { return detail::system_error(path, 0, detail::cannot_create); }
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
            return Error{ErrorKind::invalid_argument, detail::shown(path_) + ": " +
                                                          residency::detail::in_bytes(data.size()) + " given, only " +
                                                          residency::detail::in_bytes(left_) + " are left"};
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
                         detail::shown(path_) + ": " + residency::detail::in_bytes(left_) + " are still missing"};
        }
        if (::close(std::exchange(fd_, -1)) != 0) {
            Error error = detail::system_error(path_, written_, "cannot be closed");
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

    /// The length and the padded header. `data_bytes` is set to the bytes of all tensors.
    [[nodiscard]] static Result<std::string> try_header(std::span<const SafetensorsTensor> tensors,
                                                        std::span<const ModelFile::Metadata> metadata,
                                                        std::uint64_t& data_bytes);
    [[nodiscard]] Status write(std::span<const std::byte> data) {
        while (!data.empty()) {
            const ssize_t done = ::write(fd_, data.data(), (std::min)(data.size(), std::size_t{1} << 30));
            if (done < 0) {
                if (errno == EINTR) { continue; }
                return detail::system_error(path_, written_, "cannot be written");
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
#include "residency/format/impl/safetensors.ipp"
#endif

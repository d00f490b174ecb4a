// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/read_options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// The kinds of metadata values, with their numbers in files.
enum class GgufKind : std::uint32_t {
    uint8 = 0,
    int8 = 1,
    uint16 = 2,
    int16 = 3,
    uint32 = 4,
    int32 = 5,
    float32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    uint64 = 10,
    int64 = 11,
    float64 = 12,
};

struct GgufValue;

/// An array of values of one kind.
struct GgufArray {
    GgufKind kind = GgufKind::uint8;  ///< of every element
    /// The elements, by kind: unsigned and boolean, signed, floating-point, string, array. Strings are the bytes of the file, which
    /// need not be UTF-8.
    std::variant<std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>,
                 std::vector<GgufArray>>
        values;

    /// Number of elements.
    [[nodiscard]] std::size_t size() const noexcept {
        return std::visit([](const auto& v) { return v.size(); }, values);
    }
    friend bool operator==(const GgufArray&, const GgufArray&) = default;  ///< compares all members
};

/// One metadata value.
struct GgufValue {
    GgufKind kind = GgufKind::uint8;                                                  ///< of the value
    std::variant<std::uint64_t, std::int64_t, double, std::string, GgufArray> value;  ///< booleans as 0 and 1

    /// The value as a number, if it is a whole number that is not negative, of any integer kind.
    [[nodiscard]] std::optional<std::uint64_t> as_count() const noexcept {
        if (const auto* u = std::get_if<std::uint64_t>(&value); u != nullptr && kind != GgufKind::boolean) {
            return *u;
        }
        if (const auto* i = std::get_if<std::int64_t>(&value); i != nullptr && *i >= 0) {
            return static_cast<std::uint64_t>(*i);
        }
        return std::nullopt;
    }
    friend bool operator==(const GgufValue&, const GgufValue&) = default;  ///< compares all members
};

/// A key and its value.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// What one GGUF file says beside its tensors.
struct GgufHeader {
    std::uint32_t version = 0;           ///< of the format
    std::uint64_t alignment_bytes = 32;  ///< of the tensors
    GgufMetadata metadata;               ///< in the order of the file

    /// The value of that key; null: there is none.
    [[nodiscard]] const GgufValue* find(std::string_view key) const noexcept {
        for (const auto& [name, value] : metadata) {
            if (name == key) { return &value; }
        }
        return nullptr;
    }
};

/// A GGUF model, with all files of a split one.
struct GgufFile {
    ModelFile model;                  ///< its weights
    std::vector<GgufHeader> headers;  ///< one per file
};

/// Blocks. Reads one GGUF file of version 2 or 3, little-endian, from a file or from memory. Lists the tensors in the order of
/// their data, shapes outermost extent first, and passes quantised data through. The padding of the last tensor may be missing;
/// bytes behind it are passed over, and a note says so. Errors: malformed, with a FileLocation; unsupported where a tensor has a
/// type that ggml withdrew or a fork has, and that is not in options.ggml_types; io.
[[nodiscard]] RESIDENCY_INLINE Result<GgufFile> try_read_gguf(const Input& input, const ReadOptions& options = {});

/// Blocks. Reads a model by a path. Any file of a split model stands for all of them, which are name-00001-of-0000N.gguf and so
/// on beside it. Where the names are others try_read_model_parts (residency/format/open.hpp) takes a list of them.
[[nodiscard]] RESIDENCY_INLINE Result<GgufFile> try_read_gguf(const std::string& path, const ReadOptions& options = {});

#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline GgufFile read_gguf(const std::string& path, const ReadOptions& options = {}) {
    return unwrap(try_read_gguf(path, options));
}
#endif

namespace detail {

/// Blocks. Reads the files of one model, in any order; of a split model each file says its number. `is_in_order`: the first must be
/// the first, and so on. Error malformed: they are not all the files of one model, and each once.
[[nodiscard]] RESIDENCY_INLINE Result<GgufFile> read_gguf_parts(const std::vector<std::string>& paths,
                                                                const ReadOptions& options, bool is_in_order);

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/gguf.ipp"
#endif

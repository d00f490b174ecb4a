// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/text_lines.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"

namespace lab::trace {

using namespace residency;

inline constexpr std::string_view npy_magic{"\x93NUMPY", 6};

namespace detail {

/// What the header of a .npy file says of an array.
struct NpyHeader {
    std::size_t data = 0;        ///< where its first element is
    std::size_t item_bytes = 0;  ///< 1, 2, 4 or 8
    bool is_signed = false;
    std::array<std::uint64_t, 3> shape{};
};

/// The header of an array of integers in three dimensions, little-endian, in C order; nothing where the bytes are anything else.
[[nodiscard]] inline std::optional<NpyHeader> npy_header(std::string_view bytes) {
    constexpr std::size_t version_at = 6;
    constexpr std::size_t length_at = 8;
    if (!bytes.starts_with(npy_magic) || bytes.size() < length_at + 4) { return std::nullopt; }
    const std::size_t length_bytes = bytes[version_at] == 1 ? 2 : 4;
    std::size_t length = 0;
    for (std::size_t i = length_bytes; i-- > 0;) {
        length = length << 8 | static_cast<unsigned char>(bytes[length_at + i]);
    }
    NpyHeader header;
    header.data = length_at + length_bytes + length;
    if (header.data > bytes.size()) { return std::nullopt; }
    const std::string_view text = bytes.substr(length_at + length_bytes, length);
    const auto after = [text](std::string_view key) {  // the value of a key, and all behind it
        const std::size_t at = text.find(key);
        std::string_view value = at == std::string_view::npos ? std::string_view{} : text.substr(at + key.size());
        value.remove_prefix((std::min)(value.find_first_not_of(' '), value.size()));
        return value;
    };
    const std::string_view type = after("'descr':");
    if (type.size() < 5 || (type[1] != '<' && type[1] != '|') || (type[2] != 'i' && type[2] != 'u') ||
        type[4] != '\'' || std::string_view{"1248"}.find(type[3]) == std::string_view::npos) {
        return std::nullopt;
    }
    header.item_bytes = static_cast<std::size_t>(type[3] - '0');
    header.is_signed = type[2] == 'i';
    if (!after("'fortran_order':").starts_with("False")) { return std::nullopt; }
    const std::string_view shape = after("'shape':");
    std::vector<std::string_view> extents;
    TextLines::split(shape.substr((std::min)(shape.size(), std::size_t{1}), shape.find(')') - 1), ',', extents);
    if (!shape.starts_with('(') || extents.size() != header.shape.size()) { return std::nullopt; }
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
        const auto extent = TextLines::number(extents[axis]);
        if (!extent) { return std::nullopt; }
        header.shape[axis] = *extent;
    }
    return header;
}

}  // namespace detail

/// The experts that a router chose as a NumPy array [tokens, layers, chosen] of integers, such as vLLM's routed_experts: a storage
/// is an expert of a layer, of one byte, since the array knows no sizes; its group is the layer. A step is one layer of one token.
/// Each layer has as many experts as the last that was chosen anywhere asks for. Where a token and layer have the same expert several
/// times, it counts once; so layers without experts, which vLLM fills with zeros, have one. `source` names the bytes in messages.
[[nodiscard]] inline Result<Trace> try_parse_npy(std::span<const std::byte> bytes, const std::string& source) {
    constexpr std::uint64_t most = std::uint64_t{1} << 24;
    const auto wrong = [&](std::size_t at, std::string found, std::string expected) {
        return Error{ErrorKind::malformed,
                     residency::detail::quoted(source) + " at byte " + std::to_string(at) + ": found " + found +
                         ", expected " + expected,
                     FileLocation{source, at, std::move(found), std::move(expected)}};
    };
    const auto header = detail::npy_header({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (!header) {
        return wrong(0, "another header",
                     "a NumPy array [tokens, layers, chosen] of integers, as numpy.save(path, "
                     "numpy.ascontiguousarray(routed_experts)) writes it");
    }
    const auto [tokens, layers, chosen] = header->shape;
    const auto rows = residency::detail::checked_multiply(tokens, layers);
    const auto choices = rows ? residency::detail::checked_multiply(*rows, chosen) : std::nullopt;
    const auto data_bytes = choices ? residency::detail::checked_multiply(*choices, header->item_bytes) : std::nullopt;
    if (data_bytes != bytes.size() - header->data) {
        return wrong(header->data, std::to_string(bytes.size() - header->data) + " bytes",
                     data_bytes ? std::to_string(*data_bytes) + " for that shape" : "a shape that fits in 64 bits");
    }
    if (*choices == 0 || layers > most) {
        return wrong(header->data,
                     "the shape [" + std::to_string(tokens) + ", " + std::to_string(layers) + ", " +
                         std::to_string(chosen) + "]",
                     "extents above 0, and at most " + std::to_string(most) + " layers");
    }
    std::vector<std::uint32_t> experts(static_cast<std::size_t>(*choices));
    std::uint64_t count = 0;  // of each layer
    for (std::size_t i = 0; i < experts.size(); ++i) {
        const std::size_t at = header->data + i * header->item_bytes;
        std::uint64_t expert = 0;
        for (std::size_t byte = header->item_bytes; byte-- > 0;) {
            expert = expert << 8 | std::to_integer<std::uint64_t>(bytes[at + byte]);
        }
        const bool is_negative = header->is_signed && expert >> (8 * header->item_bytes - 1) != 0;
        if (is_negative || expert >= most / layers) {
            return wrong(at, is_negative ? "a number below 0" : "expert " + std::to_string(expert),
                         "one from 0 to " + std::to_string(most / layers - 1));
        }
        experts[i] = static_cast<std::uint32_t>(expert);
        count = (std::max)(count, expert + 1);
    }
    Trace trace;
    trace.name = source;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
        trace.bytes.insert(trace.bytes.end(), static_cast<std::size_t>(count), 1);
        trace.groups.insert(trace.groups.end(), static_cast<std::size_t>(count), layer);
    }
    std::vector<StorageId> step;
    for (std::size_t row = 0; row < *rows; ++row) {
        step.clear();
        for (std::size_t i = 0; i < chosen; ++i) {
            const StorageId id{static_cast<std::uint32_t>(row % layers * count) + experts[row * chosen + i]};
            if (std::find(step.begin(), step.end(), id) == step.end()) { step.push_back(id); }
        }
        trace.add_step(step);
    }
    return trace;
}

}  // namespace lab::trace

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/config.hpp"

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

}}}  // namespace residency::RESIDENCY_ABI::format

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Matrix products on the host's processor, of any type with a to_float().

// Without UndefinedBehaviorSanitizer's check of pointer arithmetic, which would leave no vector instruction. AddressSanitizer checks
// what is read.
#define RESIDENCY_EXAMPLES_PLAIN __attribute__((no_sanitize("pointer-overflow")))

namespace examples {

[[nodiscard]] inline float to_float(float value) noexcept { return value; }

/// A dot product. Adds up in eight lanes, so that the compiler may use vector instructions.
struct Sum {
    static constexpr std::uint32_t lanes = 8;
    float lane[lanes] = {};
    template <class T>
    RESIDENCY_EXAMPLES_PLAIN void add(const T* a, const T* b) {
        for (std::uint32_t i = 0; i < lanes; ++i) { lane[i] += to_float(a[i]) * to_float(b[i]); }
    }
    [[nodiscard]] float total() const {
        return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
    }
};

/// A block of `rows` × `columns` results, so that what is loaded is used several times.
template <std::uint32_t rows, std::uint32_t columns, class T, class Store>
RESIDENCY_EXAMPLES_PLAIN void multiply_block(const T* in, const T* weight, std::size_t row, std::size_t column,
                                             std::uint32_t from, Store& store) {
    Sum sums[rows][columns];
    for (std::uint32_t k = 0; k < from; k += Sum::lanes) {
        for (std::uint32_t r = 0; r < rows; ++r) {
            for (std::uint32_t c = 0; c < columns; ++c) {
                sums[r][c].add(in + (row + r) * from + k, weight + (column + c) * from + k);
            }
        }
    }
    for (std::uint32_t r = 0; r < rows; ++r) {
        for (std::uint32_t c = 0; c < columns; ++c) { store(row + r, column + c, sums[r][c].total()); }
    }
}

/// in [rows, from] × weightᵀ [to, from]: `store(row, column, value)` for each result. Precondition: from is a multiple of eight.
template <class T, class Store>
void multiply(const T* in, const T* weight, std::uint32_t rows, std::uint32_t from, std::uint32_t to, Store store) {
    std::uint32_t column = 0;
    for (; column + 2 <= to; column += 2) {
        std::uint32_t row = 0;
        for (; row + 4 <= rows; row += 4) { multiply_block<4, 2>(in, weight, row, column, from, store); }
        for (; row < rows; ++row) { multiply_block<1, 2>(in, weight, row, column, from, store); }
    }
    for (std::uint32_t row = 0; column < to && row < rows; ++row) {
        multiply_block<1, 1>(in, weight, row, column, from, store);
    }
}

}  // namespace examples

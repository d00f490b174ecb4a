// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "residency/model/dtype.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Extents, slowest first; empty for a scalar.
using Shape = std::vector<std::uint64_t>;
/// For each extent, the elements from one index to the next.
using Strides = std::vector<std::uint64_t>;

/// A named tensor that lies inside one storage.
struct Weight {
    std::string name;                ///< unique in its catalog
    DType dtype;                     ///< of its elements
    Shape shape;                     ///< outermost extent first
    Strides strides;                 ///< elements; those of a dense weight too
    StorageId storage = no_storage;  ///< where its bytes are
    std::uint64_t offset_bytes = 0;  ///< of its first byte in the storage
    std::uint64_t bytes = 0;         ///< from its first byte to its last; dtype × shape where dense

    /// Number of elements; 1 for a scalar.
    [[nodiscard]] std::uint64_t elements() const noexcept {
        std::uint64_t count = 1;
        for (const std::uint64_t extent : shape) { count *= extent; }
        return count;
    }
    /// Whether the elements lie in row-major order without gaps.
    [[nodiscard]] bool is_dense() const noexcept {
        std::uint64_t expected = 1;
        for (std::size_t axis = shape.size(); axis-- > 0;) {
            if (shape[axis] != 1 && strides[axis] != expected) { return elements() == 0; }
            expected *= shape[axis];
        }
        return true;
    }
};

}}  // namespace residency::RESIDENCY_ABI

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// No step, no slot, no chunk.
inline constexpr std::uint32_t none = UINT32_MAX;

/// What a call waits for: the end of a step (hence of all steps before it), of this pass or of the pass before.
struct Wait {
    std::uint32_t step = none;  ///< none: the call waits for nothing
    std::int32_t pass = 0;      ///< relative to the pass of the call: 0 or −1. The first pass ignores −1

    /// Whether there is something to wait for.
    [[nodiscard]] bool exists() const noexcept { return step != none; }
    friend bool operator==(const Wait&, const Wait&) = default;  ///< compares all members
};

/// One contiguous range of the image that is copied to the device, to the slots of its chunks.
struct Copy {
    std::uint64_t image_begin = 0;  ///< first byte, in the image
    std::uint64_t image_end = 0;    ///< one past the last byte
    std::uint32_t needed_by = 0;    ///< the first step that reads any of it; a copy belongs to that step's pass

    /// How many.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return image_end - image_begin; }
    friend bool operator==(const Copy&, const Copy&) = default;  ///< compares all members
};

/// Neighbouring chunks of an image: [first, last).
struct Chunks {
    std::uint32_t first = 0;  ///< the first chunk
    std::uint32_t last = 0;   ///< one past the last chunk

    /// Goes through the numbers of the chunks.
    class Iterator {
    public:
        /// What range-for asks for.
        /// @{
        explicit Iterator(std::uint32_t chunk) noexcept : chunk_{chunk} {}
        [[nodiscard]] std::uint32_t operator*() const noexcept { return chunk_; }
        Iterator& operator++() noexcept {
            ++chunk_;
            return *this;
        }
        /// @}
        friend bool operator==(const Iterator&, const Iterator&) = default;  ///< compares all members

    private:
        std::uint32_t chunk_;
    };
    /// For range-for.
    /// @{
    [[nodiscard]] Iterator begin() const noexcept { return Iterator{first}; }
    [[nodiscard]] Iterator end() const noexcept { return Iterator{last}; }
    /// @}
    /// Whether the chunk is one of them.
    [[nodiscard]] bool contains(std::uint32_t chunk) const noexcept { return first <= chunk && chunk < last; }
};

/// The chunks on which image bytes [begin, end) lie.
[[nodiscard]] inline Chunks chunks_of(std::uint64_t begin, std::uint64_t end, std::uint64_t chunk_bytes) noexcept {
    return {static_cast<std::uint32_t>(begin / chunk_bytes),
            static_cast<std::uint32_t>((end + chunk_bytes - 1) / chunk_bytes)};
}

/// Copies that start together after one wait: one call of the driver, which costs one latency.
struct Call {
    std::uint32_t copies_begin = 0;  ///< index into Plan::copies()
    std::uint32_t copies_end = 0;    ///< one past the last
    Wait wait;                       ///< what has to be over before it starts
    std::uint32_t needed_by = 0;     ///< the least needed_by of its copies; never decreases from call to call

    friend bool operator==(const Call&, const Call&) = default;  ///< compares all members
};

}}}  // namespace residency::RESIDENCY_ABI::plan

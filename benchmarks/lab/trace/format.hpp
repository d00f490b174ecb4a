// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/container.hpp"

namespace lab::trace {

using namespace residency;

/// The file of a trace, written and read in blocks, so that neither side holds all of it: containers (model/container.hpp) of
/// kind trace one after the other, each with the same catalog hash and a checksum of its own.
///
///     the first   STOR: text name, array of u64 bytes by storage, array of u32 layers by storage (or none)
///     others      STEP: u64 number of the first step here; array of u32 accesses of each step; array of u32 storages;
///                       array of i64 nanoseconds of each step (−1: unknown)
///     the last    DONE: u64 steps, u64 accesses
///
/// A file without the last one was cut off.
inline constexpr std::uint32_t format_version = 1;

namespace detail {

inline constexpr std::uint32_t storages_tag = section_tag("STOR");
inline constexpr std::uint32_t steps_tag = section_tag("STEP");
inline constexpr std::uint32_t done_tag = section_tag("DONE");
inline constexpr std::uint64_t largest_block_bytes = std::uint64_t{1} << 32;
inline constexpr std::size_t accesses_in_block = std::size_t{1} << 16;

}  // namespace detail

}  // namespace lab::trace

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The kinds of contents of the binary container in which schedules, plans, traces and programs are saved. Integers are little-endian,
/// offsets count bytes from the start, and there is one way to write given contents:
///
///     0   8 bytes  magic: 89 52 53 44 59 0d 0a 1a
///     8   u32      version of the container: 1
///     12  u32      kind of the contents (ContainerKind)
///     16  u32      version of that kind
///     20  u32      number of sections, up to 64
///     24  u64      bytes of the whole, checksum included
///     32  u64      hash of the catalog that the contents belong to (Catalog::hash)
///     40           for each section: u32 tag, u32 zero, u64 offset, u64 bytes
///     …            the sections in that order, each followed by zeros up to a multiple of 8
///     end − 8      u64 checksum: StableHash (FNV-1a) of all bytes before it
///
/// In a section, texts and arrays are a u64 count and then the elements; floating-point numbers are their IEEE 754 bits.
enum class ContainerKind : std::uint32_t {
    schedule = 1,
    plan = 2,
    trace = 3,
    packed = 4,  ///< the index of a packed model file (format/packed.hpp)
    program = 5,
};

/// The tag of a section: four printable characters.
[[nodiscard]] constexpr std::uint32_t section_tag(const char (&text)[5]) noexcept {
    std::uint32_t tag = 0;
    for (int i = 3; i >= 0; --i) { tag = tag << 8 | static_cast<std::uint8_t>(text[i]); }
    return tag;
}

namespace detail {

inline constexpr std::uint8_t container_magic[8] = {0x89, 'R', 'S', 'D', 'Y', '\r', '\n', 0x1a};
inline constexpr std::uint32_t container_version = 1;
inline constexpr std::uint32_t container_max_sections = 64;
inline constexpr std::uint64_t container_header_bytes = 40;
inline constexpr std::uint64_t container_entry_bytes = 24;
inline constexpr std::uint64_t container_checksum_bytes = 8;

[[nodiscard]] constexpr std::uint64_t container_padded(std::uint64_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

[[nodiscard]] inline std::string container_kind_name(std::uint32_t kind) {
    switch (static_cast<ContainerKind>(kind)) {
        case ContainerKind::schedule: return "schedule";
        case ContainerKind::plan: return "plan";
        case ContainerKind::trace: return "trace";
        case ContainerKind::packed: return "packed";
        case ContainerKind::program: return "program";
    }
    return "kind " + std::to_string(kind);
}

[[nodiscard]] inline std::string section_name(std::uint32_t tag) {
    std::string text;
    for (int shift = 0; shift < 32; shift += 8) {
        const auto c = static_cast<char>(tag >> shift & 0xff);
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text;
}

}  // namespace detail

}}  // namespace residency::RESIDENCY_ABI

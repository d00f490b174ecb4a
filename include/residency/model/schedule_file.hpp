// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The version of the bytes that save() writes.
inline constexpr std::uint32_t schedule_file_version = 2;

/// The bytes of a schedule: a container (model/container.hpp) of kind schedule. The same schedule gives the same bytes.
/// Precondition: not empty().
[[nodiscard]] RESIDENCY_INLINE std::vector<std::byte> save(const Schedule& schedule);
/// Blocks. Writes those bytes to a file, whole or not at all. Error io.
[[nodiscard]] RESIDENCY_INLINE Status try_save_file(const Schedule& schedule, const std::string& path);

/// The schedule that save() wrote. `source` names the bytes in messages. Errors: malformed, with the place; unsupported for another
/// version; mismatch, saying what differs, where it was saved for another catalog.
[[nodiscard]] RESIDENCY_INLINE Result<Schedule> try_load_schedule(std::span<const std::byte> bytes,
                                                                  const Catalog& catalog,
                                                                  std::string source = "schedule");
/// Blocks. The same from a file. Error io as well.
[[nodiscard]] RESIDENCY_INLINE Result<Schedule> try_load_schedule_file(const std::string& path, const Catalog& catalog);

#if RESIDENCY_EXCEPTIONS
inline void save_file(const Schedule& schedule, const std::string& path) { unwrap(try_save_file(schedule, path)); }
[[nodiscard]] inline Schedule load_schedule(std::span<const std::byte> bytes, const Catalog& catalog) {
    return unwrap(try_load_schedule(bytes, catalog));
}
[[nodiscard]] inline Schedule load_schedule_file(const std::string& path, const Catalog& catalog) {
    return unwrap(try_load_schedule_file(path, catalog));
}
#endif

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/schedule_file.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "benchmarks/lab/trace/object_table.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"

namespace lab::trace {

using namespace residency;

/// A libCacheSim trace in its format oracleGeneral, uncompressed: little-endian records of 24 bytes, u32 time, u64 object, u32
/// bytes, i64 number of the object's next request, counted from 1 (−1: none). Each request becomes a step. Times and next numbers
/// are not used: the next use follows from the requests. But a next number that no trace has is an error, since other bytes than
/// records have such. `source` names the bytes in messages.
[[nodiscard]] inline Result<Trace> try_parse_oracle_general(std::span<const std::byte> bytes,
                                                            const std::string& source) {
    constexpr std::size_t record_bytes = 24;
    if (bytes.size() % record_bytes != 0) {
        const std::uint64_t offset = bytes.size() / record_bytes * record_bytes;
        return Error{ErrorKind::malformed,
                     residency::detail::quoted(source) + " at byte " + std::to_string(offset) +
                         ": found a part of a record, expected 24 bytes",
                     FileLocation{source, offset, std::to_string(bytes.size() - offset) + " bytes", "24"}};
    }
    Trace trace;
    trace.name = source;
    ObjectTable<std::uint64_t> objects{trace};
    for (std::size_t at = 0; at < bytes.size(); at += record_bytes) {
        const auto object = residency::detail::load_little_endian<std::uint64_t>(bytes.data() + at + 4);
        const auto size = residency::detail::load_little_endian<std::uint32_t>(bytes.data() + at + 12);
        const auto next =
            static_cast<std::int64_t>(residency::detail::load_little_endian<std::uint64_t>(bytes.data() + at + 16));
        constexpr std::int64_t most_requests = std::int64_t{1} << 48;
        if (next < -1 || (next > most_requests && next != INT64_MAX)) {  // the largest number says none too
            return Error{ErrorKind::malformed,
                         residency::detail::quoted(source) + " at byte " + std::to_string(at + 16) + ": found " +
                             std::to_string(next) +
                             " as the number of the next request, which is no record of oracleGeneral; look whether "
                             "the file has another format",
                         FileLocation{source, at + 16, std::to_string(next), "-1 to 2^48"}};
        }
        const StorageId id = objects.id_of(object, size);
        trace.add_step({&id, 1});
    }
    if (auto fits = trace.try_check_sums(source); !fits) { return fits.error(); }
    return trace;
}

}  // namespace lab::trace

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/trace_writer.hpp"
#include "residency/model/use_order.hpp"

namespace lab::trace {

using namespace residency;

/// What a run used: steps in the order in which they happened, each with the storages that it needed together, in order.
struct Trace {
    static constexpr std::int64_t unknown = TraceWriter::unknown;

    std::string name;                            ///< of the model or the file; may be empty
    std::uint64_t catalog_hash = 0;              ///< Catalog::hash of the model; 0: none
    std::vector<std::uint64_t> bytes;            ///< of each storage
    std::vector<std::uint32_t> groups;           ///< the layer of each storage, or empty
    std::vector<std::uint64_t> step_offsets{0};  ///< steps + 1, into accesses
    std::vector<StorageId> accesses;
    std::vector<std::int64_t> compute_ns;  ///< of each step, or unknown

    [[nodiscard]] std::size_t steps() const noexcept { return step_offsets.size() - 1; }
    /// Precondition: i < steps().
    [[nodiscard]] std::span<const StorageId> step(std::size_t i) const noexcept {
        const auto first = static_cast<std::size_t>(step_offsets[i]);
        return std::span{accesses}.subspan(first, static_cast<std::size_t>(step_offsets[i + 1]) - first);
    }
    void add_step(std::span<const StorageId> storages, std::int64_t compute = unknown) {
        accesses.insert(accesses.end(), storages.begin(), storages.end());
        step_offsets.push_back(accesses.size());
        compute_ns.push_back(compute);
    }
    /// The bytes of all storages.
    [[nodiscard]] std::uint64_t total_bytes() const noexcept {
        return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    }

    /// Error malformed, where the bytes of all storages, or those of all accesses, do not fit in 64 bits. `source` names the trace.
    [[nodiscard]] Status try_check_sums(const std::string& source) const {
        std::uint64_t stored = 0;
        std::uint64_t accessed = 0;
        for (const std::uint64_t each : bytes) { stored = residency::detail::saturating_add(stored, each); }
        for (const StorageId id : accesses) {
            accessed = residency::detail::saturating_add(accessed, bytes[index(id)]);
        }
        if (stored != UINT64_MAX && accessed != UINT64_MAX) { return {}; }
        const std::string what = stored == UINT64_MAX ? "storages" : "accesses";
        return Error{
            ErrorKind::malformed,
            residency::detail::quoted(source) + ": found " + what + " of 2^64 bytes or more together, expected less",
            FileLocation{source, 0, what + " of 2^64 bytes or more together", "less"}};
    }

    /// The future by steps.
    [[nodiscard]] Result<UseOrder> try_order(Cycle cycle = Cycle::one_shot) const {
        return UseOrder::try_from(step_offsets, accesses, static_cast<std::uint32_t>(bytes.size()), cycle);
    }
    /// The future by accesses, each a step of its own.
    [[nodiscard]] Result<UseOrder> try_access_order() const {
        std::vector<std::uint64_t> offsets(accesses.size() + 1);
        std::iota(offsets.begin(), offsets.end(), std::uint64_t{0});
        return UseOrder::try_from(offsets, accesses, static_cast<std::uint32_t>(bytes.size()), Cycle::one_shot);
    }

    friend bool operator==(const Trace&, const Trace&) = default;
};

}  // namespace lab::trace

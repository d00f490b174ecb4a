// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// How device bytes are named.
enum class Layout : std::uint8_t {
    chunks,  ///< one address range for the image; chunk → slot, a slot being one physical chunk (pool::Virtual)
    arena,   ///< whole storages at offsets of one contiguous arena
};

/// Everything a Plan says. Plain data: planners fill it, Plan freezes it.
struct PlanData {
    Layout layout = Layout::chunks;
    bool cyclic = true;
    bool captured = false;           ///< planned for a graph: each copy is a call, latency of a copy node, `cut` counts
    std::uint64_t catalog_hash = 0;  ///< what the plan was made for; 0: not said
    std::uint64_t budget_bytes = 0;  ///< the budget asked for, the floor where 0 was asked
    std::uint64_t chunk_bytes = 0;
    std::uint64_t image_bytes = 0;  ///< end of the last storage in the image
    std::uint64_t held_bytes = 0;   ///< device bytes: slots × chunk_bytes, or the size of the arena; ≤ budget_bytes
    std::uint32_t steps = 0;

    std::vector<std::uint64_t> storage_offsets;  ///< of each storage in the image
    std::vector<std::uint64_t> storage_bytes;

    std::vector<Copy> residents;       ///< what never leaves (cyclic) or is there at the start (one-shot), by needed_by
    std::vector<Copy> copies;          ///< of one pass, in copy-stream order
    std::vector<Call> calls;           ///< of one pass, in copy-stream order; covers `copies` in order
    std::vector<std::uint32_t> slots;  ///< Layout::chunks: the slot of each chunk of each resident and copy
    /// Layout::chunks: the one slot of each chunk of the image, none where no step reads it and nothing keeps it; empty
    /// where chunks change slots (see Plan::is_static).
    std::vector<std::uint32_t> chunk_slot;
    /// For each step: how many calls of its pass must have arrived before it starts.
    std::vector<std::uint32_t> step_calls;
    std::uint32_t cut = 0;  ///< captured: calls [0, cut) of the next pass ride at the end of this graph

    /// Steady period of a pass (captured: of a graph); one-shot: first start to last end.
    double predicted_seconds = 0;
    double compute_seconds = 0;        ///< Σ over the steps
    double bound_seconds = 0;          ///< the exact bound at L = 0
    double usual_bound_seconds = 0;    ///< max(C, D/P)
    double latency_floor_seconds = 0;  ///< what no ring of one copy stream goes below, L counted
    std::uint64_t floor_bytes = 0;     ///< the smallest budget that works
    std::uint64_t bytes_per_pass = 0;

    friend bool operator==(const PlanData&, const PlanData&) = default;
};

/// The moves of a pass, precomputed for a catalog, a schedule and a budget. Immutable.
///
/// How an executor replays a cyclic plan:
///
///     set up, once     Layout::chunks: hold held_bytes / chunk_bytes physical chunks ("slots"); map each chunk c of the image with
///                      slot_of_chunk(c) != none onto slot slot_of_chunk(c), at image base + c · chunk_bytes. Many chunks share a
///                      ring slot. A copy is then one contiguous copy: image bytes [image_begin, image_end) → base + image_begin.
///                      A storage lies at base + storage_offset(s) for ever; a chunk that two storages share is mapped once, and
///                      is brought once, for the first step that reads either of them.
///                      Layout::arena: one allocation of held_bytes; a copy goes to arena + copy.to, and the storages in it lie
///                      there, one after the other as in the image, until the next copy of the same storage.
///     pass p           for k in 0 … calls − 1, on the copy stream, in this order:
///                          w = call(k).wait
///                          if w.exists() and p + w.pass >= 0: wait for the end of step w.step of pass p + w.pass
///                          copy copies [copies_begin, copies_end) of the call, in one call
///                          record arrival (p, k)
///                      for i in 0 … steps − 1, on the compute stream:
///                          if step_calls(i) > 0: wait for arrival (p, step_calls(i) − 1); later calls do not matter
///                          run step i, record its end
///                      Driven by release: enqueue a call once the end that it waits for is recorded; calls wait in order.
///                      Every wait names an earlier step than every step that its call serves, so nothing can deadlock.
///     cold start       pass 0 also brings the residents: those with needed_by <= call(k).needed_by go before call k at the latest, without
///                      a wait, the rest after the last call; step i of pass 0 also waits for the residents with needed_by <= i. They are
///                      sorted by needed_by (none last: no step reads them). Waits with pass −1 are ignored in pass 0.
///     captured pass    graph = calls [cut, calls) of this pass, then calls [0, cut) of the next one, beside steps 0 … n − 1.
///                      Calls [cut, calls): a wait with pass −1 is already true when the graph starts (graphs run one after the
///                      other), a wait with pass 0 is an edge. Calls [0, cut) wait for pass −1 only, which is this graph: an edge.
///                      Step i waits for arrival step_calls(i) − 1 where that is >= cut; earlier ones came with the last graph.
///                      Before the first graph: the residents and calls [0, cut), eagerly, waits ignored.
///
/// A one-shot plan: the residents are there at the start (bring them first), then as pass 0; waits have pass 0 only. Where
/// is_static() is false a chunk changes its slot: each copy names its slots, and the executor maps them before the copy
/// (after the wait) or refuses.
class Plan {
public:
    Plan() = default;
    explicit Plan(PlanData data) : data_{std::move(data)} {}

    [[nodiscard]] const PlanData& data() const noexcept { return data_; }

    [[nodiscard]] Layout layout() const noexcept { return data_.layout; }
    [[nodiscard]] bool is_cyclic() const noexcept { return data_.cyclic; }
    [[nodiscard]] bool is_captured() const noexcept { return data_.captured; }
    /// Every chunk always comes to the same slot (every storage to the same place of the arena): fixed addresses, one mapping.
    [[nodiscard]] bool is_static() const noexcept { return data_.layout == Layout::arena || !data_.chunk_slot.empty(); }
    [[nodiscard]] std::uint64_t catalog_hash() const noexcept { return data_.catalog_hash; }
    [[nodiscard]] std::uint64_t budget_bytes() const noexcept { return data_.budget_bytes; }
    [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return data_.chunk_bytes; }
    [[nodiscard]] std::uint64_t image_bytes() const noexcept { return data_.image_bytes; }
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return data_.held_bytes; }
    [[nodiscard]] std::uint64_t bytes_per_pass() const noexcept { return data_.bytes_per_pass; }
    [[nodiscard]] std::uint64_t floor_bytes() const noexcept { return data_.floor_bytes; }
    [[nodiscard]] double predicted_seconds() const noexcept { return data_.predicted_seconds; }
    [[nodiscard]] double compute_seconds() const noexcept { return data_.compute_seconds; }
    [[nodiscard]] double bound_seconds() const noexcept { return data_.bound_seconds; }
    [[nodiscard]] double usual_bound_seconds() const noexcept { return data_.usual_bound_seconds; }
    [[nodiscard]] double latency_floor_seconds() const noexcept { return data_.latency_floor_seconds; }
    [[nodiscard]] std::uint32_t cut() const noexcept { return data_.cut; }

    [[nodiscard]] std::uint32_t steps() const noexcept { return data_.steps; }
    [[nodiscard]] std::uint32_t storages() const noexcept {
        return static_cast<std::uint32_t>(data_.storage_bytes.size());
    }
    [[nodiscard]] std::uint64_t storage_offset(std::uint32_t storage) const noexcept {
        return data_.storage_offsets[storage];
    }
    [[nodiscard]] std::uint64_t storage_bytes(std::uint32_t storage) const noexcept {
        return data_.storage_bytes[storage];
    }

    /// Layout::chunks: chunks of the image, and physical chunks held.
    [[nodiscard]] std::uint32_t chunks() const noexcept {
        return static_cast<std::uint32_t>((data_.image_bytes + data_.chunk_bytes - 1) / data_.chunk_bytes);
    }
    [[nodiscard]] std::uint32_t slots_held() const noexcept {
        return static_cast<std::uint32_t>(data_.held_bytes / data_.chunk_bytes);
    }
    /// The physical chunk of an image chunk, or none. Precondition: Layout::chunks and is_static().
    [[nodiscard]] std::uint32_t slot_of_chunk(std::uint32_t chunk) const noexcept { return data_.chunk_slot[chunk]; }
    /// The chunks of the image that a copy brings. Precondition: Layout::chunks.
    [[nodiscard]] Chunks chunks_of_copy(const Copy& copy) const noexcept {
        return chunks_of(copy.image_begin, copy.image_end, data_.chunk_bytes);
    }
    /// The chunks of the image that a storage lies on; none where it has no bytes. Precondition: Layout::chunks.
    [[nodiscard]] Chunks chunks_of_storage(std::uint32_t storage) const noexcept {
        const std::uint64_t begin = data_.storage_offsets[storage];
        return data_.storage_bytes[storage] == 0
                   ? Chunks{}
                   : chunks_of(begin, begin + data_.storage_bytes[storage], data_.chunk_bytes);
    }
    /// The slots of a copy's chunks, in the order of the image. Precondition: Layout::chunks.
    [[nodiscard]] std::span<const std::uint32_t> slots(const Copy& copy) const noexcept {
        const Chunks range = chunks_of_copy(copy);
        return {data_.slots.data() + copy.to, std::size_t{range.last - range.first}};
    }

    [[nodiscard]] std::span<const Copy> residents() const noexcept { return data_.residents; }
    [[nodiscard]] std::span<const Copy> copies() const noexcept { return data_.copies; }
    [[nodiscard]] std::span<const Call> calls() const noexcept { return data_.calls; }
    [[nodiscard]] std::span<const Copy> copies(const Call& call) const noexcept {
        return std::span<const Copy>{data_.copies}.subspan(call.copies_begin, call.copies_end - call.copies_begin);
    }
    /// Calls of the pass that must have arrived before the step starts.
    [[nodiscard]] std::uint32_t step_calls(std::uint32_t step) const noexcept { return data_.step_calls[step]; }

    friend bool operator==(const Plan&, const Plan&) = default;

private:
    PlanData data_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

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

/// Everything that a Plan says, as plain data: planners fill it, Plan makes it immutable. A slot is one physical chunk.
struct PlanData {
    bool cyclic = true;              ///< the pass repeats for ever
    bool captured = false;           ///< planned for a graph: calls cost the latency of copy nodes; `cut` counts
    std::uint64_t catalog_hash = 0;  ///< of the catalog that the plan was made for; 0: unknown
    std::uint64_t budget_bytes = 0;  ///< the budget asked for; the floor where 0 was asked for
    std::uint64_t chunk_bytes = 0;   ///< of a slot
    std::uint64_t image_bytes = 0;   ///< end of the last storage in the image
    std::uint64_t held_bytes = 0;    ///< device bytes, slots × chunk_bytes; at most budget_bytes
    std::uint32_t steps = 0;         ///< of a pass

    std::vector<std::uint64_t> storage_offsets;  ///< bytes from the begin of the image, one for each storage
    std::vector<std::uint64_t> storage_bytes;    ///< one for each storage

    /// Cyclic: what never leaves, and what the last steps of a pass and the first ones of the next read, which copies bring for the last
    /// steps: the first pass begins with it. One-shot: what is there before the pass. Sorted by needed_by; none: no step reads it.
    std::vector<Copy> residents;
    std::vector<Copy> copies;  ///< of one pass, in copy-stream order
    std::vector<Call> calls;   ///< of one pass, in copy-stream order; together they cover `copies` in order
    std::vector<std::uint32_t> chunk_slot;  ///< one for each chunk of the image; none: no copy brings the chunk
    std::vector<std::uint32_t>
        step_calls;         ///< for each step: how many calls of its pass must have arrived before it starts
    std::uint32_t cut = 0;  ///< captured: calls [0, cut) of the next pass are at the end of this pass's graph

    double predicted_seconds =
        0;  ///< cyclic: per pass, or per graph, in the steady state, with all copy nodes where the planner knew the sources; one-shot:
            ///< first start to last end
    double compute_seconds = 0;      ///< sum over the steps
    double bound_seconds = 0;        ///< the exact bound at latency 0
    double usual_bound_seconds = 0;  ///< the larger of compute_seconds and deficit / link rate
    double latency_floor_seconds =
        0;  ///< the least that a ring of whole chunks on one copy stream can reach, latency counted
    std::uint64_t floor_bytes = 0;     ///< the smallest budget that works
    std::uint64_t bytes_per_pass = 0;  ///< over the link, without residents

    friend bool operator==(const PlanData&, const PlanData&) = default;  ///< compares all members
};

/// The copies of a pass, computed before it runs, for one catalog, schedule and budget. Immutable: every chunk of the image has one
/// slot for ever, so that addresses never change and the image is mapped once.
///
/// How an executor replays a cyclic plan:
///
///     set up, once     Hold held_bytes / chunk_bytes physical chunks ("slots"). Map each chunk c of the image with
///                      slot_of_chunk(c) != none onto that slot, at image base + c · chunk_bytes. Many chunks share a ring slot.
///                      A copy is one contiguous copy: image bytes [image_begin, image_end) → base + image_begin. A storage lies
///                      at base + storage_offset(s) for ever. A chunk that two storages share is mapped once, and is copied once
///                      per pass, for the first step that reads either of them. A chunk may be copied for a step near the end of a
///                      pass and be read by the first steps of the next pass too: it is among the residents, for pass 0.
///     pass p           for k in 0 … calls − 1, on the copy stream, in this order:
///                          w = call(k).wait
///                          if w.exists() and p + w.pass >= 0: wait for the end of step w.step of pass p + w.pass
///                          copy copies [copies_begin, copies_end) of the call, in one call
///                          record arrival (p, k)
///                      for i in 0 … steps − 1, on the compute stream:
///                          if step_calls(i) > 0: wait for arrival (p, step_calls(i) − 1); later calls do not matter
///                          run step i, record its end
///                      Enqueue a call once the step end that it waits for is recorded; calls are enqueued in order.
///                      Every wait names an earlier step than every step that its call serves, so nothing can deadlock.
///     cold start       Pass 0 also copies the residents. Those with needed_by <= call(k).needed_by go before call k at the latest,
///                      without a wait, the rest after the last call. Step i of pass 0 also waits for the residents with
///                      needed_by <= i. Waits with pass −1 are ignored in pass 0.
///     captured pass    graph = calls [cut, calls) of this pass, then calls [0, cut) of the next one, beside steps 0 … n − 1.
///                      Calls [cut, calls): a wait with pass −1 is already true when the graph starts (graphs run one after the
///                      other), a wait with pass 0 is an edge. Calls [0, cut) wait for pass −1 only, which is this graph: an edge.
///                      Step i waits for arrival step_calls(i) − 1 where that is >= cut; earlier ones came with the last graph.
///                      Before the first graph: the residents and calls [0, cut), eagerly, waits ignored.
///
/// A one-shot plan: copy the residents, then run pass 0. Its waits have pass 0 only.
class Plan {
public:
    Plan() = default;
    /// Holds what a planner made.
    explicit Plan(PlanData data) : data_{std::move(data)} {}

    /// All of it.
    [[nodiscard]] const PlanData& data() const noexcept { return data_; }

    /// The member of PlanData of that name.
    /// @{
    [[nodiscard]] bool is_cyclic() const noexcept { return data_.cyclic; }
    [[nodiscard]] bool is_captured() const noexcept { return data_.captured; }
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
    /// @}

    /// The same: numbers, and what belongs to one storage.
    /// @{
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
    /// @}

    /// Chunks of the image.
    [[nodiscard]] std::uint32_t chunks() const noexcept {
        return static_cast<std::uint32_t>((data_.image_bytes + data_.chunk_bytes - 1) / data_.chunk_bytes);
    }
    /// Physical chunks held.
    [[nodiscard]] std::uint32_t slots_held() const noexcept {
        return static_cast<std::uint32_t>(data_.held_bytes / data_.chunk_bytes);
    }
    /// The slot of a chunk of the image, or none.
    [[nodiscard]] std::uint32_t slot_of_chunk(std::uint32_t chunk) const noexcept { return data_.chunk_slot[chunk]; }
    /// The chunks of the image that a copy brings.
    [[nodiscard]] Chunks chunks_of_copy(const Copy& copy) const noexcept {
        return chunks_of(copy.image_begin, copy.image_end, data_.chunk_bytes);
    }
    /// The chunks of the image on which a storage lies; none where it has no bytes.
    [[nodiscard]] Chunks chunks_of_storage(std::uint32_t storage) const noexcept {
        const std::uint64_t begin = data_.storage_offsets[storage];
        return data_.storage_bytes[storage] == 0
                   ? Chunks{}
                   : chunks_of(begin, begin + data_.storage_bytes[storage], data_.chunk_bytes);
    }

    /// The same.
    /// @{
    [[nodiscard]] std::span<const Copy> residents() const noexcept { return data_.residents; }
    [[nodiscard]] std::span<const Copy> copies() const noexcept { return data_.copies; }
    [[nodiscard]] std::span<const Call> calls() const noexcept { return data_.calls; }
    /// @}
    /// The copies of one call.
    [[nodiscard]] std::span<const Copy> copies(const Call& call) const noexcept {
        return std::span<const Copy>{data_.copies}.subspan(call.copies_begin, call.copies_end - call.copies_begin);
    }
    /// How many calls of the pass must have arrived before the step starts.
    [[nodiscard]] std::uint32_t step_calls(std::uint32_t step) const noexcept { return data_.step_calls[step]; }

    friend bool operator==(const Plan&, const Plan&) = default;  ///< compares all members

private:
    PlanData data_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

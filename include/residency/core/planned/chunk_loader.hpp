// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/planned/chunk_store.hpp"
#include "residency/core/planned/chunk_table.hpp"
#include "residency/core/planned/unrecorded_uses.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/plan/plan.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Copies chunks to the slots that they lie on: every copy that it enqueues is counted, is noted in the ChunkStore, and leaves its
/// arrival with the storages that it brings. Decides nothing.
template <VirtualMemoryDevice D>
class ChunkLoader {
public:
    /// Keeps the references.
    ChunkLoader(const DeciderContext<D>& context, ChunkStore<D>& store, UnrecordedUses<D>& uses) noexcept
        : context_{&context}, store_{&store}, uses_{&uses} {}

    /// A plan came into force: keeps what follows from allocating.
    void reserve() { pieces_.reserve(store_->table().chunks()); }
    /// Copies all that a call of the plan brings. The caller has made the copy stream wait for what is overwritten.
    [[nodiscard]] Status load_call(std::uint32_t k);
    /// Copies those chunks of `copies` that are absent or away from home; puts the latter back home first, which blocks. The copies follow
    /// all recorded uses. False: nothing was done, because one of these chunks, or one whose place it takes, is leased.
    [[nodiscard]] Result<bool> load_around_leases(std::span<const plan::Copy> copies) {
        return load_around_leases(copies, [](std::uint32_t) { return true; });
    }
    /// As above, for those chunks alone for which `is_wanted(chunk)` holds.
    template <std::predicate<std::uint32_t> IsWanted>
    [[nodiscard]] Result<bool> load_around_leases(std::span<const plan::Copy> copies, const IsWanted& is_wanted);
    /// Copies those chunks of `copies` that are absent, in one call. The caller has made the copy stream wait for what is overwritten.
    [[nodiscard]] Status load_absent(std::span<const plan::Copy> copies) {
        return load_absent(copies, false, [](std::uint32_t) { return true; });
    }
    /// Copies these chunks, ascending. The caller has made the copy stream wait for what is overwritten.
    [[nodiscard]] Status load(std::span<const std::uint32_t> chunks);

private:
    /// Copies those chunks of `copies` that are absent and wanted. `overwrites`: the copy stream first waits for all recorded uses.
    template <class IsWanted>
    [[nodiscard]] Status load_absent(std::span<const plan::Copy> copies, bool overwrites, const IsWanted& is_wanted);
    [[nodiscard]] Status send(std::span<const transport::Fetch> pieces);
    /// Appends the parts of storages on chunks [first, last), up to the ends of the image and of a copy.
    void append_chunks(std::uint32_t first, std::uint32_t last, std::uint64_t copy_begin, std::uint64_t copy_end) {
        const std::uint64_t chunk_bytes = store_->plan().chunk_bytes();
        store_->contents().append_pieces(store_->plan(), (std::max)(copy_begin, first * chunk_bytes),
                                         (std::min)(copy_end, last * chunk_bytes), pieces_);
    }

    const DeciderContext<D>* context_;
    ChunkStore<D>* store_;
    UnrecordedUses<D>* uses_;
    std::vector<transport::Fetch> pieces_;  // of one request
};

template <VirtualMemoryDevice D>
Status ChunkLoader<D>::load_call(std::uint32_t k) {
    const plan::Plan& plan = store_->plan();
    Status sent = send(store_->contents().call(k));
    for_each_chunk(plan, plan.copies(plan.calls()[k]),
                   [&](std::uint32_t chunk) { store_->note_copy(chunk, sent.has_value()); });
    return sent;
}

template <VirtualMemoryDevice D>
template <std::predicate<std::uint32_t> IsWanted>
Result<bool> ChunkLoader<D>::load_around_leases(std::span<const plan::Copy> copies, const IsWanted& is_wanted) {
    const ChunkTable& table = store_->table();
    const auto is_in_use = [&](std::uint32_t chunk) { return store_->is_leased(chunk) || store_->is_misplaced(chunk); };
    bool overwrites = false;
    const bool is_blocked = any_chunk(store_->plan(), copies, [&](std::uint32_t chunk) {
        if (!is_wanted(chunk) || (table.is_there(chunk) && store_->is_at_home(chunk))) { return false; }
        const std::uint32_t occupant = table.occupant(store_->plan().slot_of_chunk(chunk));
        overwrites = overwrites || !table.stays(chunk) || uses_->records_residents();
        return is_in_use(chunk) || (occupant != plan::none && is_in_use(occupant));
    });
    if (is_blocked) { return false; }
    Status restored;
    for_each_chunk(store_->plan(), copies, [&](std::uint32_t chunk) {
        if (restored && is_wanted(chunk) && !store_->is_at_home(chunk)) {
            restored = store_->remap_chunk(chunk, store_->plan().slot_of_chunk(chunk));
        }
    });
    if (!restored) { return restored.error(); }
    if (auto loaded = load_absent(copies, overwrites, is_wanted); !loaded) { return loaded.error(); }
    return true;
}

template <VirtualMemoryDevice D>
template <class IsWanted>
Status ChunkLoader<D>::load_absent(std::span<const plan::Copy> copies, bool overwrites, const IsWanted& is_wanted) {
    const plan::Plan& plan = store_->plan();
    const ChunkTable& table = store_->table();
    pieces_.clear();
    for (const plan::Copy& copy : copies) {
        const plan::Chunks range = plan.chunks_of_copy(copy);
        for (std::uint32_t first = range.first; first < range.last;) {
            std::uint32_t last = first;
            while (last < range.last && !table.is_there(last) && is_wanted(last)) { ++last; }
            if (last > first) { append_chunks(first, last, copy.image_begin, copy.image_end); }
            first = last + 1;
        }
    }
    if (pieces_.empty()) { return {}; }
    if (overwrites) {
        if (auto waits = context_->copy_scheduler->copy_stream_wait_for_all_uses(); !waits) { return waits; }
    }
    Status sent = send(pieces_);
    for_each_chunk(plan, copies, [&](std::uint32_t chunk) {
        if (!table.is_there(chunk) && is_wanted(chunk)) { store_->note_copy(chunk, sent.has_value()); }
    });
    return sent;
}

template <VirtualMemoryDevice D>
Status ChunkLoader<D>::load(std::span<const std::uint32_t> chunks) {
    pieces_.clear();
    for (std::size_t i = 0; i < chunks.size();) {
        std::size_t end = i + 1;
        while (end < chunks.size() && chunks[end] == chunks[end - 1] + 1) { ++end; }
        append_chunks(chunks[i], chunks[end - 1] + 1, 0, store_->plan().image_bytes());
        i = end;
    }
    Status sent = send(pieces_);
    for (const std::uint32_t chunk : chunks) { store_->note_copy(chunk, sent.has_value()); }
    return sent;
}

template <VirtualMemoryDevice D>
Status ChunkLoader<D>::send(std::span<const transport::Fetch> pieces) {
    if (pieces.empty()) { return {}; }
    auto arrival = context_->copy_scheduler->transfer(pieces);
    if (!arrival) { return arrival.error(); }
    for (const transport::Fetch& piece : pieces) {
        StorageState& state = context_->states[index(piece.storage)];
        state.arrival = *arrival;
        state.prefetched = true;
        context_->counters->fetched_bytes += piece.bytes;
    }
    ++context_->counters->calls;
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core

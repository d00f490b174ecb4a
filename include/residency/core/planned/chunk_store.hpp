// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/planned/chunk_table.hpp"
#include "residency/core/planned/unrecorded_uses.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The image of the plan in force, mapped: table() says for each chunk on which slot it lies and for each slot whose bytes it holds, and
/// the pool's mapping agrees with it, except while is_unmapped(). Nothing else maps device memory or copies chunks to it: every copy that
/// is enqueued is counted and noted in table(), and leaves its arrival with the storages that it brings.
///
/// A chunk lies on the slot that the plan gives it, its *home*, which is none where no step reads it, or it is one of
///  - misplaced chunks: leased when the plan came into force, and their home could not be had. They go home when their leases
///    have ended and their uses are complete.
///  - remapped chunks: put on another slot by remap_chunk(), since their home is none, or was needed for something else at the same
///    time.
template <VirtualMemoryDevice D>
class ChunkStore {
public:
    static constexpr std::uint32_t none = plan::none;

    /// Keeps the references.
    ChunkStore(typename pool::Virtual<D>::Config config, const DeciderContext<D>& context, UnrecordedUses<D>& uses)
        : pool_{std::move(config)}, context_{&context}, uses_{&uses} {}

    [[nodiscard]] std::uint64_t chunk_bytes(const D& device) const { return pool_.chunk_bytes(device); }
    [[nodiscard]] pool::ChunkStock<D>* stock() const noexcept { return pool_.stock(); }

    /// A plan comes into force: maps its image. Chunks of the same image that are leased, or that must not leave, keep their bytes and
    /// addresses; of the others, what place_chunks() keeps. The rest is evicted. The streams are drained, except for reads of leased
    /// chunks. Blocks. On failure the old plan is in force, and is_unmapped() or closed.
    [[nodiscard]] Status adopt(plan::Plan plan);
    /// The device has memory of the plan in force, or had it until a call failed: the next plan follows it. Not while it is suspended.
    [[nodiscard]] bool is_held() const noexcept { return is_open_ && !is_asleep_; }
    /// The address range is that of the plan in force. False after an adopt() that failed with another image: wake() needs it.
    [[nodiscard]] bool has_image() const noexcept { return is_open_ && !has_other_image_; }
    /// Parts of the image may be unmapped since a call failed: the plan in force has to be adopted again.
    [[nodiscard]] bool is_unmapped() const noexcept { return is_unmapped_; }
    /// Counts the changes of the mapping.
    [[nodiscard]] std::uint64_t mapping_generation() const noexcept { return mapping_generation_; }
    /// Counts the changes of addresses: while it is the same, every storage has the same address. suspend() takes them away.
    [[nodiscard]] std::uint64_t address_generation() const noexcept { return address_generation_; }
    /// Device bytes, as the driver counts them.
    [[nodiscard]] std::uint64_t held_bytes() const { return is_open_ ? pool_.held_bytes() : 0; }
    [[nodiscard]] std::uint64_t peak_held_bytes() const noexcept { return peak_held_; }
    /// Gives all device memory back until wake() or adopt(). The plan stays in force, is_unmapped(). Addresses are null meanwhile. Blocks. On
    /// failure some of the memory is given back, and it may be called again. The streams are drained.
    [[nodiscard]] Status suspend();
    /// Takes the memory of the plan in force again: addresses and mapping are as they were. Blocks. On failure it is suspended.
    /// Precondition: has_image().
    [[nodiscard]] Status wake();
    /// While it is suspended: takes the memory of these chunks that can be had, and copies their bytes, up to `most_bytes`. Returns the bytes
    /// whose copies were enqueued.
    [[nodiscard]] Result<std::uint64_t> bring_asleep(std::span<const plan::Copy> copies, std::uint64_t most_bytes);
    /// Precondition: the streams are drained.
    void close() noexcept {
        if (is_open_) { pool_.close(); }
        is_open_ = false;
    }
    void abandon() noexcept {
        if (is_open_) { pool_.abandon(); }
        is_open_ = false;
    }

    /// The plan in force.
    [[nodiscard]] const plan::Plan& plan() const noexcept { return plan_; }
    [[nodiscard]] const ChunkTable& table() const noexcept { return table_; }
    [[nodiscard]] const ChunkContents& contents() const noexcept { return contents_; }
    /// By chunk: what memory holds, for the planner of the next plan.
    [[nodiscard]] std::vector<plan::Presence> presence() const;

    [[nodiscard]] bool is_leased(std::uint32_t chunk) const noexcept {
        for (const std::uint32_t s : contents_.storages(chunk)) {
            if (context_->states[s].leases > 0) { return true; }
        }
        return false;
    }
    /// Whether the catalog allows a chunk to leave, whatever the plan says: what is pinned or written to must stay.
    [[nodiscard]] bool may_leave(std::uint32_t chunk) const noexcept {
        for (const std::uint32_t s : contents_.storages(chunk)) {
            if (context_->states[s].placement != Placement::streamed) { return false; }
        }
        return true;
    }
    [[nodiscard]] bool is_at_home(std::uint32_t chunk) const noexcept {
        return table_.slot(chunk) == plan_.slot_of_chunk(chunk);
    }
    [[nodiscard]] bool has_misplaced() const noexcept { return !misplaced_.empty(); }
    [[nodiscard]] bool is_misplaced(std::uint32_t chunk) const noexcept {
        for (const std::uint32_t misplaced : misplaced_) {
            if (misplaced == chunk) { return true; }
        }
        return false;
    }
    [[nodiscard]] bool has_remapped() const noexcept { return !remapped_.empty(); }

    /// Goes back to occupants of slots that table() gave. Precondition: nothing was mapped since.
    void set_occupants(const std::vector<std::uint32_t>& occupants) { table_.set_occupants(occupants); }

    /// Holds one slot more than before, on which no chunk lies, and returns its number. Blocks. It is given back once it is empty again.
    [[nodiscard]] Result<std::uint32_t> add_slot() {
        if (auto added = pool_.add_slot(); !added) { return added.error(); }
        peak_held_ = (std::max)(peak_held_, pool_.held_bytes());
        return table_.add();
    }
    /// Puts a chunk on another slot; its bytes are lost. Blocks until all recorded uses are complete.
    [[nodiscard]] Status remap_chunk(std::uint32_t chunk, std::uint32_t slot);
    /// Puts all remapped chunks back home; their bytes are lost. Blocks if there are any.
    [[nodiscard]] Status restore_remapped();
    /// Sends misplaced chunks home whose leases have ended and whose uses are known to be complete, then gives extra slots back. Does
    /// not wait for work on the device.
    [[nodiscard]] Status send_home();
    /// Blocks until recorded uses are complete, then send_home(), if that can free a misplaced chunk.
    [[nodiscard]] Status send_unleased_home();
    /// Calls send_unleased_home() if one of these storages lies on a misplaced chunk: if it were leased again where it is, the chunk might
    /// never go home, since passes overlap.
    [[nodiscard]] Status send_home_before_use(std::span<const StorageId> storages);

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
    void count_eviction(std::uint32_t chunk) noexcept {
        ++context_->counters->evictions;
        context_->counters->evicted_bytes += plan_.chunk_bytes();
        if (context_->events != nullptr) { tell_eviction(chunk); }
    }
    /// Tells the handler of events that each storage with bytes in the chunk was evicted.
    void tell_eviction(std::uint32_t chunk) noexcept {
        const std::uint64_t begin = chunk * plan_.chunk_bytes(), end = begin + plan_.chunk_bytes();
        for (const std::uint32_t s : contents_.storages(chunk)) {
            const std::uint64_t first = (std::max)(begin, plan_.storage_offset(s));
            const std::uint64_t last = (std::min)(end, plan_.storage_offset(s) + plan_.storage_bytes(s));
            context_->events->evicted(StorageId{s}, last - first);
        }
    }
    [[nodiscard]] bool is_same_image(const plan::Plan& plan) const noexcept {
        return has_image() && plan.data().storage_offsets == plan_.data().storage_offsets &&
               plan.data().storage_bytes == plan_.data().storage_bytes && plan.image_bytes() == plan_.image_bytes();
    }
    /// The image is mapped as `placement` says.
    void put_in_place(ChunkPlacement placement);
    /// Counts all chunks but these as evicted.
    void evict_all_but(std::span<const std::uint32_t> kept);
    /// Whether every recorded use of a chunk is known to be complete.
    [[nodiscard]] bool is_unused(std::uint32_t chunk) const noexcept {
        for (const std::uint32_t s : contents_.storages(chunk)) {
            if (!context_->copy_scheduler->is_unused(StorageId{s})) { return false; }
        }
        return true;
    }
    /// Precondition: nothing uses the chunk.
    [[nodiscard]] Status remap_unused(std::uint32_t chunk, std::uint32_t slot);
    /// Gives slots beyond the plan back on which no chunk lies.
    [[nodiscard]] Status give_back_slots();
    /// The copy of a chunk to its slot was enqueued, or failed. Counts the eviction of what was there.
    void note_copy(std::uint32_t chunk, bool is_sent) noexcept {
        if (const std::uint32_t evicted = table_.bring(chunk, is_sent); evicted != none) { count_eviction(evicted); }
    }
    /// Copies those chunks of `copies` that are absent and wanted. `overwrites`: the copy stream first waits for all recorded uses.
    template <class IsWanted>
    [[nodiscard]] Status load_absent(std::span<const plan::Copy> copies, bool overwrites, const IsWanted& is_wanted);
    [[nodiscard]] Status send(std::span<const transport::Fetch> pieces);
    /// Appends the parts of storages on chunks [first, last), up to the ends of the image and of a copy.
    void append_chunks(std::uint32_t first, std::uint32_t last, std::uint64_t copy_begin, std::uint64_t copy_end) {
        const std::uint64_t chunk_bytes = plan_.chunk_bytes();
        contents_.append_pieces(plan_, (std::max)(copy_begin, first * chunk_bytes),
                                (std::min)(copy_end, last * chunk_bytes), pieces_);
    }

    pool::Virtual<D> pool_;
    const DeciderContext<D>* context_;
    UnrecordedUses<D>* uses_;
    plan::Plan plan_;
    ChunkTable table_;
    ChunkContents contents_;
    std::vector<std::uint32_t> remapped_;   // chunks
    std::vector<std::uint32_t> misplaced_;  // chunks
    bool is_open_ = false;
    bool is_unmapped_ = false;
    bool is_asleep_ = false;               // from suspend() on
    bool wakes_as_it_was_ = false;         // the mapping was as planned as it fell asleep
    std::size_t asleep_next_ = 0;          // of the copies that bring_asleep() brings
    std::uint64_t asleep_given_back_ = 0;  // as of the last look at all of them
    bool has_other_image_ = false;  // a failed call left the pool with another image than that of the plan in force
    std::uint64_t mapping_generation_ = 0;
    std::uint64_t address_generation_ = 0;
    std::uint64_t peak_held_ = 0;           // device bytes
    std::vector<transport::Fetch> pieces_;  // of one request
};

template <VirtualMemoryDevice D>
Status ChunkStore<D>::adopt(plan::Plan plan) {
    const bool keeps_image = is_same_image(plan);
    std::vector<std::uint32_t> pinned;
    for (std::uint32_t chunk = 0; keeps_image && chunk < table_.chunks(); ++chunk) {
        if (is_leased(chunk) || (table_.is_there(chunk) && !may_leave(chunk))) { pinned.push_back(chunk); }
    }
    ChunkPlacement placement = place_chunks(plan, pinned, keeps_image ? table_.all_there() : std::vector<bool>{});
    evict_all_but(placement.kept);
    is_unmapped_ = true;
    ++mapping_generation_;
    if (!keeps_image) {
        ++address_generation_;
        if (is_open_) {
            if (auto closed = pool_.try_close(); !closed) { return closed; }
            is_open_ = false;
        }
        if (auto opened = pool_.open(*context_->device, plan.image_bytes()); !opened) { return opened; }
        is_open_ = has_other_image_ = true;
    }
    if (auto arranged = pool_.arrange(placement.slots, placement.table, placement.kept); !arranged) {
        // The addresses are not those of the plan in force. What the device does not take back now is held until the next call.
        if (!keeps_image && pool_.try_close()) { is_open_ = false; }
        return arranged;
    }
    has_other_image_ = false;
    plan_ = std::move(plan);
    contents_ = ChunkContents{plan_, pool_.base()};
    put_in_place(std::move(placement));
    return {};
}

template <VirtualMemoryDevice D>
void ChunkStore<D>::put_in_place(ChunkPlacement placement) {
    is_unmapped_ = is_asleep_ = false;
    peak_held_ = (std::max)(peak_held_, pool_.held_bytes());
    remapped_.clear();
    misplaced_ = std::move(placement.misplaced);
    table_ = ChunkTable{plan_, std::move(placement)};
    pieces_.reserve(table_.chunks());
    for (std::uint32_t s = 0; s < context_->states.size(); ++s) {
        if (plan_.storage_bytes(s) > 0) { context_->states[s].address = pool_.base() + plan_.storage_offset(s); }
    }
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::suspend() {
    if (!is_open_) { return {}; }
    evict_all_but({});
    const bool is_as_planned = !is_unmapped_ && !has_remapped() && !has_misplaced();
    is_unmapped_ = true;
    for (std::uint32_t s = 0; s < context_->states.size(); ++s) {
        if (plan_.storage_bytes(s) > 0) { context_->states[s].address = nullptr; }
    }
    asleep_next_ = 0;
    if (!std::exchange(is_asleep_, true)) {
        ++address_generation_;
        // What lies elsewhere than planned does not come back there.
        wakes_as_it_was_ = is_as_planned;
        mapping_generation_ += is_as_planned ? 0U : 1U;
    }
    return pool_.sleep();
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::wake() {
    ChunkPlacement placement = place_chunks(plan_, {}, table_.all_there());
    if (auto arranged = pool_.arrange(placement.slots, placement.table, placement.kept); !arranged) { return arranged; }
    put_in_place(std::move(placement));
    return {};
}

template <VirtualMemoryDevice D>
Result<std::uint64_t> ChunkStore<D>::bring_asleep(std::span<const plan::Copy> copies, std::uint64_t most_bytes) {
    if (!wakes_as_it_was_ || !has_image()) { return std::uint64_t{0}; }
    if (const std::uint64_t now = pool_.given_back(); now != asleep_given_back_) {
        asleep_given_back_ = now;
        asleep_next_ = 0;  // what could not be had before may be free
    }
    std::vector<std::uint32_t> chunks;
    const std::uint64_t before = context_->counters->fetched_bytes, most = most_bytes / plan_.chunk_bytes();
    for (bool is_enough = most == 0; asleep_next_ < copies.size() && !is_enough; asleep_next_ += is_enough ? 0U : 1U) {
        for (const std::uint32_t chunk : plan_.chunks_of_copy(copies[asleep_next_])) {
            if (table_.is_there(chunk) || !is_at_home(chunk)) { continue; }
            is_enough = chunks.size() == most;  // the rest of this copy comes with the next call
            if (is_enough) { break; }
            if (pool_.wake_chunk(chunk)) { chunks.push_back(chunk); }
        }
    }
    residency::detail::sort(chunks);
    chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
    if (auto sent = load(chunks); !sent) { return sent.error(); }
    return context_->counters->fetched_bytes - before;
}

template <VirtualMemoryDevice D>
void ChunkStore<D>::evict_all_but(std::span<const std::uint32_t> kept) {
    if (!is_open_) { return; }
    std::vector<bool> is_kept(table_.chunks(), false);
    for (const std::uint32_t chunk : kept) { is_kept[chunk] = true; }
    for (std::uint32_t chunk = 0; chunk < table_.chunks(); ++chunk) {
        if (is_kept[chunk] || !table_.is_there(chunk)) { continue; }
        table_.lose(chunk);
        count_eviction(chunk);
    }
}

template <VirtualMemoryDevice D>
std::vector<plan::Presence> ChunkStore<D>::presence() const {
    std::vector<plan::Presence> present;
    present.reserve(table_.chunks());
    for (std::uint32_t chunk = 0; chunk < table_.chunks(); ++chunk) {
        present.push_back(!table_.is_there(chunk) ? plan::Presence::absent
                          : table_.stays(chunk)   ? plan::Presence::resident
                                                  : plan::Presence::streamed);
    }
    return present;
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::remap_chunk(std::uint32_t chunk, std::uint32_t slot) {
    const bool leaves_home = is_at_home(chunk);
    if (auto drained = context_->copy_scheduler->drain(); !drained) { return drained; }
    if (auto moved = remap_unused(chunk, slot); !moved) { return moved; }
    if (leaves_home) { remapped_.push_back(chunk); }
    if (is_at_home(chunk)) { std::erase(remapped_, chunk); }
    return {};
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::restore_remapped() {
    while (!remapped_.empty()) {
        const std::uint32_t chunk = remapped_.back();
        if (auto moved = remap_chunk(chunk, plan_.slot_of_chunk(chunk)); !moved) { return moved; }
    }
    return give_back_slots();
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::send_home() {
    for (std::size_t i = misplaced_.size(); i-- > 0;) {
        const std::uint32_t chunk = misplaced_[i];
        if (is_leased(chunk) || !is_unused(chunk)) { continue; }
        if (!is_at_home(chunk)) {
            if (auto moved = remap_unused(chunk, plan_.slot_of_chunk(chunk)); !moved) { return moved; }
        }
        misplaced_.erase(misplaced_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return give_back_slots();
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::give_back_slots() {
    for (std::uint32_t slot = table_.slots(); slot-- > plan_.slots_held();) {
        if (!table_.is_empty(slot)) { continue; }
        if (auto given = pool_.give_back(slot); !given) { return given; }
        table_.remove(slot);
    }
    return {};
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::send_unleased_home() {
    for (const std::uint32_t chunk : misplaced_) {
        if (is_leased(chunk)) { continue; }
        if (auto drained = context_->copy_scheduler->drain(); !drained) { return drained; }
        return send_home();
    }
    return {};
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::send_home_before_use(std::span<const StorageId> storages) {
    for (const std::uint32_t chunk : misplaced_) {
        if (is_leased(chunk)) { continue; }
        for (const StorageId id : storages) {
            if (contents_.chunks(id).contains(chunk)) { return send_unleased_home(); }
        }
    }
    return {};
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::remap_unused(std::uint32_t chunk, std::uint32_t slot) {
    table_.lose(chunk);
    // Graphs read no chunk that has no slot in the plan: they stay valid.
    if (plan_.slot_of_chunk(chunk) != none) { ++mapping_generation_; }
    if (auto moved = pool_.remap(chunk, slot); !moved) {
        is_unmapped_ = pool_.slot_of(chunk) != table_.slot(chunk);
        return moved;
    }
    table_.set_slot(chunk, slot);
    return {};
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::load_call(std::uint32_t k) {
    Status sent = send(contents_.call(k));
    for_each_chunk(plan_, plan_.copies(plan_.calls()[k]),
                   [&](std::uint32_t chunk) { note_copy(chunk, sent.has_value()); });
    return sent;
}

template <VirtualMemoryDevice D>
template <std::predicate<std::uint32_t> IsWanted>
Result<bool> ChunkStore<D>::load_around_leases(std::span<const plan::Copy> copies, const IsWanted& is_wanted) {
    const auto is_in_use = [&](std::uint32_t chunk) { return is_leased(chunk) || is_misplaced(chunk); };
    bool overwrites = false;
    const bool is_blocked = any_chunk(plan_, copies, [&](std::uint32_t chunk) {
        if (!is_wanted(chunk) || (table_.is_there(chunk) && is_at_home(chunk))) { return false; }
        const std::uint32_t occupant = table_.occupant(plan_.slot_of_chunk(chunk));
        overwrites = overwrites || !table_.stays(chunk) || uses_->records_residents();
        return is_in_use(chunk) || (occupant != plan::none && is_in_use(occupant));
    });
    if (is_blocked) { return false; }
    Status restored;
    for_each_chunk(plan_, copies, [&](std::uint32_t chunk) {
        if (restored && is_wanted(chunk) && !is_at_home(chunk)) {
            restored = remap_chunk(chunk, plan_.slot_of_chunk(chunk));
        }
    });
    if (!restored) { return restored.error(); }
    if (auto loaded = load_absent(copies, overwrites, is_wanted); !loaded) { return loaded.error(); }
    return true;
}

template <VirtualMemoryDevice D>
template <class IsWanted>
Status ChunkStore<D>::load_absent(std::span<const plan::Copy> copies, bool overwrites, const IsWanted& is_wanted) {
    pieces_.clear();
    for (const plan::Copy& copy : copies) {
        const plan::Chunks range = plan_.chunks_of_copy(copy);
        for (std::uint32_t first = range.first; first < range.last;) {
            std::uint32_t last = first;
            while (last < range.last && !table_.is_there(last) && is_wanted(last)) { ++last; }
            if (last > first) { append_chunks(first, last, copy.image_begin, copy.image_end); }
            first = last + 1;
        }
    }
    if (pieces_.empty()) { return {}; }
    if (overwrites) {
        if (auto waits = context_->copy_scheduler->copy_stream_wait_for_all_uses(); !waits) { return waits; }
    }
    Status sent = send(pieces_);
    for_each_chunk(plan_, copies, [&](std::uint32_t chunk) {
        if (!table_.is_there(chunk) && is_wanted(chunk)) { note_copy(chunk, sent.has_value()); }
    });
    return sent;
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::load(std::span<const std::uint32_t> chunks) {
    pieces_.clear();
    for (std::size_t i = 0; i < chunks.size();) {
        std::size_t end = i + 1;
        while (end < chunks.size() && chunks[end] == chunks[end - 1] + 1) { ++end; }
        append_chunks(chunks[i], chunks[end - 1] + 1, 0, plan_.image_bytes());
        i = end;
    }
    Status sent = send(pieces_);
    for (const std::uint32_t chunk : chunks) { note_copy(chunk, sent.has_value()); }
    return sent;
}

template <VirtualMemoryDevice D>
Status ChunkStore<D>::send(std::span<const transport::Fetch> pieces) {
    if (auto sent = context_->copy_scheduler->transfer(pieces); !sent) { return sent.error(); }
    for (const transport::Fetch& piece : pieces) { context_->states[index(piece.storage)].prefetched = true; }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/task.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/core/planned/unrecorded_uses.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/packer.hpp"
#include "residency/packed/unpack_layout.hpp"
#include "residency/packed/unpack_streams.hpp"
#include "residency/pool/chunk_stock.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/pool/virtual.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// The device memory of unpacked weights, by a layout. While it is held, what stays has its raw bytes from its arrival on, by StorageState;
/// every other place holds the raw bytes of at most one storage, which are complete once the stream that unpacked them has come so far, and
/// which no other storage replaces while a lease covers it.
///
/// What stays is unpacked in the order of the steps that read it, by streams of its own: the copy stream waits for them, storage by storage.
template <VirtualMemoryDevice D>
class UnpackMemory {
public:
    UnpackMemory(core::DeciderContext<D>& context, const std::vector<Form>& forms) : context_{context}, forms_{forms} {}
    UnpackMemory(const UnpackMemory&) = delete;
    UnpackMemory& operator=(const UnpackMemory&) = delete;

    void set_unpacker(const Unpacker<D>* unpacker) noexcept { unpacker_ = unpacker; }
    /// Where the memory comes from; null: from the device.
    void set_stock(pool::ChunkStock<D>* stock) noexcept { stock_ = stock; }
    /// Another layout, for which take() takes memory. Precondition: the streams are drained.
    void set_layout(UnpackLayout layout) {
        layout_ = std::move(layout);
        is_filled_ = unpacks_ = false;
        filled_.assign(layout_.offset.size(), {});
        asleep_next_ = 0;
        offset_ = layout_.offset;
        by_.assign(layout_.offset.size(), nobody);
        unpacked_.clear();
        for (std::size_t s = 0; s < layout_.offset.size(); ++s) { unpacks_ = unpacks_ || is_shared(s); }
        ++generation_;
    }
    [[nodiscard]] const UnpackLayout& layout() const noexcept { return layout_; }
    [[nodiscard]] std::uint64_t held_bytes() const noexcept {
        return range_ ? range_->held_bytes() : memory_ != nullptr ? memory_bytes_ : 0;
    }
    /// Whether leases unpack anything.
    [[nodiscard]] bool unpacks() const noexcept { return unpacks_; }
    /// The layout has bytes, and no memory is held, or what stays is neither unpacked nor on its way.
    [[nodiscard]] bool is_missing() const noexcept { return layout_.bytes > 0 && !is_filled_; }
    /// Takes the memory, and enqueues what unpacks the rest of what stays. Does nothing where that is done. Blocks while the memory is
    /// taken; where leases unpack, or after a failure, until all is unpacked. Precondition: the streams are drained where another layout was
    /// set.
    [[nodiscard]] Status take();
    /// Gives the memory back. On failure it is held still, or of a stock: is_missing(). Precondition: the streams are drained.
    [[nodiscard]] Status give_back();
    /// The same, until take(). Places in memory of a stock stay where they are.
    [[nodiscard]] Status sleep();
    /// From sleep() to take(), where no lease unpacks: takes memory of the stock that it had and that nobody else has now, and enqueues what
    /// unpacks there, up to `most_bytes` raw bytes. Returns the bytes of the copies. Blocks only after a failure.
    [[nodiscard]] Result<std::uint64_t> bring_asleep(std::uint64_t most_bytes);
    /// Writes the tasks for where the packed bytes lie now, unless they are known for this generation of addresses. Blocks. Precondition:
    /// nothing that was enqueued reads the tasks; no stream is captured.
    [[nodiscard]] Status write_table(std::uint64_t generation);
    [[nodiscard]] std::uint64_t table_generation() const noexcept { return has_table() ? table_generation_ : current_; }
    /// Counts the changes of places.
    [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
    /// Whether leases unpack one of these storages.
    [[nodiscard]] bool is_unpacked_by_leases(std::span<const StorageId> storages) const noexcept {
        for (const StorageId id : storages) {
            if (is_shared(index(id))) { return true; }
        }
        return false;
    }
    /// Whether one of these storages lies where others overlap it.
    [[nodiscard]] bool has_overlapping_place(std::span<const StorageId> storages) const noexcept {
        for (const StorageId id : storages) {
            if (is_shared(index(id)) && offset_[index(id)] >= layout_.shared_at) { return true; }
        }
        return false;
    }
    /// Two of these storages that would be unpacked to the same place; none: {no_storage, no_storage}.
    [[nodiscard]] std::pair<StorageId, StorageId> find_clash(std::span<const StorageId> storages);
    /// What these storages take unpacked.
    [[nodiscard]] std::uint64_t unpacked_bytes(std::span<const StorageId> storages) const {
        std::uint64_t sum = 0;
        for (const StorageId id : storages) {
            sum += forms_[index(id)].unpacks ? UnpackLayout::place_bytes(forms_[index(id)].raw_bytes) : 0;
        }
        return sum;
    }

    /// Forgets what leases have unpacked, except what an open lease covers.
    void pass_began() noexcept {
        forget_if([&](std::uint32_t s) { return context_.states[s].leases == 0; });
    }
    /// Forgets all that leases have unpacked.
    void forget_unpacked() noexcept {
        forget_if([](std::uint32_t) { return true; });
    }
    /// The end of a lease could not be recorded: what follows waits for the device.
    void note_lost() noexcept { uses_.note_lost(); }
    /// Lost uses are complete, or those of a capture that was given up.
    void forget_lost() noexcept { uses_.forget_lost(); }
    /// Enqueues, on the consumer's stream, what unpacks these storages, of which a lease is counted already; waits there for what another
    /// stream has unpacked, and for what other streams still read in those places. Blocks only where the record of a use was lost, or after
    /// a failure. Error budget: leases cover what lies there. Precondition: find_clash() finds none, or the layout finds places.
    [[nodiscard]] Status unpack(std::span<const StorageId> storages, core::ConsumerId consumer);

    /// Gives everything back, whatever fails. Precondition: the streams are drained.
    void close() noexcept {
        if (streams_.is_unsettled()) { static_cast<void>(settle().has_value()); }
        if (range_) {
            range_->close();
        } else if (memory_ != nullptr) {
            static_cast<void>(context_.device->deallocate(memory_).has_value());
        }
        if (host_table_ != nullptr) { static_cast<void>(context_.device->deallocate_host(host_table_).has_value()); }
        streams_.close(context_.device);
        abandon();
    }
    /// Forgets everything without a device call.
    void abandon() noexcept {
        if (range_) { range_->abandon(); }
        range_.reset();
        memory_ = nullptr;
        host_table_ = nullptr;
        streams_.abandon();
        is_filled_ = false;
    }

private:
    using Task = codec::UnpackTask;

    static constexpr std::uint64_t most_half_bytes = std::uint64_t{16} << 20;  // of the stage
    static constexpr core::ConsumerId nobody = (std::numeric_limits<core::ConsumerId>::max)();

    /// Parts of one storage, in the table.
    struct Rows {
        std::uint32_t first = 0, last = 0;
    };

    [[nodiscard]] bool is_shared(std::size_t s) const noexcept {
        if (s >= layout_.offset.size() || layout_.stays[s]) { return false; }
        return layout_.finds_places ? forms_[s].unpacks : layout_.offset[s] != UnpackLayout::none;
    }
    [[nodiscard]] std::uint64_t end_of(std::uint32_t s) const noexcept { return offset_[s] + forms_[s].raw_bytes; }
    [[nodiscard]] bool has_table() const noexcept { return layout_.table_at < layout_.bytes; }
    template <class Predicate>
    void forget_if(Predicate&& forgets) noexcept {
        std::erase_if(unpacked_, [&](std::uint32_t s) {
            const bool forgotten = forgets(s);
            if (forgotten) { by_[s] = nobody; }
            return forgotten;
        });
    }
    /// Where the memory begins, also while it sleeps.
    [[nodiscard]] std::byte* base() const noexcept {
        return range_ ? range_->base() : static_cast<std::byte*>(memory_);
    }
    [[nodiscard]] std::byte* place(std::size_t s) const noexcept { return base() + offset_[s]; }
    /// Precondition: has_table().
    [[nodiscard]] const Task* table() const noexcept {
        return reinterpret_cast<const Task*>(static_cast<std::byte*>(memory_) + layout_.table_at);
    }
    /// A row of the table for each packed part, and a copy for each raw one, of a storage whose parts begin at `from`.
    void append(std::size_t s, const std::byte* from, std::vector<Copy>& copies);
    /// The memory, from the stock.
    [[nodiscard]] Result<void*> take_of_stock();
    /// The memory is given back.
    void forget_memory() noexcept {
        is_filled_ = false;
        forget_unpacked();
        forget_filled();
        memory_ = nullptr;
        for (core::StorageState& state : context_.states) { state.unpacked = nullptr; }
    }
    void forget_filled() noexcept {
        for (std::vector<bool>& parts : filled_) { parts.clear(); }
        asleep_next_ = 0;
    }
    /// The streams and the host memory that fill the memory.
    [[nodiscard]] Status open();
    /// Blocks until what is on the streams is complete.
    [[nodiscard]] Status settle() {
        ++context_.counters->host_waits;
        auto settled = streams_.settle(*context_.device);
        must_settle_ = must_settle_ && !settled;
        return settled;
    }
    [[nodiscard]] Status enqueue_wanted(typename D::Stream stream);
    /// Enqueues the unpacking of what is wanted to places that were found: one launch, whose parameters are the tasks.
    [[nodiscard]] Status enqueue_found(typename D::Stream stream);
    /// Finds a place for each wanted storage beside what leases cover.
    [[nodiscard]] Status find_places();
    /// Wants those of these storages too that are unpacked, and that no other lease covers: elsewhere they may leave more room. Whether there
    /// are any.
    [[nodiscard]] bool want_again(std::span<const StorageId> storages);
    /// Some work may be on the consumer's stream that no lease will record: blocks until it is complete. In a capture nothing has run.
    void await_failed_work(core::ConsumerId consumer) {
        const auto is_captured = context_.device->is_capturing(context_.copy_scheduler->stream_of(consumer));
        if (is_captured && *is_captured) { return; }
        ++context_.counters->host_waits;
        if (!context_.device->synchronize(context_.copy_scheduler->stream_of(consumer))) { uses_.note_lost(); }
    }
    [[nodiscard]] Status send_table();
    /// Where a part comes from and goes to.
    struct Place {
        const PackedPart* part = nullptr;
        const std::byte* host = nullptr;  // of its storage
        std::byte* to = nullptr;
        [[nodiscard]] const std::byte* from() const noexcept { return host + part->offset_bytes; }
    };
    /// A part of the memory where packed parts arrive, before it has bytes of its own.
    struct Stage {
        std::uint64_t at = 0, half_bytes = 0;
        std::uint64_t used_bytes = 0;       // of the last round's half
        const std::byte* merges = nullptr;  // the storage of that round's last copy, if it goes to the stage
    };
    /// Copies, and the rows of the tasks that follow them.
    struct Round {
        std::vector<Copy> copies;
        Rows rows;
        std::vector<std::uint32_t> complete;  // storages of which nothing comes later
    };
    /// What fills the memory, in this order.
    struct Filling {
        std::vector<Round> rounds;  // bring packed parts to a stage, whose halves take turns
        Round last;                 // what lies in the stage, and parts larger than half of it: from host memory
        std::uint64_t bytes = 0;    // that travel
    };
    /// Makes the tasks of what stays and is not unpacked yet, by the order of the steps. Copies are faster than kernels that read host memory,
    /// so that most parts come through a stage. Asleep: of what there is memory for, up to `most_bytes` raw bytes.
    [[nodiscard]] Result<Filling> plan_filling(std::uint64_t most_bytes);
    /// Adds a part to the last round, or to a new one where there is no room for it.
    void add_part(const Place& place, Stage& stage, std::vector<Round>& rounds);
    /// What stays, in the order of the first steps that read it.
    [[nodiscard]] std::vector<std::uint32_t> order_of_reads() const;
    /// Where a stage lies: at the end, where leases unpack; otherwise in what is read last. none: there is no memory for it.
    [[nodiscard]] std::uint64_t find_stage(std::span<const std::uint32_t> order, std::uint64_t bytes);
    /// Whether there is memory for these bytes. Asleep: takes it, if nobody else has it.
    [[nodiscard]] bool has_memory(std::uint64_t offset, std::uint64_t bytes);
    [[nodiscard]] Status enqueue_filling(const Filling& filling);
    /// Enqueues the rows of a round, and the arrival of what they complete. `half`: of the stage. `is_last`: of a filling: the copy stream comes
    /// behind all of it.
    [[nodiscard]] Status enqueue_rows(const Round& round, std::size_t half, bool is_last);
    /// Enqueues what plan_filling() finds. Blocks where leases unpack, or after a failure: then nothing is unpacked any more.
    [[nodiscard]] Status fill(std::uint64_t most_bytes);
    /// Enqueues what unpacks rows [first, last), whose tasks are in `table`; null: they go with the launch.
    [[nodiscard]] Status enqueue(Rows rows, typename D::Stream stream, const Task* table) {
        if (rows.first == rows.last) { return {}; }
        const std::size_t count = rows.last - rows.first;
        return unpacker_->enqueue(*context_.device, std::span{tasks_}.subspan(rows.first, count),
                                  std::span{parts_}.subspan(rows.first, count),
                                  table != nullptr ? table + rows.first : nullptr, stream);
    }

    core::DeciderContext<D>& context_;
    const std::vector<Form>& forms_;
    const Unpacker<D>* unpacker_ = nullptr;
    UnpackLayout layout_;
    std::vector<std::uint64_t> offset_;  // by storage: that of the layout, or where a lease unpacked it last
    pool::ChunkStock<D>* stock_ = nullptr;
    std::optional<pool::Virtual<D>> range_;  // of the stock; nullopt: nothing was taken of it
    void* memory_ = nullptr;                 // of the device, or of the range
    std::uint64_t memory_bytes_ = 0;         // 0: it was not given back as a whole
    void* host_table_ = nullptr;             // pinned
    UnpackStreams<D> streams_;
    bool is_filled_ = false;                 // or all of it is enqueued
    std::vector<std::vector<bool>> filled_;  // by storage that stays, by part: it is unpacked, or that is enqueued
    bool must_settle_ = false;               // calls failed: the order of the streams is not known
    std::size_t asleep_next_ = 0;            // in the order of reads: what bring_asleep() comes to next
    std::uint64_t asleep_given_back_ = 0;    // as of the last look at all of it
    bool unpacks_ = false;                   // leases do
    core::UnrecordedUses<D> uses_{context_};
    std::uint64_t generation_ = 0;
    std::uint64_t table_generation_ = 0;  // of addresses
    std::uint64_t current_ = 0;           // the same, where there is no table
    std::vector<Task> tasks_;
    std::vector<PackedPart> parts_;        // by task
    std::vector<Rows> rows_;               // by storage
    std::vector<std::vector<Copy>> raw_;   // by storage: parts that are not packed
    std::vector<core::ConsumerId> by_;     // by storage: whose stream unpacked it for a lease; or nobody
    std::vector<std::uint32_t> unpacked_;  // storages that somebody did
    std::vector<std::uint32_t> wanted_;    // storages of one call
    std::vector<std::uint32_t> kept_;      // of one call: those in the way, in the order of their places
    std::vector<Copy> copies_;             // of one call
};

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::open() {
    if (auto opened = streams_.open(*context_.device); !opened) { return opened; }
    std::uint64_t bytes = 0;
    for (const Form& form : forms_) {
        if (form.unpacks && has_table()) { bytes += form.parts->size() * sizeof(Task); }
    }
    if (host_table_ != nullptr || bytes == 0) { return {}; }
    auto table = context_.device->allocate_host(bytes);
    if (!table) { return table.error(); }
    host_table_ = *table;
    return {};
}

template <VirtualMemoryDevice D>
void UnpackMemory<D>::append(std::size_t s, const std::byte* from, std::vector<Copy>& copies) {
    std::byte* to = place(s);
    for (const PackedPart& part : *forms_[s].parts) {
        const std::byte* const packed = from + part.offset_bytes;
        if (part.form == PackedForm::raw) {
            copies.push_back({to, packed, part.raw_bytes});
        } else {
            tasks_.push_back({packed, to});
            parts_.push_back(part);
        }
        to += part.raw_bytes;
    }
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::send_table() {
    if (tasks_.empty() || !has_table()) { return {}; }
    if (streams_.is_unsettled()) {
        if (auto settled = settle(); !settled) { return settled; }
    }
    const std::uint64_t bytes = tasks_.size() * sizeof(Task);
    std::memcpy(host_table_, tasks_.data(), static_cast<std::size_t>(bytes));
    streams_.note_work();
    const Copy all{const_cast<Task*>(table()), host_table_, bytes};
    return context_.device->copy({&all, 1}, streams_.kernels());
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::take() {
    if (memory_ != nullptr && memory_bytes_ != layout_.bytes) {
        if (auto given = give_back(); !given) { return given; }
    }
    if (layout_.bytes == 0 || is_filled_) { return {}; }
    if (auto opened = open(); !opened) { return opened; }
    if (memory_ == nullptr) {
        auto memory = stock_ != nullptr ? take_of_stock() : context_.device->allocate(layout_.bytes);
        if (!memory) { return memory.error(); }
        generation_ += stock_ == nullptr ? 1U : 0U;
        memory_ = *memory;
        memory_bytes_ = layout_.bytes;
    }
    if (auto filled = fill(UINT64_MAX); !filled) { return filled; }
    for (std::size_t s = 0; s < layout_.offset.size(); ++s) {
        context_.states[s].unpacked = offset_[s] != UnpackLayout::none ? place(s) : nullptr;
    }
    is_filled_ = true;
    table_generation_ = UINT64_MAX;
    return {};
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::fill(std::uint64_t most_bytes) {
    if (must_settle_) {  // the last one came to no end
        if (auto settled = settle(); !settled) { return settled; }
        forget_filled();
    }
    must_settle_ = true;
    const auto filling = plan_filling(most_bytes);
    Status filled = filling ? enqueue_filling(*filling) : Status{filling.error()};
    if (filled && !unpacks_) {
        must_settle_ = false;
    } else {
        auto settled = settle();
        if (filled) { filled = std::move(settled); }
        if (!filled) { forget_filled(); }
    }
    if (filled) { context_.counters->fetched_bytes += filling->bytes; }
    return filled;
}

template <VirtualMemoryDevice D>
Result<std::uint64_t> UnpackMemory<D>::bring_asleep(std::uint64_t most_bytes) {
    if (memory_ != nullptr || !range_ || memory_bytes_ != layout_.bytes || unpacks_) { return std::uint64_t{0}; }
    if (const std::uint64_t now = range_->given_back(); now != asleep_given_back_) {
        asleep_given_back_ = now;
        asleep_next_ = 0;  // what could not be had before may be free
    }
    const std::uint64_t before = context_.counters->fetched_bytes;
    if (auto filled = fill(most_bytes); !filled) { return filled.error(); }
    return context_.counters->fetched_bytes - before;
}

template <VirtualMemoryDevice D>
std::vector<std::uint32_t> UnpackMemory<D>::order_of_reads() const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t s = 0; s < layout_.offset.size(); ++s) {
        if (layout_.stays[s]) { order.push_back(s); }
    }
    if (const auto first = context_.first_steps; !first.empty()) {
        residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
            return first[a] != first[b] ? first[a] < first[b] : a < b;
        });
    }
    return order;
}

template <VirtualMemoryDevice D>
std::uint64_t UnpackMemory<D>::find_stage(std::span<const std::uint32_t> order, std::uint64_t bytes) {
    const auto before = [&](std::uint64_t end) {
        return (end - bytes) / codec::packed_alignment_bytes * codec::packed_alignment_bytes;
    };
    for (std::size_t i = unpacks_ ? 0 : order.size(); i-- > 0;) {
        const std::uint64_t end = end_of(order[i]);
        if (end >= bytes && has_memory(before(end), bytes)) { return before(end); }
    }
    return memory_ != nullptr ? before(layout_.table_at) : UnpackLayout::none;
}

template <VirtualMemoryDevice D>
bool UnpackMemory<D>::has_memory(std::uint64_t offset, std::uint64_t bytes) {
    if (memory_ != nullptr) { return true; }
    const std::uint64_t chunk_bytes = range_->chunk_bytes(*context_.device);
    bool is_there = true;
    for (std::uint64_t chunk = offset / chunk_bytes; chunk * chunk_bytes < offset + bytes && is_there; ++chunk) {
        is_there = range_->wake_chunk(static_cast<std::uint32_t>(chunk));
    }
    return is_there;
}

template <VirtualMemoryDevice D>
void UnpackMemory<D>::add_part(const Place& place, Stage& stage, std::vector<Round>& rounds) {
    const PackedPart& part = *place.part;
    const std::uint64_t bytes = pool::round_up(part.packed_bytes, codec::packed_alignment_bytes);
    if (rounds.empty() || stage.used_bytes + bytes > stage.half_bytes) {
        const auto row = static_cast<std::uint32_t>(tasks_.size());
        rounds.push_back({{}, {row, row}, {}});
        stage.used_bytes = 0;
        stage.merges = nullptr;
    }
    Round& round = rounds.back();
    std::byte* const staged = base() + stage.at + (rounds.size() - 1) % 2 * stage.half_bytes + stage.used_bytes;
    stage.used_bytes += bytes;
    if (part.form == PackedForm::raw) {
        round.copies.push_back({place.to, place.from(), part.raw_bytes});
        stage.merges = nullptr;
        return;
    }
    Copy* const last = stage.merges == place.host ? &round.copies.back() : nullptr;
    if (last != nullptr &&
        static_cast<const std::byte*>(last->from) + (staged - static_cast<std::byte*>(last->to)) == place.from()) {
        last->bytes = static_cast<std::uint64_t>(staged - static_cast<std::byte*>(last->to)) + part.packed_bytes;
    } else {
        round.copies.push_back({staged, place.from(), part.packed_bytes});
    }
    stage.merges = place.host;
    tasks_.push_back({staged, place.to});
    parts_.push_back(part);
    ++round.rows.last;
}

template <VirtualMemoryDevice D>
auto UnpackMemory<D>::plan_filling(std::uint64_t most_bytes) -> Result<Filling> {
    const bool is_asleep = memory_ == nullptr;
    const std::vector<std::uint32_t> order = order_of_reads();
    Filling filling;
    std::size_t next = is_asleep ? asleep_next_ : 0;
    if (next == order.size()) { return filling; }
    Stage stage;
    stage.half_bytes = (std::min)(most_half_bytes, layout_.table_at / 16) / codec::packed_alignment_bytes *
                       codec::packed_alignment_bytes;
    stage.at = find_stage(order, 2 * stage.half_bytes);
    if (stage.at == UnpackLayout::none) { return filling; }
    const auto is_in_stage = [&](std::uint64_t at, std::uint64_t bytes) {
        return at < stage.at + 2 * stage.half_bytes && at + bytes > stage.at;
    };
    for (const std::uint32_t s : order) {  // what an earlier filling brought there is lost
        std::uint64_t end = offset_[s];
        for (std::size_t i = 0; i < filled_[s].size(); ++i) {
            const std::uint64_t bytes = (*forms_[s].parts)[i].raw_bytes;
            if (is_in_stage(std::exchange(end, end + bytes), bytes)) { filled_[s][i] = false; }
        }
    }
    std::vector<Place> last;
    tasks_.clear();
    parts_.clear();
    for (bool is_enough = false; next < order.size() && !is_enough; next += is_enough ? 0U : 1U) {
        const std::uint32_t s = order[next];
        const Form& form = forms_[s];
        std::vector<bool>& filled = filled_[s];
        filled.resize(form.parts->size());
        std::uint64_t end = offset_[s];
        bool is_any = false, is_any_last = false;
        for (std::size_t i = 0; i < filled.size(); ++i) {
            const PackedPart& part = (*form.parts)[i];
            const std::uint64_t at = std::exchange(end, end + part.raw_bytes);
            const bool is_last = is_in_stage(at, part.raw_bytes) ||
                                 (part.form != PackedForm::raw && part.packed_bytes > stage.half_bytes);
            if (filled[i] || (is_asleep && is_last) || !has_memory(at, part.raw_bytes)) { continue; }
            is_enough = part.raw_bytes > most_bytes;
            if (is_enough) { break; }
            most_bytes -= part.raw_bytes;
            filling.bytes += part.packed_bytes;
            const Place place{&part, form.host, base() + at};
            if (is_last) {
                last.push_back(place);
            } else {
                add_part(place, stage, filling.rounds);
            }
            filled[i] = is_any = true;
            is_any_last = is_any_last || is_last;
        }
        if (is_any && std::find(filled.begin(), filled.end(), false) == filled.end()) {
            (is_any_last ? filling.last : filling.rounds.back()).complete.push_back(s);
        }
    }
    if (is_asleep) { asleep_next_ = next; }
    filling.last.rows.first = static_cast<std::uint32_t>(tasks_.size());
    for (const Place& place : last) {
        if (place.part->form == PackedForm::raw) {
            filling.last.copies.push_back({place.to, place.from(), place.part->raw_bytes});
            continue;
        }
        auto view = context_.device->device_view(place.from());
        if (!view) { return view.error(); }
        tasks_.push_back({static_cast<const std::byte*>(*view), place.to});
        parts_.push_back(*place.part);
    }
    filling.last.rows.last = static_cast<std::uint32_t>(tasks_.size());
    return filling;
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::enqueue_rows(const Round& round, std::size_t half, bool is_last) {
    if (auto enqueued = enqueue(round.rows, streams_.kernels(), nullptr); !enqueued) { return enqueued; }
    const auto unpacked = streams_.note_unpacked(*context_.device, half);
    if (!unpacked) { return unpacked.error(); }
    if (round.complete.empty() && !is_last) { return {}; }
    return context_.copy_scheduler->arrive_with(*unpacked, round.complete);
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::enqueue_filling(const Filling& filling) {
    const std::span<const Round> rounds = filling.rounds;
    const Round& last = filling.last;
    // Behind the stage of an earlier filling, and copies that have to come before.
    if (auto waits = context_.copy_scheduler->wait_for_copies(streams_.copies()); !waits) { return waits; }
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (auto brought = streams_.bring(*context_.device, rounds[i].copies, i % 2); !brought) { return brought; }
        const bool is_last = i + 1 == rounds.size() && last.complete.empty();
        if (auto enqueued = enqueue_rows(rounds[i], i % 2, is_last); !enqueued) { return enqueued; }
    }
    if (last.complete.empty()) { return {}; }
    streams_.note_work();
    if (!last.copies.empty()) {
        if (auto copied = context_.device->copy(last.copies, streams_.kernels()); !copied) { return copied; }
    }
    return enqueue_rows(last, 0, true);
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::write_table(std::uint64_t generation) {
    current_ = generation;
    if (!has_table() || memory_ == nullptr || table_generation_ == generation) { return {}; }
    const std::size_t storages = layout_.offset.size();
    tasks_.clear();
    parts_.clear();
    rows_.assign(storages, {});
    raw_.assign(storages, {});
    std::vector<std::uint32_t> order;
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (is_shared(s) && context_.states[s].address != nullptr) { order.push_back(s); }
    }
    // Storages of one step follow one another in the table, so that one launch unpacks them.
    residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        const std::byte *const at = context_.states[a].address, *const other = context_.states[b].address;
        return at != other ? at < other : a < b;
    });
    for (const std::uint32_t s : order) {
        rows_[s].first = static_cast<std::uint32_t>(tasks_.size());
        append(s, context_.states[s].address, raw_[s]);
        rows_[s].last = static_cast<std::uint32_t>(tasks_.size());
    }
    forget_unpacked();
    if (tasks_.empty()) {
        table_generation_ = generation;
        return {};
    }
    auto sent = send_table();
    auto waited = settle();
    if (!sent) { return sent; }
    if (waited) { table_generation_ = generation; }
    return waited;
}

template <VirtualMemoryDevice D>
Result<void*> UnpackMemory<D>::take_of_stock() {
    if (!range_) {
        typename pool::Virtual<D>::Config config;
        config.stock = stock_;
        range_.emplace(config);
        if (auto opened = range_->open(*context_.device, layout_.bytes); !opened) {
            range_.reset();
            return opened.error();
        }
        ++generation_;
    }
    const auto slots = static_cast<std::uint32_t>(layout_.bytes / range_->chunk_bytes(*context_.device));
    if (auto held = range_->hold(slots); !held) { return held.error(); }
    return static_cast<void*>(range_->base());
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::give_back() {
    if (memory_ == nullptr && !range_) { return {}; }
    if (streams_.is_unsettled()) {
        if (auto settled = settle(); !settled) { return settled; }
    }
    if (auto freed = range_ ? range_->try_close() : context_.device->deallocate(memory_); !freed) {
        if (range_) {  // parts of it may be unmapped
            ++generation_;
            memory_bytes_ = 0;
            forget_memory();
        }
        return freed;
    }
    range_.reset();
    ++generation_;
    forget_memory();
    return {};
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::sleep() {
    if (!range_) { return give_back(); }
    if (streams_.is_unsettled()) {
        if (auto settled = settle(); !settled) { return settled; }
    }
    if (auto slept = range_->sleep(); !slept) { return slept; }
    forget_memory();
    return {};
}

template <VirtualMemoryDevice D>
std::pair<StorageId, StorageId> UnpackMemory<D>::find_clash(std::span<const StorageId> storages) {
    wanted_.clear();
    for (const StorageId id : storages) {
        if (is_shared(index(id)) && forms_[index(id)].raw_bytes > 0) { wanted_.push_back(index(id)); }
    }
    std::sort(wanted_.begin(), wanted_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return offset_[a] < offset_[b]; });
    for (std::size_t i = 1; i < wanted_.size(); ++i) {
        if (offset_[wanted_[i]] >= end_of(wanted_[i - 1])) { continue; }
        return {StorageId{wanted_[i - 1]}, StorageId{wanted_[i]}};
    }
    return {no_storage, no_storage};
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::unpack(std::span<const StorageId> storages, core::ConsumerId consumer) {
    core::CopyScheduler<D>& copy_scheduler = *context_.copy_scheduler;
    if (auto awaited = uses_.wait_for_lost_uses(); !awaited) { return awaited; }
    wanted_.clear();
    for (const StorageId id : storages) {
        const std::uint32_t s = index(id);
        if (!is_shared(s)) { continue; }
        if (by_[s] == nobody) {
            wanted_.push_back(s);
        } else if (by_[s] != consumer) {
            if (auto joined = copy_scheduler.join_streams(consumer, by_[s]); !joined) { return joined; }
        }
    }
    if (wanted_.empty()) { return {}; }
    if (layout_.finds_places) {
        auto found = find_places();
        if (!found && want_again(storages)) { found = find_places(); }
        if (!found) { return found; }
    }
    std::sort(wanted_.begin(), wanted_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return offset_[a] < offset_[b]; });
    // A wanted storage that overlaps this one; wanted_.end(): none.
    const auto find_overlap = [&](std::uint32_t other) {
        const auto found = std::partition_point(wanted_.begin(), wanted_.end(),
                                                [&](std::uint32_t s) { return end_of(s) <= offset_[other]; });
        return found != wanted_.end() && offset_[*found] < end_of(other) ? found : wanted_.end();
    };
    for (const std::uint32_t other : unpacked_) {
        if (context_.states[other].leases == 0) { continue; }
        const auto found = find_overlap(other);
        if (found == wanted_.end()) { continue; }
        return Error{ErrorKind::budget, context_.catalog.describe(StorageId{*found}) + " would be unpacked to where " +
                                            context_.catalog.describe(StorageId{other}) +
                                            " lies, which a lease covers: end that lease, or set "
                                            "policies.leases_at_once to the number of leases that are open together"};
    }
    for (core::ConsumerId other = 0; other < copy_scheduler.consumers(); ++other) {
        if (other == consumer) { continue; }
        if (auto waited = copy_scheduler.wait_for_last_point(consumer, other); !waited) { return waited; }
    }
    forget_if([&](std::uint32_t other) { return find_overlap(other) != wanted_.end(); });
    const auto stream = copy_scheduler.stream_of(consumer);
    if (auto enqueued = layout_.finds_places ? enqueue_found(stream) : enqueue_wanted(stream); !enqueued) {
        await_failed_work(consumer);
        return enqueued;
    }
    for (const std::uint32_t s : wanted_) {
        by_[s] = consumer;
        unpacked_.push_back(s);
        context_.counters->unpacked_bytes += forms_[s].raw_bytes;
    }
    copy_scheduler.note_use(consumer);
    return {};
}

template <VirtualMemoryDevice D>
bool UnpackMemory<D>::want_again(std::span<const StorageId> storages) {
    const std::size_t before = wanted_.size();
    for (const StorageId id : storages) {
        const std::uint32_t s = index(id);
        if (is_shared(s) && by_[s] != nobody && context_.states[s].leases == 1) { wanted_.push_back(s); }
    }
    forget_if([&](std::uint32_t s) {
        return std::find(wanted_.begin() + static_cast<std::ptrdiff_t>(before), wanted_.end(), s) != wanted_.end();
    });
    return wanted_.size() > before;
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::find_places() {
    const auto has_own = [&](std::uint32_t s) { return layout_.offset[s] != UnpackLayout::none; };
    if (layout_.lane_bytes == 0 && std::all_of(wanted_.begin(), wanted_.end(), has_own)) { return {}; }
    const auto place_bytes = [&](std::uint32_t s) { return UnpackLayout::place_bytes(forms_[s].raw_bytes); };
    kept_.clear();
    std::uint64_t kept_bytes = 0, asked_bytes = 0;
    for (const std::uint32_t s : unpacked_) {
        if (context_.states[s].leases == 0) { continue; }
        kept_.push_back(s);
        kept_bytes += place_bytes(s);
    }
    for (const std::uint32_t s : wanted_) { asked_bytes += place_bytes(s); }
    const auto by_place = [&](std::uint32_t a, std::uint32_t b) { return offset_[a] < offset_[b]; };
    std::sort(kept_.begin(), kept_.end(), by_place);
    // The largest first: so they find room if there is any, and equal ones leave no gaps.
    std::sort(wanted_.begin(), wanted_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return forms_[a].raw_bytes != forms_[b].raw_bytes ? forms_[a].raw_bytes > forms_[b].raw_bytes : a < b;
    });
    // A part of the memory that no lease covers; if there is none, wherever there is room.
    std::uint64_t lane = layout_.shared_at;
    for (const std::uint32_t s : kept_) {
        if (offset_[s] >= lane + layout_.lane_bytes) { break; }
        while (lane < offset_[s] + place_bytes(s)) { lane += layout_.lane_bytes; }
    }
    if (asked_bytes <= layout_.lane_bytes && lane + layout_.lane_bytes <= layout_.table_at) {
        for (const std::uint32_t s : wanted_) {
            offset_[s] = std::exchange(lane, lane + place_bytes(s));
            context_.states[s].unpacked = place(s);
        }
        return {};
    }
    for (const std::uint32_t s : wanted_) {
        std::uint64_t at = layout_.shared_at;
        auto next = kept_.begin();
        for (; next != kept_.end() && offset_[*next] < at + place_bytes(s); ++next) {
            at = offset_[*next] + place_bytes(*next);
        }
        if (at + place_bytes(s) > layout_.table_at) {
            return Error{ErrorKind::budget,
                         "no room to unpack " + context_.catalog.describe(StorageId{s}) + ": " +
                             residency::detail::in_bytes(asked_bytes) + " are asked for together, leases cover " +
                             residency::detail::in_bytes(kept_bytes) + " of the " +
                             residency::detail::in_bytes(layout_.table_at - layout_.shared_at) +
                             "; end leases before, or say how many leases are open together "
                             "(policies.leases_at_once), and how many storages one asks for "
                             "(policies.storages_at_once)",
                         BudgetNumbers{asked_bytes, layout_.table_at - layout_.shared_at, kept_bytes,
                                       asked_bytes + kept_bytes, UINT32_MAX}};
        }
        offset_[s] = at;
        kept_.insert(next, s);
    }
    for (const std::uint32_t s : wanted_) { context_.states[s].unpacked = place(s); }
    return {};
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::enqueue_found(typename D::Stream stream) {
    tasks_.clear();
    parts_.clear();
    copies_.clear();
    for (const std::uint32_t s : wanted_) { append(s, context_.states[s].address, copies_); }
    if (auto enqueued = enqueue({0, static_cast<std::uint32_t>(tasks_.size())}, stream, nullptr); !enqueued) {
        return enqueued;
    }
    return copies_.empty() ? Status{} : context_.device->copy(copies_, stream);
}

template <VirtualMemoryDevice D>
Status UnpackMemory<D>::enqueue_wanted(typename D::Stream stream) {
    std::sort(wanted_.begin(), wanted_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return rows_[a].first < rows_[b].first; });
    const Task* const on_device = has_table() ? table() : nullptr;
    Rows run;
    for (const std::uint32_t s : wanted_) {
        if (rows_[s].first != run.last || run.first == run.last) {
            if (auto enqueued = enqueue(run, stream, on_device); !enqueued) { return enqueued; }
            run.first = rows_[s].first;
        }
        run.last = rows_[s].last;
        if (!raw_[s].empty()) {
            if (auto copied = context_.device->copy(raw_[s], stream); !copied) { return copied; }
        }
    }
    return enqueue(run, stream, on_device);
}

}}}  // namespace residency::RESIDENCY_ABI::packed

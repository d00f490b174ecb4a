// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/codec/unpack_task.hpp"
#include "residency/core/decider.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/form.hpp"
#include "residency/packed/layout.hpp"
#include "residency/packed/unpacker.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// The device memory of unpacked weights, by a layout. While it is held, what stays has its raw bytes; every other place holds the raw bytes
/// of at most one storage, which are complete once the stream that unpacked them has come so far, and which no other storage replaces while
/// a lease covers it.
template <Device D>
class UnpackMemory {
public:
    UnpackMemory(core::DeciderContext<D>& context, const std::vector<Form>& forms) : context_{context}, forms_{forms} {}
    UnpackMemory(const UnpackMemory&) = delete;
    UnpackMemory& operator=(const UnpackMemory&) = delete;

    void set_unpacker(const Unpacker<D>* unpacker) noexcept { unpacker_ = unpacker; }
    /// Another layout. Precondition: no memory is held.
    void set_layout(UnpackLayout layout) {
        layout_ = std::move(layout);
        unpacked_.clear();
    }
    [[nodiscard]] const UnpackLayout& layout() const noexcept { return layout_; }
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return memory_ != nullptr ? layout_.bytes : 0; }
    /// The layout has bytes, and no memory is held, or what stays was not unpacked.
    [[nodiscard]] bool is_missing() const noexcept { return layout_.bytes > 0 && !is_filled_; }
    /// Takes the memory, and unpacks what stays straight from host memory. Does nothing where that is done. Blocks.
    [[nodiscard]] Status take();
    /// Gives the memory back. Precondition: the streams are drained.
    [[nodiscard]] Status give_back();
    /// Writes the tasks for where the packed bytes lie now, unless they are known for this generation of addresses. Blocks. Precondition:
    /// nothing that was enqueued reads the tasks; no stream is captured.
    [[nodiscard]] Status write_table(std::uint64_t generation);
    [[nodiscard]] std::uint64_t table_generation() const noexcept {
        return layout_.bytes == 0 ? current_ : table_generation_;
    }
    /// Counts the changes of places.
    [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
    /// Whether one of these storages is unpacked to a place that others use too.
    [[nodiscard]] bool shares_place(std::span<const StorageId> storages) const noexcept {
        for (const StorageId id : storages) {
            if (is_shared(index(id))) { return true; }
        }
        return false;
    }

    /// Nothing that lies at a shared place counts as unpacked any more, unless a lease covers it.
    void pass_began() noexcept {
        std::erase_if(unpacked_, [&](const Unpacked& one) { return context_.states[one.storage].leases == 0; });
    }
    /// Nothing that lies at a shared place counts as unpacked any more.
    void forget_unpacked() noexcept { unpacked_.clear(); }
    /// Enqueues, on the consumer's stream, what unpacks these storages, of which a lease is counted already; waits there for what another
    /// stream has unpacked, and for what other streams still read in those places. Error budget: a lease covers what lies there.
    [[nodiscard]] Status unpack(std::span<const StorageId> storages, core::ConsumerId consumer);

    /// Gives everything back, whatever fails.
    void close() noexcept {
        if (memory_ != nullptr) { static_cast<void>(context_.device->deallocate(memory_).has_value()); }
        if (host_table_ != nullptr) { static_cast<void>(context_.device->deallocate_host(host_table_).has_value()); }
        if (has_stream_) { static_cast<void>(context_.device->destroy_stream(stream_).has_value()); }
        abandon();
    }
    /// Forgets everything without a device call.
    void abandon() noexcept {
        memory_ = nullptr;
        host_table_ = nullptr;
        has_stream_ = false;
        is_filled_ = false;
    }

private:
    using Task = codec::UnpackTask;

    /// A storage that lies unpacked at a shared place.
    struct Unpacked {
        std::uint32_t storage = 0;
        core::ConsumerId by = 0;  // its stream
    };
    /// Parts of one storage, in the table.
    struct Rows {
        std::uint32_t first = 0, last = 0;
    };

    [[nodiscard]] bool is_shared(std::size_t s) const noexcept {
        return s < layout_.offset.size() && layout_.offset[s] != UnpackLayout::none && !layout_.stays[s];
    }
    [[nodiscard]] std::byte* place(std::size_t s) const noexcept {
        return static_cast<std::byte*>(memory_) + layout_.offset[s];
    }
    [[nodiscard]] const Task* table() const noexcept {
        return reinterpret_cast<const Task*>(static_cast<std::byte*>(memory_) + layout_.table_at);
    }
    /// A row of the table for each packed part, and a copy for each raw one, of a storage whose parts begin at `from`.
    void append(std::size_t s, const std::byte* from, std::vector<Copy>& copies);
    /// The stream and the host memory that fill the memory.
    [[nodiscard]] Status open();
    [[nodiscard]] Status send_table();
    [[nodiscard]] Status fill();
    /// Enqueues what unpacks rows [first, last).
    [[nodiscard]] Status enqueue(Rows rows, typename D::Stream stream) {
        if (rows.first == rows.last) { return {}; }
        const std::size_t count = rows.last - rows.first;
        return unpacker_->enqueue(*context_.device, std::span{tasks_}.subspan(rows.first, count),
                                  std::span{parts_}.subspan(rows.first, count), table() + rows.first, stream);
    }

    core::DeciderContext<D>& context_;
    const std::vector<Form>& forms_;
    const Unpacker<D>* unpacker_ = nullptr;
    UnpackLayout layout_;
    void* memory_ = nullptr;      // of the device
    void* host_table_ = nullptr;  // pinned
    bool has_stream_ = false;
    typename D::Stream stream_{};
    bool is_filled_ = false;
    std::uint64_t generation_ = 0;
    std::uint64_t table_generation_ = 0;  // of addresses
    std::uint64_t current_ = 0;           // the same, where there is no table
    std::vector<Task> tasks_;
    std::vector<PackedPart> parts_;       // by task
    std::vector<Rows> rows_;              // by storage
    std::vector<std::vector<Copy>> raw_;  // by storage: parts that are not packed
    std::vector<Unpacked> unpacked_;      // what lies at shared places
    std::vector<std::uint32_t> wanted_;   // storages of one call of unpack()
};

template <Device D>
Status UnpackMemory<D>::open() {
    if (!has_stream_) {
        auto stream = context_.device->create_stream();
        if (!stream) { return stream.error(); }
        stream_ = *stream;
        has_stream_ = true;
    }
    std::uint64_t bytes = 0;
    for (const Form& form : forms_) {
        if (form.unpacks) { bytes += form.parts->size() * sizeof(Task); }
    }
    if (host_table_ != nullptr || bytes == 0) { return {}; }
    auto table = context_.device->allocate_host(bytes);
    if (!table) { return table.error(); }
    host_table_ = *table;
    return {};
}

template <Device D>
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

template <Device D>
Status UnpackMemory<D>::send_table() {
    if (tasks_.empty()) { return {}; }
    const std::uint64_t bytes = tasks_.size() * sizeof(Task);
    std::memcpy(host_table_, tasks_.data(), static_cast<std::size_t>(bytes));
    return context_.device->copy({{const_cast<Task*>(table()), host_table_, bytes}}, stream_);
}

template <Device D>
Status UnpackMemory<D>::take() {
    if (layout_.bytes == 0 || is_filled_) { return {}; }
    if (auto opened = open(); !opened) { return opened; }
    if (memory_ == nullptr) {
        auto memory = context_.device->allocate(layout_.bytes);
        if (!memory) { return memory.error(); }
        memory_ = *memory;
        ++generation_;
    }
    if (auto filled = fill(); !filled) { return filled; }
    for (std::size_t s = 0; s < layout_.offset.size(); ++s) {
        if (layout_.offset[s] != UnpackLayout::none) { context_.states[s].unpacked = place(s); }
    }
    is_filled_ = true;
    table_generation_ = UINT64_MAX;
    return {};
}

template <Device D>
Status UnpackMemory<D>::fill() {
    tasks_.clear();
    parts_.clear();
    std::vector<Copy> copies;
    for (std::size_t s = 0; s < layout_.offset.size(); ++s) {
        if (!layout_.stays[s]) { continue; }
        auto view = context_.device->device_view(forms_[s].host);
        if (!view) { return view.error(); }
        const std::size_t before = copies.size();
        append(s, static_cast<const std::byte*>(*view), copies);
        // The device copies from the address that the host knows.
        for (std::size_t i = before; i < copies.size(); ++i) {
            copies[i].from =
                forms_[s].host + (static_cast<const std::byte*>(copies[i].from) - static_cast<const std::byte*>(*view));
        }
        for (const PackedPart& part : *forms_[s].parts) { context_.counters->fetched_bytes += part.packed_bytes; }
    }
    Status status = send_table();
    if (status) { status = enqueue({0, static_cast<std::uint32_t>(tasks_.size())}, stream_); }
    if (status && !copies.empty()) { status = context_.device->copy(copies, stream_); }
    ++context_.counters->host_waits;
    auto waited = context_.device->synchronize(stream_);
    return status ? std::move(waited) : std::move(status);
}

template <Device D>
Status UnpackMemory<D>::write_table(std::uint64_t generation) {
    current_ = generation;
    if (layout_.bytes == 0 || memory_ == nullptr || table_generation_ == generation) { return {}; }
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
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return context_.states[a].address < context_.states[b].address;
    });
    for (const std::uint32_t s : order) {
        rows_[s].first = static_cast<std::uint32_t>(tasks_.size());
        append(s, context_.states[s].address, raw_[s]);
        rows_[s].last = static_cast<std::uint32_t>(tasks_.size());
    }
    unpacked_.clear();
    if (tasks_.empty()) {
        table_generation_ = generation;
        return {};
    }
    auto sent = send_table();
    ++context_.counters->host_waits;
    auto waited = context_.device->synchronize(stream_);
    if (!sent) { return sent; }
    if (waited) { table_generation_ = generation; }
    return waited;
}

template <Device D>
Status UnpackMemory<D>::give_back() {
    is_filled_ = false;
    unpacked_.clear();
    if (memory_ == nullptr) { return {}; }
    if (auto freed = context_.device->deallocate(memory_); !freed) { return freed; }
    memory_ = nullptr;
    ++generation_;
    for (core::StorageState& state : context_.states) { state.unpacked = nullptr; }
    return {};
}

template <Device D>
Status UnpackMemory<D>::unpack(std::span<const StorageId> storages, core::ConsumerId consumer) {
    core::CopyScheduler<D>& copy_scheduler = *context_.copy_scheduler;
    const auto end_of = [&](std::uint32_t s) { return layout_.offset[s] + forms_[s].raw_bytes; };
    bool waits = false;
    wanted_.clear();
    for (const StorageId id : storages) {
        const std::uint32_t s = index(id);
        if (!is_shared(s)) { continue; }
        const auto known =
            std::find_if(unpacked_.begin(), unpacked_.end(), [&](const Unpacked& one) { return one.storage == s; });
        if (known != unpacked_.end()) {
            if (known->by == consumer) { continue; }
            if (auto joined = copy_scheduler.join_streams(consumer, known->by); !joined) { return joined; }
            continue;
        }
        for (const Unpacked& other : unpacked_) {
            const bool overlaps =
                layout_.offset[other.storage] < end_of(s) && layout_.offset[s] < end_of(other.storage);
            if (!overlaps || context_.states[other.storage].leases == 0) { continue; }
            return Error{ErrorKind::budget,
                         context_.catalog.describe(id) + " would be unpacked to where " +
                             context_.catalog.describe(StorageId{other.storage}) +
                             " lies, which a lease covers: end that lease, or set policies.leases_at_once to "
                             "the number of leases that are open together"};
        }
        for (const std::uint32_t other : wanted_) {
            if (layout_.offset[other] >= end_of(s) || layout_.offset[s] >= end_of(other)) { continue; }
            return Error{
                ErrorKind::unsupported,
                context_.catalog.describe(id) + " and " + context_.catalog.describe(StorageId{other}) +
                    " are unpacked to the same place, since no step of the schedule reads both: let one do it"};
        }
        std::erase_if(unpacked_, [&](const Unpacked& other) {
            return layout_.offset[other.storage] < end_of(s) && layout_.offset[s] < end_of(other.storage);
        });
        wanted_.push_back(s);
        waits = true;
    }
    if (!waits) { return {}; }
    for (core::ConsumerId other = 0; other < copy_scheduler.consumers(); ++other) {
        if (other == consumer) { continue; }
        if (auto waited = copy_scheduler.wait_for_last_point(consumer, other); !waited) { return waited; }
    }
    const auto stream = copy_scheduler.stream_of(consumer);
    std::sort(wanted_.begin(), wanted_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return rows_[a].first < rows_[b].first; });
    Rows run;
    for (const std::uint32_t s : wanted_) {
        if (rows_[s].first != run.last || run.first == run.last) {
            if (auto enqueued = enqueue(run, stream); !enqueued) { return enqueued; }
            run.first = rows_[s].first;
        }
        run.last = rows_[s].last;
        if (!raw_[s].empty()) {
            if (auto copied = context_.device->copy(raw_[s], stream); !copied) { return copied; }
        }
    }
    if (auto enqueued = enqueue(run, stream); !enqueued) { return enqueued; }
    for (const std::uint32_t s : wanted_) { unpacked_.push_back({s, consumer}); }
    copy_scheduler.note_use(consumer);
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::packed

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <variant>

#include "residency/host/loading.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

RESIDENCY_INLINE Status Loading::wait() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return finished_; });
    return status();
}

RESIDENCY_INLINE Status Loading::wait(StorageId id, std::uint64_t offset, std::uint64_t bytes) {
    const auto [first, last] = reads_of(id);
    if (first == last || bytes == 0) { return {}; }
    const auto [range, at] = range_of_[index(id)];
    return wait(std::pair{read_at(range, at + offset), read_at(range, at + offset + bytes - 1) + 1});
}

RESIDENCY_INLINE std::size_t Loading::read_at(std::uint32_t range, std::uint64_t byte) const {
    const std::size_t first = first_read_[range];
    if (ranges_[range].parts == nullptr) { return first + static_cast<std::size_t>(byte / options_.read_bytes); }
    const std::size_t end = first + ranges_[range].parts->size();
    std::size_t low = first, count = end - first;  // the last unit that begins at the byte or before it
    while (count > 1) {
        const std::size_t half = count / 2;
        if (reads_[low + half].at <= ranges_[range].at + byte) {
            low += half;
            count -= half;
        } else {
            count = half;
        }
    }
    return low;
}

RESIDENCY_INLINE Status Loading::wait(ReadSpan reads) {
    if (are_loaded(reads)) { return {}; }
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return are_loaded(reads) || finished_; });
    return are_loaded(reads) ? Status{} : status();
}

RESIDENCY_INLINE Status Loading::start(const Catalog& catalog, LoadOptions options) {
    start_ = std::chrono::steady_clock::now();
    options_ = std::move(options);
    options_.read_bytes = std::max<std::uint64_t>(options_.read_bytes, 4096);
    catalog_ = catalog;
    if (!options_.schedule.empty() && options_.schedule.catalog_hash() != catalog.hash()) {
        return Error{ErrorKind::mismatch, "the schedule was made for another catalog: " +
                                              catalog.difference(options_.schedule.catalog_outline())};
    }
    for (const StorageId id : options_.order) {
        if (catalog.contains(id)) { continue; }
        return Error{ErrorKind::mismatch, "LoadOptions::order: the catalog of " +
                                              std::to_string(catalog.storages().size()) + " storages has no storage " +
                                              std::to_string(index(id))};
    }
    report_.limits = options_.limits ? *options_.limits : read_memory_limits();
    reads_of_.assign(catalog.storages().size(), {0, 0});
    if (Status planned = plan(); !planned) { return planned; }
    std::uint64_t needed = 0;
    for (const Block& block : blocks_) { needed += block.bytes; }
    if (Status chosen = choose(needed); !chosen) { return chosen; }
    if (ranges_.empty()) { report_.tier = Tier::pageable; }
    if (report_.tier == Tier::file || ranges_.empty()) { return done_at_once(); }
    for (Block& block : blocks_) {
        auto region = Region::try_map(block.bytes, options_.huge_pages, memory_node_);
        if (!region) {
            if (options_.tier != Tier::automatic) { return region.error().in(report_.limits.text()); }
            report_.tier = Tier::file;
            report_.reason = region.error().message() + ": " + report_.limits.text();
            return done_at_once();
        }
        block.region = std::move(*region);
        report_.memory_node = block.region->node();
    }
    report_.host_bytes = needed;
    sources_ = catalog;
    catalog_ = with_host_bytes();
    make_reads();

    const auto threads = static_cast<unsigned>(
        std::min<std::uint64_t>(detail::threads_of(options_.threads), std::max<std::size_t>(1, reads_.size())));
    const bool pins = report_.tier == Tier::pinned && options_.pinning == Pinning::as_loaded;
    Status started;
    {
        const std::lock_guard lock{mutex_};  // no thread leaves before all are counted
        started = threads_.try_start_some(threads, [this] { work(); });
        report_.threads = static_cast<unsigned>(threads_.size());
        if (started && pins) {
            started = threads_.try_start([this] { pin_as_loaded(); });
        }
        working_ = static_cast<unsigned>(threads_.size());
    }
    if (!started) { cancel(); }
    return started;
}

RESIDENCY_INLINE std::vector<std::uint64_t> Loading::ranks() const {
    std::vector<std::uint64_t> ranks(catalog_.storages().size(), UINT64_MAX);
    std::uint64_t next = 0;
    const auto take = [&](StorageId id) { ranks[index(id)] = (std::min)(ranks[index(id)], next); };
    for (const StorageId id : options_.order) {
        take(id);
        ++next;
    }
    for (const Schedule::Step& step : options_.schedule) {
        for (const StorageId id : step.storages) { take(id); }
        ++next;
    }
    return ranks;
}

RESIDENCY_INLINE Status Loading::plan() {
    const auto storages = catalog_.storages();
    range_of_.assign(storages.size(), {});
    std::unordered_map<const SourceFile*, std::uint32_t> numbers;
    std::vector<std::uint32_t> order;
    std::vector<std::uint32_t> file_of(storages.size(), 0);
    for (std::uint32_t i = 0; i < storages.size(); ++i) {
        const Storage& storage = storages[i];
        if (std::holds_alternative<std::monostate>(storage.source) && storage.bytes != 0) {
            return Error{ErrorKind::unsupported,
                         catalog_.describe(StorageId{i}) + " has no source: there is nothing to load"};
        }
        const SourceFile* const source = detail::in_file(storage).file;
        if (source == nullptr || storage.bytes == 0) { continue; }
        const auto [known, fresh] = numbers.try_emplace(source, static_cast<std::uint32_t>(files_.size()));
        if (fresh) {
            auto file = WeightFile::try_open(*source, FileAccess::cached);
            if (!file) { return file.error(); }
            files_.push_back(std::move(*file));
        }
        file_of[i] = known->second;
        report_.weight_bytes += storage.bytes;
        order.push_back(i);
    }
    const auto parts_of = [&](std::uint32_t i) { return detail::in_file(storages[i]).parts; };
    const auto offset_of = [&](std::uint32_t i) { return detail::in_file(storages[i]).offset; };
    const std::vector<std::uint64_t> rank = ranks();
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::array{rank[a], std::uint64_t{file_of[a]}, offset_of(a), std::uint64_t{a}} <
               std::array{rank[b], std::uint64_t{file_of[b]}, offset_of(b), std::uint64_t{b}};
    });
    constexpr std::uint64_t widest_gap = 64;  // bytes between neighbours that are read too
    constexpr std::uint64_t alignment = 64;   // of a range
    std::uint64_t block_bytes = 0, in_blocks = 0;
    const auto new_range = [&](std::uint32_t i, bool new_block) {
        if (new_block) {
            if (!blocks_.empty()) { in_blocks += blocks_.back().bytes; }
            const std::uint64_t left = report_.weight_bytes - (std::min)(in_blocks, report_.weight_bytes);
            // The last blocks are small, since no thread reads while they are pinned.
            block_bytes = std::clamp<std::uint64_t>((std::min)(report_.weight_bytes / 16, left / 4),
                                                    std::uint64_t{64} << 20, std::uint64_t{1} << 30);
            blocks_.emplace_back();
        }
        Block& block = blocks_.back();
        block.bytes = (block.bytes + alignment - 1) / alignment * alignment;
        ranges_.push_back(
            {file_of[i], static_cast<std::uint32_t>(blocks_.size() - 1), offset_of(i), 0, block.bytes, parts_of(i)});
    };
    for (const std::uint32_t i : order) {
        const std::uint64_t offset = offset_of(i);
        const auto end_of = [](const FileRange& range) { return range.offset + range.bytes; };
        const bool first = ranges_.empty();
        const bool apart =
            !first && (parts_of(i) != nullptr || ranges_.back().parts != nullptr || ranges_.back().file != file_of[i] ||
                       offset < ranges_.back().offset || offset > end_of(ranges_.back()) + widest_gap);
        const bool full = !first && blocks_.back().bytes >= block_bytes;
        if (first || apart || (full && offset >= end_of(ranges_.back()))) { new_range(i, first || full); }
        FileRange& range = ranges_.back();
        range.bytes = (std::max)(range.bytes, offset + storages[i].bytes - range.offset);
        blocks_.back().bytes = range.at + range.bytes;
        range_of_[i] = {static_cast<std::uint32_t>(ranges_.size() - 1), offset - range.offset};
    }
    for (const FileRange& range : ranges_) { total_bytes_ += range.bytes; }
    return {};
}

RESIDENCY_INLINE Status Loading::choose(std::uint64_t needed) {
    const std::uint64_t room = report_.limits.room_bytes();
    const std::string numbers = residency::detail::in_bytes(needed) + " to load: " + report_.limits.text();
    report_.tier = options_.tier == Tier::automatic ? Tier::pinned : options_.tier;
    for (const FileRange& range : ranges_) {
        if (range.parts != nullptr && (report_.tier == Tier::file || needed > room)) {
            return Error{
                ErrorKind::unsupported,
                "packed weights are loaded into host memory, and not read from their file pass by pass: " + numbers,
                DeviceFailure{0, "load", needed}};
        }
    }
    if (report_.tier == Tier::file || needed <= room) { return {}; }
    if (options_.tier != Tier::automatic) {
        return report_.limits.check_room(needed, "the weights", ", or ask for Tier::automatic or Tier::file");
    }
    report_.tier = Tier::file;
    report_.reason = "the weights do not fit into host memory: " + numbers;
    return {};
}

RESIDENCY_INLINE Catalog Loading::with_host_bytes() const {
    std::vector<std::shared_ptr<const HostBytes>> bytes;
    for (const Block& block : blocks_) {
        const auto kind = block.pinned.load(std::memory_order_acquire) ? HostMemory::pinned : HostMemory::pageable;
        bytes.push_back(HostBytes::borrow(block.region->span(), kind, block.region));
    }
    std::vector<StorageSource> sources;
    sources.reserve(range_of_.size());
    for (std::size_t i = 0; i < range_of_.size(); ++i) {
        const auto [range, offset] = range_of_[i];
        const Storage& storage = sources_.storages()[i];
        if (range != no_range) {
            sources.emplace_back(HostSource{bytes[ranges_[range].block], ranges_[range].at + offset});
        } else if (storage.bytes == 0) {
            sources.emplace_back(HostSource{bytes.front(), 0});
        } else {
            sources.push_back(storage.source);
        }
    }
    auto placed = sources_.try_with_sources(std::move(sources));
    RESIDENCY_ASSERT(placed.has_value(), "every storage lies inside its range");
    return std::move(*placed);
}

RESIDENCY_INLINE void Loading::make_reads() {
    first_read_.resize(ranges_.size());
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
        const FileRange& range = ranges_[r];
        first_read_[r] = reads_.size();
        if (range.parts != nullptr) {
            std::uint64_t at = range.at;
            for (const PackedPart& part : *range.parts) {
                reads_.push_back({range.file, range.block, part.offset_bytes, part.raw_bytes, at, &part});
                blocks_[range.block].reads_left.fetch_add(1, std::memory_order_relaxed);
                at += part.raw_bytes;
            }
            continue;
        }
        for (std::uint64_t done = 0; done < range.bytes; done += options_.read_bytes) {
            reads_.push_back({range.file, range.block, range.offset + done,
                              (std::min)(options_.read_bytes, range.bytes - done), range.at + done});
            blocks_[range.block].reads_left.fetch_add(1, std::memory_order_relaxed);
        }
    }
    const auto storages = catalog_.storages();
    for (std::size_t i = 0; i < range_of_.size(); ++i) {
        const auto [range, offset] = range_of_[i];
        if (range == no_range) { continue; }
        reads_of_[i] = {read_at(range, offset), read_at(range, offset + storages[i].bytes - 1) + 1};
    }
    loaded_ = std::make_unique<std::atomic<std::uint8_t>[]>(reads_.size());
}

RESIDENCY_INLINE Status Loading::read(const ReadUnit& unit, std::vector<std::byte>& packed) {
    const std::span<std::byte> target = blocks_[unit.block].region->span().subspan(
        static_cast<std::size_t>(unit.at), static_cast<std::size_t>(unit.bytes));
    return detail::read_raw(files_[unit.file], unit.offset, unit.part, target, packed);
}

RESIDENCY_INLINE void Loading::work() {
    std::vector<std::byte> packed;
    for (;;) {
        const std::size_t turn = next_.fetch_add(1, std::memory_order_relaxed);
        if (turn >= reads_.size() || failed_.load(std::memory_order_relaxed)) { break; }
        if (cancelled_.load(std::memory_order_relaxed)) {
            fail(Error{ErrorKind::cancelled,
                       "loading was cancelled after " + residency::detail::in_bytes(loaded_bytes_.load())});
            break;
        }
        const ReadUnit& unit = reads_[turn];
        if (Status done = read(unit, packed); !done) {
            fail(done.error());
            break;
        }
        loaded_bytes_.fetch_add(unit.bytes, std::memory_order_relaxed);
        loaded_[turn].store(1, std::memory_order_release);
        blocks_[unit.block].reads_left.fetch_sub(1, std::memory_order_acq_rel);
        {
            const std::lock_guard lock{mutex_};  // a waiter that has just looked at loaded_ must not miss the call
        }
        changed_.notify_all();
        if (options_.progress) {
            if (const std::unique_lock lock{progress_mutex_, std::try_to_lock};
                lock && !options_.progress(progress())) {
                cancel();
            }
        }
    }
    leave();
}

RESIDENCY_INLINE void Loading::pin_as_loaded() {
    for (Block& block : blocks_) {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] {
            return failed_.load(std::memory_order_relaxed) || block.reads_left.load(std::memory_order_acquire) == 0;
        });
        lock.unlock();
        if (failed_.load(std::memory_order_relaxed)) { break; }
        pin(block);
    }
    leave();
}

RESIDENCY_INLINE void Loading::leave() {
    bool last = false;
    {
        const std::lock_guard lock{mutex_};
        last = --working_ == 0;
    }
    if (last) { finish(); }
}

RESIDENCY_INLINE void Loading::fail(const Error& error) {
    const std::lock_guard lock{mutex_};
    if (!error_) { error_ = error; }
    failed_.store(true, std::memory_order_relaxed);
    changed_.notify_all();
}

RESIDENCY_INLINE void Loading::pin(Block& block) {
    const auto begin = std::chrono::steady_clock::now();
    {
        const std::lock_guard lock{mutex_};
        if (report_.tier != Tier::pinned || error_) { return; }
    }
    const Status pinned = pin_(*block.region);
    const std::lock_guard lock{mutex_};
    report_.pin_time += std::chrono::steady_clock::now() - begin;
    if (pinned) {
        block.pinned.store(true, std::memory_order_release);
        return;
    }
    if (report_.tier != Tier::pinned) { return; }
    report_.tier = Tier::pageable;
    report_.reason = report_.limits.not_pinned(pinned.error());
    if (options_.tier == Tier::pinned && !error_) {
        error_ = Error{ErrorKind::out_of_memory, report_.reason, DeviceFailure{0, "pin", block.bytes}};
        failed_.store(true, std::memory_order_relaxed);
    }
}

RESIDENCY_INLINE void Loading::finish() {
    if (options_.pinning == Pinning::after_loading) {
        for (Block& block : blocks_) { pin(block); }
    }
    if (!failed_.load() && options_.progress) {
        const std::lock_guard lock{progress_mutex_};
        static_cast<void>(options_.progress(progress()));
    }
    {
        const std::lock_guard lock{mutex_};
        report_.load_time = std::chrono::steady_clock::now() - start_;
        if (!error_) { catalog_ = with_host_bytes(); }
        finished_ = true;
    }
    changed_.notify_all();
}

}}}  // namespace residency::RESIDENCY_ABI::host

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/device/device.hpp"
#include "residency/device/memory_limits.hpp"
#include "residency/device/memory_node.hpp"
#include "residency/error.hpp"
#include "residency/host/region.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/pack.hpp"
#include "residency/packed/pinned_memory.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// How a packed file is loaded.
struct LoadOptions {
    unsigned threads = 0;  ///< that read; 0: as many as the machine has, at most 8
    /// Memory is filled and pinned in blocks of this size, or larger ones for a wide weight. A full block is pinned while the next one is
    /// filled.
    std::uint64_t block_bytes = std::uint64_t{256} << 20;
    std::optional<host::MemoryLimits> limits{};  ///< none: those of this process
};

namespace detail {

/// What one read brings: a part of a storage.
struct PartRead {
    std::uint32_t storage = 0;
    std::uint32_t file = 0;
    std::size_t block = 0;  // of the memory
    const PackedPart* part = nullptr;
    std::uint64_t to = 0;  // offset in the block
};

/// Where the storages of packed files go: one behind the other, in blocks of memory.
class LoadLayout {
public:
    explicit LoadLayout(const Catalog& catalog) : catalog_{catalog}, places_(catalog.storages().size()) {}

    /// Opens the files, and gives every storage in them its place. Says in `model` what is packed and what is not.
    [[nodiscard]] Status place_storages(std::uint64_t block_bytes, PackedModel& model) {
        for (std::uint32_t s = 0; s < places_.size(); ++s) {
            if (Status placed = place_storage(s, block_bytes, model); !placed) { return placed; }
        }
        return {};
    }
    [[nodiscard]] const Catalog& catalog() const noexcept { return catalog_; }
    [[nodiscard]] const std::vector<PartRead>& reads() const noexcept { return reads_; }
    [[nodiscard]] const host::WeightFile& file_of(const PartRead& read) const noexcept { return files_[read.file]; }
    /// Bytes of each block.
    [[nodiscard]] const std::vector<std::uint64_t>& blocks() const noexcept { return blocks_; }
    /// The sources of all storages, once `memory` has the blocks.
    [[nodiscard]] std::vector<StorageSource> sources(
        const std::vector<std::shared_ptr<const HostBytes>>& memory) const {
        std::vector<StorageSource> sources;
        for (std::size_t s = 0; s < places_.size(); ++s) {
            const Place& place = places_[s];
            if (!place.begin) {
                sources.push_back(catalog_.storages()[s].source);
            } else if (place.parts == nullptr) {
                sources.push_back(HostSource{memory[place.block], *place.begin});
            } else {
                sources.push_back(
                    PackedHostSource{memory[place.block], *place.begin, place.end - *place.begin, place.parts});
            }
        }
        return sources;
    }

private:
    struct Place {
        std::size_t block = 0;
        std::optional<std::uint64_t> begin;  // in the block; none: from elsewhere
        std::uint64_t end = 0;
        std::shared_ptr<std::vector<PackedPart>> parts;  // null: raw, or from elsewhere
    };

    [[nodiscard]] Status place_storage(std::uint32_t s, std::uint64_t block_bytes, PackedModel& model) {
        const Storage& storage = catalog_.storages()[s];
        const auto* const source = std::get_if<PackedSource>(&storage.source);
        if (storage.bytes == 0) { return {}; }
        if (source == nullptr) {
            model.kept_raw.push_back({StorageId{s}, "it does not lie in a packed file"});
            return {};
        }
        const auto file = number_of_file(*source->file);
        if (!file) { return file.error(); }
        bool is_packed = false;
        for (const PackedPart& part : *source->parts) { is_packed = is_packed || part.form != PackedForm::raw; }
        Place& place = places_[s];
        if (is_packed) { place.parts = std::make_shared<std::vector<PackedPart>>(*source->parts); }
        if (blocks_.empty() || blocks_.back() >= block_bytes) { blocks_.push_back(0); }
        std::uint64_t& total = blocks_.back();
        place.block = blocks_.size() - 1;
        place.begin = total;
        std::uint64_t at = 0;
        for (std::size_t i = 0; i < source->parts->size(); ++i) {
            const PackedPart& part = (*source->parts)[i];
            reads_.push_back({s, *file, place.block, &part, total + at});
            if (is_packed) { (*place.parts)[i].offset_bytes = at; }
            at += is_packed ? pool::round_up(part.packed_bytes, codec::packed_alignment_bytes) : part.packed_bytes;
        }
        place.end = total + at;
        total = pool::round_up(place.end, codec::packed_alignment_bytes);
        if (is_packed) {
            model.raw_bytes += storage.bytes;
            model.packed_bytes += at;
        } else {
            model.kept_raw.push_back({StorageId{s}, "the file has it raw"});
        }
        return {};
    }
    /// The number of a file, which is opened when a storage lies in it first.
    [[nodiscard]] Result<std::uint32_t> number_of_file(const SourceFile& source) {
        const auto [known, fresh] = numbers_.try_emplace(&source, static_cast<std::uint32_t>(files_.size()));
        if (fresh) {
            auto file = host::WeightFile::try_open(source, host::FileAccess::cached);
            if (!file) { return file.error(); }
            files_.push_back(std::move(*file));
        }
        return known->second;
    }

    const Catalog& catalog_;
    std::vector<host::WeightFile> files_;
    std::unordered_map<const SourceFile*, std::uint32_t> numbers_;  // of files_
    std::vector<Place> places_;                                     // by storage
    std::vector<PartRead> reads_;
    std::vector<std::uint64_t> blocks_;
};

/// Reads the parts into regions of memory, one for each block, in several threads, and keeps the first error.
class PartReading {
public:
    PartReading(const LoadLayout& layout, const std::vector<std::shared_ptr<host::Region>>& regions)
        : layout_{layout}, regions_{regions}, left_(regions.size()) {
        for (const PartRead& read : layout.reads()) { ++left_[read.block]; }
    }

    /// What each thread does: reads part after part until there is none left, or one has failed.
    void work() {
        const std::vector<PartRead>& reads = layout_.reads();
        for (std::size_t turn = next_++; turn < reads.size() && !has_failed_; turn = next_++) {
            const PartRead& read = reads[turn];
            if (Status done = read_part(read); !done) {
                fail(done.error().in(layout_.catalog().describe(StorageId{read.storage})));
            } else if (--left_[read.block] == 0) {
                const std::lock_guard lock{mutex_};  // the one that waits has looked before, or will see it
                changed_.notify_all();
            }
        }
    }
    /// Blocks until all of a block is there. False: a part has failed.
    [[nodiscard]] bool wait_for(std::size_t block) {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return left_[block] == 0 || has_failed_; });
        return !has_failed_;
    }
    /// All threads stop.
    void fail(Error what) {
        const std::lock_guard lock{mutex_};
        if (!error_) { error_ = std::move(what); }
        has_failed_ = true;
        changed_.notify_all();
    }
    /// The first error, when no thread works any more.
    [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }

private:
    [[nodiscard]] Status read_part(const PartRead& read) const {
        const host::WeightFile& file = layout_.file_of(read);
        const std::span to = regions_[read.block]->span().subspan(static_cast<std::size_t>(read.to),
                                                                  static_cast<std::size_t>(read.part->packed_bytes));
        if (Status done = file.try_read(read.part->offset_bytes, to); !done) { return done; }
        if (Status checked = codec::check_part(*read.part, to); !checked) {
            return Error{checked.error().kind(),
                         "its part at offset " + std::to_string(read.part->offset_bytes) + ": " +
                             checked.error().message() + "; pack the model again",
                         FileLocation{file.path(), read.part->offset_bytes, {}, {}}};
        }
        return {};
    }

    const LoadLayout& layout_;
    const std::vector<std::shared_ptr<host::Region>>& regions_;
    std::vector<std::atomic<std::size_t>> left_;  // reads into each block
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Error> error_;  // under mutex_ while threads work
    std::atomic<bool> has_failed_ = false;
    std::atomic<std::size_t> next_ = 0;  // read
};

/// Reads all parts in several threads, and meanwhile pins block after block as soon as it is full. The blocks' pinned memory.
template <Device D>
[[nodiscard]] Result<std::vector<std::shared_ptr<const HostBytes>>> read_and_pin(D& device, const LoadLayout& layout,
                                                                                 unsigned threads) {
    std::vector<std::shared_ptr<host::Region>> regions;
    regions.reserve(layout.blocks().size());
    for (const std::uint64_t bytes : layout.blocks()) {
        auto region = host::Region::try_map(bytes, true, residency::detail::memory_node_of(device));
        if (!region) { return region.error(); }
        regions.push_back(std::move(*region));
    }
    PartReading reading{layout, regions};
    std::vector<std::shared_ptr<const HostBytes>> memory;
    memory.reserve(regions.size());
    {
        host::ThreadGroup group;
        if (auto started =
                group.try_start_some((std::min<std::size_t>)(threads, layout.reads().size()), [&] { reading.work(); });
            !started) {
            return started.error();
        }
        for (std::size_t block = 0; block < regions.size(); ++block) {
            if (!reading.wait_for(block)) { break; }
            auto pinned = try_pin(device, std::move(regions[block]));
            if (!pinned) {
                reading.fail(pinned.error());
                break;
            }
            memory.push_back(std::move(pinned->bytes));
        }
    }
    if (reading.error()) { return *reading.error(); }
    return memory;
}

}  // namespace detail

/// Loads the weights of a packed file as they lie there, into pinned memory of the device, which is given back with the last catalog that
/// knows it: the device lives that long. `catalog`: of a file that residency-pack wrote (format::read_model); what lies elsewhere keeps its
/// source. Weights without a packed part are raw afterwards. Every part is checked (codec::check_part), so that kernels can be given it.
/// Blocks. Errors: io, mismatch (the file was changed), malformed (a part was), unsupported (a part of another version), out_of_memory, or
/// the device's own.
template <Device D>
[[nodiscard]] Result<PackedModel> try_load(D& device, const Catalog& catalog, const LoadOptions& options = {}) {
    PackedModel model{catalog, 0, 0, {}, 0, {}};
    detail::LoadLayout layout{catalog};
    if (Status placed = layout.place_storages(options.block_bytes, model); !placed) { return placed.error(); }
    if (layout.blocks().empty()) { return model; }
    const std::uint64_t needed = std::accumulate(layout.blocks().begin(), layout.blocks().end(), std::uint64_t{0});
    const host::MemoryLimits limits = options.limits ? *options.limits : host::read_memory_limits();
    if (Status room = limits.check_room(needed, "the packed weights"); !room) { return room.error(); }
    const auto memory = detail::read_and_pin(device, layout, host::detail::threads_of(options.threads));
    if (!memory) { return memory.error(); }
    auto loaded = catalog.try_with_sources(layout.sources(*memory));
    if (!loaded) { return loaded.error(); }
    model.catalog = std::move(*loaded);
    return model;
}

#if RESIDENCY_EXCEPTIONS
/// As try_load(), but throws Exception.
template <Device D>
[[nodiscard]] PackedModel load(D& device, const Catalog& catalog, const LoadOptions& options = {}) {
    return unwrap(try_load(device, catalog, options));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::packed

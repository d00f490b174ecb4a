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
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/device/device.hpp"
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
#include "residency/pool/rounding.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// How a packed file is loaded.
struct LoadOptions {
    unsigned threads = 0;  ///< that read; 0: as many as the machine has, at most 8
    /// Memory is filled and pinned in blocks of this size, or larger ones for a wide weight. A full block is pinned while the next one is
    /// filled.
    std::uint64_t block_bytes = std::uint64_t{256} << 20;
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

}  // namespace detail

/// Loads the weights of a packed file as they lie there, into pinned memory of the device, which is given back with the last catalog that
/// knows it: the device lives that long. `catalog`: of a file that residency-pack wrote (format::read_model); what lies elsewhere keeps its
/// source. Weights without a packed part are raw afterwards. Every part is checked (codec::check_part), so that kernels can be given it.
/// Blocks. Errors: io, mismatch (the file was changed), malformed (a part was), unsupported (a part of another version), out_of_memory, or
/// the device's own.
template <Device D>
[[nodiscard]] Result<PackedModel> try_load(D& device, const Catalog& catalog, const LoadOptions& options = {}) {
    std::vector<host::WeightFile> files;
    std::unordered_map<const SourceFile*, std::uint32_t> numbers;
    std::vector<detail::PartRead> reads;
    const std::size_t storages = catalog.storages().size();
    std::vector<std::shared_ptr<std::vector<PackedPart>>> parts(storages);  // null: raw, or from elsewhere
    std::vector<std::optional<std::uint64_t>> begin(storages);              // in its block; none: from elsewhere
    std::vector<std::uint64_t> end(storages, 0);
    std::vector<std::size_t> block_of(storages, 0);
    PackedModel model{catalog, 0, 0, {}, 0, {}};
    std::vector<std::uint64_t> blocks;  // bytes of each
    for (std::uint32_t s = 0; s < storages; ++s) {
        const Storage& storage = catalog.storages()[s];
        const auto* const source = std::get_if<PackedSource>(&storage.source);
        if (storage.bytes == 0) { continue; }
        if (source == nullptr) {
            model.kept_raw.push_back({StorageId{s}, "it does not lie in a packed file"});
            continue;
        }
        const auto [known, fresh] = numbers.try_emplace(source->file.get(), static_cast<std::uint32_t>(files.size()));
        if (fresh) {
            auto file = host::WeightFile::try_open(*source->file, host::FileAccess::cached);
            if (!file) { return file.error(); }
            files.push_back(std::move(*file));
        }
        bool is_packed = false;
        for (const PackedPart& part : *source->parts) { is_packed = is_packed || part.form != PackedForm::raw; }
        if (is_packed) { parts[s] = std::make_shared<std::vector<PackedPart>>(*source->parts); }
        if (blocks.empty() || blocks.back() >= options.block_bytes) { blocks.push_back(0); }
        std::uint64_t& total = blocks.back();
        block_of[s] = blocks.size() - 1;
        begin[s] = total;
        std::uint64_t at = 0;
        for (std::size_t i = 0; i < source->parts->size(); ++i) {
            const PackedPart& part = (*source->parts)[i];
            reads.push_back({s, known->second, block_of[s], &part, total + at});
            if (is_packed) { (*parts[s])[i].offset_bytes = at; }
            at += is_packed ? pool::round_up(part.packed_bytes, codec::packed_alignment_bytes) : part.packed_bytes;
        }
        end[s] = total + at;
        total = pool::round_up(end[s], codec::packed_alignment_bytes);
        if (is_packed) {
            model.raw_bytes += storage.bytes;
            model.packed_bytes += at;
        } else {
            model.kept_raw.push_back({StorageId{s}, "the file has it raw"});
        }
    }
    if (blocks.empty()) { return model; }
    std::vector<std::shared_ptr<host::Region>> regions;
    regions.reserve(blocks.size());
    for (const std::uint64_t bytes : blocks) {
        auto region = host::Region::try_map(bytes, true, residency::detail::memory_node_of(device));
        if (!region) { return region.error(); }
        regions.push_back(std::move(*region));
    }
    std::vector<std::atomic<std::size_t>> left(blocks.size());  // reads into each
    for (const detail::PartRead& read : reads) { ++left[read.block]; }

    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Error> error;
    std::atomic<bool> has_failed = false;
    std::atomic<std::size_t> next = 0;
    const auto fail = [&](Error what) {
        const std::lock_guard lock{mutex};
        if (!error) { error = std::move(what); }
        has_failed = true;
        changed.notify_all();
    };
    const auto work = [&] {
        for (std::size_t turn = next++; turn < reads.size() && !has_failed; turn = next++) {
            const detail::PartRead& read = reads[turn];
            const std::span to = regions[read.block]->span().subspan(static_cast<std::size_t>(read.to),
                                                                     static_cast<std::size_t>(read.part->packed_bytes));
            Status done = files[read.file].try_read(read.part->offset_bytes, to);
            if (done) {
                if (Status checked = codec::check_part(*read.part, to); !checked) {
                    done = Error{checked.error().kind(),
                                 "its part at offset " + std::to_string(read.part->offset_bytes) + ": " +
                                     checked.error().message() + "; pack the model again",
                                 FileLocation{files[read.file].path(), read.part->offset_bytes, {}, {}}};
                }
            }
            if (!done) {
                fail(done.error().in(catalog.describe(StorageId{read.storage})));
            } else if (--left[read.block] == 0) {
                const std::lock_guard lock{mutex};  // the one that waits has looked before, or will see it
                changed.notify_all();
            }
        }
    };
    std::vector<std::shared_ptr<const HostBytes>> memory;
    memory.reserve(blocks.size());
    const unsigned threads =
        options.threads > 0 ? options.threads : (std::min)(8U, (std::max)(1U, std::thread::hardware_concurrency()));
    {
        host::ThreadGroup group;
        if (auto started = group.try_start_some((std::min<std::size_t>)(threads, reads.size()), work); !started) {
            return started.error();
        }
        for (std::size_t block = 0; block < blocks.size(); ++block) {
            {
                std::unique_lock lock{mutex};
                changed.wait(lock, [&] { return left[block] == 0 || has_failed; });
            }
            if (has_failed) { break; }
            auto pinned = try_pin(device, std::move(regions[block]));
            if (!pinned) {
                fail(pinned.error());
                break;
            }
            memory.push_back(std::move(pinned->bytes));
        }
    }
    if (error) { return *error; }

    std::vector<StorageSource> sources;
    for (std::size_t s = 0; s < storages; ++s) {
        if (!begin[s]) {
            sources.push_back(catalog.storages()[s].source);
        } else if (parts[s] == nullptr) {
            sources.push_back(HostSource{memory[block_of[s]], *begin[s]});
        } else {
            sources.push_back(PackedHostSource{memory[block_of[s]], *begin[s], end[s] - *begin[s], parts[s]});
        }
    }
    auto loaded = catalog.try_with_sources(std::move(sources));
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

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/bf16_tiers.hpp"
#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"
#include "residency/packed/pinned_memory.hpp"
#include "residency/pool/rounding.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// How weights in host memory are packed.
struct PackOptions {
    /// The form of a weight. Empty: bf16_tiers for bf16, raw for others. A storage whose weights differ in it stays raw, and so does one
    /// that is to be bf16_tiles and is not one whole weight, row by row.
    std::function<PackedForm(const Weight&)> form{};
    unsigned threads = 0;  ///< 0: as many as the machine has
};

/// A storage that was not packed.
struct KeptRaw {
    StorageId storage = no_storage;  ///< of the catalog
    std::string why;                 ///< such as "its type is \"f32\", which no form takes"
};

/// A packed model in pinned host memory.
struct PackedModel {
    Catalog catalog;                 ///< the same weights; sources of what was packed are PackedHostSource
    std::uint64_t raw_bytes = 0;     ///< of the storages that were packed
    std::uint64_t packed_bytes = 0;  ///< that they take
    std::vector<KeptRaw> kept_raw;   ///< the others, in their order; not those without bytes
};

namespace detail {

/// A part that was packed.
struct Packed {
    PackedPart part;
    std::vector<std::byte> bytes;
};

/// The form of a storage. `why`: where it is raw.
[[nodiscard]] inline PackedForm form_of(const Catalog& catalog, StorageId id, const PackOptions& options,
                                        std::string& why) {
    const auto raw = [&](std::string text) {
        why = std::move(text);
        return PackedForm::raw;
    };
    const Storage& storage = catalog.storage(id);
    const auto weights = catalog.weights_of(id);
    if (storage.is_mutable) { return raw("kernels write it"); }
    if (storage.placement == Placement::host) { return raw("kernels read it from host memory"); }
    if (weights.empty()) { return raw("no weight lies in it"); }
    if (!std::holds_alternative<HostSource>(storage.source)) { return raw("its raw bytes are not in host memory"); }
    std::optional<PackedForm> form;
    for (const WeightId weight : weights) {
        const Weight& one = catalog.weight(weight);
        if (!codec::Bf16Tiers{}.takes(one.dtype)) {
            return raw("its type is " + residency::detail::quoted(one.dtype.name()) + ", which no form takes");
        }
        const PackedForm wanted = options.form ? options.form(one) : PackedForm::bf16_tiers;
        if (form && *form != wanted) { return raw("its weights have different forms"); }
        form = wanted;
    }
    if (storage.bytes % 2 != 0) { return raw("it has an odd number of bytes"); }
    if (*form == PackedForm::raw) { return raw("raw is the form that was asked for"); }
    if (*form != PackedForm::bf16_tiles) { return *form; }
    const Weight& whole = catalog.weight(weights.front());
    return weights.size() == 1 && whole.offset_bytes == 0 && whole.bytes == storage.bytes && whole.is_dense()
               ? PackedForm::bf16_tiles
               : raw("it is not one whole weight, row by row, as the form bf16_tiles asks");
}

}  // namespace detail

/// Packs the weights of a catalog that lie in host memory into pinned memory of the device, which is given back with the last catalog that
/// knows it: the device lives that long. What is not packed stays where it is, and the model says why. Blocks; needs memory for the packed bytes twice,
/// beside the raw ones. Every part is unpacked again and compared. Errors: out_of_memory, or the device's own.
template <Device D>
[[nodiscard]] Result<PackedModel> try_pack(D& device, const Catalog& catalog, const PackOptions& options = {}) {
    std::vector<codec::detail::PartJob> jobs;
    std::vector<std::string> why(catalog.storages().size());  // by storage that is not packed
    for (std::uint32_t s = 0; s < catalog.storages().size(); ++s) {
        const PackedForm form = detail::form_of(catalog, StorageId{s}, options, why[s]);
        if (form == PackedForm::raw) { continue; }
        const Shape& shape = catalog.weight(catalog.weights_of(StorageId{s}).front()).shape;
        codec::detail::append_jobs(s, catalog.storages()[s].bytes, form, shape, jobs);
    }
    std::vector<detail::Packed> done(jobs.size());
    std::mutex mutex;
    std::optional<Error> error;
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        std::vector<std::byte> scratch;
        for (std::size_t turn = next++; turn < jobs.size(); turn = next++) {
            const codec::detail::PartJob& job = jobs[turn];
            detail::Packed& packed = done[turn];
            const std::span raw{catalog.host_bytes(StorageId{job.storage}) + job.offset,
                                static_cast<std::size_t>(job.bytes)};
            auto part = codec::try_pack_part(job.form, job.extents, raw, packed.bytes, scratch);
            if (part) {
                packed.part = *part;
                // A raw part is taken from where it lies.
                packed.bytes.resize(part->form == PackedForm::raw ? 0 : static_cast<std::size_t>(part->packed_bytes));
                packed.bytes.shrink_to_fit();
                continue;
            }
            const std::lock_guard lock{mutex};
            if (!error) { error = part.error().in(catalog.describe(StorageId{job.storage})); }
        }
    };
    const unsigned threads =
        options.threads > 0 ? options.threads : (std::max)(1U, std::thread::hardware_concurrency());
    {
        host::ThreadGroup group;
        if (auto started = group.try_start_some((std::min<std::size_t>)(threads, jobs.size()), work); !started) {
            return started.error();
        }
    }
    if (error) { return *error; }

    // One range of pinned memory, so that what is neighbours in it can be copied together.
    PackedModel model{catalog, 0, 0, {}};
    std::vector<std::uint64_t> begin(catalog.storages().size(), 0), end(catalog.storages().size(), 0);
    std::vector<std::shared_ptr<std::vector<PackedPart>>> parts(catalog.storages().size());
    std::uint64_t total = 0;
    for (std::size_t k = 0; k < jobs.size();) {
        const std::uint32_t s = jobs[k].storage;
        std::uint64_t bytes = 0, raw = 0;
        std::size_t last = k;
        bool is_packed = false;
        for (; last < jobs.size() && jobs[last].storage == s; ++last) {
            bytes += pool::round_up(done[last].part.packed_bytes, codec::packed_alignment_bytes);
            raw += jobs[last].bytes;
            is_packed = is_packed || done[last].part.form != PackedForm::raw;
        }
        if (is_packed && bytes < raw) {
            parts[s] = std::make_shared<std::vector<PackedPart>>();
            begin[s] = total;
            std::uint64_t at = 0;
            for (; k < last; ++k) {
                done[k].part.offset_bytes = at;
                at += pool::round_up(done[k].part.packed_bytes, codec::packed_alignment_bytes);
                parts[s]->push_back(done[k].part);
            }
            total += at;
            end[s] = total;
            model.raw_bytes += raw;
        } else {
            why[s] = "it does not get smaller";
        }
        k = last;
    }
    for (std::uint32_t s = 0; s < catalog.storages().size(); ++s) {
        if (parts[s] != nullptr || catalog.storages()[s].bytes == 0) { continue; }
        model.kept_raw.push_back({StorageId{s}, std::move(why[s])});
    }
    model.packed_bytes = total;
    if (total == 0) { return model; }
    const auto memory = try_allocate_pinned(device, total);
    if (!memory) { return memory.error(); }
    std::byte* const base = memory->writable.data();
    for (std::size_t k = 0; k < jobs.size(); ++k) {
        const codec::detail::PartJob& job = jobs[k];
        if (parts[job.storage] == nullptr) { continue; }
        const PackedPart& part = done[k].part;
        std::byte* const to = base + begin[job.storage] + part.offset_bytes;
        const std::byte* const from = part.form == PackedForm::raw
                                          ? catalog.host_bytes(StorageId{job.storage}) + job.offset
                                          : done[k].bytes.data();
        std::memcpy(to, from, static_cast<std::size_t>(part.packed_bytes));
        const std::uint64_t place = pool::round_up(part.packed_bytes, codec::packed_alignment_bytes);
        std::memset(to + part.packed_bytes, 0, static_cast<std::size_t>(place - part.packed_bytes));
        done[k].bytes = {};
    }
    std::vector<StorageSource> sources;
    for (std::size_t s = 0; s < catalog.storages().size(); ++s) {
        if (parts[s] == nullptr) {
            sources.push_back(catalog.storages()[s].source);
        } else {
            sources.push_back(PackedHostSource{memory->bytes, begin[s], end[s] - begin[s], parts[s]});
        }
    }
    auto packed = catalog.try_with_sources(std::move(sources));
    if (!packed) { return packed.error(); }
    model.catalog = std::move(*packed);
    return model;
}

#if RESIDENCY_EXCEPTIONS
/// As try_pack(), but throws Exception.
template <Device D>
[[nodiscard]] PackedModel pack(D& device, const Catalog& catalog, const PackOptions& options = {}) {
    return unwrap(try_pack(device, catalog, options));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::packed

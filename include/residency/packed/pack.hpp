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
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/host/loading.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/number.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"
#include "residency/packed/device_packing.hpp"
#include "residency/packed/packer.hpp"
#include "residency/packed/pinned_memory.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// How far packing has come.
struct PackProgress {
    /// Read and packed so far. Where the device failed it may be less than before: threads of the host pack what is left.
    std::uint64_t raw_bytes = 0;
    std::uint64_t total_bytes = 0;  ///< of what is to be packed
};

/// How weights are packed.
struct PackOptions {
    /// The form of a weight. Empty: codec::chunk_form() of its type (bf16, f32, and fp8 of 4 bits of exponent have one; others stay raw). A
    /// storage whose weights differ in it stays raw, and so does one of a type that the form does not take, or one that is to be bf16_tiles
    /// and is not one whole weight, row by row.
    std::function<PackedForm(const Weight&)> form{};
    unsigned threads = 0;  ///< 0: as many as the machine has; at most 8 where a device packs, which then only read
                           ///< (others, at most 8 too, touch the memory for what it packs)
    /// Called now and then, by one thread at a time, which may not be the caller's. False cancels. Must not throw.
    std::function<bool(const PackProgress&)> progress{};
};

/// A storage that was not packed.
struct KeptRaw {
    StorageId storage = no_storage;  ///< of the catalog
    std::string why;                 ///< such as "its type is \"i8\", which no form takes"
};

/// A packed model in pinned host memory.
struct PackedModel {
    Catalog catalog;                     ///< the same weights; sources of what was packed are PackedHostSource
    std::uint64_t raw_bytes = 0;         ///< of the storages that were packed
    std::uint64_t packed_bytes = 0;      ///< that they take
    std::vector<KeptRaw> kept_raw;       ///< the others, in their order; not those without bytes
    std::uint64_t device_raw_bytes = 0;  ///< of what a packer was given: what it packed, or found not to get smaller
    std::string why_host;                ///< why threads of the host packed the rest of that; empty where there is none
};

namespace detail {

/// A part that was packed.
struct Packed {
    PackedPart part;
    std::vector<std::byte> bytes;  ///< of a raw part too, where they do not lie in host memory
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
    if (std::holds_alternative<PackedHostSource>(storage.source) ||
        std::holds_alternative<PackedSource>(storage.source)) {
        return raw("it is packed already");
    }
    if (!std::holds_alternative<HostSource>(storage.source) && !std::holds_alternative<FileSource>(storage.source)) {
        return raw("its raw bytes are neither in host memory nor in a file");
    }
    std::optional<PackedForm> form;
    for (const WeightId weight : weights) {
        const Weight& one = catalog.weight(weight);
        const PackedForm usual = codec::chunk_form(one.dtype), wanted = options.form ? options.form(one) : usual;
        const auto type = [&] { return "its type is " + residency::detail::quoted(one.dtype.name()); };
        if (usual == PackedForm::raw) { return raw(type() + ", which no form takes"); }
        // A form that is not known is refused when it packs.
        if (const auto taken = codec::takes(wanted, one.dtype); taken && !*taken) {
            return raw(type() + ", which the form " + codec::form_name(static_cast<std::uint32_t>(wanted)) +
                       " does not take");
        }
        if (form && *form != wanted) { return raw("its weights have different forms"); }
        form = wanted;
    }
    if (*form == PackedForm::raw) { return raw("raw is the form that was asked for"); }
    if (*form != PackedForm::bf16_tiles) { return *form; }
    const Weight& whole = catalog.weight(weights.front());
    return weights.size() == 1 && whole.offset_bytes == 0 && whole.bytes == storage.bytes && whole.is_dense()
               ? PackedForm::bf16_tiles
               : raw("it is not one whole weight, row by row, as the form bf16_tiles asks");
}

/// The files of a catalog, open.
class SourceFiles {
public:
    /// Opens the file of a storage, if it lies in one. Errors: io; mismatch: it was changed.
    [[nodiscard]] Status open(const Storage& storage) {
        const auto* const source = std::get_if<FileSource>(&storage.source);
        if (source == nullptr || numbers_.contains(source->file.get())) { return {}; }
        auto file = host::WeightFile::try_open(*source->file, host::FileAccess::cached);
        if (!file) { return file.error(); }
        numbers_.emplace(source->file.get(), files_.size());
        files_.push_back(std::move(*file));
        return {};
    }
    /// Bytes of a storage in host memory; those in a file are read into `buffer`. Any thread. Errors: as WeightFile::try_read().
    [[nodiscard]] Result<std::span<const std::byte>> read(const Storage& storage, std::uint64_t offset,
                                                          std::uint64_t bytes, std::vector<std::byte>& buffer) const {
        const auto count = static_cast<std::size_t>(bytes);
        if (const auto* const source = std::get_if<HostSource>(&storage.source)) {
            return std::span<const std::byte>{source->host->data() + source->offset_bytes + offset, count};
        }
        const auto& source = std::get<FileSource>(storage.source);
        buffer.resize(count);
        const host::WeightFile& file = files_[numbers_.at(source.file.get())];
        if (Status got = file.try_read(source.offset_bytes + offset, buffer); !got) { return got.error(); }
        return std::span<const std::byte>{buffer};
    }

private:
    std::unordered_map<const SourceFile*, std::size_t> numbers_;
    std::vector<host::WeightFile> files_;
};

/// Whether a storage lies in a file.
[[nodiscard]] inline bool is_in_file(const Storage& storage) noexcept {
    return std::holds_alternative<FileSource>(storage.source);
}

/// Tells how far packing is, from whichever thread.
class ProgressTeller {
public:
    ProgressTeller(const std::function<bool(const PackProgress&)>& tell, std::uint64_t total_bytes)
        : tell_{tell}, total_bytes_{total_bytes} {}
    /// Another thread that tells just now tells for this one too. False: cancelled.
    [[nodiscard]] bool tell(std::uint64_t more) {
        const std::uint64_t raw_bytes = raw_bytes_ += more;
        if (!tell_ || is_cancelled_) { return !is_cancelled_; }
        if (const std::unique_lock lock{mutex_, std::try_to_lock}; lock && !tell_({raw_bytes, total_bytes_})) {
            is_cancelled_ = true;
        }
        return !is_cancelled_;
    }
    /// Sets progress back to these bytes: what was done beyond them is done again.
    void go_back_to(std::uint64_t raw_bytes) { raw_bytes_ = raw_bytes; }
    [[nodiscard]] Error cancelled() const {
        return {ErrorKind::cancelled, "packing was cancelled after " + residency::detail::in_bytes(raw_bytes_)};
    }

private:
    const std::function<bool(const PackProgress&)>& tell_;
    std::uint64_t total_bytes_;
    std::atomic<std::uint64_t> raw_bytes_ = 0;
    std::atomic<bool> is_cancelled_ = false;
    std::mutex mutex_;
};

/// Packs parts by threads of the host, into memory of the device. `placed`: by storage of the catalog.
template <Device D>
[[nodiscard]] Status pack_by_threads(D& device, const Catalog& catalog, const std::vector<codec::detail::PartJob>& jobs,
                                     unsigned threads, ProgressTeller& progress, std::vector<PlacedStorage>& placed) {
    SourceFiles files;
    for (const codec::detail::PartJob& job : jobs) {
        if (Status opened = files.open(catalog.storages()[job.storage]); !opened) {
            return opened.error().in(catalog.describe(StorageId{job.storage}));
        }
    }
    std::vector<Packed> done(jobs.size());
    std::mutex mutex;
    std::optional<Error> error;
    std::atomic<bool> has_failed = false;
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        std::vector<std::byte> scratch, read;
        for (std::size_t turn = next++; turn < jobs.size() && !has_failed; turn = next++) {
            const codec::detail::PartJob& job = jobs[turn];
            const Storage& storage = catalog.storages()[job.storage];
            Packed& packed = done[turn];
            Status packs;
            if (const auto raw = files.read(storage, job.offset, job.bytes, read); !raw) {
                packs = raw.error();
            } else if (auto part = codec::try_pack_part(job.form, job.extents, *raw, packed.bytes, scratch); !part) {
                packs = part.error();
            } else {
                packed.part = *part;
                // A raw part is taken from where it lies.
                packed.bytes.resize(part->form == PackedForm::raw && !is_in_file(storage)
                                        ? 0
                                        : static_cast<std::size_t>(part->packed_bytes));
                packed.bytes.shrink_to_fit();
            }
            if (packs && progress.tell(job.bytes)) { continue; }
            const std::lock_guard lock{mutex};
            if (!error) {
                error = packs ? progress.cancelled() : packs.error().in(catalog.describe(StorageId{job.storage}));
            }
            has_failed = true;
        }
    };
    const unsigned machine = (std::max)(1U, std::thread::hardware_concurrency());
    {
        host::ThreadGroup group;
        const std::size_t count = (std::min<std::size_t>)(threads > 0 ? threads : machine, jobs.size());
        if (auto started = group.try_start_some(count, work); !started) { return started.error(); }
    }
    if (error) { return *error; }

    // One range of pinned memory, so that what is neighbours in it can be copied together.
    std::uint64_t total = 0;
    for (std::size_t k = 0; k < jobs.size();) {
        const std::uint32_t s = jobs[k].storage;
        PlacedStorage storage{{}, total, 0, std::make_shared<std::vector<PackedPart>>()};
        std::uint64_t raw = 0;
        bool is_packed = false;
        for (; k < jobs.size() && jobs[k].storage == s; ++k) {
            PackedPart& part = done[k].part;
            part.offset_bytes = storage.bytes;
            storage.bytes += pool::round_up(part.packed_bytes, codec::packed_alignment_bytes);
            raw += jobs[k].bytes;
            is_packed = is_packed || part.form != PackedForm::raw;
            storage.parts->push_back(part);
        }
        if (!is_packed || storage.bytes >= raw) { continue; }
        total += storage.bytes;
        placed[s] = std::move(storage);
    }
    if (total == 0) { return {}; }
    const auto memory = try_allocate_pinned(device, total);
    if (!memory) { return memory.error(); }
    std::byte* const base = memory->writable.data();
    for (std::size_t k = 0; k < jobs.size(); ++k) {
        const codec::detail::PartJob& job = jobs[k];
        PlacedStorage& storage = placed[job.storage];
        if (storage.parts == nullptr) { continue; }
        storage.memory = memory->bytes;
        const PackedPart& part = done[k].part;
        std::byte* const to = base + storage.begin + part.offset_bytes;
        const std::byte* const from =
            done[k].bytes.empty() ? catalog.host_bytes(StorageId{job.storage}) + job.offset : done[k].bytes.data();
        std::memcpy(to, from, static_cast<std::size_t>(part.packed_bytes));
        const std::uint64_t place = pool::round_up(part.packed_bytes, codec::packed_alignment_bytes);
        std::memset(to + part.packed_bytes, 0, static_cast<std::size_t>(place - part.packed_bytes));
        done[k].bytes = {};
    }
    return {};
}

}  // namespace detail

/// Packs the weights of a catalog into pinned memory of the device, which is given back with the last catalog that knows it: the device
/// lives that long. They lie in host memory, or in files, which are read meanwhile. What is not packed stays where it is, and the model says
/// why; of a catalog with weights in files, what is not packed is loaded as host::load() does. Blocks.
///
/// `packer`: packs on the device, from where packed bytes come back while the next raw ones go there; takes device memory meanwhile, up to some
/// GiB. Whatever stops it (no room, a failed call), threads of the host pack what is left, and the model says why. Null: they pack everything, which
/// needs memory for the packed bytes twice. Either way every part is unpacked again and compared. Errors: io and mismatch for files;
/// out_of_memory; cancelled; the device's own.
template <Device D>
[[nodiscard]] Result<PackedModel> try_pack(D& device, const Catalog& catalog, const PackOptions& options = {},
                                           const Packer<std::type_identity_t<D>>* packer = nullptr) {
    std::vector<codec::detail::PartJob> on_device, on_host;
    std::vector<std::string> why(catalog.storages().size());  // by storage that is not packed
    std::uint64_t total = 0;
    for (std::uint32_t s = 0; s < catalog.storages().size(); ++s) {
        const PackedForm form = detail::form_of(catalog, StorageId{s}, options, why[s]);
        if (form == PackedForm::raw) { continue; }
        const Shape& shape = catalog.weight(catalog.weights_of(StorageId{s}).front()).shape;
        const bool is_taken = FlagDevice<D> && packer != nullptr && packer->takes(form);
        codec::detail::append_jobs(s, catalog.storages()[s].bytes, form, shape, is_taken ? on_device : on_host);
        why[s] = "it does not get smaller";
        total += catalog.storages()[s].bytes;
    }
    detail::ProgressTeller progress{options.progress, total};
    PackedModel model{catalog, 0, 0, {}, 0, {}};
    std::vector<detail::PlacedStorage> placed(catalog.storages().size());
    if constexpr (FlagDevice<D>) {
        if (!on_device.empty()) {
            const std::function<bool(std::uint64_t)> tell = [&](std::uint64_t bytes) { return progress.tell(bytes); };
            detail::DevicePacking<D> packing{device, *packer, on_device, tell};
            const Status packs = packing.run(catalog, options.threads);
            if (!packs && packs.error().kind() == ErrorKind::cancelled) { return progress.cancelled(); }
            std::size_t job = 0;
            for (detail::PlacedStorage& storage : packing.take_placed()) {
                const std::uint32_t s = on_device[job].storage;
                for (; job < on_device.size() && on_device[job].storage == s; ++job) {
                    model.device_raw_bytes += on_device[job].bytes;
                }
                placed[s] = std::move(storage);
            }
            if (!packs) {
                model.why_host = packs.error().message();
                progress.go_back_to(model.device_raw_bytes);
            }
            on_host.insert(on_host.end(), on_device.begin() + static_cast<std::ptrdiff_t>(job), on_device.end());
        }
    }
    if (!on_host.empty()) {
        if (Status packs = detail::pack_by_threads(device, catalog, on_host, options.threads, progress, placed);
            !packs) {
            return packs.error();
        }
    }

    std::vector<StorageSource> sources;
    sources.reserve(catalog.storages().size());
    bool loads = false;
    for (std::uint32_t s = 0; s < catalog.storages().size(); ++s) {
        const Storage& storage = catalog.storages()[s];
        detail::PlacedStorage& one = placed[s];
        if (one.parts != nullptr) {
            model.raw_bytes += storage.bytes;
            model.packed_bytes += one.bytes;
            sources.push_back(PackedHostSource{one.memory, one.begin, one.bytes, one.parts});
            continue;
        }
        loads = loads || (detail::is_in_file(storage) && storage.bytes != 0);
        sources.push_back(storage.source);
        if (storage.bytes != 0) { model.kept_raw.push_back({StorageId{s}, std::move(why[s])}); }
    }
    auto packed = catalog.try_with_sources(std::move(sources));
    if (!packed) { return packed.error(); }
    model.catalog = std::move(*packed);
    if (loads) {
        host::LoadOptions rest;
        rest.threads = options.threads;
        auto loaded = host::try_load(device, model.catalog, rest);
        if (!loaded) { return loaded.error(); }
        model.catalog = std::move(loaded->catalog);
    }
    return model;
}

#if RESIDENCY_EXCEPTIONS
/// As try_pack(), but throws Exception.
template <Device D>
[[nodiscard]] PackedModel pack(D& device, const Catalog& catalog, const PackOptions& options = {},
                               const Packer<std::type_identity_t<D>>* packer = nullptr) {
    return unwrap(try_pack(device, catalog, options, packer));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::packed

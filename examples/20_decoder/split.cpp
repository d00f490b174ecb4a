// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "split.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <variant>

#include "bf16.hpp"
#include "residency/error.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/storage.hpp"

namespace decoder {
namespace {

using residency::FileSource;
using residency::WeightId;

void divide(std::uint32_t& count, const char* what, std::uint32_t gpus, std::uint32_t multiple = 1) {
    if (count % (gpus * multiple) != 0) {
        const std::string of = multiple == 1 ? "" : ", in multiples of " + std::to_string(multiple);
        residency::throw_error({residency::ErrorKind::unsupported,
                                "--gpus " + std::to_string(gpus) + ": " + std::to_string(count) + " " + what +
                                    " are not divided by it" + of + ": give a number of GPUs that divides them"});
    }
    count /= gpus;
}

}  // namespace

Split::Split(const Checkpoint& on_disk, std::uint32_t gpus) : whole_{on_disk}, shares_(gpus, on_disk) {
    Config config = whole_.config;
    divide(config.heads, "heads (num_attention_heads)", gpus);
    divide(config.cache_heads, "heads of keys and values (num_key_value_heads)", gpus);
    divide(config.inner, "columns of the feed-forward (intermediate_size)", gpus, 8);
    std::uint32_t words = config.words;  // all of them are gathered again
    divide(words, "words (vocab_size)", gpus);

    const residency::Catalog& catalog = whole_.catalog;
    places_.resize(catalog.weights().size());
    const auto cut = [&](const Matrix& matrix, Cut way) {
        places_[index(matrix.weight)].cut = way;
        if (matrix.bias && way == Cut::rows) { places_[index(*matrix.bias)].cut = way; }
    };
    for (const Layer& layer : whole_.layers) {
        for (const Matrix* each : {&layer.query, &layer.key, &layer.value, &layer.gate, &layer.up}) {
            cut(*each, Cut::rows);
        }
        for (const Matrix* each : {&layer.output, &layer.down}) { cut(*each, Cut::columns); }
    }
    cut({whole_.head, {}}, config.tied ? Cut::table : Cut::rows);
    for (std::size_t i = 0; i < places_.size(); ++i) {
        const residency::Weight& weight = catalog.weights()[i];
        if (!std::holds_alternative<FileSource>(catalog.storage(weight.storage).source)) {
            residency::throw_error({residency::ErrorKind::unsupported,
                                    "the weight \"" + weight.name +
                                        "\" is packed, and several GPUs take raw weights only: give the folder as "
                                        "Hugging Face publishes it, or leave out --gpus"});
        }
        Place& place = places_[i];
        place.bytes = place.cut == Cut::none ? weight.bytes : weight.bytes / gpus;
        if (place.cut == Cut::table) { continue; }
        constexpr std::uint64_t alignment = residency::Storage::default_alignment_bytes;
        place.offset = (share_bytes_ + alignment - 1) / alignment * alignment;
        share_bytes_ = place.offset + place.bytes;
    }
    for (std::uint32_t rank = 0; rank < gpus; ++rank) {
        Checkpoint& share = shares_[rank];
        share.config = config;
        share.part = {.rank = rank, .of = gpus, .sums = true};
        for (Layer& layer : share.layers) {
            if (rank != 0) { layer.output.bias.reset(); }  // of a sum, one part has it
        }
    }
    build_catalogs([](std::size_t, std::size_t) { return residency::StorageSource{}; });
}

void Split::build_catalogs(const std::function<residency::StorageSource(std::size_t, std::size_t)>& source) {
    const std::uint64_t gpus = shares_.size();
    for (std::size_t share = 0; share < gpus; ++share) {
        residency::CatalogBuilder builder;  // the ids stay as they are
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const residency::Weight& weight = whole_.catalog.weights()[i];
            residency::Shape shape = weight.shape;
            if (places_[i].cut != Cut::none) { shape[places_[i].cut == Cut::columns ? 1 : 0] /= gpus; }
            builder.add(weight.name, residency::dtype::bf16, shape, source(share, i));
        }
        shares_[share].catalog = builder.build();
    }
}

residency::Catalog Split::table() const {
    residency::CatalogBuilder builder;
    builder.add(whole_.words().name, residency::dtype::bf16, whole_.words().shape, whole_.words_storage().source);
    return builder.build();
}

void Split::read(std::size_t weight, std::span<std::byte* const> memory) const {
    const Place& place = places_[weight];
    const residency::Weight& whole = whole_.catalog.weights()[weight];
    const auto& source = std::get<FileSource>(whole_.catalog.storage(whole.storage).source);
    const auto file =
        residency::unwrap(residency::host::WeightFile::try_open(*source.file, residency::host::FileAccess::cached));
    const std::uint64_t begin = source.offset_bytes + whole.offset_bytes;
    if (place.cut != Cut::columns) {
        for (std::size_t share = 0; share < memory.size(); ++share) {
            residency::unwrap(file.try_read(begin + (place.cut == Cut::rows ? share * place.bytes : 0),
                                            {memory[share] + place.offset, place.bytes}));
        }
        return;
    }
    std::vector<std::byte> all(whole.bytes);
    residency::unwrap(file.try_read(begin, all));
    const std::uint64_t row = whole.shape[1] * sizeof(Bf16), part = row / memory.size();
    for (std::size_t share = 0; share < memory.size(); ++share) {
        for (std::uint64_t i = 0; i < whole.shape[0]; ++i) {
            std::memcpy(memory[share] + place.offset + i * part, all.data() + i * row + share * part, part);
        }
    }
}

void Split::load(std::span<std::byte* const> memory, const residency::Catalog& table) {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i = next++; i < places_.size(); i = next++) {
            if (places_[i].cut != Cut::table) { read(i, memory); }
        }
    };
    std::vector<std::future<void>> threads;
    for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1U, 16U); ++i) {
        threads.push_back(std::async(std::launch::async, work));
    }
    for (auto& each : threads) { each.wait(); }
    for (auto& each : threads) { each.get(); }

    std::vector<std::shared_ptr<const residency::HostBytes>> hosts;
    for (std::byte* at : memory) {
        hosts.push_back(residency::HostBytes::borrow({at, share_bytes_}, residency::HostMemory::pinned));
    }
    const auto& loaded = table.storage(table.weight(WeightId{0}).storage);
    build_catalogs([&](std::size_t share, std::size_t weight) {
        const Place& place = places_[weight];
        if (place.cut != Cut::table) { return residency::HostSource{hosts[share], place.offset}; }
        const auto& rows = std::get<residency::HostSource>(loaded.source);
        return residency::HostSource{rows.host, rows.offset_bytes + share * place.bytes};
    });
}

}  // namespace decoder

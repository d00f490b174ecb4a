// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch_archive.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/zip.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE const ZipDirectory::Entry* TorchArchive::find_pickle(const ZipDirectory& zip) noexcept {
    for (const auto& entry : zip.entries()) {
        if (entry.name.ends_with(pickle_tail) && entry.name.find('/') == entry.name.size() - pickle_tail.size()) {
            return &entry;
        }
    }
    return nullptr;
}

RESIDENCY_INLINE Result<TorchArchive> TorchArchive::try_read(const Input& input, const ZipDirectory& zip,
                                                             std::uint64_t begin, std::uint64_t longest_pickle) {
    const ZipDirectory::Entry* entry = find_pickle(zip);
    if (entry == nullptr) {
        return unsupported(input.path(), begin, "a ZIP archive that torch.save did not write: it has no data.pkl");
    }
    TorchArchive archive{input, zip, entry->name.substr(0, entry->name.size() - pickle_tail.size() + 1)};
    if (const auto* order = zip.find(archive.folder_ + "byteorder")) {
        const auto range = zip.try_locate(input, *order);
        if (!range) { return range.error(); }
        const auto text = input.try_text(range->offset, (std::min)(range->bytes, std::uint64_t{16}));
        if (!text) { return text.error(); }
        if (*text != "little") {
            return unsupported(input.path(), range->offset,
                               "tensors of another byte order; load them with PyTorch and save them on this machine",
                               shown(*text), "\"little\"");
        }
    }
    const auto range = zip.try_locate(input, *entry);
    if (!range) { return range.error(); }
    if (range->bytes > longest_pickle) {
        return malformed(input.path(), range->offset, "the pickle is too long", std::to_string(range->bytes) + " bytes",
                         "at most " + std::to_string(longest_pickle));
    }
    auto text = input.try_text(range->offset, range->bytes);
    if (!text) { return text.error(); }
    archive.pickle_ = std::move(*text);
    archive.pickle_offset_ = range->offset;
    return archive;
}

RESIDENCY_INLINE Result<ZipDirectory::Range> TorchArchive::try_locate(const PickledStorage& storage) const {
    const auto* record = zip_->find(folder_ + "data/" + storage.key);
    if (record == nullptr) {
        return malformed(input_->path(), pickle_offset_, "a tensor without its data", shown(storage.key));
    }
    auto data = zip_->try_locate(*input_, *record);
    if (data && data->bytes != storage.bytes) {
        return malformed(input_->path(), data->offset, "the data of a tensor have another size",
                         std::to_string(data->bytes) + " bytes", std::to_string(storage.bytes));
    }
    return data;
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/zip.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// A ZIP archive of torch.save: a folder with data.pkl, and a record data/KEY for each storage. The input and the directory must
/// outlive it.
class TorchArchive {
public:
    /// The first pickle of such an archive; null in any other archive.
    [[nodiscard]] static const ZipDirectory::Entry* find_pickle(const ZipDirectory& zip) noexcept;

    /// The archive with that directory, from byte `begin` of the input on. Errors: malformed, also where the pickle is longer
    /// than `longest_pickle` bytes; unsupported where it is no such archive or has another byte order.
    [[nodiscard]] static Result<TorchArchive> try_read(const Input& input, const ZipDirectory& zip, std::uint64_t begin,
                                                       std::uint64_t longest_pickle);

    [[nodiscard]] const std::string& pickle() const noexcept { return pickle_; }
    /// Offset of the pickle, from the start of the file.
    [[nodiscard]] std::uint64_t pickle_offset() const noexcept { return pickle_offset_; }

    /// The range of a storage in the file.
    [[nodiscard]] Result<ZipDirectory::Range> try_locate(const PickledStorage& storage) const;

private:
    static constexpr std::string_view pickle_tail = "/data.pkl";

    TorchArchive(const Input& input, const ZipDirectory& zip, std::string folder) noexcept
        : input_{&input}, zip_{&zip}, folder_{std::move(folder)} {}

    const Input* input_;
    const ZipDirectory* zip_;
    std::string folder_;  ///< with its slash
    std::string pickle_;
    std::uint64_t pickle_offset_ = 0;
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/torch_archive.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/zip.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// What torch.save wrote before PyTorch 1.6: pickles one after another (a magic number, a version, the byte order, the model, the
/// keys of its storages), then each storage, as the number of its elements and its bytes. The input must outlive it.
class TorchStream {
public:
    /// Errors: malformed, also where the pickles are longer than `longest_pickle` bytes together; unsupported where it is of
    /// another version or byte order.
    [[nodiscard]] static Result<TorchStream> try_read(const Input& input, std::uint64_t longest_pickle);

    /// The pickle of the model.
    [[nodiscard]] const TorchPickle& pickle() const noexcept { return pickle_; }

    /// The range of a storage in the file.
    [[nodiscard]] Result<ZipDirectory::Range> try_locate(const PickledStorage& storage) const;

private:
    TorchStream(const Input& input, TorchPickle pickle) noexcept : input_{&input}, pickle_{std::move(pickle)} {}

    /// Finds the storages whose keys are given, from that byte of the file on.
    [[nodiscard]] Status locate_all(const TorchPickle& keys, std::uint64_t at);

    const Input* input_;
    TorchPickle pickle_;
    std::unordered_map<std::string, ZipDirectory::Range> storages_;  // by key
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/torch_stream.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Blocks. Appends the files of an index, which lie beside it, each by `append(input)`, a Status. Error malformed: the index and
/// the files do not have the same tensors.
[[nodiscard]] RESIDENCY_INLINE Status append_shards(ModelFile& model, const Input& input,
                                                    const std::function<Status(const Input&)>& append);

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/shard_index.ipp"
#endif

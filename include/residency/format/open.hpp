// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/model_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// Reads a model file of any known format, told by its first bytes and its name. Errors: as the readers; unsupported where it
/// looks like none of them. Blocks.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> try_read_model(const std::string& path);
#if RESIDENCY_EXCEPTIONS
[[nodiscard]] inline ModelFile read_model(const std::string& path) { return unwrap(try_read_model(path)); }
#endif

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/open.ipp"
#endif

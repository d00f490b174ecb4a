// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

/// Selects prefetching by a plan. Goes with evict::Planned and pool::Virtual.
struct Planned {};

}}}  // namespace residency::RESIDENCY_ABI::prefetch

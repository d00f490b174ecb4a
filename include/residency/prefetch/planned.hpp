// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"

namespace residency::inline RESIDENCY_ABI::prefetch {

/// What comes next is read from a plan. Goes with evict::Planned and pool::Virtual.
struct Planned {};

}  // namespace residency::inline RESIDENCY_ABI::prefetch

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

/// What comes next is read from a plan. Goes with evict::Planned and pool::Virtual.
struct Planned {};

}}}  // namespace residency::RESIDENCY_ABI::prefetch

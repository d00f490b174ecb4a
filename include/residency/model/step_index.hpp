// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The number of a step counted across passes: step i of pass p of a schedule of n steps is p · n + i. Without a schedule, and in a
/// plain trace, the number of the access.
using StepIndex = std::uint64_t;

}}  // namespace residency::RESIDENCY_ABI

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "operations.hpp"
#include "ranks.hpp"

namespace decoder {

// The operations on the host's processor: the kernels of the simulated device.
void compute(const Upload& o);
void compute(const Embed& o);
void compute(const Normalise& o);
void compute(const Unpack& o);
void compute(const Linear& o);
void compute(const Rotate& o);
void compute(const Attend& o);
/// Blocks until the kernels of all ranks are here; where one has failed, nothing is done.
void compute(const Sum& o, const Rank& rank);
void compute(const Gather& o, const Rank& rank);
void compute(const Add& o);
void compute(const Gate& o);
void compute(const Choose& o);

}  // namespace decoder

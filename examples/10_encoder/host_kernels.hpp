// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "operations.hpp"

namespace encoder {

// The operations on the host's processor: the kernels of the simulated device.
void compute(const Embed& o);
void compute(const Linear& o);
void compute(const Attention& o);
void compute(const AddNormalise& o);
void compute(const Pool& o);

}  // namespace encoder

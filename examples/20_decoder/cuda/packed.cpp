// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../packed.hpp"

#include "gpu.hpp"

namespace decoder {

template Outcome generate_packed(Gpu&, const TextJob<Gpu>&);

}  // namespace decoder

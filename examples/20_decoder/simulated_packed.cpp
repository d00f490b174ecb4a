// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"
#include "simulated.hpp"

namespace decoder {

template Outcome generate_packed(Simulated&, const TextJob<Simulated>&);

}  // namespace decoder

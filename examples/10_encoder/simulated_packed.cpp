// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"
#include "simulated.hpp"

namespace encoder {

template PackedResults run_packed(Simulated&, const Job&, const Checkpoint&, const Workspace<Simulated>&);

}  // namespace encoder

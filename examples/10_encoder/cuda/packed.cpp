// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../packed.hpp"

#include "gpu.hpp"

namespace encoder {

template PackedResults run_packed(Gpu&, const Job&, const Checkpoint&, const Workspace<Gpu>&);

}  // namespace encoder

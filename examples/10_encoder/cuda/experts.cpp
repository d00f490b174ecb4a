// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

namespace encoder {

template Outcome run<residency::Experts<residency::CudaDevice>>(Gpu&, const Checkpoint&, const Workspace<Gpu>&,
                                                                const residency::Budget&, bool, int, bool);

}  // namespace encoder

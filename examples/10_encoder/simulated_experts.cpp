// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "simulated.hpp"

namespace encoder {

template Outcome run<residency::Experts<residency::SimulatedDevice>>(Simulated&, const Checkpoint&,
                                                                     const Workspace<Simulated>&,
                                                                     const residency::Budget&, bool, int, bool);

}  // namespace encoder

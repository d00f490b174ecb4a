// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "simulated.hpp"

namespace decoder {

template ColdStart start_cold(Simulated&, const ColdJob&, Workspace<Simulated>&);

}  // namespace decoder

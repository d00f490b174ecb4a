// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

namespace decoder {

template ColdStart start_cold(Gpu&, const ColdJob&, Workspace<Gpu>&);

}  // namespace decoder

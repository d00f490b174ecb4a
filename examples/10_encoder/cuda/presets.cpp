// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

namespace encoder {

template std::vector<std::pair<std::string, Outcome>> run_presets(Gpu&, const Job&, const Checkpoint&,
                                                                  const Workspace<Gpu>&);

}  // namespace encoder

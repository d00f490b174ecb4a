// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/support/terminal.hpp"
#include "residency/host/loading.hpp"

namespace examples {

/// To load weights into pinned memory, with a progress bar, which outlives the load.
[[nodiscard]] inline residency::host::LoadOptions pinned_options(Progress& bar) {
    residency::host::LoadOptions options;
    options.tier = residency::host::Tier::pinned;
    options.progress = [&bar](const residency::host::LoadProgress& progress) {
        bar.show(progress.loaded_bytes, progress.total_bytes);
        return true;
    };
    return options;
}
/// The weights in pinned memory. They end before the device. Blocks.
template <residency::Device D>
[[nodiscard]] residency::Catalog load_pinned(D& device, const residency::Catalog& catalog) {
    Progress bar{"loading"};
    return residency::host::load(device, catalog, pinned_options(bar)).catalog;
}

}  // namespace examples

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "residency/host/loading.hpp"
#include "terminal.hpp"

namespace encoder {

/// The weights in pinned memory, with a progress bar. They end before the device. Blocks.
template <residency::Device D>
[[nodiscard]] residency::Catalog load_pinned(D& device, const residency::Catalog& catalog) {
    Progress bar{"loading"};
    residency::host::LoadOptions options;
    options.tier = residency::host::Tier::pinned;
    options.progress = [&](const residency::host::LoadProgress& progress) {
        bar.show(progress.loaded_bytes, progress.total_bytes);
        return true;
    };
    return residency::host::load(device, catalog, std::move(options)).catalog;
}

}  // namespace encoder

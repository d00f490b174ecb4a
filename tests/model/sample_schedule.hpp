// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "residency/model/catalog.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/schedule_builder.hpp"

// A small catalog and a schedule over it, with tied, empty and mutable weights, times and names.
namespace sample_schedule {

using namespace residency;
using namespace std::chrono_literals;

inline CatalogBuilder parts() {
    CatalogBuilder builder;
    builder.add("embed", dtype::u8, {100});
    builder.add("layer.0", dtype::u8, {30});
    builder.add("layer.1", dtype::u8, {40});
    builder.tie("head", "embed");
    builder.add("empty", dtype::u8, {0});
    builder.add("state", dtype::u8, {1000}, {}, true);
    return builder;
}
inline Catalog model() { return *parts().try_build(); }
inline Schedule sample(const Catalog& catalog) {
    return *ScheduleBuilder{catalog}
                .step({"embed"}, 10us, "in")
                .step({"layer.0", "state"})
                .step({"layer.0", "layer.1", "empty"}, 0ns, "mid")
                .step({"head", "embed"}, 3ns)
                .try_build();
}

}  // namespace sample_schedule

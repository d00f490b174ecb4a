// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "residency/packed.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "run.hpp"

namespace encoder {

template <class Backend>
PackedResults run_packed(Backend& backend, const Job& job, const Checkpoint& model, const Workspace<Backend>& work) {
    using Device = typename Backend::Device;
    // On a virtual clock one pass takes what the next does.
    constexpr bool is_virtual = std::is_same_v<Device, residency::SimulatedDevice>;
    constexpr int turns = 3, passes = is_virtual ? 2 : 20;
    PackedResults results;
    Checkpoint packed = model;
    {
        auto made = residency::packed::pack(backend.device(), model.catalog);
        results.raw_bytes = made.raw_bytes;
        results.packed_bytes = made.packed_bytes;
        packed.catalog = std::move(made.catalog);
    }
    for (int turn = 0; turn < turns; ++turn) {
        results.raw.push_back(run<residency::Planned<Device>>(backend, model, work, job.budget, true, passes, false));
        results.packed.push_back(
            run<residency::Packed<Device>>(backend, packed, work, job.budget, true, passes, false));
    }
    return results;
}

}  // namespace encoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../run.hpp"
#include "examples/support/cuda_backend.hpp"
#include "kernels.hpp"
#include "residency/planned.hpp"

namespace encoder {

/// Runs operations as kernels of a GPU.
class Gpu : public examples::CudaBackend {
public:
    [[nodiscard]] static const residency::Unpacker<Device>& unpacker() { return encoder::unpacker(); }
    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        timed(name, [&] { examples::check_launch(encoder::launch(operation, stream()), name); });
    }
};

extern template std::vector<std::pair<std::string, Outcome>> run_presets(Gpu&, const Job&, const Checkpoint&,
                                                                         const Workspace<Gpu>&);
extern template Outcome run<residency::Experts<residency::CudaDevice>>(Gpu&, const Checkpoint&, const Workspace<Gpu>&,
                                                                       const residency::Budget&, bool, int, bool);

}  // namespace encoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../run.hpp"
#include "examples/support/cuda_backend.hpp"
#include "kernels.hpp"

namespace experts {

class Gpu : public examples::CudaBackend {
public:
    static constexpr bool times_fills = true;
    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        timed(name, [&] { examples::check_launch(experts::launch(operation, stream()), name); });
    }
    [[nodiscard]] static const residency::Unpacker<Device>& unpacker() { return experts::unpacker(); }
    [[nodiscard]] static const auto& server() { return experts::server(); }
};

}  // namespace experts

GENERATE(extern, experts::Gpu, residency::Cached);
GENERATE(extern, experts::Gpu, residency::Experts);
GENERATE(extern, experts::Gpu, residency::PackedExperts);

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/torch.hpp"

#include <cstddef>
#include <cstdint>

#include "../support/fuzz_format.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    support::with_input(data, bytes, [](const residency::format::Input& input) {
        support::check_model(residency::format::try_read_torch(input));
    });
    return 0;
}

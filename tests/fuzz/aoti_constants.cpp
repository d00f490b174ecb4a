// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/aoti.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../support/fuzz_format.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    support::with_input(data, bytes, [](const residency::format::Input& input) {
        const auto constants = residency::format::try_read_aoti_constants(input);
        if (!constants) { return support::check_refusal(constants.error()); }
        // The text stands for the blob too: what matters is that no table makes a view outside of it.
        support::check_model(residency::format::try_read_aoti_blob(input, *constants));
        std::uint64_t total = 0;
        for (const auto& constant : *constants) { total += constant.storage_bytes; }
        if (total > (1U << 20)) { return; }
        const std::vector<std::byte> blob(static_cast<std::size_t>(total));
        support::check_model(
            residency::format::try_read_aoti_blob(residency::format::Input::over(blob, "blob"), *constants));
    });
    return 0;
}

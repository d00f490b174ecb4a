// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/gguf.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../support/fuzz_format.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    support::with_input(data, bytes, [](const residency::format::Input& input) {
        auto file = residency::format::try_read_gguf(input);
        file ? support::check_model(std::move(file->model)) : support::check_refusal(file.error());
    });
    return 0;
}

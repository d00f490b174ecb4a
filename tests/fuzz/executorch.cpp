// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/executorch.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "../support/fuzz_format.hpp"

namespace format = residency::format;

/// A file; or a number of 4 bytes, a file of that many bytes, and another one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    constexpr std::size_t header = 4, smallest = 256;
    std::uint32_t first = 0;
    if (bytes >= header) { std::memcpy(&first, data, header); }
    if (first < smallest || first > bytes - header) {
        support::with_input(data, bytes, [](const format::Input& input) {
            support::check_model(format::try_read_executorch({&input, 1}));
        });
        return 0;
    }
    const auto copy_of = [](const std::uint8_t* from, std::size_t count) {
        auto copy = std::make_unique<std::byte[]>(count);
        if (count != 0) { std::memcpy(copy.get(), from, count); }
        return copy;
    };
    const std::size_t second = bytes - header - first;
    const auto of_first = copy_of(data + header, first), of_second = copy_of(data + header + first, second);
    const format::Input inputs[] = {format::Input::over({of_first.get(), first}, "first"),
                                    format::Input::over({of_second.get(), second}, "second")};
    support::check_model(format::try_read_executorch(inputs));
    return 0;
}

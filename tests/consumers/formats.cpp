// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A program that uses the component formats; header-only or compiled.
#include <cstdio>

#include "residency/format/open.hpp"

int main() {
    const auto missing = residency::format::try_read_model("/nowhere/model.safetensors");
    if (missing) { return 1; }
    std::printf("consumer of residency::formats works: %s\n", missing.error().message().c_str());
}

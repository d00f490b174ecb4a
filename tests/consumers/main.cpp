// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What a user's program does with the library; every consumer builds and runs it.
#include <cstdio>
#include <string>

#include "residency/residency.hpp"

namespace {

residency::Result<int> parse(const std::string& text) {
    if (text.size() != 1 || text[0] < '0' || text[0] > '9') {
        return residency::Error{residency::ErrorKind::malformed, "not a digit: " + text};
    }
    return text[0] - '0';
}

}  // namespace

int main() {
    const auto good = parse("7");
    const auto bad = parse("x");
    if (!good || *good != 7 || bad || bad.error().message() != "not a digit: x") { return 1; }
    std::printf("consumer of residency %d.%d.%d works\n", RESIDENCY_VERSION_MAJOR, RESIDENCY_VERSION_MINOR,
                RESIDENCY_VERSION_PATCH);
}

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: nodiscard
#include "residency/error.hpp"

residency::Status flush();

int main() {
#ifdef SHOULD_FAIL
    flush();
#else
    return flush() ? 0 : 1;
#endif
}

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <iostream>

namespace examples {

/// What a program exits with: `status`, or 1 and a line of message where not all that it printed was written.
[[nodiscard]] inline int finish_output(const char* program, int status) {
    std::cout.flush();
    const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
    if (is_written) { return status; }
    std::fprintf(stderr, "%s: standard output: not all of it could be written: make room, or send it elsewhere\n",
                 program);
    return 1;
}

}  // namespace examples

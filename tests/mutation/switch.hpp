// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Included before everything else in a program with switched mutants. MUTANT=number in the environment turns one of them on;
// MUTANTS_REACHED=file writes the numbers of those that the program came by, one a line, when it ends.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace mutation {

inline unsigned char reached[1 << 16];

struct Switch {
    int on = -1;
    Switch() {
        if (const char* const text = std::getenv("MUTANT")) { on = std::atoi(text); }
    }
    ~Switch() {
        const char* const path = std::getenv("MUTANTS_REACHED");
        std::FILE* const file = path != nullptr ? std::fopen(path, "w") : nullptr;
        if (file == nullptr) { return; }
        for (int i = 0; i < 1 << 16; ++i) {
            if (reached[i] != 0) { std::fprintf(file, "%d\n", i); }
        }
        std::fclose(file);
    }
};
inline Switch the_switch;

// Whether the mutant of this number is on. Never while the compiler evaluates.
constexpr bool is_on(int number) noexcept {
    if (std::is_constant_evaluated()) { return false; }
    reached[number] = 1;
    return the_switch.on == number;
}

}  // namespace mutation

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iostream>
#include <string>

#include "residency/error.hpp"
#include "residency/model/quoted.hpp"

namespace lab {

/// The program ends with 2: what was wrong has been said.
struct Failed {};

/// One line that says why, and the end of the program with 2.
[[noreturn]] inline void fail(const std::string& why) {
    std::cerr << "residency-lab: " << residency::detail::escaped(why) << "\n";
    throw Failed{};
}
[[noreturn]] inline void fail(const residency::Error& error) { fail(error.message()); }

}  // namespace lab

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/error.hpp"

namespace lab {

/// One line that says why, and the end of the program with 2: throws CLI::RuntimeError.
[[noreturn]] void fail(const residency::Error& error);

}  // namespace lab

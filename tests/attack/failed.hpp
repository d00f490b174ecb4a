// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace attack {

/// Says which case and which operation broke which rule, and ends the program.
[[noreturn]] void failed(std::string_view rule, std::string_view detail = {});

}  // namespace attack

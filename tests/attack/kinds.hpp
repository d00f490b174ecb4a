// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tests/attack/subject.hpp"

namespace attack {

// Each in a file of its own, which compiles alone.
void add_planned(std::vector<Kind>& kinds);
void add_by_schedule(std::vector<Kind>& kinds);
void add_by_value(std::vector<Kind>& kinds);
void add_by_history(std::vector<Kind>& kinds);
void add_staged(std::vector<Kind>& kinds);
void add_packed(std::vector<Kind>& kinds);
void add_packed_online(std::vector<Kind>& kinds);

}  // namespace attack

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lab {

using Value = std::variant<std::string, std::uint64_t, double>;

/// The records as a JSON array of objects, each with a value for every name, in this order.
std::string json_records(const std::vector<std::string>& names, const std::vector<std::vector<Value>>& records);

}  // namespace lab

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/records.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace lab {

std::string json_records(const std::vector<std::string>& names, const std::vector<std::vector<Value>>& records) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const std::vector<Value>& record : records) {
        nlohmann::ordered_json& entry = out.emplace_back();
        for (std::size_t i = 0; i < names.size(); ++i) {
            std::visit([&](const auto& value) { entry[names[i]] = value; }, record[i]);
        }
    }
    return out.dump(1);
}

}  // namespace lab

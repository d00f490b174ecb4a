// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The unit of the table: nlohmann/json's parse and dump.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

int main(int argc, char** argv) {
    const auto value = nlohmann::json::parse(argc > 1 ? argv[1] : "{}");
    std::cout << value.dump() << '\n';
}

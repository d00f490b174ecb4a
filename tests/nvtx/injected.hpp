// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace injected {

/// What the tool in injected.cpp was called with.
struct Seen {
    std::map<std::uint64_t, std::string> open;
    std::vector<std::string> ended, marks;
    std::map<std::string, std::uint64_t> bytes;  // by name, of the last range
    std::vector<std::string> domains;
    int unknown_ends = 0;
    std::uint64_t next = 1;

    [[nodiscard]] int count(const std::string& begin) const {
        int sum = 0;
        for (const std::string& name : ended) { sum += name.compare(0, begin.size(), begin) == 0 ? 1 : 0; }
        return sum;
    }
};
inline Seen seen;

}  // namespace injected

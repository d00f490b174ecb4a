// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Gives names dense numbers. Equal names have equal numbers; a number names the same text for the life of the table.
class NameTable {
public:
    /// The number of a name, which is added if it is new.
    std::uint32_t number(std::string_view name) {
        if (const auto found = numbers_.find(name); found != numbers_.end()) { return found->second; }
        const auto number = static_cast<std::uint32_t>(names_.size());
        names_.emplace_back(name);
        numbers_.emplace(names_.back(), number);
        return number;
    }
    [[nodiscard]] const std::string& name(std::uint32_t number) const noexcept { return names_[number]; }

private:
    std::deque<std::string> names_;  // by number
    std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// A ZIP archive of records that are stored as they are.
inline std::string zip_archive(const std::vector<std::pair<std::string, std::string>>& records) {
    const auto number = [](std::uint64_t value, int bytes) {
        std::string text;
        for (int i = 0; i < bytes; ++i) { text += static_cast<char>(value >> (8 * i)); }
        return text;
    };
    std::string data, directory;
    for (const auto& [name, content] : records) {
        const std::string common = number(0, 2) + number(0, 2) + number(0, 4) + number(0, 4) +
                                   number(content.size(), 4) + number(content.size(), 4) + number(name.size(), 2) +
                                   number(0, 2);
        directory += "PK\1\2" + number(20, 2) + number(20, 2) + common + number(0, 2) + number(0, 2) + number(0, 2) +
                     number(0, 4) + number(data.size(), 4) + name;
        data += "PK\3\4" + number(20, 2) + common + name + content;
    }
    return data + directory + "PK\5\6" + number(0, 2) + number(0, 2) + number(records.size(), 2) +
           number(records.size(), 2) + number(directory.size(), 4) + number(data.size(), 4) + number(0, 2);
}

}  // namespace support

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "temporary_folder.hpp"

namespace support {

inline std::string read_all(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream{path, std::ios::binary}.rdbuf();
    return std::move(all).str();
}
inline void write_all(const std::string& path, std::string_view bytes) {
    std::ofstream{path, std::ios::binary}.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Writes files into a folder of its own that is gone with this object.
class TemporaryFolder : public test::TemporaryFolder {
public:
    [[nodiscard]] std::string file(const std::string& name) const { return path(name); }
    std::string write(const std::string& name, std::string_view bytes) const {
        write_all(path(name), bytes);
        return path(name);
    }
};

}  // namespace support

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>

namespace test {

/// A fresh folder for one test, removed at the end.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::random_device device;
        do {
            const std::uint64_t number = (std::uint64_t{device()} << 32) | device();
            root_ = std::filesystem::temp_directory_path() / ("residency-" + std::to_string(number));
        } while (!std::filesystem::create_directory(root_));
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(root_, ignored);
    }

    [[nodiscard]] std::string path(const std::string& name) const { return (root_ / name).string(); }

private:
    std::filesystem::path root_;
};

}  // namespace test

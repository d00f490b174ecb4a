// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "residency/format/safetensors.hpp"

namespace bench {

/// A folder with models of many tensors and of many files, gone at the end.
class Models {
public:
    explicit Models(const std::filesystem::path& folder = std::filesystem::temp_directory_path())
        : folder_{folder / ("residency-formats-" + std::to_string(std::random_device{}()))} {
        std::filesystem::create_directory(folder_);
    }
    Models(const Models&) = delete;
    Models& operator=(const Models&) = delete;
    ~Models() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    [[nodiscard]] std::string one_file(std::size_t tensors) const {
        const std::string path = (folder_ / "one.safetensors").string();
        write(path, 0, tensors);
        return path;
    }
    [[nodiscard]] std::string sharded(std::size_t files, std::size_t tensors_each) const {
        std::string map;
        for (std::size_t file = 0; file < files; ++file) {
            const std::string name = "shard-" + std::to_string(file) + ".safetensors";
            write((folder_ / name).string(), file * tensors_each, tensors_each);
            for (std::size_t i = 0; i < tensors_each; ++i) {
                map +=
                    (map.empty() ? "" : ",\n") + ('"' + tensor_name(file * tensors_each + i) + "\": \"" + name + '"');
            }
        }
        const std::string path = (folder_ / "model.safetensors.index.json").string();
        std::ofstream{path} << "{\"metadata\": {}, \"weight_map\": {" << map << "}}";
        return path;
    }
    [[nodiscard]] std::string gguf(std::size_t tensors) const {
        std::string bytes = "GGUF";
        const auto number = [&](std::uint64_t value, int width) {
            for (int i = 0; i < width; ++i) { bytes += static_cast<char>(value >> (8 * i) & 255); }
        };
        number(3, 4);
        number(tensors, 8);
        number(0, 8);
        for (std::size_t i = 0; i < tensors; ++i) {
            const std::string name = tensor_name(i);
            number(name.size(), 8);
            bytes += name;
            number(2, 4);
            number(4, 8);
            number(2, 8);
            number(0, 4);
            number(32 * i, 8);
        }
        bytes.resize((bytes.size() + 31) / 32 * 32 + 32 * tensors);
        const std::string path = (folder_ / "model.gguf").string();
        std::ofstream{path, std::ios::binary}.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        return path;
    }

private:
    [[nodiscard]] static std::string tensor_name(std::size_t i) {
        return "model.layers." + std::to_string(i / 400) + ".mlp.experts." + std::to_string(i % 400) +
               ".down_proj.weight";
    }
    static void write(const std::string& path, std::size_t first, std::size_t tensors) {
        std::vector<residency::format::SafetensorsTensor> list;
        for (std::size_t i = 0; i < tensors; ++i) {
            list.push_back({tensor_name(first + i), residency::dtype::bf16, {2, 4}});
        }
        auto writer = residency::format::SafetensorsWriter::try_create(path, list);
        if (!writer || !writer->try_append(std::vector<std::byte>(16 * tensors)) || !writer->try_finish()) {
            std::abort();
        }
    }

    std::filesystem::path folder_;
};

/// What the benchmarks of opening open.
struct OpenedModel {
    const char* name;
    std::size_t tensors;
    std::string (*make)(const Models&);  ///< returns the path
};
inline constexpr OpenedModel opened_models[] = {
    {"safetensors_100k_tensors", 100'000, [](const Models& in) { return in.one_file(100'000); }},
    {"safetensors_1000_files", 20'000, [](const Models& in) { return in.sharded(1000, 20); }},
    {"safetensors_1000_files_100k_tensors", 100'000, [](const Models& in) { return in.sharded(1000, 100); }},
    {"gguf_100k_tensors", 100'000, [](const Models& in) { return in.gguf(100'000); }},
};

}  // namespace bench

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/files.hpp"

namespace staged_model {

using namespace residency;
using Simulated = SimulatedDevice;

constexpr std::size_t storage_count = 24;

/// A model in one file, in pageable memory and in pinned memory; each storage has one of these as its source.
struct Model {
    enum class Source : std::uint8_t { file, pageable, pinned };

    support::TemporaryFolder folder;
    std::string contents;
    std::shared_ptr<const SourceFile> file;
    std::vector<std::pair<std::size_t, std::size_t>> ranges;
    Catalog catalog;

    Model(std::mt19937& random, Simulated& device, std::vector<Source> kinds, std::size_t largest = 50000) {
        contents.resize(4 * largest);
        for (char& c : contents) { c = static_cast<char>(random()); }
        file = std::make_shared<const SourceFile>(SourceFile{folder.write("weights", contents), contents.size()});
        std::vector<std::byte> memory(contents.size());
        std::memcpy(memory.data(), contents.data(), contents.size());
        const auto pageable = HostBytes::own(std::move(memory));
        auto* const at = static_cast<std::byte*>(device.allocate_host(contents.size()).value());
        std::memcpy(at, contents.data(), contents.size());
        const auto pinned = HostBytes::adopt(at, contents.size(), HostMemory::pinned, [&device](std::byte* p) {
            static_cast<void>(device.deallocate_host(p).has_value());
        });
        CatalogBuilder builder;
        for (std::size_t i = 0; i < storage_count; ++i) {
            const std::size_t bytes = i == 5 ? 0 : 1 + random() % largest;
            const std::size_t offset = random() % (contents.size() - bytes);
            ranges.emplace_back(offset, bytes);
            StorageSource source;
            switch (kinds[random() % kinds.size()]) {
                case Source::file: source = FileSource{file, offset}; break;
                case Source::pageable: source = HostSource{pageable, offset}; break;
                case Source::pinned: source = HostSource{pinned, offset}; break;
            }
            builder.add("w" + std::to_string(i), dtype::u8, {bytes}, source);
        }
        catalog = builder.try_build().value();
    }
};

}  // namespace staged_model

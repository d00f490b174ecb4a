// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whole passes from a file to kernels that compare every byte.

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/transport/staged.hpp"
#include "tests/support/files.hpp"
#include "tests/support/streaming.hpp"

namespace staged_streaming {

using namespace residency;
using streaming::must;
using Staged = transport::Staged<streaming::Device>;

/// The model's bytes in a file, and the same catalog over it.
struct InFile {
    support::TemporaryFolder folder;
    std::string path;
    Catalog catalog;

    explicit InFile(const streaming::Model& model) {
        std::string bytes;
        for (std::uint32_t i = 0; i < model.catalog.storages().size(); ++i) {
            bytes.append(reinterpret_cast<const char*>(model.catalog.host_bytes(StorageId{i})),
                         model.catalog.storage(StorageId{i}).bytes);
        }
        path = folder.write("weights", bytes);
        const auto file = std::make_shared<const SourceFile>(SourceFile{path, bytes.size()});
        std::vector<StorageSource> sources;
        std::uint64_t offset = 0;
        for (const Storage& storage : model.catalog.storages()) {
            sources.emplace_back(FileSource{file, offset});
            offset += storage.bytes;
        }
        catalog = must(model.catalog.try_with_sources(std::move(sources)));
    }
};

template <class Weights>
typename Weights::Options options(const streaming::Model& model, std::uint64_t budget) {
    typename Weights::Options result;
    result.budget = Budget::bytes(budget);
    result.schedule = streaming::in_order(model);
    result.transport.slot_bytes = 65536;
    result.transport.ring_bytes = 4 * 65536;
    result.transport.threads = 3;
    return result;
}

template <class Weights>
void stream_from_file(std::uint64_t budget, std::uint64_t bytes) {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 8, bytes);
    const InFile in_file{model};
    const auto stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, in_file.catalog, options<Weights>(model, budget)));
        for (int pass = 0; pass < 4; ++pass) { streaming::run_pass(weights, model, stream); }
        must(device.synchronize());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 4 * model.catalog.total_bytes());
    }
    must(device.destroy_stream(stream));
}

template <class Weights>
void change_while_streaming(std::uint64_t budget, std::uint64_t bytes) {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 8, bytes);
    const InFile in_file{model};
    const auto stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, in_file.catalog, options<Weights>(model, budget)));
        streaming::run_pass(weights, model, stream);
        must(device.synchronize());
        std::filesystem::resize_file(in_file.path, 1000);
        // The first pass after it may still end well: its failures come after its calls. The one after that cannot.
        bool failed = false;
        for (int pass = 0; pass < 3 && !failed; ++pass) {
            auto begun = weights.try_begin(stream);
            if (!begun) {
                failed = true;
                CHECK(begun.error().message().find("changed while it was in use") != std::string::npos);
                break;
            }
            for (const Schedule::Step& step : weights.schedule()) {
                if (auto lease = begun->try_acquire(step); !lease) { failed = true; }
            }
            must(device.synchronize());
            if (auto ended = begun->try_end(); !ended) {
                failed = true;
                CHECK(ended.error().kind() == ErrorKind::io);
            }
        }
        CHECK(failed);
    }
    must(device.destroy_stream(stream));
}

}  // namespace staged_streaming

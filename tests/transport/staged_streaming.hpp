// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs whole passes from a file to kernels that compare every byte.

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
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
        // The first pass after the change may still succeed, if its reads fail after its calls. The next one cannot.
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

/// A read that fails, whichever it is, never leaves wrong bytes without an error: kernels read the model's bytes or all ones, and if
/// they read all ones, the Residency reports it after the stream was synchronized.
template <class Weights>
void fail_every_read(std::uint64_t budget, std::uint64_t bytes, std::uint64_t slot_bytes) {
    struct Seen {
        std::uint64_t equal = 0, ones = 0, other = 0;

        void add(std::span<const std::byte> got, const std::byte* expected) {
            if (std::memcmp(got.data(), expected, got.size()) == 0) {
                equal += got.size();
                return;
            }
            for (std::size_t i = 0; i < got.size(); ++i) {
                ++(got[i] == expected[i] ? equal : got[i] == std::byte{0xff} ? ones : other);
            }
        }
    };
    bool was_reached = true;
    for (std::uint64_t nth = 1; was_reached; ++nth) {
        CAPTURE(nth);
        std::atomic<std::uint64_t> reads = 0;
        std::atomic<bool> may_fail = true, has_failed = false;
        Seen seen;
        streaming::CheckedDevice device;
        const auto model = streaming::uniform_model(device, 6, bytes);
        const InFile in_file{model};
        const auto stream = must(device.create_stream());
        {
            auto settings = options<Weights>(model, budget);
            settings.transport.slot_bytes = slot_bytes;
            settings.transport.ring_bytes = 4 * slot_bytes;
            settings.transport.before_read = [&](StorageId, std::uint64_t, std::uint64_t) -> Status {
                if (++reads != nth || !may_fail) { return {}; }
                has_failed = true;
                return Error{ErrorKind::io, "a bad sector"};
            };
            auto weights = must(Weights::try_create(device, in_file.catalog, std::move(settings)));
            bool refused = false, is_told = false;  // told: a call returned the failure that says it once
            for (int pass = 0; pass < 2 && !refused; ++pass) {
                auto begun = weights.try_begin(stream);
                refused = is_told = !begun;
                for (const Schedule::Step& step : weights.schedule()) {
                    if (!begun) { break; }
                    auto lease = begun->try_acquire(step);
                    if (!lease) {
                        CHECK(lease.error().message() == "a bad sector");
                        refused = true;
                        break;
                    }
                    const auto id = step.weights.front();
                    const auto got = lease->bytes(id);
                    streaming::Device::Kernel kernel;
                    kernel.reads = {{got.data(), got.size()}};
                    kernel.body = [got, &seen, host = model.catalog.host_bytes(StorageId{index(id)})] {
                        seen.add(got, host);
                    };
                    must(device.launch(stream, std::move(kernel)));
                }
                if (begun && !begun->try_end()) { refused = true; }
                must(device.synchronize(stream));
                // What a user asks before using the results of the pass.
                if (seen.ones > 0 && !is_told) { REQUIRE_FALSE(weights.try_transport_status()); }
                if (weights.try_transport_status() && !is_told) { CHECK(seen.ones == 0); }
            }
            CHECK(seen.other == 0);
            may_fail = false;
            was_reached = has_failed;
            const bool is_failing = !weights.try_transport_status();
            const Status drained = weights.try_drain();
            if (is_failing) { REQUIRE_FALSE(drained); }
            if (!drained) { CHECK(drained.error().message() == "a bad sector"); }
            if (!was_reached) {
                CHECK(drained);
                CHECK(seen.equal == 2 * model.catalog.total_bytes());
            }
            // It is said once, unless a read ahead failed meanwhile. Then what could not be read is brought again.
            static_cast<void>(weights.try_drain().has_value());
            streaming::run_pass(weights, model, stream);
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

}  // namespace staged_streaming

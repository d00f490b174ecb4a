// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/conformance/transport_policy.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "residency/transport/pinned.hpp"
#include "residency/transport/staged.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/watched_device.hpp"
#include "tests/transport/staged_model.hpp"

namespace conformance_test {

namespace conformance = residency::conformance;
using residency::Status;
using residency::StorageId;
using Watched = support::WatchedDevice;
using Pinned = residency::transport::Pinned<Watched>;
using Staged = residency::transport::Staged<Watched>;
using Suite = conformance::TransportSuite<Watched>;

TEST_CASE("Pinned keeps the contract of transports") {
    Watched device;
    conformance::check_transport_policy<Pinned>(device, Suite{.allocations = test::allocations_here});
}

TEST_CASE("Staged keeps the contract of transports, from every kind of source, through rings of every size") {
    using Source = staged_model::Model::Source;
    const std::vector<std::vector<Source>> mixes{
        {Source::file}, {Source::pageable}, {Source::file, Source::pageable, Source::pinned}};
    Watched device;
    std::atomic<bool> is_spoilt = false;
    Suite suite{.runs = 24, .operations = 60, .allocations = test::allocations_here};
    suite.spoil = [&is_spoilt] { is_spoilt = true; };
    suite.model = [&mixes, &is_spoilt](Watched& on, std::uint32_t seed) {
        std::mt19937 random{seed};
        is_spoilt = false;
        const auto model = std::make_shared<staged_model::Model>(random, on, mixes[seed % mixes.size()], 20000);
        conformance::TransportModel result{std::exchange(model->catalog, {}), {}, model};
        for (const auto& [from, bytes] : model->ranges) {
            const auto* const at = reinterpret_cast<const std::byte*>(model->contents.data()) + from;
            result.contents.emplace_back(at, at + bytes);
        }
        return result;
    };
    std::mt19937 random{1};
    conformance::check_transport_policy<Staged>(device, suite, [&random, &is_spoilt] {
        Staged::Config config;
        config.slot_bytes = std::uint64_t{4096} << random() % 4;
        config.ring_bytes = config.slot_bytes * (1 + random() % 11);
        config.threads = 1 + random() % 4;
        config.file_access =
            random() % 2 == 0 ? residency::host::FileAccess::direct : residency::host::FileAccess::cached;
        config.before_read = [&is_spoilt](StorageId, std::uint64_t, std::uint64_t) {
            return is_spoilt ? Status{residency::Error{residency::ErrorKind::io, "a bad sector"}} : Status{};
        };
        return std::make_unique<Staged>(config);
    });
}

TEST_CASE("Staged keeps the contract of transports where all goes straight, from neighbour to neighbour") {
    Watched device;
    conformance::check_transport_policy<Staged>(device, Suite{.runs = 6, .allocations = test::allocations_here});
}

}  // namespace conformance_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What the process itself has taken at most while it loaded, as the system counts it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "residency/host/loading.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/files.hpp"
#include "tests/support/sanitized.hpp"

namespace memory_test {

using namespace residency;

namespace {

/// VmHWM or VmRSS of this process.
std::optional<std::uint64_t> status_bytes(const char* key) {
    const auto kib = host::detail::number_after(host::detail::read_system_file("/proc/self/status"), key);
    return kib ? std::optional{*kib * 1024} : std::nullopt;
}
/// The peak is counted from now on.
bool forget_peak() {
    std::ofstream clear{"/proc/self/clear_refs"};
    clear << 5 << std::flush;
    return clear.good();
}

}  // namespace

TEST_CASE("memory: a load takes no more than 1.02 times the weights, in whatever order and sizes they are loaded") {
    if (!forget_peak() || !status_bytes("VmHWM:")) {
        MESSAGE("SKIPPED: /proc/self/clear_refs or status cannot be used here: the peak of the process is unknown");
        return;
    }
    if (support::is_sanitized) {
        MESSAGE("SKIPPED: a sanitizer keeps memory of its own");
        return;
    }
    std::mt19937 random{1};
    const support::TemporaryFolder folder;
    const std::uint64_t bytes = std::uint64_t{96} << 20;
    const std::string path = folder.write("f", "");
    std::filesystem::resize_file(path, bytes);
    const auto file = std::make_shared<const SourceFile>(SourceFile{path, bytes});
    // With a peak that nothing else can hide in: of the same size, taken by the test itself.
    for (const bool taken_twice : {false, true}) {
        for (const bool shuffled : {false, true}) {
            for (const std::uint64_t largest : {std::uint64_t{20} << 20, std::uint64_t{200000}}) {
                CAPTURE(taken_twice);
                CAPTURE(shuffled);
                CAPTURE(largest);
                CatalogBuilder builder;
                std::uint32_t count = 0;
                for (std::uint64_t at = 0; at < bytes; ++count) {
                    const std::uint64_t size = (std::min)(bytes - at, 1 + random() % largest);
                    builder.add("w" + std::to_string(count), dtype::u8, {size}, FileSource{file, at});
                    at += size;
                }
                const Catalog catalog = builder.try_build().value();
                host::LoadOptions options;
                options.tier = host::Tier::pageable;
                for (std::uint32_t i = 0; shuffled && i < count; ++i) { options.order.push_back(StorageId{i}); }
                std::shuffle(options.order.begin(), options.order.end(), random);
                SimulatedDevice device{};
                REQUIRE(forget_peak());
                const std::uint64_t before = *status_bytes("VmRSS:");
                const auto loaded = host::try_load(device, catalog, options);
                REQUIRE(loaded);
                const std::string other(taken_twice ? bytes : 0, 'x');
                const std::uint64_t peak = *status_bytes("VmHWM:") - before;
                const auto limit = static_cast<std::uint64_t>(static_cast<double>(bytes) * 1.02);
                CHECK(loaded->report.weight_bytes == bytes);
                CHECK(loaded->report.host_bytes <= limit);
                CHECK(peak >= bytes);
                CHECK((peak <= limit) == !taken_twice);
            }
        }
    }
}

}  // namespace memory_test

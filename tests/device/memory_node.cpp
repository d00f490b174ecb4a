// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/device/memory_node.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "residency/host/loading.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/files.hpp"

namespace memory_node_test {

using namespace residency;

namespace {

/// A device that says where it is attached.
struct Attached : SimulatedDevice {
    unsigned node = 0;
    [[nodiscard]] std::optional<unsigned> memory_node() const { return node; }
};

/// Whether the system takes such a wish at all: in a container it may not.
bool takes_wishes() {
    void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    const bool taken = detail::prefer_memory_node(page, 4096, 0);
    CHECK(detail::memory_node_at(page) == (taken ? std::optional{0U} : std::nullopt));
    munmap(page, 4096);
    return taken;
}

}  // namespace

TEST_CASE("the node of memory of a PCI device is what the system says") {
    const support::TemporaryFolder root;
    const auto says = [&](const std::string& text) {
        const std::string name = "sys/bus/pci/devices/0000:3b:00.0/numa_node";
        std::filesystem::create_directories(std::filesystem::path{root.file(name)}.parent_path());
        root.write(name, text);
        return detail::memory_node_of_pci("0000:3b:00.0", root.file(""));
    };
    CHECK_FALSE(detail::memory_node_of_pci("0000:3b:00.0", root.file("")).has_value());
    CHECK(says("0\n") == 0U);
    CHECK(says("1\n") == 1U);
    CHECK(says("1023\n") == 1023U);
    for (const char* const text : {"-1\n", "", "none\n", "1024\n"}) { CHECK_FALSE(says(text).has_value()); }
    CHECK_FALSE(detail::memory_node_of_pci("0000:3c:00.0", root.file("")).has_value());
    CHECK_FALSE(detail::memory_node_of(SimulatedDevice{}).has_value());
}

TEST_CASE("a load asks for memory on the node of its device, and goes on where the system refuses") {
    const support::TemporaryFolder folder;
    CatalogBuilder builder;
    const WeightId weight = builder.add("w", folder.write("w.bin", "0123456789"), 2, 4);
    const Catalog catalog = unwrap(builder.try_build());
    const auto node_on = [&](unsigned node) {
        Attached device;
        device.node = node;
        const auto loaded = unwrap(host::try_load(device, catalog));
        CHECK(*loaded.catalog.host_bytes(loaded.catalog.storage_of(weight)) == std::byte{'2'});
        return loaded.report.memory_node;
    };
    CHECK(node_on(0) == (takes_wishes() ? std::optional{0U} : std::nullopt));
    CHECK_FALSE(node_on(detail::most_memory_nodes - 1).has_value());  // no machine of the tests has that
    SimulatedDevice device;
    CHECK_FALSE(unwrap(host::try_load(device, catalog)).report.memory_node.has_value());
}

}  // namespace memory_node_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/integrate.md quotes of processes that share weights.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>

#include "residency/host/share.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"
#include "tests/support/processes.hpp"

namespace docs_shared {

using namespace residency;

TEST_CASE("docs/integrate.md: several processes share the weights") {
    if (support::lacks_shared_memory()) { return; }
    docs::Model model;
    auto& gpu = model.gpu;
    const support::MemoryFolder memory;
    const std::string folder = memory.folder();
    {
        const host::Shared shared = host::share(gpu, model.catalog, "llama-8b", {.folder = folder});
        if (!shared.reason.empty()) { std::puts(shared.reason.c_str()); }  // why it is not pinned
        const Catalog& catalog = shared.catalog;                           // for a Residency, as that of host::load

        CHECK(shared.is_maker);
        CHECK(catalog.hash() == model.catalog.hash());
        CHECK(std::memcmp(catalog.host_bytes(StorageId{3}), model.catalog.host_bytes(StorageId{3}),
                          catalog.storage(StorageId{3}).bytes) == 0);
    }
    if (const auto removed = host::SharedHostBytes::remove("llama-8b", {.folder = folder})) {
        for (const std::int64_t process : removed->users) {
            std::printf("process %ld goes on with them\n", static_cast<long>(process));
        }
    }
    CHECK_FALSE(host::SharedHostBytes::find("llama-8b", {.folder = folder}));
}

}  // namespace docs_shared

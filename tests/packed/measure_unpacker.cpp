// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/packed/measure_unpacker.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "tests/packed/support.hpp"

namespace measure_unpacker_test {

using namespace packed_tests;

namespace {

/// How the storages of a packed model travel.
std::vector<residency::packed::Form> forms_of(const Model& model) {
    std::vector<residency::packed::Form> forms;
    for (const residency::Storage& storage : model.packed.catalog.storages()) {
        residency::packed::Form& form = forms.emplace_back();
        const auto* source = std::get_if<residency::PackedHostSource>(&storage.source);
        if (source == nullptr) { continue; }
        form = {source->parts, source->host->data() + source->offset_bytes, storage.bytes, true};
    }
    return forms;
}

}  // namespace

TEST_SUITE_BEGIN("measure_unpacker");

TEST_CASE("the rate of an unpacker and the time of a launch are found") {
    Device device{device_config()};
    residency::core::DeviceMemory<Device> memory{device};
    const Model model{device, {{300'000}, {200'000}, {1'000, true}, {400'000}, {100'000}}};
    const auto forms = forms_of(model);
    const std::uint64_t free_before = must(device.memory()).free_bytes;
    for (const double bytes_per_second : {2e11, 1.3e12}) {
        CAPTURE(bytes_per_second);
        const residency::SimulatedUnpacker unpacker{bytes_per_second};
        const auto rate =
            must(residency::packed::try_measure_unpacker<Device>(device, unpacker, forms, 32U << 20U, memory));
        CHECK(rate.launch_seconds == doctest::Approx(3e-6).epsilon(0.05));  // what SimulatedUnpacker says
        CHECK(rate.bytes_per_second == doctest::Approx(bytes_per_second).epsilon(0.05));
        CHECK(must(device.memory()).free_bytes == free_before);
    }
}

TEST_CASE("where there is nothing to measure, or no room, an unpacker has the default rate") {
    Device device{device_config()};
    residency::core::DeviceMemory<Device> memory{device};
    const residency::SimulatedUnpacker unpacker{2e11};
    const residency::packed::UnpackRate usual;
    const Model noise{device, {{50'000, true}, {10'000, true}}};
    const Model model{device, {{300'000}, {200'000}}};
    for (const auto& rate :
         {must(residency::packed::try_measure_unpacker<Device>(device, unpacker, forms_of(noise), 32U << 20U, memory)),
          must(residency::packed::try_measure_unpacker<Device>(device, unpacker, forms_of(model), 4096, memory))}) {
        CHECK(rate.bytes_per_second == usual.bytes_per_second);
        CHECK(rate.launch_seconds == usual.launch_seconds);
    }
}

}  // namespace measure_unpacker_test

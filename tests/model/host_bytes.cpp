// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/host_bytes.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace host_bytes_test {

using residency::HostBytes;
using residency::HostMemory;

TEST_CASE("borrowed bytes are the caller's") {
    const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
    const auto held = HostBytes::borrow(bytes, HostMemory::pinned);
    CHECK(held->data() == bytes.data());
    CHECK(held->bytes() == 3);
    CHECK(held->span().size() == 3);
    CHECK(held->kind() == HostMemory::pinned);
}

TEST_CASE("borrowed bytes can keep their owner alive") {
    auto owner = std::make_shared<const std::vector<std::byte>>(5);
    const std::weak_ptr<const std::vector<std::byte>> watch = owner;
    const std::span<const std::byte> view{*owner};
    auto held = HostBytes::borrow(view, HostMemory::pageable, std::move(owner));
    CHECK_FALSE(watch.expired());
    held.reset();
    CHECK(watch.expired());
}

TEST_CASE("an owned vector is moved, not copied") {
    std::vector<std::byte> bytes(100, std::byte{7});
    const std::byte* data = bytes.data();
    const auto held = HostBytes::own(std::move(bytes));
    CHECK(held->data() == data);
    CHECK(held->bytes() == 100);
    CHECK(held->kind() == HostMemory::pageable);
    CHECK(HostBytes::own({})->bytes() == 0);
}

TEST_CASE("adopted bytes are released once, by the last reference") {
    std::byte byte{};
    int released = 0;
    {
        auto held = HostBytes::adopt(&byte, 1, HostMemory::pinned, [&](std::byte* data) {
            CHECK(data == &byte);
            ++released;
        });
        const auto other = held;
        held.reset();
        CHECK(released == 0);
    }
    CHECK(released == 1);
}

TEST_CASE("allocated bytes are aligned and writable") {
    for (const std::uint64_t bytes : {0ULL, 1ULL, 4097ULL}) {
        const auto allocation = HostBytes::try_allocate(bytes);
        REQUIRE(allocation);
        CHECK(reinterpret_cast<std::uintptr_t>(allocation->bytes->data()) % HostBytes::default_alignment_bytes == 0);
        CHECK(allocation->bytes->bytes() == bytes);
        CHECK(allocation->writable.size() == bytes);
        CHECK(allocation->writable.data() == allocation->bytes->data());
        for (std::byte& each : allocation->writable) { each = std::byte{0x5a}; }
        for (const std::byte each : allocation->bytes->span()) { CHECK(each == std::byte{0x5a}); }
    }
    CHECK(reinterpret_cast<std::uintptr_t>(HostBytes::try_allocate(8, 64)->writable.data()) % 64 == 0);
}

TEST_CASE("an allocation that the host cannot make is an error with the size") {
    const auto refused = HostBytes::try_allocate(UINT64_MAX);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().kind() == residency::ErrorKind::out_of_memory);
    REQUIRE(refused.error().detail<residency::DeviceFailure>() != nullptr);
    CHECK(refused.error().detail<residency::DeviceFailure>()->bytes == UINT64_MAX);
}

}  // namespace host_bytes_test

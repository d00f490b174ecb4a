// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Every codec keeps the contract of codec::Codec, and the suite notices those that do not.

#include "residency/conformance/codec.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/codec/tiers.hpp"
#include "tests/support/allocations.hpp"

namespace conformance_test {

using namespace residency;

namespace {

std::uint64_t allocations() { return test::allocations(); }

}  // namespace

TEST_CASE_TEMPLATE("codecs keep their contract", C, codec::Identity, codec::Bf16Tiers, codec::Bf16Tiles,
                   codec::F8E4m3Tiers, codec::F32Tiers) {
    conformance::check_codec<C>({.mutations = 10000, .allocations = allocations});
}

namespace {

enum class Fault {
    none,
    loses,
    beyond_raw,
    beyond_packed,
    remembers,
    allocates,
    any_version,
    any_size,
    too_little,
    trusts
};

/// A header, then the bytes in reverse; with a fault.
template <Fault fault>
struct Faulty {
    static constexpr PackedForm form = PackedForm::bf16_tiers;
    static constexpr codec::PackingUnit unit = codec::PackingUnit::chunk;

    bool takes(const DType&) const noexcept { return true; }
    std::size_t pack(const codec::Extents&, std::span<const std::byte> raw,
                     std::span<std::byte> packed) const noexcept {
        const std::size_t bytes = codec::packed_header_bytes + raw.size();
        if (packed.size() + (fault == Fault::too_little ? 1 : 0) < bytes) { return 0; }
        const codec::PackedHeader header{static_cast<std::uint32_t>(form), 7, raw.size(), bytes};
        if (fault != Fault::remembers) { std::memset(packed.data(), 0, codec::packed_header_bytes); }
        std::memcpy(packed.data(), &header, sizeof header);
        for (std::size_t i = 0; i < raw.size() && codec::packed_header_bytes + i < packed.size(); ++i) {
            packed[codec::packed_header_bytes + i] = raw[raw.size() - 1 - i];
        }
        if (fault == Fault::beyond_packed && packed.size() > bytes) { packed[bytes] = std::byte{1}; }
        return bytes;
    }
    Status unpack(const codec::Extents&, std::span<const std::byte> packed, std::span<std::byte> raw) const {
        if constexpr (fault == Fault::allocates) { static_cast<void>(std::vector<int>(100)); }
        if (fault != Fault::any_size && fault != Fault::any_version) {
            if (Status front = codec::detail::check_header(packed, raw.size(), form, 7); !front) { return front; }
        } else if (packed.size() < codec::packed_header_bytes + (fault == Fault::any_version ? raw.size() : 0)) {
            return Error{ErrorKind::malformed, "short"};
        }
        const std::size_t there = packed.size() - codec::packed_header_bytes;
        for (std::size_t i = 0; i < raw.size() && i < there; ++i) {
            raw[raw.size() - 1 - i] = packed[codec::packed_header_bytes + i];
        }
        if (fault == Fault::loses && raw.size() > 100) { raw[100] = std::byte{0}; }
        if (fault == Fault::beyond_raw) { raw.data()[raw.size()] = std::byte{0}; }
        return {};
    }
    Status check(const codec::Extents& extents, std::span<const std::byte> packed, std::uint64_t raw_bytes) const {
        if (fault == Fault::trusts) { return {}; }
        std::vector<std::byte> raw(static_cast<std::size_t>(raw_bytes) + 1);
        return unpack(extents, packed, std::span{raw}.first(static_cast<std::size_t>(raw_bytes)));
    }
};

template <Fault fault>
void check_faulty() {
    conformance::check_codec<Faulty<fault>>({.runs = 12, .mutations = 240, .allocations = allocations});
}

}  // namespace

TEST_CASE("the suite accepts a simple codec") { check_faulty<Fault::none>(); }
TEST_CASE("the suite notices bytes that are lost" * doctest::should_fail()) { check_faulty<Fault::loses>(); }
TEST_CASE("the suite notices a write behind the raw bytes" * doctest::should_fail()) {
    check_faulty<Fault::beyond_raw>();
}
TEST_CASE("the suite notices a write behind the packed bytes" * doctest::should_fail()) {
    check_faulty<Fault::beyond_packed>();
}
TEST_CASE("the suite notices what depends on the room" * doctest::should_fail()) { check_faulty<Fault::remembers>(); }
TEST_CASE("the suite notices an allocation" * doctest::should_fail()) { check_faulty<Fault::allocates>(); }
TEST_CASE("the suite notices another version that is taken" * doctest::should_fail()) {
    check_faulty<Fault::any_version>();
}
TEST_CASE("the suite notices another size that is taken" * doctest::should_fail()) { check_faulty<Fault::any_size>(); }
TEST_CASE("the suite notices room that does not suffice" * doctest::should_fail()) {
    check_faulty<Fault::too_little>();
}
TEST_CASE("the suite notices a check that refuses nothing" * doctest::should_fail()) { check_faulty<Fault::trusts>(); }

}  // namespace conformance_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/catalog.hpp"

#include <doctest/doctest.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/model/catalog_builder.hpp"

namespace catalog_test {

using namespace residency;

static_assert(std::regular<Catalog>);
static_assert(std::is_nothrow_copy_constructible_v<Catalog>);
static_assert(std::is_nothrow_move_constructible_v<Catalog>);

namespace {

CatalogBuilder three() {
    CatalogBuilder builder;
    builder.add("embed", dtype::f16, {8, 4});
    builder.add("layer.0", dtype::f32, {10});
    builder.tie("head", "embed");
    builder.add("state", dtype::u8, {3}, {}, true);
    return builder;
}
Catalog built(CatalogBuilder builder) { return *builder.try_build(); }

}  // namespace

TEST_CASE("an empty catalog") {
    const Catalog none;
    CHECK(none.weights().empty());
    CHECK(none.storages().empty());
    CHECK_FALSE(none.contains(WeightId{0}));
    CHECK_FALSE(none.contains(no_storage));
    CHECK_FALSE(none.find("").has_value());
    CHECK(none.total_bytes() == 0);
    CHECK(none.streamed_bytes() == 0);
    CHECK(none.hash() == 0);
    CHECK(none == Catalog{});
    CHECK(*none.try_with_sources({}) == none);
    CHECK_FALSE(none.try_with_sources({StorageSource{}}).has_value());
}

TEST_CASE("names are found, and what is missing is named") {
    const Catalog catalog = built(three());
    CHECK(catalog.find("embed") == WeightId{0});
    CHECK(catalog.find("head") == WeightId{2});
    CHECK_FALSE(catalog.find("Embed").has_value());
    CHECK(*catalog.try_find("layer.0") == WeightId{1});
    const auto missing = catalog.try_find("layer.1");
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().kind() == ErrorKind::mismatch);
    CHECK(missing.error().message() == "the catalog has no weight \"layer.1\"; the nearest name is \"layer.0\"");
}

TEST_CASE("sizes by placement") {
    const Catalog catalog = built(three());
    CHECK(catalog.total_bytes() == 64 + 40 + 3);
    CHECK(catalog.streamed_bytes() == 104);
    CHECK(catalog.resident_bytes() == 3);
    CHECK(catalog.bytes_placed(Placement::host) == 0);
    CHECK(catalog.describe(StorageId{0}) == "\"embed\"");
    CatalogBuilder bare;
    bare.add_storage(1);
    CHECK(built(std::move(bare)).describe(StorageId{0}) == "storage 0");
}

TEST_CASE("copies share the table, which outlives the first handle") {
    Catalog copy;
    {
        const Catalog first = built(three());
        copy = first;
        CHECK(copy == first);
        CHECK(copy.weights().data() == first.weights().data());
    }
    CHECK(copy.weight(*copy.find("head")).name == "head");
    CHECK(copy != built(three()));
}

TEST_CASE("the hash is that of the contents, the same on every platform") {
    CHECK(built(three()).hash() == built(three()).hash());
    // Pinned: saved plans and schedules depend on it.
    CHECK(built(three()).hash() == 0x43722c5fe4c850eaULL);
}

TEST_CASE("everything that a plan depends on changes the hash") {
    std::set<std::uint64_t> hashes;
    const auto add = [&](const std::string& name, DType type, Shape shape, std::uint64_t storage_bytes,
                         std::uint64_t offset = 0, std::optional<Strides> strides = std::nullopt,
                         bool is_mutable = false, std::uint64_t alignment = 256) {
        CatalogBuilder builder;
        const StorageId storage =
            builder.add_storage(storage_bytes, {.is_mutable = is_mutable, .alignment_bytes = alignment});
        builder.add_weight(name, type, std::move(shape), storage, offset, std::move(strides));
        const auto catalog = builder.try_build();
        REQUIRE(catalog);
        CAPTURE(name);
        CHECK(hashes.insert(catalog->hash()).second);
    };
    add("w", dtype::f16, {2, 3}, 64);
    add("v", dtype::f16, {2, 3}, 64);
    add("w", dtype::bf16, {2, 3}, 64);
    add("w", DType::block("f16", 4, 1), {2, 3}, 64);
    add("w", dtype::f16, {3, 2}, 64);
    add("w", dtype::f16, {6}, 64);
    add("w", dtype::f16, {2, 3, 1}, 64);
    add("w", dtype::f16, {2, 3}, 65);
    add("w", dtype::f16, {2, 3}, 64, 2);
    add("w", dtype::f16, {2, 3}, 64, 0, Strides{1, 2});
    add("w", dtype::f16, {2, 3}, 64, 0, std::nullopt, true);
    add("w", dtype::f16, {2, 3}, 64, 0, std::nullopt, false, 512);

    // Tied or apart: the same bytes in all.
    for (const bool tied : {false, true}) {
        CatalogBuilder builder;
        const StorageId storage = builder.add_storage(12);
        builder.add_weight("a", dtype::f16, {6}, storage);
        const StorageId other = builder.add_storage(12);
        builder.add_weight("b", dtype::f16, {6}, tied ? storage : other);
        CHECK(hashes.insert(builder.try_build()->hash()).second);
    }
    CHECK(hashes.count(0) == 0);
}

TEST_CASE("explicit dense strides do not change the hash") {
    CatalogBuilder plain;
    plain.add_weight("w", dtype::f16, {2, 3}, plain.add_storage(12));
    CatalogBuilder strided;
    strided.add_weight("w", dtype::f16, {2, 3}, strided.add_storage(12), 0, Strides{3, 1});
    CHECK(built(std::move(plain)).hash() == built(std::move(strided)).hash());
}

TEST_CASE("sources can be given later; the hash stays") {
    const Catalog bare = built(three());
    CHECK(bare.host_bytes(StorageId{0}) == nullptr);
    const auto host = HostBytes::own(std::vector<std::byte>(200));
    const auto loaded = bare.try_with_sources({HostSource{host, 0}, HostSource{host, 64}, StorageSource{}});
    REQUIRE(loaded);
    CHECK(loaded->hash() == bare.hash());
    CHECK(*loaded != bare);
    CHECK(loaded->host_bytes(StorageId{0}) == host->data());
    CHECK(loaded->host_bytes(StorageId{1}) == host->data() + 64);
    CHECK(loaded->host_bytes(StorageId{2}) == nullptr);
    CHECK(bare.host_bytes(StorageId{0}) == nullptr);
    CHECK(host.use_count() == 3);

    const auto small = bare.try_with_sources({HostSource{host, 0}, HostSource{host, 161}, StorageSource{}});
    REQUIRE_FALSE(small.has_value());
    CHECK(small.error().message() ==
          "\"layer.0\": 40 bytes at offset 161 do not lie inside the 200 bytes of host bytes");
    REQUIRE(small.error().detail<FileLocation>() != nullptr);
    CHECK(small.error().detail<FileLocation>()->offset == 161);
    CHECK(bare.try_with_sources({StorageSource{}}).error().message() == "1 sources for a catalog of 3 storages");
}

TEST_CASE("placements can be changed by id and by name; the hash stays") {
    const Catalog catalog = built(three());
    const std::array<std::string_view, 2> names{"head", "layer.0"};
    const auto pinned = catalog.try_with_placement(names, Placement::resident);
    REQUIRE(pinned);
    CHECK(pinned->hash() == catalog.hash());
    CHECK(pinned->streamed_bytes() == 0);
    CHECK(pinned->resident_bytes() == 107);
    CHECK(catalog.streamed_bytes() == 104);

    const std::array ids{WeightId{0}};
    const auto hosted = pinned->try_with_placement(ids, Placement::host);
    REQUIRE(hosted);
    CHECK(hosted->bytes_placed(Placement::host) == 64);
    CHECK(hosted->total_bytes() == 107);
    const auto back = hosted->try_with_placement(ids, Placement::streamed);
    CHECK(back->streamed_bytes() == 64);
}

TEST_CASE("bad placements are refused, naming the weight") {
    const Catalog catalog = built(three());
    const std::array<std::string_view, 2> absent{"embed", "nobody"};
    CHECK(catalog.try_with_placement(absent, Placement::resident).error().message() ==
          "the catalog has no weight \"nobody\"");
    const std::array bad_id{WeightId{4}};
    CHECK(catalog.try_with_placement(bad_id, Placement::resident).error().kind() == ErrorKind::mismatch);
    const std::array<std::string_view, 1> state{"state"};
    for (const Placement placement : {Placement::streamed, Placement::host}) {
        CHECK(catalog.try_with_placement(state, placement).error().message() ==
              "\"state\" is mutable, so it is resident and cannot be placed otherwise");
    }
    CHECK(catalog.try_with_placement(state, Placement::resident).has_value());
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE("the throwing forms throw what the others return") {
    const Catalog catalog = built(three());
    const std::array<std::string_view, 1> absent{"nobody"};
    CHECK_THROWS_AS(static_cast<void>(catalog.with_placement(absent, Placement::host)), MismatchError);
    CHECK_THROWS_AS(static_cast<void>(catalog.with_sources({})), InvalidArgument);
    CatalogBuilder builder;
    builder.add("", dtype::f32, {1});
    CHECK_THROWS_AS(static_cast<void>(builder.build()), InvalidArgument);
}
#endif

}  // namespace catalog_test

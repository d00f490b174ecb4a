// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/catalog_builder.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"

namespace catalog_builder_test {

using namespace residency;

namespace {

std::string error_of(CatalogBuilder& builder) {
    const auto built = std::exchange(builder, {}).try_build();  // the builder keeps its error
    return built ? "no error" : built.error().message();
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("weights and storages get dense ids in the order of the calls") {
    CatalogBuilder builder;
    const StorageId first = builder.add_storage(100);
    const StorageId second = builder.add_storage(64, {.placement = Placement::host, .alignment_bytes = 64});
    const WeightId a = builder.add_weight("a", dtype::f32, {5, 5}, first);
    const WeightId b = builder.add_weight("b", dtype::f16, {4, 8}, second);
    const WeightId c = builder.add("c", dtype::i8, {3});
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK((index(first) == 0 && index(second) == 1));
    CHECK((index(a) == 0 && index(b) == 1 && index(c) == 2));
    CHECK(catalog->weight(a).bytes == 100);
    CHECK(catalog->weight(a).strides == Strides{5, 1});
    CHECK(catalog->storage(second).placement == Placement::host);
    CHECK(catalog->storage(second).alignment_bytes == 64);
    CHECK(catalog->storage_of(c) == StorageId{2});
    CHECK(catalog->storage(StorageId{2}).bytes == 3);
    CHECK(catalog->total_bytes() == 167);
}

TEST_CASE("the builder keeps what was added, and the first error") {
    CatalogBuilder builder;
    builder.add("a", dtype::f32, {1});
    const auto first = builder.try_build();
    REQUIRE(first);
    const auto again = builder.try_build();
    REQUIRE(again);
    CHECK(again->hash() == first->hash());
    CHECK(again->find("a") == first->find("a"));
    builder.add("b", dtype::f32, {1});
    CHECK(builder.try_build()->weights().size() == 2);
    CHECK(first->weights().size() == 1);
    builder.add("", dtype::f32, {1});
    CHECK_FALSE(builder.status().has_value());
    CHECK_FALSE(builder.try_build().has_value());
    builder.add("c", dtype::f32, {1});
    CHECK_FALSE(builder.try_build().has_value());
}

TEST_CASE("room reserved, too much or too little, changes nothing") {
    const auto build = [](std::size_t weights, std::size_t storages) {
        CatalogBuilder builder;
        builder.reserve(weights, storages);
        const StorageId shared = builder.add_storage(16);
        for (int i = 0; i < 4; ++i) {
            builder.add_weight(std::to_string(i), dtype::f32, {1}, shared, static_cast<std::uint64_t>(4 * i));
        }
        builder.add("own", dtype::f32, {2, 2});
        return builder.try_build();
    };
    const auto plain = build(0, 0);
    REQUIRE(plain);
    for (const std::size_t room : {1U, 2U, 5U, 1000U}) {
        const auto catalog = build(room, room);
        REQUIRE(catalog);
        CHECK(catalog->hash() == plain->hash());
        CHECK(catalog->weights().size() == 5);
        CHECK(catalog->storages().size() == 2);
        CHECK(catalog->find("own") == WeightId{4});
    }
}

TEST_CASE("the first error is kept, and later calls do nothing") {
    CatalogBuilder builder;
    builder.add("ok", dtype::f32, {1});
    CHECK(builder.add("ok", dtype::f32, {2}) == no_weight);
    CHECK(builder.add("later", dtype::f32, {1}) == no_weight);
    CHECK(builder.add_storage(1) == no_storage);
    CHECK(builder.tie("tied", "ok") == no_weight);
    CHECK(builder.split("ok").empty());
    CHECK_FALSE(builder.find("later").has_value());
    CHECK(contains(error_of(builder), "\"ok\": given twice"));
}

TEST_CASE("a duplicate is refused naming both") {
    CatalogBuilder builder;
    builder.add("a", dtype::f32, {1});
    builder.add("x", dtype::f32, {2, 3});
    builder.add("x", dtype::f16, {7});
    CHECK(error_of(builder) ==
          "weight \"x\": given twice: as weight 1, f32[2, 3] in storage 1, and as weight 2, f16[7] in storage 2");
}

TEST_CASE("C5: scalars and weights of no bytes") {
    CatalogBuilder builder;
    const WeightId scalar = builder.add("scalar", dtype::f64, {});
    const WeightId empty = builder.add("empty", dtype::f32, {4, 0, 3});
    const StorageId nothing = builder.add_storage(0);
    const WeightId also_empty = builder.add_weight("also empty", dtype::f32, {0}, nothing);
    const WeightId at_end = builder.add_weight("at the end", dtype::f32, {0}, builder.add_storage(8), 8);
    const std::array<std::byte, 1> none{};
    const WeightId borrowed = builder.add("borrowed", dtype::u8, {0}, std::span<const std::byte>{none}.first(0));
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->weight(scalar).bytes == 8);
    CHECK(catalog->weight(scalar).shape.empty());
    CHECK(catalog->weight(scalar).elements() == 1);
    CHECK(catalog->weight(scalar).is_dense());
    CHECK(catalog->weight(empty).bytes == 0);
    CHECK(catalog->weight(empty).elements() == 0);
    CHECK(catalog->weight(empty).is_dense());
    CHECK(catalog->weight(also_empty).storage == nothing);
    CHECK(catalog->weight(at_end).offset_bytes == 8);
    CHECK(catalog->weight(borrowed).bytes == 0);
    CHECK(catalog->total_bytes() == 16);
}

TEST_CASE("C3: what does not add up is refused, naming the weight") {
    constexpr std::uint64_t huge = std::uint64_t{1} << 40;
    struct Row {
        std::string what;
        DType dtype;
        Shape shape;
        std::uint64_t storage_bytes, offset_bytes;
        std::string_view message;
    };
    const Row rows[] = {
        {"elements overflow", dtype::u8, {huge, huge}, UINT64_MAX, 0, "the elements do not fit in 64 bits"},
        {"elements overflow beside a zero", dtype::u8, {0, huge, huge}, 0, 0, "the elements do not fit in 64 bits"},
        {"bytes overflow", dtype::f64, {huge, huge >> 17}, UINT64_MAX, 0, "their bytes do not fit in 64 bits"},
        {"beyond the end", dtype::f32, {4}, 15, 0, "16 bytes at offset 0, does not lie inside storage 0 of 15 bytes"},
        {"beyond the end by its offset", dtype::f32, {4}, 16, 4, "16 bytes at offset 4, does not lie inside"},
        {"offset overflow", dtype::f32, {4}, 16, UINT64_MAX - 3, "does not lie inside"},
        {"nothing beyond the end", dtype::f32, {0}, 16, 20, "0 bytes at offset 20, does not lie inside"},
        {"misaligned", dtype::f32, {1}, 16, 2, "is not a multiple of the 4 bytes that f32 needs"},
        {"half a byte", dtype::i4, {3}, 16, 0, "they do not fill whole bytes"},
        {"a row of half a block", DType::block("Q4_0", 18, 32), {2, 16}, 36, 0, "does not fill blocks of 32 elements"},
        {"a scalar block", DType::block("Q4_0", 18, 32), {}, 36, 0, "does not fill blocks of 32 elements"},
        {"no type", DType{}, {1}, 16, 0, "the type has no size"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.what);
        CatalogBuilder builder;
        const StorageId storage = builder.add_storage(row.storage_bytes);
        CHECK(builder.add_weight("w", row.dtype, row.shape, storage, row.offset_bytes) == no_weight);
        const std::string message = error_of(builder);
        CAPTURE(message);
        CHECK(contains(message, "weight \"w\": "));
        CHECK(contains(message, row.message));
    }
}

TEST_CASE("storages are checked") {
    SUBCASE("alignment") {
        for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{4} << 20}) {
            CatalogBuilder builder;
            CHECK(builder.add_storage(1, {.alignment_bytes = alignment}) == no_storage);
            CHECK(contains(error_of(builder), "storage 0: an alignment of " + residency::detail::in_bytes(alignment)));
        }
        CatalogBuilder builder;
        builder.add_storage(1, {.alignment_bytes = std::uint64_t{2} << 20});
        CHECK(builder.try_build().has_value());
    }
    SUBCASE("alignment below that of a weight") {
        CatalogBuilder builder;
        builder.add_weight("w", dtype::f64, {1}, builder.add_storage(8, {.alignment_bytes = 4}));
        CHECK(contains(error_of(builder), "aligned to 4 bytes is not a multiple of the 8 bytes that f64 needs"));
    }
    SUBCASE("the sum overflows") {
        CatalogBuilder builder;
        builder.add_storage(UINT64_MAX);
        CHECK(builder.add_storage(0) == StorageId{1});
        CHECK(builder.add_storage(1) == no_storage);
        CHECK(error_of(builder) == "storage 2: the sum of all storages does not fit in 64 bits");
    }
    SUBCASE("outside its host bytes") {
        const auto host = HostBytes::own(std::vector<std::byte>(10));
        for (const auto& [bytes, offset, good] : {std::tuple<std::uint64_t, std::uint64_t, bool>{10, 0, true},
                                                  {4, 6, true},
                                                  {0, 10, true},
                                                  {5, 6, false},
                                                  {11, 0, false},
                                                  {0, 11, false},
                                                  {2, UINT64_MAX, false},
                                                  {UINT64_MAX, 2, false}}) {
            CAPTURE(bytes);
            CAPTURE(offset);
            CatalogBuilder builder;
            builder.add_storage(bytes, {.source = HostSource{host, offset}});
            CHECK(builder.try_build().has_value() == good);
        }
    }
    SUBCASE("outside its file, naming the file and the place") {
        const auto file = std::make_shared<const SourceFile>(SourceFile{"model.bin", 100});
        CatalogBuilder builder;
        builder.add("w", dtype::u8, {50}, FileSource{file, 60});
        const auto built = builder.try_build();
        REQUIRE_FALSE(built.has_value());
        CHECK(contains(built.error().message(),
                       "50 bytes at offset 60 do not lie inside the 100 bytes of \"model.bin\""));
        CHECK(contains(built.error().message(), "weight \"w\""));
    }
    SUBCASE("a null source") {
        CatalogBuilder builder;
        builder.add_storage(1, {.source = HostSource{}});
        CHECK(error_of(builder) == "storage 0: its host bytes are null");
        builder.add_storage(1, {.source = FileSource{}});
        CHECK(error_of(builder) == "storage 0: its file is null");
    }
    SUBCASE("an unknown one") {
        CatalogBuilder builder;
        builder.add_weight("w", dtype::u8, {1}, StorageId{3});
        CHECK(contains(error_of(builder), "lies in storage 3, but there are only 0"));
    }
}

TEST_CASE("names take 1 to 65535 bytes") {
    CatalogBuilder builder;
    builder.add(std::string(CatalogBuilder::max_name_bytes, 'x'), dtype::u8, {1});
    builder.add(std::string_view{"nul\0inside", 10}, dtype::u8, {1});
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->find(std::string_view{"nul\0inside", 10}).has_value());
    CHECK_FALSE(catalog->find("nul").has_value());
    builder.add(std::string(CatalogBuilder::max_name_bytes + 1, 'x'), dtype::u8, {1});
    CHECK(contains(error_of(builder), "a name takes 1 to 65,535 bytes (64 KiB), this one has 65,536 bytes (64 KiB)"));
    builder.add("", dtype::u8, {1});
    CHECK(contains(error_of(builder), "this one has 0"));
}

TEST_CASE("strided views") {
    CatalogBuilder builder;
    const StorageId storage = builder.add_storage(24);
    const WeightId transposed = builder.add_weight("transposed", dtype::f32, {3, 2}, storage, 0, Strides{1, 3});
    const WeightId repeated = builder.add_weight("repeated", dtype::f32, {100, 2}, storage, 16, Strides{0, 1});
    const WeightId column = builder.add_weight("column", dtype::f32, {2}, storage, 4, Strides{3});
    const WeightId same = builder.add_weight("same", dtype::f32, {2, 3}, storage, 0, Strides{3, 1});
    const WeightId nothing = builder.add_weight("nothing", dtype::f32, {0, 2}, storage, 24, Strides{1000, 1000});
    const WeightId one = builder.add_weight("one", dtype::f32, {1, 2}, storage, 0, Strides{999, 1});
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->weight(transposed).bytes == 24);
    CHECK_FALSE(catalog->weight(transposed).is_dense());
    CHECK(catalog->weight(repeated).bytes == 8);
    CHECK(catalog->weight(repeated).elements() == 200);
    CHECK(catalog->weight(column).bytes == 16);
    CHECK(catalog->weight(same).is_dense());
    CHECK(catalog->weight(nothing).bytes == 0);
    CHECK(catalog->weight(one).is_dense());
}

TEST_CASE("strided views are checked") {
    struct Row {
        std::string what;
        DType dtype;
        Shape shape;
        Strides strides;
        std::string_view message;
    };
    const Row rows[] = {
        {"too few", dtype::f32, {2, 3}, {1}, "1 strides for 2 extents"},
        {"a strided block type", DType::block("Q4_0", 18, 32), {2, 32}, {64, 1}, "elements of Q4_0 cannot be strided"},
        {"a strided small type", dtype::i4, {2, 2}, {4, 1}, "elements of i4 cannot be strided"},
        {"reaches too far", dtype::f32, {2, 3}, {4, 1}, "28 bytes at offset 0, does not lie inside"},
        {"overflows", dtype::f32, {3, 3}, {UINT64_MAX, 1}, "the strides reach beyond 64 bits"},
        {"overflows in the sum", dtype::u8, {2, 2}, {UINT64_MAX, 1}, "the strides reach beyond 64 bits"},
        {"overflows in bytes", dtype::f32, {2}, {UINT64_MAX / 2}, "their bytes do not fit in 64 bits"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.what);
        CatalogBuilder builder;
        builder.add_weight("w", row.dtype, row.shape, builder.add_storage(24), 0, row.strides);
        const std::string message = error_of(builder);
        CAPTURE(message);
        CHECK(contains(message, row.message));
    }
}

TEST_CASE("C4: tied weights are one storage") {
    CatalogBuilder builder;
    const WeightId embedding = builder.add("embedding", dtype::f16, {10, 4});
    const WeightId head = builder.tie("head", embedding);
    const WeightId third = builder.tie("third", "head");
    builder.add("other", dtype::f16, {1});
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->storages().size() == 2);
    CHECK(catalog->storage_of(head) == catalog->storage_of(embedding));
    CHECK(catalog->weight(third).shape == Shape{10, 4});
    const auto users = catalog->weights_of(catalog->storage_of(embedding));
    CHECK(std::vector<WeightId>{users.begin(), users.end()} == std::vector<WeightId>{embedding, head, third});
    CHECK(catalog->total_bytes() == 82);

    builder.tie("x", "absent");
    CHECK(error_of(builder) == "weight \"x\": tied to \"absent\", which does not exist");
    builder.tie("x", WeightId{7});
    CHECK(error_of(builder) == "weight \"x\": tied to weight 7, which does not exist");
}

TEST_CASE("C6: mutable storages are resident") {
    CatalogBuilder builder;
    const StorageId storage = builder.add_storage(4, {.placement = Placement::host, .is_mutable = true});
    const WeightId state = builder.add("state", dtype::f32, {1}, {}, true);
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->storage(storage).placement == Placement::resident);
    CHECK(catalog->storage(catalog->storage_of(state)).placement == Placement::resident);
    CHECK(catalog->resident_bytes() == 8);
}

TEST_CASE("bytes given to add must be those of the shape") {
    const std::array<std::byte, 12> bytes{};
    CatalogBuilder builder;
    const WeightId id = builder.add("w", dtype::f32, {3}, bytes);
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->host_bytes(catalog->storage_of(id)) == bytes.data());
    builder.add("v", dtype::f32, {4}, bytes);
    CHECK(error_of(builder) == "weight \"v\": f32[4] takes 16 bytes, 12 bytes were given");
}

TEST_CASE("a fused tensor splits into storages of their own over the same bytes") {
    const auto host = HostBytes::own(std::vector<std::byte>(200));
    CatalogBuilder builder;
    builder.add("before", dtype::u8, {1});
    const WeightId fused = builder.add("experts", dtype::f16, {3, 4, 2}, HostSource{host, 10});
    builder.add("after", dtype::u8, {1});
    const auto parts = builder.split("experts");
    REQUIRE(parts.size() == 3);
    CHECK(parts[0] == fused);
    CHECK_FALSE(builder.find("experts").has_value());
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->weights().size() == 5);
    CHECK(catalog->storages().size() == 5);
    CHECK(catalog->total_bytes() == 50);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        CHECK(catalog->find("experts[" + std::to_string(i) + "]") == parts[i]);
        const Weight& part = catalog->weight(parts[i]);
        CHECK(part.shape == Shape{4, 2});
        CHECK(part.strides == Strides{2, 1});
        CHECK(part.bytes == 16);
        CHECK(catalog->weights_of(part.storage).size() == 1);
        CHECK(catalog->storage(part.storage).bytes == 16);
        CHECK(catalog->host_bytes(part.storage) == host->data() + 10 + 16 * i);
    }
}

TEST_CASE("a split honours the view's offset, files, and blocks, and drops what surrounds the view") {
    const auto file = std::make_shared<const SourceFile>(SourceFile{"model.bin", 1000});
    CatalogBuilder builder;
    const StorageId storage = builder.add_storage(100, {.source = FileSource{file, 300}});
    builder.add_weight("experts", DType::block("Q4_0", 18, 32), {2, 64}, storage, 20);
    const auto parts = builder.split("experts");
    REQUIRE(parts.size() == 2);
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->total_bytes() == 72);
    for (std::size_t i = 0; i < 2; ++i) {
        const Storage& part = catalog->storage(catalog->storage_of(parts[i]));
        CHECK(part.bytes == 36);
        CHECK(std::get<FileSource>(part.source).offset_bytes == 320 + 36 * i);
        CHECK(catalog->weight(parts[i]).offset_bytes == 0);
    }
}

TEST_CASE("a part can be split again, and a vector splits into scalars") {
    CatalogBuilder builder;
    builder.add("w", dtype::f32, {2, 3});
    CHECK(builder.split("w").size() == 2);
    CHECK(builder.split("w[1]").size() == 3);
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->weights().size() == 4);
    CHECK(catalog->weight(*catalog->find("w[1][2]")).shape.empty());
    CHECK(catalog->total_bytes() == 24);
}

TEST_CASE("a split keeps the sum of all storages") {
    CatalogBuilder builder;
    builder.add("w", dtype::u8, {2, (std::uint64_t{1} << 63) - 8});
    CHECK(builder.split("w").size() == 2);
    CHECK(builder.add_storage(15) != no_storage);
    CHECK(builder.add_storage(1) == no_storage);
    CHECK(contains(error_of(builder), "the sum of all storages does not fit in 64 bits"));
}

TEST_CASE("what cannot be split is refused") {
    CatalogBuilder builder;
    SUBCASE("absent") {
        builder.split("w");
        CHECK(error_of(builder) == "weight \"w\": to be split, but it does not exist");
    }
    SUBCASE("a scalar") {
        builder.add("w", dtype::f32, {});
        builder.split("w");
        CHECK(contains(error_of(builder), "has no first axis to split"));
    }
    SUBCASE("an empty axis") {
        builder.add("w", dtype::f32, {0, 2});
        builder.split("w");
        CHECK(contains(error_of(builder), "has no first axis to split"));
    }
    SUBCASE("strides") {
        builder.add_weight("w", dtype::f32, {2, 2}, builder.add_storage(16), 0, Strides{1, 2});
        builder.split("w");
        CHECK(contains(error_of(builder), "only a dense tensor"));
    }
    SUBCASE("tied") {
        builder.add("w", dtype::f32, {2, 2});
        builder.tie("other", "w");
        builder.split("w");
        CHECK(contains(error_of(builder), "\"other\" lies in the same storage"));
    }
    SUBCASE("half bytes") {
        builder.add("w", dtype::i4, {2, 3});
        builder.split("w");
        CHECK(contains(error_of(builder), "they do not fill whole bytes"));
    }
    SUBCASE("a name that is taken, first or later") {
        const char* taken = "w[0]";
        SUBCASE("first") {}
        SUBCASE("later") { taken = "w[1]"; }
        builder.add(taken, dtype::f32, {1});
        builder.add("w", dtype::f32, {2, 2});
        CHECK(builder.split("w").empty());
        CHECK(contains(error_of(builder), detail::quoted(taken)));
    }
    SUBCASE("too many parts") {
        builder.add("w", dtype::u8, {CatalogBuilder::max_parts + 1, 0});
        builder.split("w");
        CHECK(contains(error_of(builder), "at most 1048576"));
    }
}

TEST_CASE("a hundred thousand weights") {
    constexpr std::uint32_t count = 100000;
    CatalogBuilder builder;
    for (std::uint32_t i = 0; i < count; ++i) {
        builder.add("model.layers." + std::to_string(i) + ".weight", dtype::bf16, {i % 7, 2});
    }
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->weights().size() == count);
    CHECK(catalog->find("model.layers.99999.weight") == WeightId{count - 1});
}

}  // namespace catalog_builder_test

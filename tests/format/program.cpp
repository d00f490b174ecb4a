// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/program.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/container.hpp"
#include "residency/model/file.hpp"
#include "tests/support/sealed.hpp"
#include "tests/support/temporary_folder.hpp"

namespace program_test {

using namespace residency;
using namespace std::chrono_literals;
using format::Program;
using format::try_load_program;

namespace {

/// Two methods over an embedding with a view, a matrix and a cache.
Program sample() {
    CatalogBuilder builder;
    const StorageId table = builder.add_storage(4096);
    const WeightId embedding = builder.add_weight("embedding", dtype::f32, {32, 32}, table);
    const WeightId row = builder.add_weight("row", dtype::f32, {32}, table, 128, Strides{1});
    const WeightId matrix = builder.add("matrix", dtype::bf16, {8, 32});
    const WeightId cache = builder.add("cache", dtype::f32, {4, 32}, {}, true);
    Program program;
    program.compiler = "torch 2.11.0";
    program.device = "cpu";
    program.weights_file = "weights.safetensors";
    program.budget = "50%";
    program.catalog = builder.try_build()->try_with_placement(std::span{&matrix, 1}, Placement::resident).value();
    program.tensors = {"table", "matrix", "cache"};
    using Kind = format::ProgramWeightKind;
    program.kinds = {Kind::parameter, Kind::parameter, Kind::parameter, Kind::buffer};
    program.aliases = {{"head", embedding}, {"zero", row}};
    program.pins = {matrix};
    program.methods.push_back({"prefill",
                               "prefill.pt2",
                               {{dtype::i64, {1, 8}}},
                               {{"a", "embedding", embedding}, {"b", "cache", cache}},
                               {{{embedding, row}, 2, 5us, "gather", "e"},
                                {{matrix}, std::nullopt, std::nullopt, "gemm", "b.0"},
                                {{cache}, std::nullopt, 1us, "add", ""}}});
    program.methods.push_back(
        {"decode", "decode.pt2", {}, {{"a", "embedding", embedding}}, {{{row}, 0, std::nullopt, "", ""}}});
    return program;
}

std::vector<std::byte> fixture(const char* name) {
    return unwrap(residency::detail::read_file(std::string{RESIDENCY_FIXTURES_DIR "/program/"} + name, 1 << 20));
}

}  // namespace

TEST_CASE("a program is loaded as it was saved") {
    const Program program = sample();
    const auto bytes = format::save(program);
    const auto loaded = try_load_program(bytes);
    REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message());
    CHECK(format::save(*loaded) == bytes);
    CHECK(loaded->compiler == program.compiler);
    CHECK(loaded->device == program.device);
    CHECK(loaded->weights_file == program.weights_file);
    CHECK(loaded->budget == program.budget);
    CHECK(loaded->catalog.hash() == program.catalog.hash());
    CHECK(loaded->tensors == program.tensors);
    CHECK(loaded->kinds == program.kinds);
    CHECK(loaded->aliases == program.aliases);
    CHECK(loaded->pins == program.pins);
    CHECK(loaded->methods == program.methods);
    CHECK(loaded->catalog.storages()[1].placement == Placement::resident);
    CHECK(loaded->catalog.storages()[2].is_mutable);
}

TEST_CASE("a program is found by names and aliases, and its file says where it lies") {
    const Program program = sample();
    CHECK(program.find("matrix") == program.catalog.find("matrix"));
    CHECK(program.find("head") == program.catalog.find("embedding"));
    CHECK_FALSE(program.find("tail"));
    REQUIRE(program.find_method("decode") != nullptr);
    CHECK(program.find_method("decode")->package == "decode.pt2");
    CHECK(program.find_method("encode") == nullptr);

    const test::TemporaryFolder folder;
    const std::string path = folder.path("program.residency");
    CHECK(format::try_load_program_file(path).error().kind() == ErrorKind::io);
    REQUIRE(format::try_save_file(program, path));
    CHECK(format::save(unwrap(format::try_load_program_file(path))) == format::save(program));
}

TEST_CASE("the schedule of a method has its live ranges, times and names") {
    const Program program = sample();
    const Schedule schedule = unwrap(program.try_schedule(*program.find_method("prefill")));
    REQUIRE(schedule.size() == 3);
    CHECK(schedule[0].compute == 5us);
    CHECK(schedule[0].name == "gather (e)");
    CHECK(schedule[1].storages.size() == 2);  // the matrix, and the table that is live until step 2
    CHECK(schedule[1].weights.size() == 3);
    CHECK(schedule[2].storages.size() == 2);
    CHECK(schedule[2].name == "add");
    CHECK(unwrap(program.try_schedule(*program.find_method("decode"))).size() == 1);
}

TEST_CASE("a program takes its bytes from a catalog of the weights file") {
    const Program program = sample();
    const std::vector<std::byte> table(4096), matrix(512), cache(512);
    const auto weights = [&](std::size_t table_bytes, const char* last) {
        CatalogBuilder builder;
        builder.add("matrix", dtype::bf16, {8, 32}, matrix);
        builder.add("table", dtype::u8, {table_bytes}, std::span{table}.first(table_bytes));
        builder.add(last, dtype::u8, {512}, cache);
        return unwrap(builder.try_build());
    };
    const auto bound = program.try_bind(weights(4096, "cache"));
    REQUIRE_MESSAGE(bound.has_value(), bound.error().message());
    CHECK(bound->hash() == program.catalog.hash());
    CHECK(bound->host_bytes(StorageId{0}) == table.data());
    CHECK(bound->host_bytes(StorageId{1}) == matrix.data());

    const auto other = program.try_bind(weights(4000, "cache"));
    REQUIRE_FALSE(other);
    CHECK(other.error().kind() == ErrorKind::mismatch);
    CHECK(other.error().message() ==
          "the tensor \"table\" has 4,000 bytes (3.906 KiB) where the program was compiled for 4,096 bytes (4 KiB): "
          "these are the weights of "
          "another model");
    const auto missing = program.try_bind(weights(4096, "cash"));
    REQUIRE_FALSE(missing);
    CHECK(missing.error().message().find("\"cache\"") != std::string::npos);
}

TEST_CASE("programs that the export wrote") {
    for (const char* name : {"markers.residency", "probes.residency"}) {
        CAPTURE(name);
        const auto bytes = fixture(name);
        const auto program = try_load_program(bytes, name);
        REQUIRE_MESSAGE(program.has_value(), program.error().message());
        CHECK(format::save(*program) == bytes);  // both halves write the same form
        CHECK(program->device == "cpu");
        CHECK(program->budget == "50%");
        CHECK(program->find("e.weight") == program->find("h.weight"));  // tied
        REQUIRE(program->methods.size() == 2);
        const WeightId cache = program->find("cache").value();
        CHECK(program->catalog.storage(program->catalog.storage_of(cache)).is_mutable);
        REQUIRE(program->pins.size() == 1);
        CHECK(program->catalog.weight(program->pins[0]).name == "b.0.n.weight");
        for (const auto& method : program->methods) {
            CHECK(method.inputs.size() == 1);
            CHECK(method.constants.size() == 20);
            const Schedule schedule = unwrap(program->try_schedule(method));
            CHECK(schedule.size() == method.steps.size());
        }
    }
    const Program probes = unwrap(try_load_program(fixture("probes.residency")));
    const Schedule schedule = unwrap(probes.try_schedule(probes.methods[0]));
    // The embedding is read by later kernels again: live from its probe on.
    const WeightId embedding = probes.find("e.weight").value();
    CHECK(probes.methods[0].steps[0].weights == std::vector{embedding});
    CHECK(probes.methods[0].steps[0].live_until > 10U);
    CHECK(schedule[5].weights.size() > 1);
}

TEST_CASE("C7: no truncation of a program is accepted") {
    const auto good = format::save(sample());
    for (std::size_t size = 0; size < good.size(); ++size) {
        REQUIRE_FALSE(try_load_program(std::span{good}.first(size)).has_value());
    }
}

TEST_CASE("C7: damage under a right checksum is refused, or loads as a valid program") {
    std::uint32_t refused = 0, accepted = 0;
    const auto check = [&](const std::vector<std::byte>& bytes) {
        const auto loaded = try_load_program(bytes);
        if (!loaded) {
            ++refused;
            REQUIRE_FALSE(loaded.error().message().empty());
            return;
        }
        ++accepted;
        REQUIRE(format::save(*loaded) == bytes);  // a valid program has one saved form
        for (const auto& method : loaded->methods) {
            REQUIRE(method.package.find('/') == std::string::npos);
            for (const auto& constant : method.constants) { REQUIRE(loaded->catalog.contains(constant.weight)); }
            const auto schedule = loaded->try_schedule(method);
            REQUIRE_MESSAGE(schedule.has_value(), schedule.error().message());
        }
    };
    const auto good = format::save(sample());
    for (std::size_t at = 0; at + 8 < good.size(); ++at) {
        for (int value = 0; value < 256; value += 7) {
            auto changed = good;
            changed[at] = static_cast<std::byte>(value);
            test::seal(changed);
            check(changed);
        }
    }
    constexpr std::uint32_t seed = 11;
    MESSAGE("seed ", seed);
    std::mt19937 engine{seed};
    const auto below = [&](std::size_t bound) { return static_cast<std::uint32_t>(engine() % bound); };
    for (int round = 0; round < 10000; ++round) {
        auto changed = good;
        for (std::uint32_t changes = 1 + below(5); changes-- > 0;) {
            changed[184 + below(changed.size() - 192)] = static_cast<std::byte>(below(round % 2 == 0 ? 8 : 256));
        }
        test::seal(changed);
        check(changed);
    }
    CHECK(refused > 10000);
    CHECK(accepted > 100);
}

TEST_CASE("C7: what contradicts itself in a program is named") {
    struct Case {
        void (*change)(Program&);
        const char* expected;
    };
    const Case cases[] = {
        {[](Program& p) { p.weights_file = "../weights"; }, "the name of a file beside the program"},
        {[](Program& p) { p.methods[0].package = "/etc/passwd"; }, "the name of a file beside the program"},
        {[](Program& p) { p.methods[1].name = "prefill"; }, "each name once"},
        {[](Program& p) { p.methods[0].steps[1].live_until = 0; }, "live until 0"},
        {[](Program& p) { p.methods[0].steps[0].live_until = 3; }, "live until 3"},
        {[](Program& p) { p.methods[0].steps[0].weights[1] = p.methods[0].steps[0].weights[0]; }, "twice in step 0"},
        {[](Program& p) { p.methods[0].steps[0].weights[1] = WeightId{9}; }, "weight 9"},
        {[](Program& p) { p.methods[0].constants[1].name = "a"; }, "names in ascending order"},
        {[](Program& p) { p.methods[0].steps.clear(); }, "no steps"},
        {[](Program& p) { p.aliases[0].name = "matrix"; }, "names in ascending order that no weight has"},
        {[](Program& p) { p.pins = {WeightId{2}, WeightId{2}}; }, "pins out of order"},
    };
    for (const Case& each : cases) {
        Program program = sample();
        each.change(program);
        const auto loaded = try_load_program(format::save(program), "broken.residency");
        REQUIRE_FALSE(loaded);
        CAPTURE(loaded.error().message());
        CHECK(loaded.error().message().find(each.expected) != std::string::npos);
        CHECK(loaded.error().message().find("broken.residency") != std::string::npos);
        CHECK(loaded.error().kind() == ErrorKind::malformed);
    }
}

}  // namespace program_test

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/equal_storages.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"

namespace equal_storages_test {

using namespace residency;

namespace {

/// Storages one after another, with those contents.
format::ModelFile model_of(const support::TemporaryFolder& folder, const std::vector<std::string>& contents) {
    std::string all;
    format::ModelFile model;
    model.format = "test";
    for (const auto& bytes : contents) {
        const auto storage = static_cast<std::uint32_t>(model.storages.size());
        model.storages.push_back({0, all.size(), bytes.size(), false});
        model.weights.push_back(
            {"w" + std::to_string(storage), "U8", dtype::u8, {bytes.size()}, {}, storage, 0, bytes.size()});
        all += bytes;
    }
    model.files.push_back({folder.write("all", all), all.size()});
    return model;
}

}  // namespace

TEST_CASE("equal storages: found by their bytes, and merged into one") {
    const support::TemporaryFolder folder;
    std::mt19937 random{1};
    const auto noise = [&](std::size_t bytes) {
        std::string text(bytes, '\0');
        for (char& c : text) { c = static_cast<char>(random()); }
        return text;
    };
    const std::string big = noise((4 << 20) + 77);
    std::string other = big;
    other[other.size() - 1] ^= 1;
    std::string early = big;
    early[3] ^= 1;
    auto model = model_of(folder, {big, "abc", other, "", "abd", "abc", big, early, "", "abc", big});
    const auto groups = format::try_find_equal_storages(model);
    REQUIRE(groups);
    CHECK(*groups == std::vector<std::vector<std::uint32_t>>{{0, 6, 10}, {1, 5, 9}});

    const auto merged = format::merge_storages(model, *groups);
    CHECK(merged.storages.size() == model.storages.size() - 4);
    for (std::size_t i = 0; i < model.weights.size(); ++i) {
        CHECK(support::bytes_of(merged, merged.weights[i]) == support::bytes_of(model, model.weights[i]));
    }
    CHECK(merged.weights[0].storage == merged.weights[10].storage);
    CHECK(merged.try_catalog()->total_bytes() == model.total_bytes() - 2 * big.size() - 6);

    model.storages[6].is_mutable = true;
    CHECK(format::try_find_equal_storages(model)->front() == std::vector<std::uint32_t>{0, 10});
}

TEST_CASE("equal storages: against a comparison of all with all") {
    const std::uint32_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random{seed};
    const support::TemporaryFolder folder;
    for (int round = 0; round < 20; ++round) {
        std::vector<std::string> contents(30);
        for (auto& bytes : contents) {
            bytes.resize(random() % 3 + 31);
            for (char& c : bytes) { c = static_cast<char>(random() % 16 == 0 ? 1 : 0); }
        }
        const auto groups = format::try_find_equal_storages(model_of(folder, contents), {.threads = 3, .progress = {}});
        REQUIRE(groups);
        std::vector<std::uint32_t> group_of(contents.size(), UINT32_MAX);
        for (std::uint32_t g = 0; g < groups->size(); ++g) {
            for (const std::uint32_t i : (*groups)[g]) { group_of[i] = g; }
        }
        for (std::size_t a = 0; a < contents.size(); ++a) {
            for (std::size_t b = a + 1; b < contents.size(); ++b) {
                CHECK((contents[a] == contents[b]) == (group_of[a] != UINT32_MAX && group_of[a] == group_of[b]));
            }
        }
    }
}

TEST_CASE("equal storages: progress is told, and can stop it; a missing file is an error") {
    const support::TemporaryFolder folder;
    auto model = model_of(folder, {"abc", "abc"});
    std::uint64_t last = 0;
    format::EqualStoragesOptions options;
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
        last = done;
        CHECK(total == 6);
        return true;
    };
    CHECK(format::try_find_equal_storages(model, options));
    CHECK(last >= 3);
    options.progress = [](std::uint64_t, std::uint64_t) { return false; };
    CHECK(format::try_find_equal_storages(model, options).error().kind() == ErrorKind::cancelled);
    model.files[0].path += "x";
    CHECK(format::try_find_equal_storages(model).error().kind() == ErrorKind::io);
}

}  // namespace equal_storages_test

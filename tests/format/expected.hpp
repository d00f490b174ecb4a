// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "../support/files.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"

namespace support {

/// A file of tests/fixtures.
inline std::string fixture(const std::string& name) { return RESIDENCY_FIXTURES_DIR "/" + name; }

/// What `read` makes of an input over these bytes: an exact copy on the heap, where a sanitizer sees every read beyond it.
template <class Read>
auto over(const std::string& bytes, const Read& read) {
    const std::vector<char> copy{bytes.begin(), bytes.end()};
    return read(residency::format::Input::over(std::as_bytes(std::span{copy}), "memory"));
}

inline std::string hex(std::string_view bytes) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (const char c : bytes) {
        out += digits[static_cast<unsigned char>(c) >> 4];
        out += digits[static_cast<unsigned char>(c) & 15];
    }
    return out;
}

/// The bytes of a weight, read from the file that the model names.
inline std::string bytes_of(const residency::format::ModelFile& model,
                            const residency::format::ModelFile::WeightEntry& weight) {
    const auto& storage = model.storages.at(weight.storage);
    return read_all(model.files.at(storage.file).path).substr(storage.offset_bytes + weight.offset_bytes, weight.bytes);
}

/// Compares a model with what the reference implementation said of it, bytes included; returns the expectation.
inline nlohmann::json check_against_reference(const residency::format::ModelFile& model,
                                              const std::string& expectation) {
    const auto expected = nlohmann::json::parse(read_all(fixture(expectation)));
    std::map<std::string, const residency::format::ModelFile::WeightEntry*> by_name;
    for (const auto& weight : model.weights) { by_name[weight.name] = &weight; }
    for (const auto& want : expected.at("weights")) {
        const auto name = want.at("name").get<std::string>();
        CAPTURE(name);
        REQUIRE(by_name.contains(name));
        const auto& weight = *by_name.at(name);
        CHECK(weight.dtype == want.at("dtype").get<std::string>());
        CHECK(weight.shape == want.at("shape").get<std::vector<std::uint64_t>>());
        if (want.contains("strides") && !weight.strides.empty()) {
            CHECK(weight.strides == want.at("strides").get<std::vector<std::uint64_t>>());
        }
        CHECK(hex(bytes_of(model, weight)) == want.at("hex").get<std::string>());
    }
    const auto catalog = model.try_catalog();
    REQUIRE(catalog);
    CHECK(catalog->weights().size() == model.weights.size());
    CHECK(catalog->total_bytes() == model.total_bytes());
    return expected;
}

/// Whether an error is of malformed input and names file and reason; prints it otherwise.
template <class T>
bool refused(const residency::Result<T>& result, const std::string& reason) {
    if (result) { return false; }
    const auto& error = result.error();
    const bool named = error.message().find(reason) != std::string::npos;
    if (!named) { MESSAGE(error.message()); }
    const auto* place = error.template detail<residency::FileLocation>();
    return named && error.kind() == residency::ErrorKind::malformed && place != nullptr && !place->source.empty() &&
           error.message().find('\n') == std::string::npos;
}

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span{text}); }

}  // namespace support

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fuzz.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"

namespace support {

inline void check_refusal(const residency::Error& error) {
    using residency::ErrorKind;
    check_message(error);
    if (error.kind() != ErrorKind::malformed && error.kind() != ErrorKind::unsupported &&
        error.kind() != ErrorKind::io) {
        fuzz_failed("an error of the wrong kind", error.message());
    }
}

/// Every range that a reader accepts must exist, so that later reads need no further checks.
inline void check_model(const residency::Result<residency::format::ModelFile>& model) {
    if (!model) {
        check_refusal(model.error());
        return;
    }
    for (const auto& storage : model->storages) {
        if (storage.file >= model->files.size()) { fuzz_failed("a storage in no file", model->format); }
        const std::uint64_t whole = model->files[storage.file].bytes;
        if (storage.offset_bytes > whole || storage.bytes > whole - storage.offset_bytes) {
            fuzz_failed("a storage outside of its file", std::to_string(storage.offset_bytes));
        }
    }
    for (const auto& weight : model->weights) {
        if (weight.storage >= model->storages.size()) { fuzz_failed("a weight in no storage", weight.name); }
        const std::uint64_t whole = model->storages[weight.storage].bytes;
        if (weight.offset_bytes > whole || weight.bytes > whole - weight.offset_bytes) {
            fuzz_failed("a weight outside of its storage", weight.name);
        }
        if (!residency::format::detail::is_utf8(weight.name)) { fuzz_failed("a name that is not UTF-8", weight.name); }
    }
    const auto check_text = [](const std::string& text) {
        if (!residency::format::detail::is_utf8(text)) { fuzz_failed("text that is not UTF-8", text); }
    };
    for (const auto& [key, value] : model->metadata) {
        check_text(key);
        check_text(value);
    }
    for (const auto& entry : model->passed_over) { check_text(entry.name); }
    for (const std::string& note : model->notes) { check_text(note); }
    // The catalog has limits of its own, such as names that are not empty: it may refuse, but not fail.
    const auto catalog = model->try_catalog();
    if (catalog && catalog->total_bytes() != model->total_bytes()) {
        fuzz_failed("a catalog of another size", model->format);
    }
}

/// Runs `read` on a copy of the bytes as an input.
template <class Read>
void with_input(const std::uint8_t* data, std::size_t bytes, const Read& read) {
    with_copy(data, bytes,
              [&](std::span<const std::byte> copy) { read(residency::format::Input::over(copy, "input")); });
}

}  // namespace support

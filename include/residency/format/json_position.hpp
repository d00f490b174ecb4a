// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "residency/error.hpp"
#include "residency/format/text.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// An iterator over characters that counts how many were taken, so that a handler of parser events knows its position.
class CountingIterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    CountingIterator(const char* at, std::uint64_t* taken) noexcept : at_{at}, taken_{taken} {}
    reference operator*() const noexcept { return *at_; }
    CountingIterator& operator++() noexcept {
        ++at_;
        ++*taken_;
        return *this;
    }
    CountingIterator operator++(int) noexcept {
        const CountingIterator before = *this;
        ++*this;
        return before;
    }
    friend bool operator==(const CountingIterator& a, const CountingIterator& b) noexcept { return a.at_ == b.at_; }

private:
    const char* at_;
    std::uint64_t* taken_;
};

/// Base of the handlers that each read one kind of JSON text. Keeps the position and the first error. A handler limits the depth
/// itself: the parser keeps one bit per level and does not recurse.
class JsonHandler {
public:
    using Json = nlohmann::json;
    using number_integer_t = Json::number_integer_t;
    using number_unsigned_t = Json::number_unsigned_t;
    using number_float_t = Json::number_float_t;
    using string_t = Json::string_t;
    using binary_t = Json::binary_t;

    /// `text` starts at byte `base` of `source`.
    JsonHandler(const std::string& source, std::uint64_t base) noexcept : source_{source}, base_{base} {}

    template <class Handler>
    [[nodiscard]] static Status try_parse(Handler& handler, std::string_view text) {
        // The parser takes a zero byte for the end of the text.
        if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
            handler.taken_ = zero;
            handler.fail("not valid JSON", "a zero byte");
            return handler.status_.error();
        }
        const char* const first = text.data();
        const CountingIterator begin{first, &handler.taken_};
        const CountingIterator end{first + text.size(), &handler.taken_};
        if (!Json::sax_parse(begin, end, &handler) || !handler.status_) {
            if (handler.status_) { handler.fail("the JSON text is not valid"); }
            return handler.status_.error();
        }
        return {};
    }

    bool parse_error(std::size_t, const std::string& last, const Json::exception& why);

protected:
    /// Position of what was read last, in bytes from the start of the source.
    [[nodiscard]] std::uint64_t place() const noexcept { return base_ + taken_; }
    /// Keeps the first error. Returns false, so that a handler can return it.
    bool fail(const std::string& what, std::string found = {}, std::string expected = {});

private:
    const std::string& source_;
    std::uint64_t base_;
    std::uint64_t taken_ = 0;
    Status status_;
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/json_position.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Reads tables of a FlatBuffer (flatbuffers.dev, "Internals") without its schema compiler: little-endian, with offsets of 32 bits. Nothing
/// outside of the bytes is read; what points outside is the first failure, after which every value is zero and every vector empty. What
/// strings and vectors hold is counted, and may not come to more than the bytes: one that is pointed to again and again fails, too.
class Flatbuffer {
public:
    class Vector;

    /// A table. Fields are numbered in the order of the schema, from 0 on.
    class Table {
    public:
        Table() noexcept = default;
        explicit operator bool() const noexcept { return buffer_ != nullptr; }

        /// A number, `otherwise` where the table lacks it.
        template <class Number>
        [[nodiscard]] Number number(unsigned field, Number otherwise = {}) const {
            static_assert(std::is_arithmetic_v<Number>);
            const std::uint64_t at = place_of(field);
            return at == 0 ? otherwise : buffer_->load<Number>(at);
        }
        /// A table; none where the table lacks it.
        [[nodiscard]] Table table(unsigned field) const {
            const std::uint64_t at = place_of(field);
            return at == 0 ? Table{} : buffer_->table_at(buffer_->follow(at));
        }
        /// A string or a vector of bytes, empty where the table lacks it.
        [[nodiscard]] std::string_view text(unsigned field) const {
            const Vector found = vector(field, 1);
            return found.bytes();
        }
        /// A vector of elements of `element_bytes`; empty where the table lacks it.
        [[nodiscard]] Vector vector(unsigned field, std::uint64_t element_bytes) const;
        /// Where the table lies in the bytes, for messages.
        [[nodiscard]] std::uint64_t place() const noexcept { return at_; }

    private:
        friend class Flatbuffer;
        Table(Flatbuffer& buffer, std::uint64_t at, std::uint64_t fields_at, std::uint64_t fields_bytes) noexcept
            : buffer_{&buffer}, at_{at}, fields_at_{fields_at}, fields_bytes_{fields_bytes} {}

        [[nodiscard]] std::uint64_t place_of(unsigned field) const {
            const std::uint64_t entry = 2 * std::uint64_t{field};
            if (buffer_ == nullptr || entry + 2 > fields_bytes_) { return 0; }
            const auto offset = buffer_->load<std::uint16_t>(fields_at_ + entry);
            return offset == 0 ? 0 : at_ + offset;
        }

        Flatbuffer* buffer_ = nullptr;
        std::uint64_t at_ = 0, fields_at_ = 0, fields_bytes_ = 0;
    };

    class Vector {
    public:
        Vector() noexcept = default;
        [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
        [[nodiscard]] std::string_view bytes() const {
            return buffer_ == nullptr ? std::string_view{}
                                      : buffer_->bytes_.substr(static_cast<std::size_t>(at_),
                                                               static_cast<std::size_t>(size_ * element_bytes_));
        }
        /// Where the first element lies in the bytes.
        [[nodiscard]] std::uint64_t place() const noexcept { return at_; }
        /// Precondition: index < size(), and for tables elements of 4 bytes.
        template <class Number>
        [[nodiscard]] Number number(std::uint64_t index) const {
            return buffer_->load<Number>(at_ + index * element_bytes_);
        }
        [[nodiscard]] Table table(std::uint64_t index) const {
            return buffer_->table_at(buffer_->follow(at_ + index * element_bytes_));
        }

    private:
        friend class Table;
        Vector(Flatbuffer& buffer, std::uint64_t at, std::uint64_t size, std::uint64_t element_bytes) noexcept
            : buffer_{&buffer}, at_{at}, size_{size}, element_bytes_{element_bytes} {}

        Flatbuffer* buffer_ = nullptr;
        std::uint64_t at_ = 0, size_ = 0, element_bytes_ = 0;
    };

    /// `source` names the bytes in messages. The bytes outlive this, which stays where it is.
    Flatbuffer(std::string_view bytes, std::string source)
        : bytes_{bytes}, source_{std::move(source)}, allowance_{bytes.size()} {}
    Flatbuffer(const Flatbuffer&) = delete;
    Flatbuffer& operator=(const Flatbuffer&) = delete;

    /// The table that the first four bytes point to.
    [[nodiscard]] Table root() { return table_at(follow(0)); }

    /// The first failure. Error malformed, with the place.
    [[nodiscard]] Status status() const { return failure_ ? Status{*failure_} : Status{}; }
    [[nodiscard]] const std::string& source() const noexcept { return source_; }
    [[nodiscard]] bool has_failed() const noexcept { return failure_.has_value(); }
    /// Says what is wrong with a value at that place, unless something failed before.
    void fail(std::uint64_t at, const std::string& what, std::string found = {}, std::string expected = {}) {
        if (!failure_) { failure_ = malformed(source_, at, what, std::move(found), std::move(expected)); }
    }

private:
    template <class Number>
    [[nodiscard]] Number load(std::uint64_t at) {
        Number value{};
        if (failure_ || !residency::detail::lies_inside(at, sizeof(Number), bytes_.size())) {
            fail_outside("a value lies", at, sizeof(Number));
            return value;
        }
        std::memcpy(&value, bytes_.data() + at, sizeof value);
        return value;
    }
    void fail_outside(const char* what, std::uint64_t at, std::uint64_t bytes) {
        const auto end = residency::detail::checked_add(at, bytes);
        fail(at, std::string{what} + " outside of the description: the file is damaged or cut off: download it again",
             residency::detail::in_bytes(bytes_.size()), at_least(end));
    }
    /// Where the offset at that place points.
    [[nodiscard]] std::uint64_t follow(std::uint64_t at) { return at + load<std::uint32_t>(at); }

    [[nodiscard]] Table table_at(std::uint64_t at) {
        // The offset to the list of fields is signed, and subtracted.
        const auto back = static_cast<std::int64_t>(load<std::int32_t>(at));
        const auto fields = static_cast<std::uint64_t>(static_cast<std::int64_t>(at) - back);
        const std::uint64_t bytes = load<std::uint16_t>(fields);
        if (failure_) { return {}; }
        constexpr std::uint64_t header = 4;
        if (bytes < header || !residency::detail::lies_inside(fields, bytes, bytes_.size())) {
            fail(at, "a table without a valid list of fields");
            return {};
        }
        return {*this, at, fields + header, bytes - header};
    }

    std::string_view bytes_;
    std::string source_;
    std::uint64_t allowance_;
    std::optional<Error> failure_;
};

inline Flatbuffer::Vector Flatbuffer::Table::vector(unsigned field, std::uint64_t element_bytes) const {
    const std::uint64_t at = place_of(field);
    if (at == 0) { return {}; }
    const std::uint64_t vector_at = buffer_->follow(at);
    const std::uint64_t size = buffer_->load<std::uint32_t>(vector_at);
    if (buffer_->failure_) { return {}; }
    const std::uint64_t bytes = size * element_bytes;
    constexpr std::uint64_t header = 4;
    if (!residency::detail::lies_inside(vector_at + header, bytes, buffer_->bytes_.size())) {
        buffer_->fail_outside("a list reaches", vector_at + header, bytes);
        return {};
    }
    if (bytes > buffer_->allowance_) {
        buffer_->fail(vector_at, "its lists overlap: they come to more than the description has bytes");
        return {};
    }
    buffer_->allowance_ -= bytes;
    return {*buffer_, vector_at + header, size, element_bytes};
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

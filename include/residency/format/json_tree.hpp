// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// A JSON text as a flat tree in which every value knows its position in the source. Refuses duplicate keys, deep nesting and too
/// many values.
class JsonTree {
public:
    enum class Kind : std::uint8_t { null, boolean, number, other_number, string, array, object };

    struct Node {
        std::uint64_t number = 0;  ///< the value of a boolean, or of a whole number that is not negative
        std::uint64_t place =
            0;  ///< bytes from the start of the source to the end of the value, or to the start of a container
        std::uint32_t text = 0;  ///< of a string: its start in texts_
        std::uint32_t text_bytes = 0;
        std::uint32_t key = 0;
        std::uint32_t key_bytes = 0;
        std::uint32_t next = 0;  ///< index of the node after this one and all that is in it
        std::uint32_t children = 0;
        Kind kind = Kind::null;
    };

    /// One value of the tree.
    class Value {
    public:
        [[nodiscard]] Kind kind() const noexcept { return node().kind; }
        [[nodiscard]] bool is_object() const noexcept { return kind() == Kind::object; }
        [[nodiscard]] bool is_array() const noexcept { return kind() == Kind::array; }
        [[nodiscard]] std::uint64_t place() const noexcept { return node().place; }
        [[nodiscard]] std::string_view key() const noexcept { return tree_->piece(node().key, node().key_bytes); }
        [[nodiscard]] std::optional<std::uint64_t> number() const noexcept {
            return kind() == Kind::number ? std::optional{node().number} : std::nullopt;
        }
        [[nodiscard]] std::optional<bool> boolean() const noexcept {
            return kind() == Kind::boolean ? std::optional{node().number != 0} : std::nullopt;
        }
        [[nodiscard]] std::optional<std::string_view> string() const noexcept {
            return kind() == Kind::string ? std::optional{tree_->piece(node().text, node().text_bytes)} : std::nullopt;
        }
        [[nodiscard]] std::size_t size() const noexcept { return node().children; }
        /// The elements of an array, or the members of an object, in order.
        [[nodiscard]] std::vector<Value> children() const;
        /// The member of that name; none where this is no object. O(members).
        [[nodiscard]] std::optional<Value> find(std::string_view name) const;

        /// The number, text or boolean of the member of that name; none where it is missing or of another kind.
        [[nodiscard]] std::optional<std::uint64_t> number(std::string_view name) const;
        [[nodiscard]] std::optional<std::string_view> string(std::string_view name) const;
        [[nodiscard]] std::optional<bool> boolean(std::string_view name) const;

    private:
        friend class JsonTree;
        Value(const JsonTree* tree, std::uint32_t index) noexcept : tree_{tree}, index_{index} {}
        [[nodiscard]] const Node& node() const noexcept { return tree_->nodes_[index_]; }

        const JsonTree* tree_;
        std::uint32_t index_;
    };

    static constexpr std::uint64_t most_bytes = 100'000'000;

    /// `base`: where the text starts in `source`.
    [[nodiscard]] static Result<JsonTree> try_parse(std::string_view text, const std::string& source,
                                                    std::uint64_t base);
    [[nodiscard]] static Result<JsonTree> try_read(const Input& input, std::uint64_t offset, std::uint64_t bytes);

    /// The root. Valid as long as this tree is neither moved nor destroyed.
    [[nodiscard]] Value root() const noexcept { return {this, 0}; }

private:
    class Builder;

    [[nodiscard]] std::string_view piece(std::uint32_t at, std::uint32_t bytes) const noexcept {
        return std::string_view{texts_}.substr(at, bytes);
    }

    std::vector<Node> nodes_;
    std::string texts_;
};

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
#include "residency/format/impl/json_tree.ipp"
#endif

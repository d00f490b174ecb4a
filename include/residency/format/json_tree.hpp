// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/text.hpp"

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

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/json_tree.ipp"
#endif

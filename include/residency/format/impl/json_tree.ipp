// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <unordered_set>
#include <utility>

#include "residency/format/json_tree.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Builds a tree from the parser's events.
class JsonTree::Builder : public JsonHandler {
public:
    Builder(JsonTree& tree, const std::string& source, std::uint64_t base) noexcept
        : JsonHandler{source, base}, tree_{tree} {}

    bool null() { return add({}); }
    bool boolean(bool value) { return add(Kind::boolean, value ? 1 : 0); }
    bool number_integer(number_integer_t) { return add(Kind::other_number); }
    bool number_unsigned(number_unsigned_t value) { return add(Kind::number, value); }
    bool number_float(number_float_t, const string_t&) { return add(Kind::other_number); }
    bool binary(binary_t&) { return fail("binary data"); }
    bool string(string_t& value) {
        const auto [at, bytes] = keep(value);
        return add(Kind::string, 0, at, bytes);
    }
    bool key(string_t& name) {
        if (!open_.back().keys.insert(name).second) { return fail("the key " + shown(name) + " is given twice"); }
        std::tie(key_, key_bytes_) = keep(name);
        return true;
    }
    bool start_object(std::size_t) { return start(Kind::object); }
    bool start_array(std::size_t) { return start(Kind::array); }
    bool end_object() { return end(); }
    bool end_array() { return end(); }

private:
    static constexpr std::size_t deepest = 32;
    static constexpr std::size_t most_values = 8'000'000;

    struct Open {
        std::uint32_t node = 0;
        std::unordered_set<std::string> keys;
    };

    [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> keep(const std::string& text) {
        const auto at = static_cast<std::uint32_t>(tree_.texts_.size());  // together no longer than the whole text
        tree_.texts_ += text;
        return {at, static_cast<std::uint32_t>(text.size())};
    }
    bool add(Kind kind = Kind::null, std::uint64_t number = 0, std::uint32_t text = 0, std::uint32_t text_bytes = 0) {
        if (tree_.nodes_.size() >= most_values) {
            return fail("too many values", {}, "at most " + std::to_string(most_values));
        }
        if (!open_.empty()) { ++tree_.nodes_[open_.back().node].children; }
        const auto index = static_cast<std::uint32_t>(tree_.nodes_.size());
        tree_.nodes_.push_back({number, place(), text, text_bytes, std::exchange(key_, 0), std::exchange(key_bytes_, 0),
                                index + 1, 0, kind});
        return true;
    }
    bool start(Kind kind) {
        if (open_.size() >= deepest) {
            return fail("nested too deeply", {}, "at most " + std::to_string(deepest) + " levels");
        }
        const auto index = static_cast<std::uint32_t>(tree_.nodes_.size());
        if (!add(kind)) { return false; }
        open_.push_back({index, {}});
        return true;
    }
    bool end() {
        tree_.nodes_[open_.back().node].next = static_cast<std::uint32_t>(tree_.nodes_.size());
        open_.pop_back();
        return true;
    }

    JsonTree& tree_;
    std::vector<Open> open_;
    std::uint32_t key_ = 0;
    std::uint32_t key_bytes_ = 0;
};

RESIDENCY_INLINE Result<JsonTree> JsonTree::try_parse(std::string_view text, const std::string& source,
                                                      std::uint64_t base) {
    if (text.size() > most_bytes) {
        return malformed(source, base, "the JSON text is too long", residency::detail::in_bytes(text.size()),
                         "at most " + residency::detail::in_bytes(most_bytes));
    }
    JsonTree tree;
    Builder builder{tree, source, base};
    if (Status parsed = JsonHandler::try_parse(builder, text); !parsed) { return parsed.error(); }
    return tree;
}

RESIDENCY_INLINE Result<JsonTree> JsonTree::try_read(const Input& input, std::uint64_t offset, std::uint64_t bytes) {
    if (bytes > most_bytes) {
        return malformed(input.path(), offset, "the JSON text is too long", residency::detail::in_bytes(bytes),
                         "at most " + residency::detail::in_bytes(most_bytes));
    }
    const auto text = input.try_text(offset, bytes);
    if (!text) { return text.error(); }
    return try_parse(*text, input.path(), offset);
}

RESIDENCY_INLINE auto JsonTree::Value::children() const -> std::vector<Value> {
    std::vector<Value> all;
    all.reserve(size());
    for (std::uint32_t at = index_ + 1; at < node().next; at = tree_->nodes_[at].next) { all.push_back({tree_, at}); }
    return all;
}

RESIDENCY_INLINE auto JsonTree::Value::find(std::string_view name) const -> std::optional<Value> {
    if (!is_object()) { return std::nullopt; }
    for (std::uint32_t at = index_ + 1; at < node().next; at = tree_->nodes_[at].next) {
        if (const Value member{tree_, at}; member.key() == name) { return member; }
    }
    return std::nullopt;
}

RESIDENCY_INLINE std::optional<std::uint64_t> JsonTree::Value::number(std::string_view name) const {
    const auto member = find(name);
    return member ? member->number() : std::nullopt;
}

RESIDENCY_INLINE std::optional<std::string_view> JsonTree::Value::string(std::string_view name) const {
    const auto member = find(name);
    return member ? member->string() : std::nullopt;
}

RESIDENCY_INLINE std::optional<bool> JsonTree::Value::boolean(std::string_view name) const {
    const auto member = find(name);
    return member ? member->boolean() : std::nullopt;
}

RESIDENCY_INLINE bool JsonHandler::parse_error(std::size_t, const std::string& last, const Json::exception& why) {
    // The library's text: "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error …".
    std::string_view text = why.what();
    if (const std::size_t at = text.find("syntax error"); at != std::string_view::npos) { text.remove_prefix(at); }
    if (const std::size_t at = text.find("; last read"); at != std::string_view::npos) { text = text.substr(0, at); }
    const auto says = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
    if (says("unexpected end of input") || says("missing closing quote")) {
        return fail(std::string{"not valid JSON, it has no end: "} + cut_off, residency::detail::in_bytes(place()),
                    at_least(place() + 1));
    }
    return fail("not valid JSON: " + residency::detail::shortened(text, 200),
                last.empty() ? std::string{} : shown(last));
}

RESIDENCY_INLINE bool JsonHandler::fail(const std::string& what, std::string found, std::string expected) {
    if (status_) { status_ = malformed(source_, place(), what, std::move(found), std::move(expected)); }
    return false;
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

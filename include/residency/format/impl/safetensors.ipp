// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <numeric>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "residency/format/folder.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/other_kinds.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// Reads a header's events: one object of tensors and, at most once, "__metadata__".
class SafetensorsHeader : public JsonHandler {
public:
    struct Tensor {
        std::uint64_t begin = 0, end = 0;  ///< of its data
        std::uint64_t place = 0;           ///< of its entry in the header
    };

    using JsonHandler::JsonHandler;

    std::vector<ModelFile::WeightEntry> weights;
    std::vector<Tensor> tensors;
    std::vector<ModelFile::Metadata> metadata;

    bool null() {
        if (state_ == State::metadata_value) {
            state_ = State::key;
            return true;
        }
        return skipped("null");
    }
    bool boolean(bool) { return skipped("a boolean"); }
    bool number_integer(number_integer_t) { return skipped("a negative number"); }
    bool number_float(number_float_t, const string_t& text) { return skipped("the number " + text.substr(0, 40)); }
    bool binary(binary_t&) { return skipped("binary data"); }
    bool number_unsigned(number_unsigned_t value) {
        if (state_ == State::extent) {
            weights.back().shape.push_back(value);
            return true;
        }
        if (state_ == State::offset) {
            if (offsets_ == 2) { return fail(in_tensor("more than two data_offsets")); }
            (offsets_++ == 0 ? tensors.back().begin : tensors.back().end) = value;
            return true;
        }
        return skipped("a number");
    }
    bool string(string_t& value) {
        if (state_ == State::metadata_text) {
            metadata.back().value = std::move(value);
            state_ = State::metadata_key;
            return true;
        }
        if (state_ == State::dtype) {
            const auto type = find_safetensors_dtype(value);
            if (!type) { return fail(in_tensor(unknown_type), shown(value)); }
            weights.back().dtype = std::move(value);
            weights.back().type = *type;
            state_ = State::field;
            return true;
        }
        return skipped("a string");
    }
    bool start_object(std::size_t) {
        switch (state_) {
            case State::top: state_ = State::key; return true;
            case State::metadata_value: state_ = State::metadata_key; return true;
            case State::tensor:
                fields_ = {};
                offsets_ = 0;
                state_ = State::field;
                return true;
            default: return opened("an object");
        }
    }
    bool key(string_t& name) {
        switch (state_) {
            case State::key:
                if (name == "__metadata__") {
                    if (std::exchange(has_metadata_, true)) { return fail("\"__metadata__\" is given twice"); }
                    state_ = State::metadata_value;
                    return true;
                }
                weights.emplace_back().name = std::move(name);
                tensors.push_back({0, 0, place()});
                state_ = State::tensor;
                return true;
            case State::metadata_key:
                if (!metadata_keys_.insert(name).second) { return fail("metadata " + shown(name) + " is given twice"); }
                metadata.push_back({std::move(name), {}});
                state_ = State::metadata_text;
                return true;
            case State::field:
                if (name == "dtype") { return field(0, State::dtype, name); }
                if (name == "shape") { return field(1, State::shape, name); }
                if (name == "data_offsets") { return field(2, State::offsets, name); }
                state_ = State::ignored;
                depth_ = 0;
                return true;
            default: return true;
        }
    }
    bool end_object() {
        switch (state_) {
            case State::key: state_ = State::done; return true;
            case State::metadata_key: state_ = State::key; return true;
            case State::field: return end_tensor();
            default: return closed();
        }
    }
    bool start_array(std::size_t) {
        if (state_ == State::shape) {
            state_ = State::extent;
            return true;
        }
        if (state_ == State::offsets) {
            state_ = State::offset;
            return true;
        }
        return opened("an array");
    }
    bool end_array() {
        if (state_ == State::extent) {
            state_ = State::field;
            return true;
        }
        if (state_ == State::offset) {
            if (offsets_ != 2) { return fail(in_tensor("fewer than two data_offsets")); }
            state_ = State::field;
            return true;
        }
        return closed();
    }

private:
    enum class State : std::uint8_t {
        top,
        key,
        metadata_value,
        metadata_key,
        metadata_text,
        tensor,
        field,
        dtype,
        shape,
        extent,
        offsets,
        offset,
        ignored,
        done,
    };

    [[nodiscard]] std::string in_tensor(const std::string& what) const {
        return "tensor " + shown(weights.back().name) + ": " + what;
    }
    [[nodiscard]] const char* wanted() const noexcept {
        switch (state_) {
            case State::top: return "an object";
            case State::metadata_value: return "an object of strings";
            case State::metadata_text: return "a string";
            case State::tensor: return "an object with dtype, shape and data_offsets";
            case State::dtype: return "a string";
            case State::shape: return "an array of extents";
            case State::offsets: return "an array of two offsets";
            case State::extent:
            case State::offset: return "a whole number below 2^64";
            default: return "something else";
        }
    }
    bool refuse(const std::string& found) {
        const bool inside = state_ >= State::tensor && state_ <= State::offset;
        return fail(inside ? in_tensor("a value of the wrong kind") : "a value of the wrong kind", found, wanted());
    }
    /// A scalar where only an ignored field may have one.
    bool skipped(const std::string& found) {
        if (state_ != State::ignored) { return refuse(found); }
        if (depth_ == 0) { state_ = State::field; }
        return true;
    }
    bool opened(const char* found) {
        if (state_ != State::ignored) { return refuse(found); }
        ++depth_;
        return true;
    }
    bool closed() {
        if (state_ == State::ignored && --depth_ == 0) { state_ = State::field; }
        return true;
    }
    bool field(std::size_t which, State next, const std::string& name) {
        if (std::exchange(fields_[which], true)) {
            return fail(in_tensor(residency::detail::quoted(name) + " is given twice"));
        }
        state_ = next;
        return true;
    }
    bool end_tensor() {
        constexpr std::array names{"dtype", "shape", "data_offsets"};
        for (std::size_t i = 0; i < fields_.size(); ++i) {
            if (!fields_[i]) { return fail(in_tensor("it lacks \"" + std::string{names[i]} + '"')); }
        }
        state_ = State::key;
        return true;
    }

    State state_ = State::top;
    std::array<bool, 3> fields_{};
    std::uint8_t offsets_ = 0;
    bool has_metadata_ = false;
    std::unordered_set<std::string> metadata_keys_;
    std::size_t depth_ = 0;
};

/// The text of the header, which the file begins with after 8 bytes of its length.
[[nodiscard]] inline Result<std::string> read_safetensors_header(const Input& input) {
    const std::string& path = input.path();
    std::byte prefix[8] = {};  // no std::array: what nvcc 13 makes of it here does not compile
    if (input.bytes() < sizeof prefix) {
        return malformed(path, 0, std::string{"too short for the 8 bytes that hold the header's length: "} + cut_off,
                         residency::detail::in_bytes(input.bytes()), at_least(sizeof prefix));
    }
    if (Status read = input.try_read(0, prefix); !read) { return read.error(); }
    std::uint64_t header_bytes = 0;
    for (std::size_t i = sizeof prefix; i-- > 0;) {
        header_bytes = header_bytes << 8 | std::to_integer<std::uint64_t>(prefix[i]);
    }
    if (header_bytes > safetensors_header_limit) {
        return malformed(path, 0, "the header is too large", residency::detail::in_bytes(header_bytes),
                         "at most " + residency::detail::in_bytes(safetensors_header_limit));
    }
    const std::uint64_t data = header_bytes + sizeof prefix;
    if (data > input.bytes()) {
        return malformed(path, 0, std::string{"the header is longer than the file: "} + cut_off,
                         residency::detail::in_bytes(input.bytes()), at_least(data));
    }
    auto text = input.try_text(sizeof prefix, header_bytes);
    if (text && (text->empty() || text->front() != '{')) {
        return malformed(path, sizeof prefix, "the header does not start with '{'",
                         text->empty() ? "an empty header" : shown(text->substr(0, 1)));
    }
    return text;
}

/// The error of a header's tensor.
[[nodiscard]] inline Error broken_safetensor(const Input& input, const SafetensorsHeader& header, std::size_t tensor,
                                             const std::string& what, std::string found = {},
                                             std::string expected = {}) {
    return malformed(input.path(), header.tensors[tensor].place,
                     "tensor " + shown(header.weights[tensor].name) + ": " + what, std::move(found),
                     std::move(expected));
}

/// Tensors have the bytes that their types and shapes say, and lie inside the file. Notes the bytes. `data`: where the data begin.
[[nodiscard]] inline Status size_safetensors(const Input& input, SafetensorsHeader& header, std::uint64_t data) {
    for (std::size_t i = 0; i < header.weights.size(); ++i) {
        ModelFile::WeightEntry& weight = header.weights[i];
        const auto broken = [&](const std::string& what, std::string found = {}, std::string expected = {}) {
            return broken_safetensor(input, header, i, what, std::move(found), std::move(expected));
        };
        const auto [begin, end, place] = header.tensors[i];
        if (begin > end) {
            return broken("its data_offsets run backwards",
                          '[' + std::to_string(begin) + ", " + std::to_string(end) + ']');
        }
        if (end > input.bytes() - data) {
            std::uint64_t last = end;
            for (const auto& each : header.tensors) { last = (std::max)(last, each.end); }
            const auto whole = residency::detail::checked_add(data, last);
            return broken(std::string{"its data lie beyond the end of the file: "} + cut_off,
                          residency::detail::in_bytes(input.bytes()), at_least(whole));
        }
        const auto elements = count_elements(weight.shape);
        const auto bytes =
            elements ? weight.type.bytes_of(*elements)
                     : Result<std::uint64_t>{Error{ErrorKind::malformed, "the elements do not fit in 64 bits"}};
        const auto view = [&] { return weight.dtype + shape_text(weight.shape); };
        if (!bytes) { return broken(view() + ": " + bytes.error().message()); }
        if (*bytes != end - begin) {
            return broken(view() + " does not match its data_offsets", residency::detail::in_bytes(end - begin),
                          residency::detail::in_bytes(*bytes));
        }
        weight.bytes = *bytes;
    }
    return {};
}

/// The tensors in the order of their data, which cover all behind the header without holes.
[[nodiscard]] inline Result<std::vector<std::size_t>> order_safetensors(const Input& input,
                                                                        const SafetensorsHeader& header,
                                                                        std::uint64_t data) {
    const auto& tensors = header.tensors;
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::array{tensors[a].begin, tensors[a].end, std::uint64_t{a}} <
               std::array{tensors[b].begin, tensors[b].end, std::uint64_t{b}};
    });
    std::uint64_t covered = 0;
    for (const std::size_t i : order) {
        if (tensors[i].begin != covered) {
            return broken_safetensor(input, header, i,
                                     tensors[i].begin < covered ? "its data overlap those of another tensor"
                                                                : "there is a hole before its data",
                                     "a start of " + std::to_string(tensors[i].begin), std::to_string(covered));
        }
        covered = tensors[i].end;
    }
    const std::uint64_t data_bytes = input.bytes() - data;
    if (covered != data_bytes) {
        return malformed(input.path(), data + covered, "data that belong to no tensor",
                         residency::detail::in_bytes(data_bytes - covered), "the end of the file");
    }
    return order;
}

/// Appends the tensors of one file, in the order of their data, as weights with a storage each, and its metadata.
[[nodiscard]] inline Status append_safetensors(ModelFile& model, const Input& input) {
    const std::string& path = input.path();
    if (Status known = refuse_other_kinds(input); !known) { return known; }
    const auto text = read_safetensors_header(input);
    if (!text) { return text.error(); }
    constexpr std::uint64_t header_at = 8;
    const std::uint64_t data = header_at + text->size();
    SafetensorsHeader header{path, header_at};
    if (Status parsed = JsonHandler::try_parse(header, *text); !parsed) { return parsed; }
    if (const auto twice = find_duplicate(header.weights)) {
        return malformed(path, header.tensors[twice->second].place,
                         "tensor " + shown(header.weights[twice->second].name) + " is given twice",
                         "it at byte " + std::to_string(header.tensors[twice->first].place) + " too");
    }
    if (Status sized = size_safetensors(input, header, data); !sized) { return sized; }
    const auto order = order_safetensors(input, header, data);
    if (!order) { return order.error(); }

    const auto file = static_cast<std::uint32_t>(model.files.size());
    model.files.push_back(input.source());
    if (header.weights.size() >= UINT32_MAX - model.storages.size()) { return malformed(path, 0, "too many tensors"); }
    for (const std::size_t i : *order) {
        ModelFile::WeightEntry& weight = header.weights[i];
        weight.storage = static_cast<std::uint32_t>(model.storages.size());
        model.storages.push_back({file, data + header.tensors[i].begin, weight.bytes, false});
        model.weights.push_back(std::move(weight));
    }
    append_metadata(model, std::move(header.metadata));
    return {};
}

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const Input& input, const ReadOptions& options) {
    ModelFile model;
    model.format = "safetensors";
    if (Status appended = detail::append_safetensors(model, input); !appended) { return appended.error(); }
    if (options.ties_from_metadata) { detail::tie_by_metadata(model); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_safetensors_index(const Input& input, const ReadOptions& options) {
    ModelFile model;
    model.format = "safetensors";
    const auto append = [&](const Input& shard) { return detail::append_safetensors(model, shard); };
    if (Status appended = detail::append_shards(model, input, options, append); !appended) { return appended.error(); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_safetensors(const std::string& path, const ReadOptions& options) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    if (path.ends_with(".json")) { return try_read_safetensors_index(*input, options); }
    auto model = try_read_safetensors(*input, options);
    if (model) { detail::note_index_beside(*model, path); }
    return model;
}

RESIDENCY_INLINE Result<std::string> SafetensorsWriter::try_header(std::span<const SafetensorsTensor> tensors,
                                                                   std::span<const ModelFile::Metadata> metadata,
                                                                   std::uint64_t& data_bytes) {
    const auto json_text = [](const std::string& text) {
        return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    const auto refuse = [](const std::string& what) { return Error{ErrorKind::invalid_argument, what}; };
    std::string header(8, '\0');
    header += '{';
    std::unordered_set<std::string_view> names;
    if (!metadata.empty()) {
        header += "\"__metadata__\":{";
        for (const auto& [key, value] : metadata) {
            if (!detail::is_utf8(key) || !detail::is_utf8(value)) {
                return refuse("metadata " + detail::shown(key) + " is not UTF-8");
            }
            if (!names.insert(key).second) { return refuse("metadata " + detail::shown(key) + " is given twice"); }
            header += (header.back() == '{' ? "" : ",") + json_text(key) + ':' + json_text(value);
        }
        header += '}';
        names.clear();
    }
    std::uint64_t offset = 0;
    for (const SafetensorsTensor& tensor : tensors) {
        const std::string what = "tensor " + detail::shown(tensor.name) + ": ";
        const std::string_view dtype = safetensors_name(tensor.type);
        const auto elements = detail::count_elements(tensor.shape);
        if (!detail::is_utf8(tensor.name)) { return refuse(what + "its name is not UTF-8"); }
        if (tensor.name == "__metadata__") { return refuse(what + "the format keeps this name for itself"); }
        if (!names.insert(tensor.name).second) { return refuse(what + "it is given twice"); }
        if (dtype.empty()) { return refuse(what + "safetensors has no type " + std::string{tensor.type.name()}); }
        if (!elements) { return refuse(what + "its elements do not fit in 64 bits"); }
        const auto bytes = tensor.type.bytes_of(*elements);
        if (!bytes) { return bytes.error().in("tensor " + detail::shown(tensor.name)); }
        const auto end = residency::detail::checked_add(offset, *bytes);
        if (!end) { return refuse(what + "the data do not fit in 64 bits"); }
        header += (header.size() > 9 ? "," : "") + json_text(tensor.name) + ":{\"dtype\":\"" + std::string{dtype} +
                  "\",\"shape\":[";
        for (const std::uint64_t extent : tensor.shape) {
            if (header.back() != '[') { header += ','; }
            header += std::to_string(extent);
        }
        header += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(*end) + "]}";
        offset = *end;
    }
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::uint64_t length = header.size() - 8;
    if (length > safetensors_header_limit) {
        return refuse("the header of " + residency::detail::in_bytes(length) +
                      " is larger than the format's limit of " + residency::detail::in_bytes(safetensors_header_limit));
    }
    for (std::size_t i = 0; i < 8; ++i, length >>= 8) { header[i] = static_cast<char>(length & 255); }
    data_bytes = offset;
    return header;
}

}}}  // namespace residency::RESIDENCY_ABI::format

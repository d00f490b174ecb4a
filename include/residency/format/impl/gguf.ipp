// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "residency/format/gguf.hpp"
#include "residency/format/gguf_type.hpp"
#include "residency/format/other_kinds.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// Reads little-endian values front to back through a window, and keeps the first error: after one everything reads as zero,
/// so that callers check only where they loop or allocate.
class GgufCursor {
public:
    explicit GgufCursor(const Input& input) : input_{input} {}

    [[nodiscard]] bool ok() const noexcept { return status_.has_value(); }
    [[nodiscard]] const Error& error() const noexcept { return status_.error(); }
    [[nodiscard]] std::uint64_t place() const noexcept { return place_; }
    [[nodiscard]] std::uint64_t left_bytes() const noexcept { return input_.bytes() - place_; }

    void fail(const std::string& what, std::string found = {}, std::string expected = {}) {
        if (ok()) { status_ = malformed(input_.path(), place_, what, std::move(found), std::move(expected)); }
    }
    /// The error at another place.
    void fail_at(std::uint64_t place, const std::string& what, std::string found = {}, std::string expected = {}) {
        if (ok()) { status_ = malformed(input_.path(), place, what, std::move(found), std::move(expected)); }
    }

    template <class T>
    [[nodiscard]] T number() {
        std::array<std::byte, sizeof(T)> raw{};
        take(raw);
        std::uint64_t bits = 0;
        for (std::size_t i = raw.size(); i-- > 0;) { bits = bits << 8 | std::to_integer<std::uint64_t>(raw[i]); }
        if constexpr (std::is_same_v<T, float>) {
            return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        } else if constexpr (std::is_same_v<T, double>) {
            return std::bit_cast<double>(bits);
        } else {
            return static_cast<T>(bits);
        }
    }
    /// A length of 64 bits and that many bytes.
    [[nodiscard]] std::string text(const char* what, std::uint64_t longest) {
        const std::uint64_t start = place_;
        const auto length = number<std::uint64_t>();
        if (!ok()) { return {}; }
        if (length > longest) {
            fail_at(start, std::string{what} + " is too long", residency::detail::in_bytes(length),
                    "at most " + residency::detail::in_bytes(longest));
            return {};
        }
        if (length > left_bytes()) {
            fail_at(start, std::string{what} + " ends behind the file: " + cut_off,
                    residency::detail::in_bytes(input_.bytes()), at_least(place_ + length));
            return {};
        }
        std::string value(static_cast<std::size_t>(length), '\0');
        take(std::as_writable_bytes(std::span{value}));
        return value;
    }
    /// Whether `count` things of at least `each` bytes fit into what is left.
    [[nodiscard]] bool fits(std::uint64_t count, std::uint64_t each, const char* what) {
        if (ok() && count > left_bytes() / each) {
            const auto all = residency::detail::checked_multiply(count, each);
            const auto end = all ? residency::detail::checked_add(place_, *all) : std::nullopt;
            fail("more " + std::string{what} + " than the file can hold: " + std::to_string(count) + ": " + cut_off,
                 residency::detail::in_bytes(input_.bytes()), at_least(end));
        }
        return ok();
    }

private:
    void take(std::span<std::byte> out) {
        if (!ok()) { return; }
        if (out.size() > left_bytes()) {
            fail(cut_off, residency::detail::in_bytes(input_.bytes()), at_least(place_ + out.size()));
            return;
        }
        while (!out.empty()) {
            const std::uint64_t inside = place_ - window_start_;
            if (inside >= window_.size()) {
                window_start_ = place_;
                window_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(window_bytes, left_bytes())));
                if (Status read = input_.try_read(place_, window_); !read) {
                    status_ = std::move(read);
                    return;
                }
                continue;
            }
            const auto from = std::span<const std::byte>{window_}.subspan(static_cast<std::size_t>(inside));
            const std::size_t count = (std::min)(from.size(), out.size());
            std::copy_n(from.begin(), count, out.begin());
            out = out.subspan(count);
            place_ += count;
        }
    }

    static constexpr std::uint64_t window_bytes = std::uint64_t{1} << 16;

    const Input& input_;
    std::uint64_t place_ = 0;
    std::uint64_t window_start_ = 0;
    std::vector<std::byte> window_;
    Status status_;
};

/// Bytes that a value takes at least.
[[nodiscard]] constexpr std::uint64_t gguf_least_bytes(GgufKind kind) noexcept {
    switch (kind) {
        case GgufKind::uint8:
        case GgufKind::int8:
        case GgufKind::boolean: return 1;
        case GgufKind::uint16:
        case GgufKind::int16: return 2;
        case GgufKind::uint32:
        case GgufKind::int32:
        case GgufKind::float32: return 4;
        case GgufKind::uint64:
        case GgufKind::int64:
        case GgufKind::float64:
        case GgufKind::string: return 8;
        case GgufKind::array: return 12;
    }
    return 0;
}

[[nodiscard]] inline std::uint64_t read_gguf_unsigned(GgufCursor& cursor, GgufKind kind) {
    switch (kind) {
        case GgufKind::uint8: return cursor.number<std::uint8_t>();
        case GgufKind::uint16: return cursor.number<std::uint16_t>();
        case GgufKind::uint32: return cursor.number<std::uint32_t>();
        case GgufKind::boolean: {
            const std::uint64_t place = cursor.place();
            const auto value = cursor.number<std::uint8_t>();
            if (value > 1) { cursor.fail_at(place, "a boolean is neither 0 nor 1", std::to_string(value)); }
            return value;
        }
        default: return cursor.number<std::uint64_t>();
    }
}
[[nodiscard]] inline std::int64_t read_gguf_signed(GgufCursor& cursor, GgufKind kind) {
    switch (kind) {
        case GgufKind::int8: return cursor.number<std::int8_t>();
        case GgufKind::int16: return cursor.number<std::int16_t>();
        case GgufKind::int32: return cursor.number<std::int32_t>();
        default: return cursor.number<std::int64_t>();
    }
}

inline constexpr std::uint64_t gguf_longest_text = (std::numeric_limits<std::uint32_t>::max)();

/// `depth`: how many arrays are around this one.
[[nodiscard]] inline GgufArray read_gguf_array(GgufCursor& cursor, unsigned depth) {
    constexpr unsigned deepest = 8;
    const std::uint64_t start = cursor.place();
    GgufArray array;
    const auto number = cursor.number<std::uint32_t>();
    const auto count = cursor.number<std::uint64_t>();
    array.kind = static_cast<GgufKind>(number);
    const std::uint64_t least = gguf_least_bytes(array.kind);
    if (cursor.ok() && least == 0) {
        cursor.fail_at(start, "an unknown kind of array elements", std::to_string(number));
    }
    if (cursor.ok() && depth >= deepest) {
        cursor.fail_at(start, "arrays are nested too deeply", {}, "at most " + std::to_string(deepest) + " levels");
    }
    if (!cursor.ok() || !cursor.fits(count, least, "array elements")) { return array; }
    // The elements are in the file, so what is allocated is at most a few times what is left of it.
    const auto fill = [&](auto values, const auto& read) {
        for (std::uint64_t i = 0; i < count && cursor.ok(); ++i) { values.push_back(read()); }
        array.values = std::move(values);
    };
    switch (array.kind) {
        case GgufKind::int8:
        case GgufKind::int16:
        case GgufKind::int32:
        case GgufKind::int64:
            fill(std::vector<std::int64_t>{}, [&] { return read_gguf_signed(cursor, array.kind); });
            break;
        case GgufKind::float32: fill(std::vector<double>{}, [&] { return double{cursor.number<float>()}; }); break;
        case GgufKind::float64: fill(std::vector<double>{}, [&] { return cursor.number<double>(); }); break;
        case GgufKind::string:
            fill(std::vector<std::string>{}, [&] { return cursor.text("a string", gguf_longest_text); });
            break;
        case GgufKind::array: fill(std::vector<GgufArray>{}, [&] { return read_gguf_array(cursor, depth + 1); }); break;
        default: fill(std::vector<std::uint64_t>{}, [&] { return read_gguf_unsigned(cursor, array.kind); }); break;
    }
    return array;
}

[[nodiscard]] inline GgufValue read_gguf_value(GgufCursor& cursor) {
    const std::uint64_t start = cursor.place();
    const auto number = cursor.number<std::uint32_t>();
    GgufValue value{static_cast<GgufKind>(number), {}};
    switch (value.kind) {
        case GgufKind::uint8:
        case GgufKind::uint16:
        case GgufKind::uint32:
        case GgufKind::uint64:
        case GgufKind::boolean: value.value = read_gguf_unsigned(cursor, value.kind); break;
        case GgufKind::int8:
        case GgufKind::int16:
        case GgufKind::int32:
        case GgufKind::int64: value.value = read_gguf_signed(cursor, value.kind); break;
        case GgufKind::float32: value.value = double{cursor.number<float>()}; break;
        case GgufKind::float64: value.value = cursor.number<double>(); break;
        case GgufKind::string: value.value = cursor.text("a string", gguf_longest_text); break;
        case GgufKind::array: value.value = read_gguf_array(cursor, 0); break;
        default: cursor.fail_at(start, "an unknown kind of metadata", std::to_string(number)); break;
    }
    return value;
}

/// The type of that number: one of the caller's or one of ggml.
[[nodiscard]] inline std::optional<GgmlType> find_ggml_type(std::uint32_t number, const ReadOptions& options) noexcept {
    for (const GgmlType& given : options.ggml_types) {
        if (given.number == number) { return given; }
    }
    return format::find_ggml_type(number);
}

/// The error of a type that is not known, which names what else has that number.
[[nodiscard]] inline Error unknown_ggml_type(const std::string& path, std::uint64_t place, const std::string& tensor,
                                             std::uint32_t number) {
    std::string found = std::to_string(number);
    bool is_first = true;
    for (const ForeignGgmlType& foreign : foreign_ggml_types) {
        if (foreign.number != number) { continue; }
        found += std::string{is_first ? " (" : ", or "} + foreign.name + foreign.whose;
        is_first = false;
    }
    if (!is_first) { found += ')'; }
    return error_at(is_first ? ErrorKind::malformed : ErrorKind::unsupported, path, place,
                    tensor +
                        "an unknown type; convert the file with today's llama.cpp, or give the type's block in "
                        "ReadOptions::ggml_types (--ggml-type NUMBER:NAME:ELEMENTS:BYTES)",
                    std::move(found), "a type of ggml, 0 to " + std::to_string(ggml_types.back().number));
}

/// Reads the header of one file front to back, checks that its tensors' data fit the file, and appends them to a model.
class GgufReader {
public:
    GgufReader(const Input& input, const ReadOptions& options) : input_{input}, options_{options}, cursor_{input} {}

    [[nodiscard]] Status append_to(ModelFile& model) {
        if (Status read = read_start(); !read) { return read; }
        if (Status read = read_metadata(); !read) { return read; }
        if (Status read = read_tensors(); !read) { return read; }
        if (Status found = find_data(); !found) { return found; }
        if (Status good = check_data(); !good) { return good; }
        if (Status good = check_rest(model); !good) { return good; }
        return append_tensors(model);
    }
    /// Complete after append_to().
    [[nodiscard]] GgufHeader& header() noexcept { return header_; }

private:
    /// Where a tensor's entry is in the header, and its data in the data.
    struct Tensor {
        std::uint64_t place = 0, offset = 0;
    };

    static constexpr std::uint64_t longest_key = 65535;
    static constexpr std::uint32_t most_dimensions = 64;

    /// The magic, the version and the counts.
    [[nodiscard]] Status read_start() {
        std::array<char, 4> magic{};
        for (char& c : magic) { c = cursor_.number<char>(); }
        if (cursor_.ok() && std::string_view{magic.data(), magic.size()} != "GGUF") {
            if (Status known = refuse_other_kinds(input_); !known) { return known; }
            cursor_.fail_at(0, "not a GGUF file", shown({magic.data(), magic.size()}), "\"GGUF\"");
        }
        header_.version = cursor_.number<std::uint32_t>();
        if (cursor_.ok() && header_.version != 2 && header_.version != 3) {
            const bool swapped = (header_.version & 0xffff) == 0 && header_.version != 0;
            cursor_.fail_at(4,
                            swapped ? "a big-endian file, which is not supported: convert the model on this machine"
                                    : "an unsupported version: convert the model with today's llama.cpp",
                            std::to_string(header_.version), "2 or 3");
        }
        tensor_count_ = cursor_.number<std::uint64_t>();
        metadata_count_ = cursor_.number<std::uint64_t>();
        if (!cursor_.ok()) { return cursor_.error(); }
        // A key of no bytes with a value of one takes 13 bytes; a tensor without a name and without dimensions 24.
        if (!cursor_.fits(metadata_count_, 13, "metadata entries") || !cursor_.fits(tensor_count_, 24, "tensors")) {
            return cursor_.error();
        }
        return {};
    }

    [[nodiscard]] Status read_metadata() {
        std::unordered_set<std::string> keys;
        for (std::uint64_t i = 0; i < metadata_count_; ++i) {
            const std::uint64_t start = cursor_.place();
            std::string key = cursor_.text("a metadata key", longest_key);
            if (!cursor_.ok()) { return cursor_.error(); }
            if (!keys.insert(key).second) {
                return malformed(input_.path(), start, "metadata " + shown(key) + " is given twice");
            }
            const std::uint64_t at = cursor_.place();
            GgufValue value = read_gguf_value(cursor_);
            if (!cursor_.ok()) { return cursor_.error().in("metadata " + shown(key)); }
            if (key == "general.alignment") {
                const auto alignment = value.kind == GgufKind::uint32 ? value.as_count() : std::nullopt;
                if (!alignment || !std::has_single_bit(*alignment)) {
                    return malformed(input_.path(), at, "\"general.alignment\" is not a power of two of kind uint32",
                                     value.as_count() ? std::to_string(*value.as_count()) : std::string{});
                }
                header_.alignment_bytes = *alignment;
            }
            header_.metadata.emplace_back(std::move(key), std::move(value));
        }
        return {};
    }

    [[nodiscard]] Status read_tensors() {
        for (std::uint64_t i = 0; i < tensor_count_; ++i) {
            if (Status read = read_tensor(); !read) { return read; }
        }
        if (const auto twice = find_duplicate(weights_)) {
            return malformed(input_.path(), tensors_[twice->second].place,
                             "tensor " + shown(weights_[twice->second].name) + " is given twice",
                             "it at byte " + std::to_string(tensors_[twice->first].place) + " too");
        }
        return {};
    }
    [[nodiscard]] Status read_tensor() {
        const std::uint64_t start = cursor_.place();
        ModelFile::WeightEntry weight;
        weight.name = cursor_.text("a tensor's name", longest_key);
        if (cursor_.ok() && !is_utf8(weight.name)) {
            cursor_.fail_at(start + 8, "a tensor's name is not UTF-8", shown(weight.name));
        }
        const auto what = [&] { return "tensor " + shown(weight.name) + ": "; };
        const std::uint64_t at = cursor_.place();
        const auto dimensions = cursor_.number<std::uint32_t>();
        if (cursor_.ok() && dimensions > most_dimensions) {
            cursor_.fail_at(at, what() + "too many dimensions", std::to_string(dimensions),
                            "at most " + std::to_string(most_dimensions));
        }
        for (std::uint32_t axis = 0; axis < dimensions && cursor_.ok(); ++axis) {
            weight.shape.push_back(cursor_.number<std::uint64_t>());
        }
        std::reverse(weight.shape.begin(), weight.shape.end());  // files have the innermost first
        const std::uint64_t type_place = cursor_.place();
        const auto number = cursor_.number<std::uint32_t>();
        const std::uint64_t offset_place = cursor_.place();
        const auto offset = cursor_.number<std::uint64_t>();
        if (!cursor_.ok()) { return cursor_.error(); }
        const auto type = find_ggml_type(number, options_);
        if (!type) { return unknown_ggml_type(input_.path(), type_place, what(), number); }
        weight.dtype = type->name;
        weight.type = type->type;
        if (Status counted = count_bytes(weight, start); !counted) { return counted; }
        if (offset % header_.alignment_bytes != 0) {
            return malformed(input_.path(), offset_place, what() + "its offset is not aligned", std::to_string(offset),
                             "a multiple of " + residency::detail::in_bytes(header_.alignment_bytes));
        }
        weights_.push_back(std::move(weight));
        tensors_.push_back({start, offset});
        return {};
    }
    /// The bytes of a weight from its shape and type. `start`: of its entry.
    [[nodiscard]] Status count_bytes(ModelFile::WeightEntry& weight, std::uint64_t start) const {
        const auto broken = [&](const std::string& what, std::string found = {}, std::string expected = {}) {
            return malformed(
                input_.path(), start,
                "tensor " + shown(weight.name) + ": " + weight.dtype + shape_text(weight.shape) + ": " + what,
                std::move(found), std::move(expected));
        };
        const auto elements = count_elements(weight.shape);
        const std::uint64_t row = weight.shape.empty() ? 1 : weight.shape.back();
        if (!elements) { return broken("the elements do not fit in 64 bits"); }
        if (row % weight.type.block_elements() != 0) {
            return broken("a row does not fill whole blocks", std::to_string(row) + " elements",
                          "a multiple of " + std::to_string(weight.type.block_elements()));
        }
        const auto bytes = weight.type.bytes_of(*elements);
        if (!bytes) { return broken(bytes.error().message()); }
        weight.bytes = *bytes;
        return {};
    }

    /// The next multiple of the alignment; none where it does not fit in 64 bits.
    [[nodiscard]] std::optional<std::uint64_t> aligned(std::uint64_t value) const {
        const auto padded = residency::detail::checked_add(value, header_.alignment_bytes - 1);
        return padded ? std::optional{*padded & ~(header_.alignment_bytes - 1)} : std::nullopt;
    }
    /// Where the data begin, which is behind the header.
    [[nodiscard]] Status find_data() {
        data_ = *aligned(cursor_.place());
        if (weights_.empty()) { data_ = (std::min)(data_, input_.bytes()); }
        if (data_ > input_.bytes()) {
            const bool needed =
                std::any_of(weights_.begin(), weights_.end(), [](const auto& w) { return w.bytes != 0; });
            if (needed) {
                return malformed(input_.path(), cursor_.place(),
                                 std::string{"the file ends before the tensors' data: "} + cut_off,
                                 residency::detail::in_bytes(input_.bytes()), at_least(data_ + 1));
            }
            data_ = input_.bytes();
        }
        data_bytes_ = input_.bytes() - data_;
        return {};
    }
    /// The tensors' data lie one behind the other, without holes, and inside the file. Finds their order.
    [[nodiscard]] Status check_data() {
        order_.resize(weights_.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
            return std::array{tensors_[a].offset, weights_[a].bytes, std::uint64_t{a}} <
                   std::array{tensors_[b].offset, weights_[b].bytes, std::uint64_t{b}};
        });
        for (const std::size_t i : order_) {
            const auto what = [&] { return "tensor " + shown(weights_[i].name) + ": "; };
            const std::uint64_t offset = tensors_[i].offset;
            if (offset != data_end_) {
                return malformed(input_.path(), tensors_[i].place,
                                 what() + (offset < data_end_ ? "its data overlap those of another tensor"
                                                              : "there is a hole before its data"),
                                 "an offset of " + std::to_string(offset), std::to_string(data_end_));
            }
            // A tensor of no bytes may stand at the padded end of a file without padding.
            if (weights_[i].bytes != 0 && !residency::detail::lies_inside(offset, weights_[i].bytes, data_bytes_)) {
                return malformed(input_.path(), tensors_[i].place,
                                 what() + "its data lie beyond the end of the file: " + cut_off,
                                 residency::detail::in_bytes(input_.bytes()), whole_bytes());
            }
            if (weights_[i].bytes == 0) { continue; }
            const auto padded = aligned(offset + weights_[i].bytes);
            if (!padded) {
                return malformed(input_.path(), tensors_[i].place, what() + "its end does not fit in 64 bits");
            }
            data_end_ = *padded;
        }
        return {};
    }
    /// The size of a file that has all data.
    [[nodiscard]] std::string whole_bytes() const {
        std::uint64_t whole = 0;
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            const auto end = residency::detail::checked_add(tensors_[i].offset, weights_[i].bytes);
            const auto from_start = end ? residency::detail::checked_add(data_, *end) : std::nullopt;
            if (!from_start) { return at_least(std::nullopt); }
            whole = (std::max)(whole, *from_start);
        }
        return at_least(whole);
    }
    /// What follows the last tensor's data is refused or noted.
    [[nodiscard]] Status check_rest(ModelFile& model) const {
        if (data_bytes_ <= data_end_) { return {}; }
        const std::string rest = residency::detail::in_bytes(data_bytes_ - data_end_);
        if (options_.strict) {
            return malformed(input_.path(), data_ + data_end_, "data that belong to no tensor", rest,
                             "the end of the file");
        }
        model.notes.push_back(shown(input_.path()) + ": its last " + rest + " belong to no tensor");
        return {};
    }

    [[nodiscard]] Status append_tensors(ModelFile& model) {
        if (weights_.size() >= UINT32_MAX - model.storages.size()) {
            return malformed(input_.path(), 8, "too many tensors");
        }
        const auto file = static_cast<std::uint32_t>(model.files.size());
        model.files.push_back(input_.source());
        for (const std::size_t i : order_) {
            weights_[i].storage = static_cast<std::uint32_t>(model.storages.size());
            const std::uint64_t at = data_ + (std::min)(tensors_[i].offset, data_bytes_);
            model.storages.push_back({file, at, weights_[i].bytes, false});
            model.weights.push_back(std::move(weights_[i]));
        }
        return {};
    }

    const Input& input_;
    const ReadOptions& options_;
    GgufCursor cursor_;
    GgufHeader header_;
    std::uint64_t tensor_count_ = 0, metadata_count_ = 0;
    std::vector<ModelFile::WeightEntry> weights_;
    std::vector<Tensor> tensors_;              // of the weights
    std::vector<std::size_t> order_;           // of the weights, by their data
    std::uint64_t data_ = 0, data_bytes_ = 0;  // the data, in the file
    std::uint64_t data_end_ = 0;               // of the tensors' data, padded; in the data
};

/// Appends one file's tensors, in the order of their data, as weights with a storage each; gives back its header.
[[nodiscard]] inline Result<GgufHeader> append_gguf(ModelFile& model, const Input& input, const ReadOptions& options) {
    GgufReader reader{input, options};
    if (Status appended = reader.append_to(model); !appended) { return appended.error(); }
    return std::move(reader.header());
}

[[nodiscard]] inline std::string metadata_text(std::string_view text) {
    return nlohmann::json(std::string{text}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
/// The text with U+FFFD for what is not UTF-8.
[[nodiscard]] inline std::string to_utf8(std::string_view text) {
    return is_utf8(text) ? std::string{text} : nlohmann::json::parse(metadata_text(text)).get<std::string>();
}
[[nodiscard]] inline std::string metadata_text(double value) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return {digits.data(), end};
}
[[nodiscard]] inline std::string metadata_text(std::uint64_t value) { return std::to_string(value); }
[[nodiscard]] inline std::string metadata_text(std::int64_t value) { return std::to_string(value); }

/// As JSON text; of long arrays the first elements and the count. Strings by themselves stay as they are.
[[nodiscard]] inline std::string metadata_text(const GgufArray& array) {
    constexpr std::size_t longest = 16;
    return std::visit(
        [&](const auto& values) {
            std::string text = "[";
            for (std::size_t i = 0; i < (std::min)(values.size(), longest); ++i) {
                if (i != 0) { text += ", "; }
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(values)>, std::vector<std::uint64_t>>) {
                    if (array.kind == GgufKind::boolean) {
                        text += values[i] != 0 ? "true" : "false";
                        continue;
                    }
                }
                text += metadata_text(values[i]);
            }
            if (values.size() > longest) { text += ", … " + std::to_string(values.size()) + " in all"; }
            return text + "]";
        },
        array.values);
}
[[nodiscard]] inline std::string metadata_text(const GgufValue& value) {
    if (value.kind == GgufKind::boolean) { return std::get<std::uint64_t>(value.value) != 0 ? "true" : "false"; }
    if (const auto* text = std::get_if<std::string>(&value.value)) { return to_utf8(*text); }
    return std::visit([](const auto& v) { return metadata_text(v); }, value.value);
}

[[nodiscard]] inline std::optional<std::uint64_t> split_value(const GgufHeader& header, std::string_view key) noexcept {
    const GgufValue* value = header.find(key);
    return value != nullptr ? value->as_count() : std::nullopt;
}

RESIDENCY_INLINE Result<GgufFile> read_gguf_parts(const std::vector<std::string>& paths, const ReadOptions& options,
                                                  bool is_in_order) {
    struct Part {
        ModelFile model;
        GgufHeader header;
        std::uint64_t number = 0;
        std::size_t place = 0;  // in the list
    };
    std::vector<Part> read;
    std::uint64_t count = 1;
    for (const std::string& path : paths) {
        const auto where = [&] {
            return shown(paths[0]) + ": file " + std::to_string(read.size()) + " of " + std::to_string(paths.size());
        };
        Part& part = read.emplace_back();
        part.place = read.size() - 1;
        const auto input = Input::try_open(path);
        if (!input) { return input.error().in(where()); }
        auto header = append_gguf(part.model, *input, options);
        if (!header) { return header.error().in(where()); }
        part.header = std::move(*header);
        const auto number = split_value(part.header, "split.no");
        const std::uint64_t own = split_value(part.header, "split.count").value_or(1);
        if (read.size() == 1) { count = own; }
        part.number = number.value_or(0);
        const auto name = [](std::optional<std::uint64_t> which, std::uint64_t files) {
            return files <= 1 ? std::string{"a model in one file"}
                              : "file " + (which ? std::to_string(*which + 1) : "?") + " of " + std::to_string(files);
        };
        if (own != count && (own > 1 || count > 1)) {
            return malformed(path, 0, "not a file of the same split model as " + shown(paths[0]), name(number, own),
                             name({}, count));
        }
        if (is_in_order && (!number || part.number + 1 != read.size())) {
            return malformed(path, 0, "not the file of the split model that its name says", name(number, own),
                             name(read.size() - 1, count));
        }
    }
    if (count > 1) {
        std::sort(read.begin(), read.end(), [](const Part& a, const Part& b) {
            return a.number != b.number ? a.number < b.number : a.place < b.place;
        });
        for (std::size_t i = 0; i < read.size(); ++i) {
            if (i + 1 < read.size() && read[i].number == read[i + 1].number) {
                return malformed(read[i + 1].model.files[0].path, 0,
                                 "a second file " + std::to_string(read[i].number + 1) + " of the split model");
            }
            if (read[i].number != i) { break; }
        }
        if (read.size() != count || read.back().number + 1 != count) {
            return malformed(paths[0], 0, "the list lacks files of the split model",
                             std::to_string(read.size()) + " files", std::to_string(count));
        }
    }
    GgufFile whole;
    whole.model.format = "gguf";
    for (Part& part : read) {
        append_model(whole.model, std::move(part.model));
        if (whole.headers.empty()) {
            for (const auto& [key, value] : part.header.metadata) {
                whole.model.metadata.push_back({to_utf8(key), metadata_text(value)});
            }
        }
        whole.headers.push_back(std::move(part.header));
    }
    if (const auto twice = find_duplicate(whole.model.weights)) {
        return malformed(paths[0], 0,
                         "tensor " + shown(whole.model.weights[twice->second].name) + " is in two of the files");
    }
    const auto tensors = split_value(whole.headers[0], "split.tensors.count");
    if (count > 1 && tensors && *tensors != whole.model.weights.size()) {
        return malformed(paths[0], 0, "the split model's files do not hold all its tensors",
                         std::to_string(whole.model.weights.size()), std::to_string(*tensors));
    }
    return whole;
}

}  // namespace detail

RESIDENCY_INLINE Result<GgufFile> try_read_gguf(const Input& input, const ReadOptions& options) {
    GgufFile file;
    file.model.format = "gguf";
    auto header = detail::append_gguf(file.model, input, options);
    if (!header) { return header.error(); }
    for (const auto& [key, value] : header->metadata) {
        file.model.metadata.push_back({detail::to_utf8(key), detail::metadata_text(value)});
    }
    file.headers.push_back(std::move(*header));
    return file;
}

RESIDENCY_INLINE Result<GgufFile> try_read_gguf(const std::string& path, const ReadOptions& options) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    auto first = try_read_gguf(*input, options);
    if (!first) { return first; }
    const std::uint64_t count = detail::split_value(first->headers[0], "split.count").value_or(1);
    if (count <= 1) { return first; }

    constexpr std::uint64_t most_files = 99999;  // five digits
    const auto five_digits = [](std::uint64_t value) {
        std::string digits = std::to_string(value);
        return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
    };
    const std::string tail = "-of-" + five_digits(count) + ".gguf";
    const std::size_t digits_at = path.size() > tail.size() + 5 ? path.size() - tail.size() - 5 : 0;
    if (count > most_files || digits_at == 0 || !path.ends_with(tail)) {
        return detail::malformed(
            path, 0,
            "one of " + std::to_string(count) +
                " files of a split model, but its name does not say which; give all of them in a list",
            {}, "a name that ends in -00001" + tail);
    }
    std::vector<std::string> parts;
    for (std::uint64_t number = 1; number <= count; ++number) {
        parts.push_back(path.substr(0, digits_at) + five_digits(number) + tail);
    }
    return detail::read_gguf_parts(parts, options, true);
}

}}}  // namespace residency::RESIDENCY_ABI::format

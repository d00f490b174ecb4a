// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "residency/error.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch_dtype.hpp"

namespace residency::inline RESIDENCY_ABI::format::detail {

/// What the pickle of one saved tensor says.
struct PickledTensor {
    TorchDType dtype;
    std::string storage_key;             ///< its record is data/<key>
    std::uint64_t storage_elements = 0;  ///< of a typed storage; bytes of an untyped one
    bool is_untyped = false;
    std::uint64_t offset_elements = 0;
    std::vector<std::uint64_t> shape, strides;
};

/// Reads the few operations of Python's pickle protocol 2 to 5 that torch.save uses for one tensor or parameter, as data:
/// nothing is imported or called. Everything else is refused.
class TorchPickle {
public:
    /// `text` starts at byte `base` of `source`.
    [[nodiscard]] static Result<PickledTensor> try_read(std::string_view text, const std::string& source,
                                                        std::uint64_t base) {
        TorchPickle reader{text, source, base};
        const auto top = reader.run();
        if (!top) { return top.error(); }
        return reader.tensor(*top);
    }

private:
    using Id = std::uint32_t;
    struct Mark {};
    struct Other {};
    struct Global {
        std::string name;  ///< "module name"
    };
    struct Tuple {
        std::vector<Id> items;
    };
    struct Call {
        Id callable = 0, arguments = 0;
    };
    struct Persistent {
        Id value = 0;
    };
    using Value = std::variant<Other, Mark, std::int64_t, std::string, Global, Tuple, Call, Persistent>;

    TorchPickle(std::string_view text, const std::string& source, std::uint64_t base) noexcept
        : text_{text}, source_{source}, base_{base} {}

    [[nodiscard]] Error broken(const std::string& what) const { return malformed(source_, base_ + at_, what); }

    [[nodiscard]] bool take(std::size_t count, std::string_view& out) noexcept {
        if (text_.size() - at_ < count) { return false; }
        out = text_.substr(at_, count);
        at_ += count;
        return true;
    }
    [[nodiscard]] bool take_number(std::size_t count, std::uint64_t& out) noexcept {
        std::string_view raw;
        if (!take(count, raw)) { return false; }
        out = 0;
        for (std::size_t i = count; i-- > 0;) { out = out << 8 | static_cast<unsigned char>(raw[i]); }
        return true;
    }
    [[nodiscard]] bool take_line(std::string_view& out) noexcept {
        const std::size_t end = text_.find('\n', at_);
        if (end == std::string_view::npos) { return false; }
        out = text_.substr(at_, end - at_);
        at_ = end + 1;
        return true;
    }
    void push(Value value) {
        stack_.push_back(static_cast<Id>(values_.size()));
        values_.push_back(std::move(value));
    }
    [[nodiscard]] bool pop(Id& id) {
        if (stack_.empty() || std::holds_alternative<Mark>(values_[stack_.back()])) { return false; }
        id = stack_.back();
        stack_.pop_back();
        return true;
    }
    [[nodiscard]] bool tuple_of(std::size_t count) {
        Tuple tuple;
        tuple.items.resize(count);
        for (std::size_t i = count; i-- > 0;) {
            if (!pop(tuple.items[i])) { return false; }
        }
        push(std::move(tuple));
        return true;
    }
    [[nodiscard]] bool tuple_to_mark() {
        std::size_t start = stack_.size();
        while (start != 0 && !std::holds_alternative<Mark>(values_[stack_[start - 1]])) { --start; }
        if (start == 0) { return false; }
        Tuple tuple{{stack_.begin() + static_cast<std::ptrdiff_t>(start), stack_.end()}};
        stack_.resize(start - 1);
        push(std::move(tuple));
        return true;
    }

    /// Runs to STOP; the value that is left.
    [[nodiscard]] Result<Id> run() {
        constexpr std::size_t most_operations = 4096;
        for (std::size_t count = 0; count < most_operations; ++count) {
            std::string_view op;
            if (!take(1, op)) { return broken("the pickle ends too early"); }
            if (op[0] == '.') {
                Id top = 0;
                if (!pop(top) || !stack_.empty()) { return broken("the pickle does not end with one value"); }
                return top;
            }
            if (!step(static_cast<unsigned char>(op[0]))) {
                return broken("not the pickle of a tensor: operation " +
                              std::to_string(static_cast<unsigned char>(op[0])));
            }
        }
        return broken("not the pickle of a tensor: too many operations");
    }

    [[nodiscard]] bool step(unsigned char op) {
        std::uint64_t number = 0;
        std::string_view text;
        Id first = 0;
        Id second = 0;
        switch (op) {
            case 0x80: return take(1, text);                             // PROTO
            case 0x95: return take(8, text);                             // FRAME
            case '(': push(Mark{}); return true;                         // MARK
            case 'N':                                                    // NONE
            case '}':                                                    // EMPTY_DICT
            case ']': push(Other{}); return true;                        // EMPTY_LIST
            case 0x88: push(std::int64_t{1}); return true;               // NEWTRUE
            case 0x89: push(std::int64_t{0}); return true;               // NEWFALSE
            case ')': push(Tuple{}); return true;                        // EMPTY_TUPLE
            case 0x85: return tuple_of(1);                               // TUPLE1
            case 0x86: return tuple_of(2);                               // TUPLE2
            case 0x87: return tuple_of(3);                               // TUPLE3
            case 't': return tuple_to_mark();                            // TUPLE
            case 'K': return take_number(1, number) && integer(number);  // BININT1
            case 'M': return take_number(2, number) && integer(number);  // BININT2
            case 'J':                                                    // BININT
                if (!take_number(4, number)) { return false; }
                push(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(number))});
                return true;
            case 0x8a:  // LONG1
                if (!take_number(1, number) || number > 8 || !take(static_cast<std::size_t>(number), text)) {
                    return false;
                }
                return integer_of(text);
            case 'X': return take_number(4, number) && string_of(number);   // BINUNICODE
            case 0x8c: return take_number(1, number) && string_of(number);  // SHORT_BINUNICODE
            case 'c': {                                                     // GLOBAL
                std::string_view name;
                if (!take_line(text) || !take_line(name)) { return false; }
                push(Global{std::string{text} + ' ' + std::string{name}});
                return true;
            }
            case 0x93: {  // STACK_GLOBAL
                if (!pop(second) || !pop(first)) { return false; }
                const auto* module = std::get_if<std::string>(&values_[first]);
                const auto* name = std::get_if<std::string>(&values_[second]);
                if (module == nullptr || name == nullptr) { return false; }
                push(Global{*module + ' ' + *name});
                return true;
            }
            case 'Q':  // BINPERSID
                if (!pop(first)) { return false; }
                push(Persistent{first});
                return true;
            case 'R':  // REDUCE
                if (!pop(second) || !pop(first)) { return false; }
                push(Call{first, second});
                return true;
            case 'b': return pop(first) && !stack_.empty();               // BUILD: attributes of the tensor, not needed
            case 'q': return take_number(1, number) && remember(number);  // BINPUT
            case 'r': return take_number(4, number) && remember(number);  // LONG_BINPUT
            case 0x94: return remember(memo_.size());                     // MEMOIZE
            case 'h': return take_number(1, number) && recall(number);    // BINGET
            case 'j': return take_number(4, number) && recall(number);    // LONG_BINGET
            default: return false;
        }
    }
    [[nodiscard]] bool integer(std::uint64_t number) {
        push(static_cast<std::int64_t>(number));
        return true;
    }
    [[nodiscard]] bool integer_of(std::string_view raw) {
        std::uint64_t bits = !raw.empty() && (static_cast<unsigned char>(raw.back()) & 0x80) != 0 ? UINT64_MAX : 0;
        for (std::size_t i = raw.size(); i-- > 0;) { bits = bits << 8 | static_cast<unsigned char>(raw[i]); }
        push(static_cast<std::int64_t>(bits));
        return true;
    }
    [[nodiscard]] bool string_of(std::uint64_t bytes) {
        std::string_view text;
        if (bytes > text_.size() || !take(static_cast<std::size_t>(bytes), text)) { return false; }
        push(std::string{text});
        return true;
    }
    [[nodiscard]] bool remember(std::uint64_t slot) {
        if (stack_.empty()) { return false; }
        memo_[slot] = stack_.back();
        return true;
    }
    [[nodiscard]] bool recall(std::uint64_t slot) {
        const auto found = memo_.find(slot);
        if (found == memo_.end()) { return false; }
        stack_.push_back(found->second);
        return true;
    }

    template <class T>
    [[nodiscard]] const T* get(Id id) const noexcept {
        return std::get_if<T>(&values_[id]);
    }
    [[nodiscard]] std::optional<std::uint64_t> count(Id id) const noexcept {
        const auto* value = get<std::int64_t>(id);
        return value != nullptr && *value >= 0 ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
    }
    [[nodiscard]] bool counts(Id id, std::vector<std::uint64_t>& out) const {
        const auto* tuple = get<Tuple>(id);
        if (tuple == nullptr) { return false; }
        for (const Id item : tuple->items) {
            const auto value = count(item);
            if (!value) { return false; }
            out.push_back(*value);
        }
        return true;
    }
    [[nodiscard]] Result<PickledTensor> tensor(Id top) const {
        const auto* call = get<Call>(top);
        const auto callable = [&] {
            const auto* global = call != nullptr ? get<Global>(call->callable) : nullptr;
            return global != nullptr ? std::string_view{global->name} : std::string_view{};
        };
        const auto* arguments = call != nullptr ? get<Tuple>(call->arguments) : nullptr;
        if (callable() == "torch._utils _rebuild_parameter" && arguments != nullptr && !arguments->items.empty()) {
            call = get<Call>(arguments->items[0]);
            arguments = call != nullptr ? get<Tuple>(call->arguments) : nullptr;
        }
        const bool has_dtype = callable() == "torch._utils _rebuild_tensor_v3";
        if ((!has_dtype && callable() != "torch._utils _rebuild_tensor_v2") || arguments == nullptr ||
            arguments->items.size() < (has_dtype ? 7U : 4U)) {
            return broken("not the pickle of a tensor");
        }
        const auto& items = arguments->items;
        PickledTensor out;
        const auto* persistent = get<Persistent>(items[0]);
        const auto* storage = persistent != nullptr ? get<Tuple>(persistent->value) : nullptr;
        const auto* kind = storage != nullptr && storage->items.size() >= 5 ? get<Global>(storage->items[1]) : nullptr;
        const auto* key = kind != nullptr ? get<std::string>(storage->items[2]) : nullptr;
        const auto elements = key != nullptr ? count(storage->items[4]) : std::nullopt;
        const auto offset = count(items[1]);
        if (!elements || !offset || !counts(items[2], out.shape) || !counts(items[3], out.strides) ||
            out.shape.size() != out.strides.size() || !is_utf8(*key)) {
            return broken("the pickle's tensor lacks a valid storage, offset, shape or strides");
        }
        out.storage_key = *key;
        out.storage_elements = *elements;
        out.offset_elements = *offset;
        const auto* named = has_dtype ? get<Global>(items[6]) : nullptr;
        std::string_view name = has_dtype ? (named != nullptr ? std::string_view{named->name} : std::string_view{})
                                          : std::string_view{kind->name};
        constexpr std::string_view module = "torch ";
        name = name.substr(0, module.size()) == module ? name.substr(module.size()) : std::string_view{};
        const auto dtype = has_dtype ? find_torch_dtype(name) : find_torch_storage(name);
        if (!dtype) { return broken("the pickle's tensor has an unknown type"); }
        out.dtype = *dtype;
        out.is_untyped = kind->name == "torch.storage UntypedStorage";
        return out;
    }

    std::string_view text_;
    const std::string& source_;
    std::uint64_t base_;
    std::size_t at_ = 0;
    std::vector<Value> values_;
    std::vector<Id> stack_;
    std::unordered_map<std::uint64_t, Id> memo_;
};

}  // namespace residency::inline RESIDENCY_ABI::format::detail

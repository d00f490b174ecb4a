// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch_dtype.hpp"
#include "residency/format/torch_pickle.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE Result<PickledTensor> TorchPickle::try_read_tensor(std::string_view text, const std::string& source,
                                                                    std::uint64_t base) {
    TorchPickle reader{text, source, base};
    constexpr std::size_t most_operations = 4096;
    const auto top = reader.run(most_operations);
    if (!top) { return top.error(); }
    return reader.tensor(*top);
}

RESIDENCY_INLINE Result<std::vector<NamedPickledTensor>> TorchPickle::try_read_tensors(std::string_view text,
                                                                                       const std::string& source,
                                                                                       std::uint64_t base) {
    TorchPickle reader{text, source, base};
    constexpr std::size_t most_operations = 10'000'000;  // some 40 a tensor
    const auto top = reader.run(most_operations);
    if (!top) { return top.error(); }
    return reader.tensors(*top);
}

RESIDENCY_INLINE bool TorchPickle::take(std::size_t count, std::string_view& out) noexcept {
    if (text_.size() - at_ < count) { return false; }
    out = text_.substr(at_, count);
    at_ += count;
    return true;
}

RESIDENCY_INLINE bool TorchPickle::take_number(std::size_t count, std::uint64_t& out) noexcept {
    std::string_view raw;
    if (!take(count, raw)) { return false; }
    out = 0;
    for (std::size_t i = count; i-- > 0;) { out = out << 8 | static_cast<unsigned char>(raw[i]); }
    return true;
}

RESIDENCY_INLINE bool TorchPickle::take_line(std::string_view& out) noexcept {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) { return false; }
    out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
}

RESIDENCY_INLINE bool TorchPickle::pop(Id& id) {
    if (stack_.empty() || std::holds_alternative<Mark>(values_[stack_.back()])) { return false; }
    id = stack_.back();
    stack_.pop_back();
    return true;
}

RESIDENCY_INLINE bool TorchPickle::tuple_of(std::size_t count) {
    Tuple tuple;
    tuple.items.resize(count);
    for (std::size_t i = count; i-- > 0;) {
        if (!pop(tuple.items[i])) { return false; }
    }
    push(std::move(tuple));
    return true;
}

RESIDENCY_INLINE bool TorchPickle::pop_to_mark(std::vector<Id>& items) {
    std::size_t start = stack_.size();
    while (start != 0 && !std::holds_alternative<Mark>(values_[stack_[start - 1]])) { --start; }
    if (start == 0) { return false; }
    items.assign(stack_.begin() + static_cast<std::ptrdiff_t>(start), stack_.end());
    stack_.resize(start - 1);
    return true;
}

RESIDENCY_INLINE bool TorchPickle::set_items(const std::vector<Id>& items) {
    if (stack_.empty() || items.size() % 2 != 0) { return false; }
    if (auto* dictionary = std::get_if<Dictionary>(&values_[stack_.back()])) {
        for (std::size_t i = 0; i < items.size(); i += 2) { dictionary->items.emplace_back(items[i], items[i + 1]); }
    }
    return true;
}

RESIDENCY_INLINE bool TorchPickle::call() {
    Id arguments = 0;
    Id callable = 0;
    if (!pop(arguments) || !pop(callable)) { return false; }
    const auto* name = get<Global>(callable);
    const auto* tuple = get<Tuple>(arguments);
    if (name != nullptr && name->name == "collections OrderedDict" && tuple != nullptr && tuple->items.empty()) {
        push(Dictionary{});
    } else {
        push(Call{callable, arguments});
    }
    return true;
}

RESIDENCY_INLINE auto TorchPickle::run(std::size_t most_operations) -> Result<Id> {
    for (std::size_t count = 0; count < most_operations; ++count) {
        std::string_view op;
        if (!take(1, op)) { return broken("the pickle ends too early"); }
        if (op[0] == '.') {
            Id top = 0;
            if (!pop(top) || !stack_.empty()) { return broken("the pickle does not end with one value"); }
            return top;
        }
        const auto operation = static_cast<unsigned char>(op[0]);
        if (!step(operation)) {
            const std::string what = "operation " + std::to_string(operation) + " of the pickle";
            return is_known_ ? broken(what + " is damaged") : refuse(what + " is none that tensors need");
        }
    }
    return refuse("the pickle has more operations than tensors need");
}

RESIDENCY_INLINE bool TorchPickle::step(unsigned char op) {
    std::uint64_t number = 0;
    std::string_view text;
    Id first = 0;
    Id second = 0;
    std::vector<Id> items;
    switch (op) {
        case 0x80: return take(1, text);                // PROTO
        case 0x95: return take(8, text);                // FRAME
        case '(': push(Mark{}); return true;            // MARK
        case 'N':                                       // NONE
        case ']': push(Other{}); return true;           // EMPTY_LIST
        case '}': push(Dictionary{}); return true;      // EMPTY_DICT
        case 0x88: push(std::int64_t{1}); return true;  // NEWTRUE
        case 0x89: push(std::int64_t{0}); return true;  // NEWFALSE
        case ')': push(Tuple{}); return true;           // EMPTY_TUPLE
        case 0x85: return tuple_of(1);                  // TUPLE1
        case 0x86: return tuple_of(2);                  // TUPLE2
        case 0x87: return tuple_of(3);                  // TUPLE3
        case 't':                                       // TUPLE
            if (!pop_to_mark(items)) { return false; }
            push(Tuple{std::move(items)});
            return true;
        case 's': return pop(second) && pop(first) && set_items({first, second});  // SETITEM
        case 'u': return pop_to_mark(items) && set_items(items);                   // SETITEMS
        case 'a': return pop(first) && !stack_.empty();                            // APPEND: lists are not needed
        case 'e': return pop_to_mark(items) && !stack_.empty();                    // APPENDS
        case '0': return pop(first);                                               // POP
        case 'G': return skip(8);                                                  // BINFLOAT
        case 'C': return take_number(1, number) && skip(number);                   // SHORT_BINBYTES
        case 'B': return take_number(4, number) && skip(number);                   // BINBYTES
        case 0x8e:                                                                 // BINBYTES8
        case 0x96: return take_number(8, number) && skip(number);                  // BYTEARRAY8
        case 0x8f: push(Other{}); return true;                                     // EMPTY_SET
        case 0x90: return pop_to_mark(items) && !stack_.empty();                   // ADDITEMS
        case 0x91: return pop_to_mark(items) && skip(0);                           // FROZENSET
        case 'K': return take_number(1, number) && integer(number);                // BININT1
        case 'M': return take_number(2, number) && integer(number);                // BININT2
        case 'J':                                                                  // BININT
            if (!take_number(4, number)) { return false; }
            push(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(number))});
            return true;
        case 0x8a:  // LONG1
            if (!take_number(1, number)) { return false; }
            if (number > 8) { return skip(number); }
            return take(static_cast<std::size_t>(number), text) && integer_of(text);
        case 0x8b: return take_number(4, number) && skip(number);       // LONG4
        case 'X': return take_number(4, number) && string_of(number);   // BINUNICODE
        case 0x8c: return take_number(1, number) && string_of(number);  // SHORT_BINUNICODE
        case 0x8d: return take_number(8, number) && string_of(number);  // BINUNICODE8
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
            constexpr std::size_t longest = 255;  // a string is recalled with two bytes: no copies of long ones
            if (module == nullptr || name == nullptr || module->size() > longest || name->size() > longest) {
                return false;
            }
            push(Global{*module + ' ' + *name});
            return true;
        }
        case 'Q':  // BINPERSID
            if (!pop(first)) { return false; }
            push(Persistent{first});
            return true;
        case 'R':                                                     // REDUCE
        case 0x81: return call();                                     // NEWOBJ
        case 'b': return pop(first) && !stack_.empty();               // BUILD: attributes, which are not needed
        case 'q': return take_number(1, number) && remember(number);  // BINPUT
        case 'r': return take_number(4, number) && remember(number);  // LONG_BINPUT
        case 0x94: return remember(memo_.size());                     // MEMOIZE
        case 'h': return take_number(1, number) && recall(number);    // BINGET
        case 'j': return take_number(4, number) && recall(number);    // LONG_BINGET
        default: is_known_ = false; return false;
    }
}

RESIDENCY_INLINE bool TorchPickle::skip(std::uint64_t bytes) {
    std::string_view text;
    push(Other{});
    return bytes <= text_.size() && take(static_cast<std::size_t>(bytes), text);
}

RESIDENCY_INLINE bool TorchPickle::integer_of(std::string_view raw) {
    std::uint64_t bits = !raw.empty() && (static_cast<unsigned char>(raw.back()) & 0x80) != 0 ? UINT64_MAX : 0;
    for (std::size_t i = raw.size(); i-- > 0;) { bits = bits << 8 | static_cast<unsigned char>(raw[i]); }
    push(static_cast<std::int64_t>(bits));
    return true;
}

RESIDENCY_INLINE bool TorchPickle::string_of(std::uint64_t bytes) {
    std::string_view text;
    if (bytes > text_.size() || !take(static_cast<std::size_t>(bytes), text)) { return false; }
    push(std::string{text});
    return true;
}

RESIDENCY_INLINE bool TorchPickle::remember(std::uint64_t slot) {
    // Slots are numbered one after another, so there are no more of them than values.
    if (stack_.empty() || slot >= values_.size()) { return false; }
    if (slot >= memo_.size()) { memo_.resize(static_cast<std::size_t>(slot) + 1, none); }
    memo_[static_cast<std::size_t>(slot)] = stack_.back();
    return true;
}

RESIDENCY_INLINE bool TorchPickle::recall(std::uint64_t slot) {
    if (slot >= memo_.size() || memo_[static_cast<std::size_t>(slot)] == none) { return false; }
    stack_.push_back(memo_[static_cast<std::size_t>(slot)]);
    return true;
}

RESIDENCY_INLINE bool TorchPickle::counts(Id id, std::vector<std::uint64_t>& out) const {
    constexpr std::size_t most_axes = 64;
    const auto* tuple = get<Tuple>(id);
    if (tuple == nullptr || tuple->items.size() > most_axes) { return false; }
    for (const Id item : tuple->items) {
        const auto value = count(item);
        if (!value) { return false; }
        out.push_back(*value);
    }
    return true;
}

RESIDENCY_INLINE std::string_view TorchPickle::callable(Id id) const noexcept {
    const auto* call = get<Call>(id);
    const auto* global = call != nullptr ? get<Global>(call->callable) : nullptr;
    return global != nullptr ? std::string_view{global->name} : std::string_view{};
}

RESIDENCY_INLINE Result<std::vector<NamedPickledTensor>> TorchPickle::tensors(Id top) const {
    const auto* dictionary = get<Dictionary>(top);
    if (dictionary == nullptr) { return refuse("not a dictionary of tensors", top); }
    std::vector<NamedPickledTensor> out;
    std::unordered_set<std::string_view> names;
    std::size_t axes = 0;  // with a shape by name they cost no bytes
    out.reserve(dictionary->items.size());
    names.reserve(dictionary->items.size());
    for (const auto& [key, value] : dictionary->items) {
        const auto* name = get<std::string>(key);
        if (name == nullptr || !is_utf8(*name)) { return refuse("not a dictionary of tensors by name", key); }
        if (callable(value).starts_with("torch._tensor ")) {
            return refuse("what is saved as " + shown(*name) + " is a tensor with attributes", value,
                          "save its detach().clone()");
        }
        if (!callable(value).starts_with("torch._utils _rebuild_")) {
            return refuse("what is saved as " + shown(*name) + " is not a tensor", value);
        }
        if (!names.insert(*name).second) { return broken("tensor " + shown(*name) + " is given twice"); }
        auto each = tensor(value);
        axes += each ? each->shape.size() : 0;
        if (axes > text_.size()) { return broken("more axes than the pickle has bytes"); }
        if (!each) { return each.error().in("tensor " + shown(*name)); }
        out.push_back({*name, std::move(*each)});
    }
    return out;
}

RESIDENCY_INLINE Result<PickledTensor> TorchPickle::tensor(Id id) const {
    const auto arguments_of = [&](Id called) {
        const auto* call = get<Call>(called);
        return call != nullptr ? get<Tuple>(call->arguments) : nullptr;
    };
    const auto* arguments = arguments_of(id);
    if ((callable(id) == "torch._utils _rebuild_parameter" ||
         callable(id) == "torch._utils _rebuild_parameter_with_state") &&
        arguments != nullptr && !arguments->items.empty()) {
        id = arguments->items[0];
        arguments = arguments_of(id);
    }
    const bool has_dtype = callable(id) == "torch._utils _rebuild_tensor_v3";
    const std::size_t required = has_dtype ? 7 : 4;
    const std::size_t before_metadata = has_dtype ? 7 : 6;
    if ((!has_dtype && callable(id) != "torch._utils _rebuild_tensor_v2") || arguments == nullptr ||
        arguments->items.size() < required) {
        const auto name = callable(id);
        if (name.starts_with("torch._utils _rebuild_sparse")) {
            return refuse("a sparse tensor", id, "save its to_dense()");
        }
        return name.starts_with("torch._utils _rebuild_") && !name.starts_with("torch._utils _rebuild_tensor_v") &&
                       !name.starts_with("torch._utils _rebuild_parameter")
                   ? refuse("a kind of tensor that is not read", id, "save a plain, dense one")
                   : broken("not the pickle of a tensor");
    }
    const auto& items = arguments->items;
    if (items.size() > before_metadata) {
        const auto* metadata = get<Dictionary>(items[before_metadata]);
        if (metadata != nullptr ? !metadata->items.empty() : get<Other>(items[before_metadata]) == nullptr) {
            return refuse("a tensor whose values are not what is stored", none,
                          "save its resolve_conj().resolve_neg()");
        }
    }
    PickledTensor out;
    const auto* persistent = get<Persistent>(items[0]);
    const auto* storage = persistent != nullptr ? get<Tuple>(persistent->value) : nullptr;
    const auto* kind = storage != nullptr && storage->items.size() >= 5 ? get<Global>(storage->items[1]) : nullptr;
    constexpr std::size_t longest_key = 255;
    const auto* key = kind != nullptr ? get<std::string>(storage->items[2]) : nullptr;
    const auto elements = key != nullptr ? count(storage->items[4]) : std::nullopt;
    const auto offset = count(items[1]);
    if (!elements || !offset || !counts(items[2], out.shape) || !counts(items[3], out.strides) ||
        out.shape.size() != out.strides.size() || key->size() > longest_key || !is_utf8(*key)) {
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

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
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

RESIDENCY_INLINE Result<PickledTensors> TorchPickle::try_read_tensors(std::string_view text, const std::string& source,
                                                                      std::uint64_t base, const std::string& key) {
    TorchPickle reader{text, source, base};
    constexpr std::size_t most_operations = 10'000'000;  // some 40 a tensor
    const auto top = reader.run(most_operations);
    if (!top) { return top.error(); }
    return reader.tensors(*top, key);
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

RESIDENCY_INLINE bool TorchPickle::duplicate() {
    if (stack_.empty() || std::holds_alternative<Mark>(values_[stack_.back()])) { return false; }
    stack_.push_back(stack_.back());
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
    const bool is_dictionary =
        name != nullptr && tuple != nullptr &&
        ((name->name == "collections OrderedDict" && tuple->items.empty()) || name->name == "collections defaultdict");
    if (is_dictionary) {
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
        case '1': return pop_to_mark(items);                                       // POP_MARK
        case '2': return duplicate();                                              // DUP
        case 'l': return pop_to_mark(items) && skip(0);                            // LIST
        case 'd':                                                                  // DICT
            if (!pop_to_mark(items)) { return false; }
            push(Dictionary{});
            return set_items(items);
        case 'U': return take_number(1, number) && skip(number);     // SHORT_BINSTRING
        case 'T': return take_number(4, number) && skip(number);     // BINSTRING
        case 'G': return skip(8);                                    // BINFLOAT
        case 'C': return take_number(1, number) && skip(number);     // SHORT_BINBYTES
        case 'B': return take_number(4, number) && skip(number);     // BINBYTES
        case 0x8e:                                                   // BINBYTES8
        case 0x96: return take_number(8, number) && skip(number);    // BYTEARRAY8
        case 0x8f: push(Other{}); return true;                       // EMPTY_SET
        case 0x90: return pop_to_mark(items) && !stack_.empty();     // ADDITEMS
        case 0x91: return pop_to_mark(items) && skip(0);             // FROZENSET
        case 'K': return take_number(1, number) && integer(number);  // BININT1
        case 'M': return take_number(2, number) && integer(number);  // BININT2
        case 'J':                                                    // BININT
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
        case 'R':                                        // REDUCE
        case 0x81: return call();                        // NEWOBJ
        case 0x92: return pop(first) && call();          // NEWOBJ_EX: arguments by name, which are not needed
        case 'b': return pop(first) && !stack_.empty();  // BUILD: attributes, which are not needed
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

RESIDENCY_INLINE auto TorchPickle::candidates(const Dictionary& top) const -> std::vector<Candidate> {
    constexpr std::size_t deepest = 4;
    constexpr std::size_t most_candidates = 64;
    const auto tensors_in = [&](const Dictionary& dictionary) {
        return static_cast<std::size_t>(std::count_if(dictionary.items.begin(), dictionary.items.end(),
                                                      [&](const auto& item) { return is_tensor(item.second); }));
    };
    std::vector<Candidate> found;
    if (const std::size_t count = tensors_in(top); count != 0) { found.push_back({".", &top, count}); }
    // A file may mention one dictionary many times: each is looked into once.
    std::unordered_set<const Dictionary*> seen{&top};
    std::vector<Candidate> level{{std::string{}, &top, 0}};
    for (std::size_t depth = 0; depth < deepest && !level.empty(); ++depth) {
        std::vector<Candidate> next;
        std::vector<Candidate> here;
        for (const Candidate& outer : level) {
            for (const auto& [key, value] : outer.dictionary->items) {
                const auto* name = get<std::string>(key);
                const auto* dictionary = get<Dictionary>(value);
                if (name == nullptr || dictionary == nullptr || name->ends_with("_extra_state") ||
                    !seen.insert(dictionary).second) {
                    continue;
                }
                constexpr std::size_t longest_key = 255;
                const std::size_t tensors = tensors_in(*dictionary);
                std::vector<Candidate>& list = tensors != 0 ? here : next;
                if (list.size() == most_candidates || name->size() > longest_key || !is_utf8(*name)) { continue; }
                list.push_back({outer.path.empty() ? *name : outer.path + '.' + *name, dictionary, tensors});
            }
        }
        if (!here.empty()) {
            found.insert(found.end(), here.begin(), here.end());
            break;
        }
        level = std::move(next);
    }
    return found;
}

RESIDENCY_INLINE auto TorchPickle::choose(Id top, const std::string& key) const -> Result<Candidate> {
    const auto* outermost = get<Dictionary>(top);
    if (outermost == nullptr) {
        if (is_tensor(top)) {
            return refuse("a tensor and not a dictionary of tensors by name", top, "save {\"name\": tensor}");
        }
        const bool is_object = get<Call>(top) != nullptr;
        return refuse(
            "not a dictionary of tensors", top,
            is_object ? "load it where its class is and save its state_dict()" : "save the model's state_dict()");
    }
    const auto found = candidates(*outermost);
    const auto named = [&] {
        constexpr std::size_t most = 8;
        std::string text;
        for (std::size_t i = 0; i < (std::min)(found.size(), most); ++i) {
            text += (i == 0 ? "" : ", ") + shown(found[i].path) + " (" + std::to_string(found[i].tensors) +
                    (found[i].tensors == 1 ? " tensor)" : " tensors)");
        }
        return found.size() > most ? text + " and " + std::to_string(found.size() - most) + " more" : text;
    };
    if (!key.empty()) {
        for (const Candidate& each : found) {
            if (each.path == key) { return each; }
        }
        // A key may lead to any other dictionary, through keys that have dots in them or not.
        std::vector<std::pair<const Dictionary*, std::string_view>> open{{outermost, key}};
        std::set<std::pair<const Dictionary*, std::size_t>> seen;  // and the length of what is left of the key
        for (std::size_t i = 0; i < open.size(); ++i) {
            const auto [dictionary, rest] = open[i];
            for (const auto& [name, value] : dictionary->items) {
                const auto* text = get<std::string>(name);
                const auto* inner = get<Dictionary>(value);
                if (text == nullptr || inner == nullptr || !rest.starts_with(*text)) { continue; }
                if (rest.size() == text->size()) {
                    const bool holds = std::any_of(inner->items.begin(), inner->items.end(),
                                                   [&](const auto& item) { return is_tensor(item.second); });
                    if (holds) { return Candidate{key, inner, 0}; }
                } else if (rest[text->size()] == '.' && seen.emplace(inner, rest.size() - text->size()).second) {
                    open.emplace_back(inner, rest.substr(text->size() + 1));
                }
            }
        }
        return found.empty() ? refuse("no dictionary of it holds tensors by name")
                             : refuse("the key " + shown(key) + " leads to no dictionary of tensors", none,
                                      "give one of the keys " + named());
    }
    if (found.size() == 1) { return found.front(); }
    if (found.size() > 1) {
        return refuse("several dictionaries hold tensors: " + named(), none,
                      "choose one by its key (--key, or ReadOptions::key)");
    }
    if (outermost->items.empty()) { return Candidate{".", outermost, 0}; }
    std::string names;
    constexpr std::size_t most_names = 6;
    std::size_t count = 0;
    for (const auto& [name, value] : outermost->items) {
        const auto* text = get<std::string>(name);
        if (text == nullptr || count == most_names) { continue; }
        names += (count++ == 0 ? "" : ", ") + shown(std::string_view{*text}.substr(0, 40));
    }
    return refuse("a dictionary without tensors" + (names.empty() ? std::string{} : ", of " + names), none,
                  "give the file that holds the model's state_dict()");
}

RESIDENCY_INLINE Result<PickledTensors> TorchPickle::tensors(Id top, const std::string& wanted) const {
    const auto chosen = choose(top, wanted);
    if (!chosen) { return chosen.error(); }
    const auto& items = chosen->dictionary->items;
    PickledTensors out;
    const auto pass_over = [&](Id key) {
        const auto* name = get<std::string>(key);
        const auto number = count(key);
        out.passed_over.push_back(name != nullptr ? (is_utf8(*name) ? *name : shown(*name))
                                  : number        ? std::to_string(*number)
                                                  : std::string{"an entry without a name"});
    };
    std::unordered_set<std::string_view> names;
    const auto& outermost = *get<Dictionary>(top);
    if (chosen->dictionary != &outermost) {
        for (const auto& [key, value] : outermost.items) {
            const auto* name = get<std::string>(key);
            const bool leads = name != nullptr && chosen->path.starts_with(*name) &&
                               (chosen->path.size() == name->size() || chosen->path[name->size()] == '.');
            if (!leads && (name == nullptr || names.insert(*name).second)) { pass_over(key); }
        }
        names.clear();
    }
    std::size_t axes = 0;  // with a shape by name they cost no bytes
    out.tensors.reserve(items.size());
    names.reserve(items.size());
    for (const auto& [key, value] : items) {
        const auto* name = get<std::string>(key);
        if (name != nullptr && !names.insert(*name).second) {
            return broken((is_tensor(value) ? "tensor " : "entry ") + shown(*name) + " is given twice");
        }
        if (!is_tensor(value)) {
            pass_over(key);
            continue;
        }
        if (name == nullptr || !is_utf8(*name)) {
            return refuse("a tensor whose key is no text", none, "save a dictionary of tensors by name");
        }
        if (callable(value).starts_with("torch._tensor ")) {
            return refuse("what is saved as " + shown(*name) + " is a tensor with attributes", value,
                          "save its detach().clone()");
        }
        auto each = tensor(value);
        axes += each ? each->shape.size() : 0;
        if (axes > text_.size()) { return broken("more axes than the pickle has bytes"); }
        if (!each) { return each.error().in("tensor " + shown(*name)); }
        out.tensors.push_back({*name, std::move(*each)});
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

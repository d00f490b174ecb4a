// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/format/torch_pickle.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Whether a tensor lies in the first argument of a call. The last two are of PyTorch before 0.4.
[[nodiscard]] inline bool is_parameter(std::string_view called) noexcept {
    return called == "torch._utils _rebuild_parameter" || called == "torch._utils _rebuild_parameter_with_state" ||
           called == "torch.nn.parameter Parameter" || called == "torch.autograd.variable Variable";
}

RESIDENCY_INLINE Result<PickledTensor> TorchPickle::try_read_tensor(std::string_view text, const std::string& source,
                                                                    std::uint64_t base) {
    TorchPickle reader{text, source, base};
    constexpr std::size_t most_operations = 4096;
    if (Status ran = reader.run(most_operations); !ran) { return ran.error(); }
    return reader.tensor(reader.top());
}

RESIDENCY_INLINE Result<std::optional<TorchPickle>> TorchPickle::try_read_first(std::string_view text,
                                                                                const std::string& source,
                                                                                std::uint64_t base) {
    TorchPickle reader{text, source, base};
    constexpr std::size_t most_operations = 10'000'000;  // some 40 a tensor
    const Status ran = reader.run(most_operations);
    if (reader.is_cut_) { return std::optional<TorchPickle>{}; }
    if (!ran) { return ran.error(); }
    return std::optional<TorchPickle>{std::move(reader)};
}

RESIDENCY_INLINE Result<TorchPickle> TorchPickle::try_read(std::string_view text, const std::string& source,
                                                           std::uint64_t base) {
    auto pickle = try_read_first(text, source, base);
    if (!pickle) { return pickle.error(); }
    if (!*pickle) { return malformed(source, base + text.size(), "the pickle ends too early"); }
    return *std::move(*pickle);
}

RESIDENCY_INLINE bool TorchPickle::take(std::uint64_t count, std::string_view& out) noexcept {
    is_cut_ = text_.size() - at_ < count;
    if (is_cut_) { return false; }
    out = text_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
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
    is_cut_ = end == std::string_view::npos;
    if (is_cut_) { return false; }
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
    Value& top = values_[stack_.back()];
    auto* dictionary = std::get_if<Dictionary>(&top);
    auto* object = std::get_if<Call>(&top);
    if (dictionary == nullptr && object == nullptr) { return true; }
    std::vector<Child>& out = dictionary != nullptr ? dictionary->items : object->items;
    for (std::size_t i = 0; i < items.size(); i += 2) { out.push_back({items[i], items[i + 1]}); }
    return true;
}

RESIDENCY_INLINE bool TorchPickle::append_items(const std::vector<Id>& items) {
    if (stack_.empty()) { return false; }
    Value& top = values_[stack_.back()];
    if (auto* list = std::get_if<List>(&top)) {
        list->items.insert(list->items.end(), items.begin(), items.end());
    } else if (auto* object = std::get_if<Call>(&top)) {
        for (const Id item : items) { object->items.push_back({none, item}); }
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
    // TorchScript gives lists and dictionaries their types so; a shape may be a class of its own.
    const bool is_typed = name != nullptr && tuple != nullptr && !tuple->items.empty() &&
                          (name->name == "torch.jit._pickle restore_type_tag" ||
                           name->name == "torch.jit._pickle build_tensorlist" || name->name == "torch Size");
    if (is_dictionary) {
        push(Dictionary{});
    } else if (is_typed) {
        stack_.push_back(tuple->items[0]);
    } else {
        push(Call{callable, arguments, none, {}});
    }
    return true;
}

RESIDENCY_INLINE bool TorchPickle::persist() {
    Id value = 0;
    if (!pop(value)) { return false; }
    // A class of modules, with its source: the class alone counts.
    const auto* tuple = get<Tuple>(value);
    const auto* kind = tuple != nullptr && tuple->items.size() > 1 ? get<std::string>(tuple->items[0]) : nullptr;
    if (kind != nullptr && *kind == "module") {
        stack_.push_back(tuple->items[1]);
    } else {
        push(Persistent{value});
    }
    return true;
}

RESIDENCY_INLINE bool TorchPickle::build() {
    Id state = 0;
    if (!pop(state) || stack_.empty()) { return false; }
    if (auto* object = std::get_if<Call>(&values_[stack_.back()])) { object->state = state; }
    return true;
}

RESIDENCY_INLINE Status TorchPickle::run(std::size_t most_operations) {
    for (std::size_t count = 0; count < most_operations; ++count) {
        std::string_view op;
        if (!take(1, op)) { return broken("the pickle ends too early"); }
        if (op[0] == '.') {
            if (!pop(top_) || !stack_.empty()) { return broken("the pickle does not end with one value"); }
            return {};
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
        case 'N': push(Other{}); return true;           // NONE
        case ']': push(List{}); return true;            // EMPTY_LIST
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
        case 'a': return pop(first) && append_items({first});                      // APPEND
        case 'e': return pop_to_mark(items) && append_items(items);                // APPENDS
        case '0': return pop(first);                                               // POP
        case '1': return pop_to_mark(items);                                       // POP_MARK
        case '2': return duplicate();                                              // DUP
        case 'l':                                                                  // LIST
            if (!pop_to_mark(items)) { return false; }
            push(List{std::move(items)});
            return true;
        case 'd':  // DICT
            if (!pop_to_mark(items)) { return false; }
            push(Dictionary{});
            return set_items(items);
        case 'U':                                                       // SHORT_BINSTRING: the text of Python 2
        case 0x8c: return take_number(1, number) && string_of(number);  // SHORT_BINUNICODE
        case 'T':                                                       // BINSTRING
        case 'X': return take_number(4, number) && string_of(number);   // BINUNICODE
        case 'G': return skip(8);                                       // BINFLOAT
        case 'C': return take_number(1, number) && skip(number);        // SHORT_BINBYTES
        case 'B': return take_number(4, number) && skip(number);        // BINBYTES
        case 0x8e:                                                      // BINBYTES8
        case 0x96: return take_number(8, number) && skip(number);       // BYTEARRAY8
        case 0x8f: push(Other{}); return true;                          // EMPTY_SET
        case 0x90: return pop_to_mark(items) && !stack_.empty();        // ADDITEMS
        case 0x91: return pop_to_mark(items) && skip(0);                // FROZENSET
        case 'K': return take_number(1, number) && integer(number);     // BININT1
        case 'M': return take_number(2, number) && integer(number);     // BININT2
        case 'J':                                                       // BININT
            if (!take_number(4, number)) { return false; }
            push(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(number))});
            return true;
        case 0x8a:  // LONG1
            if (!take_number(1, number)) { return false; }
            if (number > 8) { return skip(number); }
            return take(number, text) && integer_of(text);
        case 0x8b: return take_number(4, number) && skip(number);       // LONG4
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
        case 'Q': return persist();              // BINPERSID
        case 'R':                                // REDUCE
        case 0x81: return call();                // NEWOBJ
        case 0x92: return pop(first) && call();  // NEWOBJ_EX: arguments by name, which are not needed
        case 'b': return build();                // BUILD
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
    return take(bytes, text);
}

RESIDENCY_INLINE bool TorchPickle::integer_of(std::string_view raw) {
    std::uint64_t bits = !raw.empty() && (static_cast<unsigned char>(raw.back()) & 0x80) != 0 ? UINT64_MAX : 0;
    for (std::size_t i = raw.size(); i-- > 0;) { bits = bits << 8 | static_cast<unsigned char>(raw[i]); }
    push(static_cast<std::int64_t>(bits));
    return true;
}

RESIDENCY_INLINE bool TorchPickle::string_of(std::uint64_t bytes) {
    std::string_view text;
    if (!take(bytes, text)) { return false; }
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

RESIDENCY_INLINE bool TorchPickle::is_tensor(Id id) const noexcept {
    const std::string_view name = callable(id);
    return name.starts_with("torch._utils _rebuild_") || name.starts_with("torch._tensor ") || is_parameter(name);
}

RESIDENCY_INLINE const char* TorchPickle::kind_of(Id id) const noexcept {
    if (is_tensor(id)) { return "a tensor"; }
    if (is_dictionary(id)) { return "a dictionary"; }
    if (is_object(id)) { return "an object"; }
    return get<List>(id) != nullptr ? "a list" : get<Tuple>(id) != nullptr ? "a tuple" : "a value";
}

RESIDENCY_INLINE auto TorchPickle::children(Id id) const -> std::vector<Child> {
    std::vector<Child> out;
    const auto append = [&](const std::vector<Id>& items) {
        for (const Id item : items) { out.push_back({none, item}); }
    };
    if (const auto* list = get<List>(id)) { append(list->items); }
    if (const auto* tuple = get<Tuple>(id)) { append(tuple->items); }
    if (const auto* dictionary = get<Dictionary>(id)) {
        out = dictionary->items;
        for (Child& child : out) {
            const auto* name = get<std::string>(child.key);
            const bool is_of_module =
                name != nullptr && (*name == "_parameters" || *name == "_buffers" || *name == "_modules");
            if (is_of_module && is_dictionary(child.value)) { child.key = no_name; }
        }
    }
    if (is_object(id)) {
        const auto* object = get<Call>(id);
        out = object->items;
        out.push_back({no_name, object->arguments});
        if (object->state != none) { out.push_back({no_name, object->state}); }
    }
    return out;
}

RESIDENCY_INLINE Result<PickledTensor> TorchPickle::tensor(Id id) const {
    const auto arguments_of = [&](Id called) {
        const auto* call = get<Call>(called);
        return call != nullptr ? get<Tuple>(call->arguments) : nullptr;
    };
    const auto* arguments = arguments_of(id);
    if (is_parameter(callable(id)) && arguments != nullptr && !arguments->items.empty()) {
        id = arguments->items[0];
        arguments = arguments_of(id);
    }
    const bool has_dtype = callable(id) == "torch._utils _rebuild_tensor_v3";
    const std::size_t required = has_dtype ? 7 : 4;
    const std::size_t before_metadata = has_dtype ? 7 : 6;
    const bool is_plain = has_dtype || callable(id) == "torch._utils _rebuild_tensor_v2" ||
                          callable(id) == "torch._utils _rebuild_tensor";
    if (!is_plain || arguments == nullptr || arguments->items.size() < required) {
        const auto called = callable(id);
        if (called.starts_with("torch._tensor ")) {
            return refuse("a tensor with attributes", id, "save its detach().clone()");
        }
        if (called.starts_with("torch._utils _rebuild_sparse")) {
            return refuse("a sparse tensor", id, "save its to_dense()");
        }
        if (called == "torch._utils _rebuild_qtensor") {
            return refuse(
                "a quantized tensor, whose scale lies apart", id,
                "save its int_repr(), and its scale and zero point, or its dequantize(), as plain, dense ones");
        }
        return called.starts_with("torch._utils _rebuild_") && !called.starts_with("torch._utils _rebuild_tensor") &&
                       !is_parameter(called)
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
    const auto* tuple = storage_tuple(items[0]);
    auto bytes = storage(tuple);
    if (!bytes) { return bytes.error(); }
    out.storage = std::move(*bytes);
    const auto offset = count(items[1]);
    if (!offset || !counts(items[2], out.shape) || !counts(items[3], out.strides) ||
        out.shape.size() != out.strides.size()) {
        return broken("the pickle's tensor lacks a valid offset, shape or strides");
    }
    // Before ZIP archives a storage may be a part of another: it says of which one, from where on.
    const auto* part = tuple->items.size() > 5 ? get<Tuple>(tuple->items[5]) : nullptr;
    const auto begin = part == nullptr          ? std::optional<std::uint64_t>{0}
                       : part->items.size() > 1 ? count(part->items[1])
                                                : std::nullopt;
    const auto from = begin ? residency::detail::checked_add(*begin, *offset) : std::nullopt;
    if (!from) { return broken("the pickle's tensor lies in no valid part of a storage"); }
    out.offset_elements = *from;
    const auto dtype =
        has_dtype ? find_torch_dtype(torch_name(items[6])) : find_torch_storage(torch_name(tuple->items[1]));
    if (!dtype) { return broken(std::string{"the pickle's tensor has "} + unknown_type); }
    out.dtype = *dtype;
    return out;
}

RESIDENCY_INLINE auto TorchPickle::storage_tuple(Id id) const noexcept -> const Tuple* {
    const auto* persistent = get<Persistent>(id);
    const auto* tuple = persistent != nullptr ? get<Tuple>(persistent->value) : nullptr;
    return tuple != nullptr && tuple->items.size() >= 5 ? tuple : nullptr;
}

RESIDENCY_INLINE std::string_view TorchPickle::torch_name(Id id) const noexcept {
    const auto* global = get<Global>(id);
    constexpr std::string_view module = "torch ";
    const std::string_view name = global != nullptr ? std::string_view{global->name} : std::string_view{};
    return name.starts_with(module) ? name.substr(module.size()) : std::string_view{};
}

RESIDENCY_INLINE Result<PickledStorage> TorchPickle::storage(const Tuple* tuple) const {
    constexpr std::size_t longest_key = 255;
    const auto* kind = tuple != nullptr ? get<Global>(tuple->items[1]) : nullptr;
    const auto* key = kind != nullptr ? get<std::string>(tuple->items[2]) : nullptr;
    const auto elements = key != nullptr ? count(tuple->items[4]) : std::nullopt;
    if (!elements || key->size() > longest_key || !is_utf8(*key)) {
        return broken("the pickle lacks a valid storage of a tensor");
    }
    const auto dtype = find_torch_storage(torch_name(tuple->items[1]));
    if (kind->name != "torch.storage UntypedStorage" && !dtype) {
        return broken(std::string{"the storage of a tensor has "} + unknown_type + ": found " + shown(kind->name));
    }
    const auto bytes = residency::detail::checked_multiply(*elements, dtype ? dtype->type.block_bits() / 8 : 1);
    if (!bytes) { return broken("the bytes of a storage do not fit in 64 bits"); }
    return PickledStorage{*key, *elements, *bytes};
}

RESIDENCY_INLINE Result<std::unordered_map<std::string, PickledStorage>> TorchPickle::storages() const {
    std::unordered_map<std::string, PickledStorage> out;
    for (std::size_t id = 0; id < values_.size(); ++id) {
        const auto* tuple = storage_tuple(static_cast<Id>(id));
        if (tuple == nullptr) { continue; }
        const auto each = storage(tuple);
        if (!each) { return each.error(); }
        if (out.try_emplace(each->key, *each).first->second.bytes != each->bytes) {
            return broken("the storage " + shown(each->key) + " has several sizes");
        }
    }
    return out;
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

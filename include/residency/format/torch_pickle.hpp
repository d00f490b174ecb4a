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

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/torch_dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// What the pickle says of the bytes behind tensors.
struct PickledStorage {
    std::string key;             ///< UTF-8; in an archive its record is data/<key>
    std::uint64_t elements = 0;  ///< of a typed one; bytes of an untyped one
    std::uint64_t bytes = 0;
};

/// What the pickle says of one tensor.
struct PickledTensor {
    TorchDType dtype;
    PickledStorage storage;
    std::uint64_t offset_elements = 0;
    std::vector<std::uint64_t> shape, strides;
};

/// What a pickle says, as values that refer to each other. Reads the operations of Python's protocol 2 to 5 that torch.save and
/// torch.jit.save use, as data: nothing is imported or called.
class TorchPickle {
public:
    /// A value, by its number.
    using Id = std::uint32_t;
    static constexpr Id none = UINT32_MAX;
    /// In place of a key: what the value holds counts as the container's own.
    static constexpr Id no_name = UINT32_MAX - 1;
    /// A value in a container, under its key; none: the values of a list or tuple.
    struct Child {
        Id key = none;
        Id value = none;
    };

    /// Reads the pickle that begins the text, at byte `base` of `source`; none where the text ends before it. Errors: malformed;
    /// unsupported where it has operations that no tensor needs. `source` must outlive the pickle.
    [[nodiscard]] static Result<std::optional<TorchPickle>> try_read_first(std::string_view text,
                                                                           const std::string& source,
                                                                           std::uint64_t base);
    /// As try_read_first; it is malformed where the text ends before the pickle.
    [[nodiscard]] static Result<TorchPickle> try_read(std::string_view text, const std::string& source,
                                                      std::uint64_t base);
    /// Reads one tensor or parameter.
    [[nodiscard]] static Result<PickledTensor> try_read_tensor(std::string_view text, const std::string& source,
                                                               std::uint64_t base);

    /// The value that the pickle is of.
    [[nodiscard]] Id top() const noexcept { return top_; }
    /// How many bytes it has.
    [[nodiscard]] std::size_t bytes() const noexcept { return at_; }
    /// How many values there are: each has an identifier below it.
    [[nodiscard]] std::size_t values() const noexcept { return values_.size(); }

    [[nodiscard]] bool is_tensor(Id id) const noexcept;
    [[nodiscard]] bool is_dictionary(Id id) const noexcept { return get<Dictionary>(id) != nullptr; }
    /// A list or a tuple.
    [[nodiscard]] bool is_sequence(Id id) const noexcept {
        return get<List>(id) != nullptr || get<Tuple>(id) != nullptr;
    }
    /// What a class or a function makes, but no tensor.
    [[nodiscard]] bool is_object(Id id) const noexcept { return get<Call>(id) != nullptr && !is_tensor(id); }
    [[nodiscard]] bool is_container(Id id) const noexcept {
        return is_dictionary(id) || is_sequence(id) || is_object(id);
    }
    /// "a dictionary", "a list" and so on.
    [[nodiscard]] const char* kind_of(Id id) const noexcept;
    /// The values in a container, in their order; none of any other value. An object's are its arguments, items and attributes;
    /// the dictionaries in which a module of PyTorch keeps what its state_dict() lists have no name.
    [[nodiscard]] std::vector<Child> children(Id id) const;
    /// Null where it is no text. Also for keys.
    [[nodiscard]] const std::string* text(Id id) const noexcept {
        return id < values_.size() ? get<std::string>(id) : nullptr;
    }
    /// The integer, where it is one that is not negative. Also for keys.
    [[nodiscard]] std::optional<std::uint64_t> count(Id id) const noexcept {
        const auto* value = id < values_.size() ? get<std::int64_t>(id) : nullptr;
        return value != nullptr && *value >= 0 ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
    }
    /// The callable behind a value that is the result of a call, as "module name".
    [[nodiscard]] std::string_view callable(Id id) const noexcept;
    [[nodiscard]] Result<PickledTensor> tensor(Id id) const;
    /// All storages that are mentioned, by key. Error malformed.
    [[nodiscard]] Result<std::unordered_map<std::string, PickledStorage>> storages() const;

    /// The error of a broken pickle, at the byte up to which it was read.
    [[nodiscard]] Error broken(const std::string& what) const { return malformed(*source_, base_ + at_, what); }
    /// The error of a whole pickle that is not read. `id`: the object, where that is the result of a call.
    [[nodiscard]] Error refuse(const std::string& what, Id id = none,
                               const std::string& advice = "save the model's state_dict()") const {
        const auto name = id == none ? std::string_view{} : callable(id);
        return unsupported(*source_, base_, what + "; " + advice, name.empty() ? std::string{} : shown(name));
    }

private:
    struct Mark {};
    struct Other {};
    struct Global {
        std::string name;  ///< "module name"
    };
    struct Tuple {
        std::vector<Id> items;
    };
    struct List {
        std::vector<Id> items;
    };
    struct Call {
        Id callable = 0, arguments = 0, state = none;
        std::vector<Child> items;  ///< of subclasses of lists and dictionaries
    };
    struct Persistent {
        Id value = 0;
    };
    struct Dictionary {
        std::vector<Child> items;
    };
    using Value =
        std::variant<Other, Mark, std::int64_t, std::string, Global, Tuple, List, Call, Persistent, Dictionary>;

    TorchPickle(std::string_view text, const std::string& source, std::uint64_t base) noexcept
        : text_{text}, source_{&source}, base_{base} {}

    [[nodiscard]] bool take(std::uint64_t count, std::string_view& out) noexcept;
    [[nodiscard]] bool take_number(std::size_t count, std::uint64_t& out) noexcept;
    [[nodiscard]] bool take_line(std::string_view& out) noexcept;
    void push(Value value) {
        stack_.push_back(static_cast<Id>(values_.size()));
        values_.push_back(std::move(value));
    }
    [[nodiscard]] bool pop(Id& id);
    [[nodiscard]] bool duplicate();
    [[nodiscard]] bool tuple_of(std::size_t count);
    /// Pops the values above the last mark, and the mark.
    [[nodiscard]] bool pop_to_mark(std::vector<Id>& items);
    /// Adds keys and values, which alternate, to the dictionary or object on top of the stack. Drops them if none is on top.
    [[nodiscard]] bool set_items(const std::vector<Id>& items);
    /// Adds values to the list or object on top of the stack. Drops them if none is on top.
    [[nodiscard]] bool append_items(const std::vector<Id>& items);
    [[nodiscard]] bool call();
    [[nodiscard]] bool build();
    [[nodiscard]] bool persist();

    /// Executes the operations up to STOP, which leave one value.
    [[nodiscard]] Status run(std::size_t most_operations);

    [[nodiscard]] bool step(unsigned char op);
    /// Skips a value of that many bytes, which no tensor needs.
    [[nodiscard]] bool skip(std::uint64_t bytes);
    [[nodiscard]] bool integer(std::uint64_t number) {
        push(static_cast<std::int64_t>(number));
        return true;
    }
    [[nodiscard]] bool integer_of(std::string_view raw);
    [[nodiscard]] bool string_of(std::uint64_t bytes);
    [[nodiscard]] bool remember(std::uint64_t slot);
    [[nodiscard]] bool recall(std::uint64_t slot);

    template <class T>
    [[nodiscard]] const T* get(Id id) const noexcept {
        return std::get_if<T>(&values_[id]);
    }
    [[nodiscard]] bool counts(Id id, std::vector<std::uint64_t>& out) const;
    /// The tuple that stands for a storage: a text, its class, its key, a device, its elements and more; null for other values.
    [[nodiscard]] const Tuple* storage_tuple(Id id) const noexcept;
    [[nodiscard]] Result<PickledStorage> storage(const Tuple* tuple) const;
    /// The name of a global in the module torch; empty for other values.
    [[nodiscard]] std::string_view torch_name(Id id) const noexcept;
    std::string_view text_;
    const std::string* source_;
    std::uint64_t base_;
    std::size_t at_ = 0;
    Id top_ = none;
    std::vector<Value> values_;
    std::vector<Id> stack_;
    std::vector<Id> memo_;  // by slot
    bool is_known_ = true;  // the last operation
    bool is_cut_ = false;   // the text ends before the pickle
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/torch_pickle.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch_dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// What the pickle says of one tensor.
struct PickledTensor {
    TorchDType dtype;
    std::string storage_key;             ///< its record is data/<key>
    std::uint64_t storage_elements = 0;  ///< of a typed storage; bytes of an untyped one
    bool is_untyped = false;
    std::uint64_t offset_elements = 0;
    std::vector<std::uint64_t> shape, strides;
};

struct NamedPickledTensor {
    std::string name;  ///< UTF-8
    PickledTensor tensor;
};

/// A dictionary of tensors by name.
struct PickledTensors {
    std::vector<NamedPickledTensor> tensors;  ///< in its order
    std::vector<std::string>
        passed_over;  ///< names of entries that are no tensor, here and in the outermost one; UTF-8
};

/// Reads the operations of Python's pickle protocol 2 to 5 that torch.save uses for tensors, parameters and dictionaries, as
/// data: nothing is imported or called. `text` starts at byte `base` of `source`.
class TorchPickle {
public:
    /// Reads one tensor or parameter.
    [[nodiscard]] static Result<PickledTensor> try_read_tensor(std::string_view text, const std::string& source,
                                                               std::uint64_t base);
    /// Reads the dictionary that holds tensors by name, as state_dict() gives it: the outermost one, or one of its entries. `key`:
    /// which one, as in ReadOptions. Errors: malformed; unsupported where none holds tensors, or several do and there is no key.
    [[nodiscard]] static Result<PickledTensors> try_read_tensors(std::string_view text, const std::string& source,
                                                                 std::uint64_t base, const std::string& key);

private:
    using Id = std::uint32_t;
    static constexpr Id none = UINT32_MAX;
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
    struct Dictionary {
        std::vector<std::pair<Id, Id>> items;
    };
    using Value = std::variant<Other, Mark, std::int64_t, std::string, Global, Tuple, Call, Persistent, Dictionary>;

    TorchPickle(std::string_view text, const std::string& source, std::uint64_t base) noexcept
        : text_{text}, source_{source}, base_{base} {}

    [[nodiscard]] Error broken(const std::string& what) const { return malformed(source_, base_ + at_, what); }
    /// The error of a whole pickle that is not read. `id`: the object, where that is the result of a call.
    [[nodiscard]] Error refuse(const std::string& what, Id id = none,
                               const std::string& advice = "save the model's state_dict()") const {
        const auto name = id == none ? std::string_view{} : callable(id);
        return unsupported(source_, base_, what + "; " + advice, name.empty() ? std::string{} : shown(name));
    }

    [[nodiscard]] bool take(std::size_t count, std::string_view& out) noexcept;
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
    /// Adds keys and values, which alternate, to the dictionary on top of the stack. Drops them if no dictionary is on top.
    [[nodiscard]] bool set_items(const std::vector<Id>& items);
    [[nodiscard]] bool call();

    /// Executes the operations up to STOP. Returns the value that is left.
    [[nodiscard]] Result<Id> run(std::size_t most_operations);

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
    [[nodiscard]] std::optional<std::uint64_t> count(Id id) const noexcept {
        const auto* value = get<std::int64_t>(id);
        return value != nullptr && *value >= 0 ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
    }
    [[nodiscard]] bool counts(Id id, std::vector<std::uint64_t>& out) const;
    /// The callable behind a value that is the result of a call, as "module name".
    [[nodiscard]] std::string_view callable(Id id) const noexcept;
    [[nodiscard]] bool is_tensor(Id id) const noexcept {
        const std::string_view name = callable(id);
        return name.starts_with("torch._utils _rebuild_") || name.starts_with("torch._tensor ");
    }
    /// A dictionary that holds tensors.
    struct Candidate {
        std::string path;  ///< its keys, with dots between them; "." for the outermost one
        const Dictionary* dictionary = nullptr;
        std::size_t tensors = 0;
    };
    /// The outermost dictionary if it holds tensors, and the nearest ones inside it that do: all at the same depth.
    [[nodiscard]] std::vector<Candidate> candidates(const Dictionary& top) const;
    [[nodiscard]] Result<Candidate> choose(Id top, const std::string& key) const;
    [[nodiscard]] Result<PickledTensors> tensors(Id top, const std::string& key) const;
    [[nodiscard]] Result<PickledTensor> tensor(Id id) const;

    std::string_view text_;
    const std::string& source_;
    std::uint64_t base_;
    std::size_t at_ = 0;
    std::vector<Value> values_;
    std::vector<Id> stack_;
    std::vector<Id> memo_;  // by slot
    bool is_known_ = true;  // the last operation
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/torch_pickle.ipp"
#endif

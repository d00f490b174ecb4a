// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/torch_pickle.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

struct NamedPickledTensor {
    std::string name;  ///< UTF-8
    PickledTensor tensor;
};

/// The tensors of a saved model, by name.
struct PickledTensors {
    std::vector<NamedPickledTensor> tensors;         ///< in the order of the pickle
    std::vector<ModelFile::PassedOver> passed_over;  ///< entries with tensors that are not read, then those without any
};

/// Chooses the dictionaries or objects of a pickle that hold a model's tensors, and names them: the keys, attributes and places
/// that lead to each, with dots between them.
class TorchTree {
public:
    /// `key`: which ones, as in ReadOptions. Errors: malformed; unsupported where none holds tensors, or several do and there is
    /// no key.
    [[nodiscard]] static Result<PickledTensors> try_read(const TorchPickle& pickle, const std::string& key);

private:
    using Id = TorchPickle::Id;
    using Child = TorchPickle::Child;

    /// How many tensors lie in a value.
    struct Count {
        std::uint64_t all = 0;  ///< at any depth; not where a container mentions itself
        std::uint64_t own = 0;  ///< in no container inside it
        bool is_known = false;
    };
    /// A container that is read.
    struct Choice {
        std::string path{};                ///< what leads to it, with dots; "." for the outermost one
        std::vector<Id> chain{};           ///< the containers from the outermost one to it, both included
        bool leaves_dictionaries = false;  ///< without the tensors of the dictionaries in it
    };

    explicit TorchTree(const TorchPickle& pickle);

    void count_tensors(Id top);
    [[nodiscard]] std::uint64_t tensors_of(const Choice& choice) const;

    /// A child's key, attribute or place; none where that is no text in UTF-8 and no number.
    [[nodiscard]] std::optional<std::string> name_of(const Child& child, std::size_t place) const;
    /// What stands for such a key in messages.
    [[nodiscard]] std::string label_of(const Child& child) const;
    [[nodiscard]] static std::string joined(const std::string& path, const std::string& name) {
        return path.empty() ? name : path + '.' + name;
    }

    /// The outermost container if it holds tensors, and the nearest dictionaries and objects inside it that do, all at the same
    /// depth.
    [[nodiscard]] std::vector<Choice> candidates() const;
    /// What a key leads to, through names that have dots in them or not.
    [[nodiscard]] std::optional<Choice> follow(std::string_view key) const;
    [[nodiscard]] Result<std::vector<Choice>> choose(const std::string& key) const;
    /// The error of a pickle in which nothing can be chosen.
    [[nodiscard]] Error nothing_to_read() const;

    /// Reads a container's tensors. `is_object`: it is one, or what one keeps in it: only its tensors are of interest.
    [[nodiscard]] Status collect(Id id, const std::string& path, bool is_object, bool leaves_dictionaries);
    /// Error malformed: it is given already.
    [[nodiscard]] Status take_name(const std::string& name, const char* what);
    [[nodiscard]] Status add(Id id, const std::string& name);
    /// Notes what lies beside the choices, in the containers that lead to them.
    void pass_over_beside(Id id, const std::string& path);
    void pass_over(const std::string& name, Id id);

    const TorchPickle* pickle_;
    std::vector<Count> counts_;  // by value
    // What a few bytes may mention without end may cost no more than some of the pickle's bytes.
    std::size_t children_left_;
    std::size_t name_bytes_left_;
    std::size_t axes_left_;
    std::vector<Id> open_;  // the containers around what is collected
    std::unordered_set<Id> chosen_;
    std::unordered_set<Id> leading_;  // to what is chosen
    std::unordered_set<std::string> names_;
    PickledTensors out_;
    std::vector<ModelFile::PassedOver> without_tensors_;
};

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/torch_tree.ipp"
#endif

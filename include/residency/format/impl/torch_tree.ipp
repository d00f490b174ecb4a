// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "residency/format/torch_tree.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// How deep containers may lie in each other.
inline constexpr std::size_t deepest_torch_container = 100;

[[nodiscard]] inline std::string tensors_text(std::uint64_t count) {
    return std::to_string(count) + (count == 1 ? " tensor" : " tensors");
}

RESIDENCY_INLINE Result<PickledTensors> TorchTree::try_read(const TorchPickle& pickle, const std::string& key) {
    TorchTree tree{pickle};
    const auto choices = tree.choose(key);
    if (!choices) { return choices.error(); }
    for (const Choice& choice : *choices) {
        tree.chosen_.insert(choice.chain.back());
        tree.leading_.insert(choice.chain.begin(), choice.chain.end() - 1);
    }
    for (const Choice& choice : *choices) {
        const bool is_named = choices->size() > 1 && choice.path != ".";
        if (Status read = tree.collect(choice.chain.back(), is_named ? choice.path : std::string{}, false,
                                       choice.leaves_dictionaries);
            !read) {
            return read.error();
        }
    }
    tree.pass_over_beside(pickle.top(), {});
    auto& all = tree.out_.passed_over;
    all.insert(all.end(), tree.without_tensors_.begin(), tree.without_tensors_.end());
    return std::move(tree.out_);
}

RESIDENCY_INLINE TorchTree::TorchTree(const TorchPickle& pickle)
    : pickle_{&pickle},
      counts_(pickle.values()),
      children_left_{pickle.bytes()},
      name_bytes_left_{16 * pickle.bytes()},
      axes_left_{pickle.bytes()} {
    count_tensors(pickle.top());
}

RESIDENCY_INLINE void TorchTree::count_tensors(Id top) {
    struct Open {
        Id id;
        std::vector<Child> children;
        std::size_t next = 0;
    };
    std::vector<Open> open;
    const auto enter = [&](Id id) {
        if (std::exchange(counts_[id].is_known, true)) { return; }
        if (pickle_->is_tensor(id)) {
            counts_[id].all = counts_[id].own = 1;
        } else if (pickle_->is_container(id)) {
            open.push_back({id, pickle_->children(id)});
        }
    };
    enter(top);
    while (!open.empty()) {
        Open& last = open.back();
        if (last.next != last.children.size()) {
            enter(last.children[last.next++].value);
            continue;
        }
        Count sum{0, 0, true};
        for (const Child& child : last.children) {
            sum.all += counts_[child.value].all;
            if (child.key == TorchPickle::no_name || pickle_->is_tensor(child.value)) {
                sum.own += counts_[child.value].own;
            }
        }
        // Containers that mention others twice double the number at each level.
        sum.all = (std::min)(sum.all, std::uint64_t{UINT32_MAX});
        sum.own = (std::min)(sum.own, std::uint64_t{UINT32_MAX});
        counts_[last.id] = sum;
        open.pop_back();
    }
}

RESIDENCY_INLINE std::uint64_t TorchTree::tensors_of(const Choice& choice) const {
    const Count& count = counts_[choice.chain.back()];
    return choice.leaves_dictionaries ? count.own : count.all;
}

RESIDENCY_INLINE std::optional<std::string> TorchTree::name_of(const Child& child, std::size_t place) const {
    if (child.key == TorchPickle::none) { return std::to_string(place); }
    const std::string* text = pickle_->text(child.key);
    if (text != nullptr) { return is_utf8(*text) ? std::optional{*text} : std::nullopt; }
    const auto number = pickle_->count(child.key);
    return number ? std::optional{std::to_string(*number)} : std::nullopt;
}

RESIDENCY_INLINE std::string TorchTree::label_of(const Child& child) const {
    const std::string* text = pickle_->text(child.key);
    return text != nullptr ? shown(*text) : "an entry without a name";
}

RESIDENCY_INLINE auto TorchTree::candidates() const -> std::vector<Choice> {
    constexpr std::size_t deepest = 4;
    constexpr std::size_t most_candidates = 64;
    constexpr std::size_t longest_name = 255;
    const Id top = pickle_->top();
    std::vector<Choice> found;
    if (counts_[top].all == 0) { return found; }
    const Choice whole{".", {top}, false};
    if (pickle_->is_object(top)) { return {whole}; }
    if (counts_[top].own != 0) { found.push_back(whole); }
    // A file may mention one container many times: each is looked into once.
    std::unordered_set<Id> seen{top};
    std::vector<Choice> level{{std::string{}, {top}, false}};
    for (std::size_t depth = 0; depth < deepest && !level.empty(); ++depth) {
        std::vector<Choice> next;
        std::vector<Choice> here;
        for (const Choice& outer : level) {
            const bool has_own = counts_[outer.chain.back()].own != 0;
            const auto children = pickle_->children(outer.chain.back());
            for (std::size_t i = 0; i < children.size(); ++i) {
                const Id inner = children[i].value;
                const bool is_object = pickle_->is_object(inner);
                // Objects beside tensors are a part of the model, as a packed layer is.
                if (counts_[inner].all == 0 || !pickle_->is_container(inner) || (is_object && has_own)) { continue; }
                const auto name = name_of(children[i], i);
                if (!name || name->size() > longest_name || name->ends_with("_extra_state") ||
                    !seen.insert(inner).second) {
                    continue;
                }
                const bool is_candidate = is_object || (pickle_->is_dictionary(inner) && counts_[inner].own != 0);
                std::vector<Choice>& list = is_candidate ? here : next;
                if (list.size() == most_candidates) { continue; }
                list.push_back({joined(outer.path, *name), outer.chain, false});
                list.back().chain.push_back(inner);
            }
        }
        if (!here.empty()) {
            found.insert(found.end(), here.begin(), here.end());
            break;
        }
        level = std::move(next);
    }
    if (found.empty()) { return {whole}; }
    for (Choice& each : found) { each.leaves_dictionaries = each.path == "." && found.size() > 1; }
    return found;
}

RESIDENCY_INLINE auto TorchTree::follow(std::string_view key) const -> std::optional<Choice> {
    struct Open {
        Id id;
        std::string_view rest;
        std::size_t before;  // what led to it, by index
        std::size_t depth;
    };
    std::vector<Open> open{{pickle_->top(), key, 0, 1}};
    std::set<std::pair<Id, std::size_t>> seen;  // and the length of what is left of the key
    for (std::size_t i = 0; i < open.size(); ++i) {
        const Open at = open[i];
        if (at.rest.empty()) {
            Choice out{std::string{key}, std::vector<Id>(at.depth), false};
            for (std::size_t k = i, left = at.depth; left-- > 0; k = open[k].before) { out.chain[left] = open[k].id; }
            return out;
        }
        if (at.depth == deepest_torch_container) { continue; }
        const auto children = pickle_->children(at.id);
        for (std::size_t k = 0; k < children.size(); ++k) {
            const Id inner = children[k].value;
            if (counts_[inner].all == 0 || !pickle_->is_container(inner)) { continue; }
            std::string_view rest = at.rest;
            if (children[k].key != TorchPickle::no_name) {
                const auto name = name_of(children[k], k);
                if (!name || name->empty() || !rest.starts_with(*name)) { continue; }
                rest.remove_prefix(name->size());
                if (!rest.empty() && rest.front() != '.') { continue; }
                if (!rest.empty()) { rest.remove_prefix(1); }
            }
            if (seen.emplace(inner, rest.size()).second) { open.push_back({inner, rest, i, at.depth + 1}); }
        }
    }
    return std::nullopt;
}

RESIDENCY_INLINE auto TorchTree::choose(const std::string& key) const -> Result<std::vector<Choice>> {
    const Id top = pickle_->top();
    auto found = candidates();
    if (found.empty()) {
        const bool is_empty = pickle_->is_dictionary(top) && pickle_->children(top).empty();
        if (is_empty && key.empty()) { return std::vector<Choice>{{".", {top}, false}}; }
        return is_empty ? pickle_->refuse("an empty dictionary") : nothing_to_read();
    }
    if (pickle_->is_tensor(top)) { return nothing_to_read(); }
    if (key.empty() && found.size() == 1) { return found; }
    std::string named;
    constexpr std::size_t most = 8;
    for (std::size_t i = 0; i < (std::min)(found.size(), most); ++i) {
        named += (i == 0 ? "" : ", ") + shown(found[i].path) + " (" + tensors_text(tensors_of(found[i])) + ')';
    }
    if (found.size() > most) { named += " and " + std::to_string(found.size() - most) + " more"; }
    if (key.empty()) {
        return pickle_->refuse("several parts hold tensors: " + named, TorchPickle::none,
                               "choose one by its key, several as \"" + found[0].path + ',' + found[1].path +
                                   "\", or all as \"*\" (--key, or ReadOptions::key)");
    }
    const auto one_of = [&](std::string_view wanted) -> std::optional<Choice> {
        if (wanted == "*") { return Choice{".", {top}, false}; }
        const auto candidate =
            std::find_if(found.begin(), found.end(), [&](const Choice& each) { return each.path == wanted; });
        return candidate != found.end() ? std::optional{*candidate} : follow(wanted);
    };
    if (const auto whole = one_of(key)) { return std::vector<Choice>{*whole}; }
    std::vector<Choice> out;
    for (std::size_t from = 0; from <= key.size();) {
        const std::size_t end = (std::min)(key.find(',', from), key.size());
        const std::string part = key.substr(from, end - from);
        auto choice = one_of(part);
        if (!choice || part.empty()) {
            return pickle_->refuse("the key " + shown(part) + " leads to no tensors", TorchPickle::none,
                                   "give one or more of the keys " + named + ", or \"*\"");
        }
        out.push_back(std::move(*choice));
        from = end + 1;
    }
    return out;
}

RESIDENCY_INLINE Error TorchTree::nothing_to_read() const {
    const Id top = pickle_->top();
    if (pickle_->is_tensor(top)) {
        return pickle_->refuse("a tensor and not a dictionary of tensors by name", top, "save {\"name\": tensor}");
    }
    if (!pickle_->is_dictionary(top)) {
        return pickle_->refuse(std::string{pickle_->kind_of(top)} + " without tensors", top);
    }
    std::string names;
    constexpr std::size_t most_names = 6;
    std::size_t count = 0;
    for (const Child& child : pickle_->children(top)) {
        const std::string* text = pickle_->text(child.key);
        if (text == nullptr || count == most_names) { continue; }
        names += (count++ == 0 ? "" : ", ") + shown(std::string_view{*text}.substr(0, 40));
    }
    return pickle_->refuse("a dictionary without tensors" + (names.empty() ? std::string{} : ", of " + names),
                           TorchPickle::none, "give the file that holds the model's state_dict()");
}

RESIDENCY_INLINE Status TorchTree::collect(Id id, const std::string& path, bool is_object, bool leaves_dictionaries) {
    if (open_.size() == deepest_torch_container) {
        return pickle_->refuse("tensors in more than " + std::to_string(deepest_torch_container) +
                               " containers inside each other");
    }
    const auto children = pickle_->children(id);
    if (children.size() > children_left_) {
        return pickle_->broken("tensors that are mentioned more often than the pickle has bytes");
    }
    children_left_ -= children.size();
    is_object = is_object || pickle_->is_object(id);
    open_.push_back(id);
    for (std::size_t i = 0; i < children.size(); ++i) {
        const Child& child = children[i];
        const bool is_nameless = child.key == TorchPickle::no_name;
        if (counts_[child.value].all == 0 && is_object) { continue; }
        if (pickle_->is_container(child.value) && std::find(open_.begin(), open_.end(), child.value) != open_.end()) {
            continue;
        }
        if (is_nameless) {
            if (Status read = collect(child.value, path, is_object, leaves_dictionaries); !read) { return read; }
            continue;
        }
        const auto own_name = name_of(child, i);
        const std::string name = joined(path, own_name ? *own_name : label_of(child));
        if (counts_[child.value].all == 0 || pickle_->is_tensor(child.value)) {
            if (name.size() > name_bytes_left_) { return pickle_->broken("names that are longer than the pickle"); }
            name_bytes_left_ -= name.size();
        }
        if (counts_[child.value].all == 0) {
            if (own_name) {
                if (Status unique = take_name(name, "entry "); !unique) { return unique; }
            }
            pass_over(name, child.value);
            continue;
        }
        if (leaves_dictionaries && pickle_->is_dictionary(child.value)) {
            if (!chosen_.contains(child.value) && !leading_.contains(child.value)) { pass_over(name, child.value); }
            continue;
        }
        if (!own_name) {
            return pickle_->refuse("a tensor whose key is no text", TorchPickle::none,
                                   "save a dictionary of tensors by name");
        }
        if (Status read = pickle_->is_tensor(child.value) ? add(child.value, name)
                                                          : collect(child.value, name, false, leaves_dictionaries);
            !read) {
            return read;
        }
    }
    open_.pop_back();
    return {};
}

RESIDENCY_INLINE Status TorchTree::take_name(const std::string& name, const char* what) {
    return names_.insert(name).second ? Status{} : Status{pickle_->broken(what + shown(name) + " is given twice")};
}

RESIDENCY_INLINE Status TorchTree::add(Id id, const std::string& name) {
    if (Status unique = take_name(name, "tensor "); !unique) { return unique; }
    auto tensor = pickle_->tensor(id);
    if (!tensor) { return tensor.error().in("tensor " + shown(name)); }
    if (tensor->shape.size() > axes_left_) { return pickle_->broken("more axes than the pickle has bytes"); }
    axes_left_ -= tensor->shape.size();
    out_.tensors.push_back({name, std::move(*tensor)});
    return {};
}

RESIDENCY_INLINE void TorchTree::pass_over_beside(Id id, const std::string& path) {
    if (chosen_.contains(id) || leading_.erase(id) == 0) { return; }
    const auto children = pickle_->children(id);
    for (std::size_t i = 0; i < children.size(); ++i) {
        const Id value = children[i].value;
        const auto own_name = name_of(children[i], i);
        const std::string name =
            children[i].key == TorchPickle::no_name ? path : joined(path, own_name ? *own_name : label_of(children[i]));
        if (leading_.contains(value)) {
            pass_over_beside(value, name);
        } else if (!chosen_.contains(value) && (counts_[value].all != 0 || !pickle_->is_object(id))) {
            pass_over(name, value);
        }
    }
}

RESIDENCY_INLINE void TorchTree::pass_over(const std::string& name, Id id) {
    const std::uint64_t tensors = counts_[id].all;
    if (tensors == 0) {
        without_tensors_.push_back({name, "it is no tensor"});
    } else {
        out_.passed_over.push_back({name, pickle_->is_tensor(id)
                                              ? std::string{"it is a tensor beside those that the key leads to"}
                                              : "it holds " + tensors_text(tensors) + " in " + pickle_->kind_of(id) +
                                                    "; give its key to read " + (tensors == 1 ? "it" : "them")});
    }
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

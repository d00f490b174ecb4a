// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "residency/codec/checksum.hpp"
#include "residency/config.hpp"
#include "residency/format/equal_storages.hpp"
#include "residency/format/input.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/model/number.hpp"
#include "residency/model/stable_hash.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// Finds storages of equal contents: by size, then by hash, then by comparing. Several threads read, until one fails.
class EqualStorages {
public:
    using Groups = std::vector<std::vector<std::uint32_t>>;  // of storages

    EqualStorages(const ModelFile& model, const EqualStoragesOptions& options) : model_{model}, options_{options} {}

    [[nodiscard]] Result<Groups> find() {
        if (Status opened = open_files(); !opened) { return opened.error(); }
        const std::vector<std::uint32_t> candidates = of_equal_size();
        const std::vector<std::uint64_t> hashes = hash_all(candidates);
        if (error_) { return *error_; }
        const Groups groups = of_equal_hash(candidates, hashes);
        Groups equal = compare_all(groups);
        if (error_) { return *error_; }
        for (const Input& input : inputs_) {
            if (Status unchanged = input.check(); !unchanged) { return unchanged.error(); }
        }
        std::sort(equal.begin(), equal.end());
        return equal;
    }

private:
    static constexpr std::uint64_t block = std::uint64_t{4} << 20;

    [[nodiscard]] Status open_files() {
        for (const SourceFile& file : model_.files) {
            auto input = Input::try_open(file);
            if (!input) { return input.error(); }
            if (Status same = input->check(file); !same) { return same; }
            inputs_.push_back(std::move(*input));
        }
        return {};
    }
    /// The storages that have the size of another one. Counts their bytes.
    [[nodiscard]] std::vector<std::uint32_t> of_equal_size() {
        std::map<std::uint64_t, std::vector<std::uint32_t>> by_size;
        for (std::uint32_t i = 0; i < model_.storages.size(); ++i) {
            const auto& storage = model_.storages[i];
            if (storage.bytes != 0 && !storage.is_mutable) { by_size[storage.bytes].push_back(i); }
        }
        std::vector<std::uint32_t> candidates;
        for (const auto& [bytes, group] : by_size) {
            if (group.size() < 2) { continue; }
            candidates.insert(candidates.end(), group.begin(), group.end());
            total_bytes_ += bytes * group.size();
        }
        return candidates;
    }
    [[nodiscard]] std::vector<std::uint64_t> hash_all(const std::vector<std::uint32_t>& candidates) {
        std::vector<std::uint64_t> hashes(candidates.size());
        in_parallel(candidates.size(), [&](std::size_t c) {
            const auto& storage = model_.storages[candidates[c]];
            std::vector<std::byte> buffer(static_cast<std::size_t>((std::min)(block, storage.bytes)));
            StableHash hash;  // of the checksums of blocks
            for (std::uint64_t at = 0; at < storage.bytes && !stop_; at += block) {
                const auto part =
                    std::span{buffer}.first(static_cast<std::size_t>((std::min)(block, storage.bytes - at)));
                if (!read(storage, at, part)) { return; }
                hash.u64(codec::checksum(part));
                advance(part.size());
            }
            hashes[c] = hash.value();
        });
        return hashes;
    }
    [[nodiscard]] Groups of_equal_hash(const std::vector<std::uint32_t>& candidates,
                                       const std::vector<std::uint64_t>& hashes) const {
        std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::uint32_t>> by_hash;
        for (std::size_t c = 0; c < candidates.size(); ++c) {
            by_hash[{model_.storages[candidates[c]].bytes, hashes[c]}].push_back(candidates[c]);
        }
        Groups groups;
        for (auto& [key, group] : by_hash) {
            if (group.size() >= 2) { groups.push_back(std::move(group)); }
        }
        return groups;
    }
    /// Equal hashes are a guess: compares each with the first of its group, and leaves out what differs.
    [[nodiscard]] Groups compare_all(const Groups& groups) {
        std::vector<std::pair<std::size_t, std::size_t>> pairs;
        for (std::size_t g = 0; g < groups.size(); ++g) {
            for (std::size_t k = 1; k < groups[g].size(); ++k) { pairs.emplace_back(g, k); }
        }
        std::vector<std::uint8_t> same(pairs.size(), 0);
        in_parallel(pairs.size(), [&](std::size_t p) {
            const auto& group = groups[pairs[p].first];
            const auto& first = model_.storages[group[0]];
            same[p] = are_equal(first, model_.storages[group[pairs[p].second]]) ? 1 : 0;
        });
        Groups equal(groups.size());
        for (std::size_t g = 0; g < groups.size(); ++g) { equal[g].push_back(groups[g][0]); }
        for (std::size_t p = 0; p < pairs.size(); ++p) {
            if (same[p] != 0) { equal[pairs[p].first].push_back(groups[pairs[p].first][pairs[p].second]); }
        }
        std::erase_if(equal, [](const auto& group) { return group.size() < 2; });
        return equal;
    }
    /// Whether two storages of the same size have the same bytes. False too where all stops.
    [[nodiscard]] bool are_equal(const ModelFile::StorageEntry& first, const ModelFile::StorageEntry& second) {
        const std::size_t bytes = static_cast<std::size_t>((std::min)(block, first.bytes));
        std::vector<std::byte> one(bytes);
        std::vector<std::byte> other(bytes);
        for (std::uint64_t at = 0; at < first.bytes; at += block) {
            const auto count = static_cast<std::size_t>((std::min)(block, first.bytes - at));
            if (stop_ || !read(first, at, std::span{one}.first(count)) ||
                !read(second, at, std::span{other}.first(count)) || std::memcmp(one.data(), other.data(), count) != 0) {
                return false;
            }
        }
        return true;
    }

    /// Works through `count` items in several threads, until one fails.
    template <class Work>
    void in_parallel(std::size_t count, const Work& work) {
        std::atomic<std::size_t> next = 0;
        const auto loop = [&] {
            for (std::size_t i = next.fetch_add(1); i < count && !stop_; i = next.fetch_add(1)) { work(i); }
        };
        const std::size_t wanted = host::detail::threads_of(options_.threads);
        host::ThreadGroup others;
        // Without them this one does it all.
        static_cast<void>(
            others.try_start_some((std::max<std::size_t>)((std::min)(wanted, count), 1) - 1, loop).has_value());
        loop();
        others.join();
    }
    /// Any thread. False: it failed, and all stops.
    [[nodiscard]] bool read(const ModelFile::StorageEntry& storage, std::uint64_t at, std::span<std::byte> out) {
        if (Status done = inputs_[storage.file].try_read(storage.offset_bytes + at, out); !done) {
            const std::lock_guard lock{mutex_};
            if (!error_) { error_ = done.error(); }
            stop_ = true;
            return false;
        }
        return true;
    }
    /// Any thread. Counts bytes that were read; stops where the caller cancels.
    void advance(std::uint64_t bytes) {
        const std::uint64_t now = read_bytes_.fetch_add(bytes) + bytes;
        if (!options_.progress) { return; }
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (lock && !stop_ && !options_.progress(now, total_bytes_)) {
            error_ = Error{ErrorKind::cancelled, "cancelled after " + residency::detail::in_bytes(now)};
            stop_ = true;
        }
    }

    const ModelFile& model_;
    const EqualStoragesOptions& options_;
    std::vector<Input> inputs_;      // by file of the model
    std::uint64_t total_bytes_ = 0;  // of the storages that are hashed
    std::atomic<std::uint64_t> read_bytes_ = 0;
    std::mutex mutex_;
    std::optional<Error> error_;  // the first; under mutex_ while threads run
    std::atomic<bool> stop_ = false;
};

}  // namespace detail

RESIDENCY_INLINE Result<std::vector<std::vector<std::uint32_t>>> try_find_equal_storages(
    const ModelFile& model, const EqualStoragesOptions& options) {
    for (const ModelFile::StorageEntry& storage : model.storages) {
        if (storage.parts != nullptr) {
            return Error{ErrorKind::unsupported,
                         "the model is packed: look for equal contents in the model that it was made from"};
        }
    }
    return detail::EqualStorages{model, options}.find();
}

RESIDENCY_INLINE ModelFile merge_storages(const ModelFile& model, std::span<const std::vector<std::uint32_t>> groups) {
    std::vector<std::uint32_t> stands_for(model.storages.size());
    for (std::uint32_t i = 0; i < stands_for.size(); ++i) { stands_for[i] = i; }
    for (const auto& group : groups) {
        for (const std::uint32_t storage : group) { stands_for[storage] = group.front(); }
    }
    ModelFile merged = model;
    merged.storages.clear();
    std::vector<std::uint32_t> number(model.storages.size(), 0);
    for (std::uint32_t i = 0; i < stands_for.size(); ++i) {
        if (stands_for[i] != i) { continue; }
        number[i] = static_cast<std::uint32_t>(merged.storages.size());
        merged.storages.push_back(model.storages[i]);
    }
    for (auto& weight : merged.weights) { weight.storage = number[stands_for[weight.storage]]; }
    return merged;
}

}}}  // namespace residency::RESIDENCY_ABI::format

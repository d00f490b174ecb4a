// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/equal_storages.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/host/thread_group.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// A hash of contents: four lanes of words, multiplied and rotated. Any change of one word changes it. For grouping only: contents with
/// the same hash are compared.
class ContentHash {
public:
    void add(std::span<const std::byte> bytes) noexcept {
        constexpr std::uint64_t factor = 0x9E3779B97F4A7C15U;
        while (bytes.size() >= 32) {
            std::array<std::uint64_t, 4> words;
            std::memcpy(words.data(), bytes.data(), 32);
            for (std::size_t lane = 0; lane < 4; ++lane) {
                lanes_[lane] = std::rotl((lanes_[lane] ^ words[lane]) * factor, 29);
            }
            bytes = bytes.subspan(32);
        }
        for (const std::byte byte : bytes) {
            lanes_[0] = std::rotl((lanes_[0] ^ std::to_integer<std::uint64_t>(byte)) * factor, 29);
        }
    }
    [[nodiscard]] std::uint64_t value() const noexcept {
        std::uint64_t value = 0;
        for (const std::uint64_t lane : lanes_) { value = std::rotl(value, 17) * 0xD6E8FEB86659FD93U ^ lane; }
        return value;
    }

private:
    std::array<std::uint64_t, 4> lanes_{1, 2, 3, 4};
};

}  // namespace detail

RESIDENCY_INLINE Result<std::vector<std::vector<std::uint32_t>>> try_find_equal_storages(
    const ModelFile& model, const EqualStoragesOptions& options) {
    constexpr std::uint64_t block = std::uint64_t{4} << 20;
    for (const ModelFile::StorageEntry& storage : model.storages) {
        if (storage.parts != nullptr) {
            return Error{ErrorKind::unsupported,
                         "the model is packed: look for equal contents in the model that it was made from"};
        }
    }
    std::vector<Input> inputs;
    for (const SourceFile& file : model.files) {
        auto input = Input::try_open(file);
        if (!input) { return input.error(); }
        if (Status same = input->check(file); !same) { return same.error(); }
        inputs.push_back(std::move(*input));
    }
    std::map<std::uint64_t, std::vector<std::uint32_t>> by_size;
    for (std::uint32_t i = 0; i < model.storages.size(); ++i) {
        const auto& storage = model.storages[i];
        if (storage.bytes != 0 && !storage.is_mutable) { by_size[storage.bytes].push_back(i); }
    }
    std::vector<std::uint32_t> candidates;
    std::uint64_t total = 0;
    for (const auto& [bytes, group] : by_size) {
        if (group.size() < 2) { continue; }
        candidates.insert(candidates.end(), group.begin(), group.end());
        total += bytes * group.size();
    }

    // Works through `count` items in several threads, until one fails.
    std::atomic<std::uint64_t> read_bytes = 0;
    std::mutex mutex;
    std::optional<Error> error;
    std::atomic<bool> stop = false;
    const auto fail = [&](const Error& what) {
        const std::lock_guard lock{mutex};
        if (!error) { error = what; }
        stop = true;
    };
    const auto read = [&](const ModelFile::StorageEntry& storage, std::uint64_t at, std::span<std::byte> out) {
        if (Status done = inputs[storage.file].try_read(storage.offset_bytes + at, out); !done) {
            fail(done.error());
            return false;
        }
        return true;
    };
    const auto advance = [&](std::uint64_t bytes) {
        const std::uint64_t now = read_bytes.fetch_add(bytes) + bytes;
        if (!options.progress) { return; }
        const std::unique_lock lock{mutex, std::try_to_lock};
        if (lock && !stop && !options.progress(now, total)) {
            error = Error{ErrorKind::cancelled, "cancelled after " + std::to_string(now) + " bytes"};
            stop = true;
        }
    };
    const auto in_parallel = [&](std::size_t count, const auto& work) {
        std::atomic<std::size_t> next = 0;
        const auto loop = [&] {
            for (std::size_t i = next.fetch_add(1); i < count && !stop; i = next.fetch_add(1)) { work(i); }
        };
        const unsigned machine = (std::max)(1U, std::thread::hardware_concurrency());
        const std::size_t wanted = options.threads != 0 ? options.threads : (std::min)(8U, machine);
        host::ThreadGroup others;
        // Without them this one does it all.
        static_cast<void>(
            others.try_start_some((std::max<std::size_t>)((std::min)(wanted, count), 1) - 1, loop).has_value());
        loop();
        others.join();
    };

    std::vector<std::uint64_t> hashes(candidates.size());
    in_parallel(candidates.size(), [&](std::size_t c) {
        const auto& storage = model.storages[candidates[c]];
        std::vector<std::byte> buffer(static_cast<std::size_t>((std::min)(block, storage.bytes)));
        detail::ContentHash hash;
        for (std::uint64_t at = 0; at < storage.bytes && !stop; at += block) {
            const auto part = std::span{buffer}.first(static_cast<std::size_t>((std::min)(block, storage.bytes - at)));
            if (!read(storage, at, part)) { return; }
            hash.add(part);
            advance(part.size());
        }
        hashes[c] = hash.value();
    });
    if (error) { return *error; }

    std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::uint32_t>> by_hash;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
        by_hash[{model.storages[candidates[c]].bytes, hashes[c]}].push_back(candidates[c]);
    }
    std::vector<std::vector<std::uint32_t>> groups;
    for (auto& [key, group] : by_hash) {
        if (group.size() >= 2) { groups.push_back(std::move(group)); }
    }
    // Equal hashes are a guess: compare each with the first of its group, and leave out what differs.
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        for (std::size_t k = 1; k < groups[g].size(); ++k) { pairs.emplace_back(g, k); }
    }
    std::vector<std::uint8_t> same(pairs.size(), 0);
    in_parallel(pairs.size(), [&](std::size_t p) {
        const auto& first = model.storages[groups[pairs[p].first][0]];
        const auto& second = model.storages[groups[pairs[p].first][pairs[p].second]];
        const std::size_t bytes = static_cast<std::size_t>((std::min)(block, first.bytes));
        std::vector<std::byte> one(bytes);
        std::vector<std::byte> other(bytes);
        for (std::uint64_t at = 0; at < first.bytes; at += block) {
            const auto count = static_cast<std::size_t>((std::min)(block, first.bytes - at));
            if (stop || !read(first, at, std::span{one}.first(count)) ||
                !read(second, at, std::span{other}.first(count)) || std::memcmp(one.data(), other.data(), count) != 0) {
                return;
            }
        }
        same[p] = 1;
    });
    if (error) { return *error; }
    for (const Input& input : inputs) {
        if (Status unchanged = input.check(); !unchanged) { return unchanged.error(); }
    }
    std::vector<std::vector<std::uint32_t>> equal(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) { equal[g].push_back(groups[g][0]); }
    for (std::size_t p = 0; p < pairs.size(); ++p) {
        if (same[p] != 0) { equal[pairs[p].first].push_back(groups[pairs[p].first][pairs[p].second]); }
    }
    std::erase_if(equal, [](const auto& group) { return group.size() < 2; });
    std::sort(equal.begin(), equal.end());
    return equal;
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

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "benchmarks/lab/trace/trace.hpp"
#include "residency/model/ids.hpp"

namespace lab::trace {

using namespace residency;

/// Gives the objects of a foreign trace dense ids. An object that comes with another size is another storage from then on.
template <class Key>
class ObjectTable {
public:
    explicit ObjectTable(Trace& trace) : trace_{trace} {}

    [[nodiscard]] StorageId id_of(Key key, std::uint64_t bytes) {
        const auto next = static_cast<std::uint32_t>(trace_.bytes.size());
        const auto [found, is_new] = ids_.try_emplace({std::move(key), bytes}, StorageId{next});
        if (is_new) { trace_.bytes.push_back(bytes); }
        return found->second;
    }

private:
    struct Hash {
        std::size_t operator()(const std::pair<Key, std::uint64_t>& object) const noexcept {
            return std::hash<Key>{}(object.first) * 0x9E3779B97F4A7C15U + std::hash<std::uint64_t>{}(object.second);
        }
    };
    Trace& trace_;
    std::unordered_map<std::pair<Key, std::uint64_t>, StorageId, Hash> ids_;
};

}  // namespace lab::trace

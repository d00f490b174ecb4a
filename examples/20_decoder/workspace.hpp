// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint.hpp"
#include "kv_cache.hpp"
#include "llama.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace decoder {

/// What every run of a model needs beside weights and cache: the activations of the longest pass, and tables. Outside of the budget.
template <class Backend>
struct Workspace {
    Activations activations;
    Cache cache;
    std::uint64_t device_bytes = 0;

    /// For passes of up to `tokens` tokens in texts of up to `positions` positions. `packed`: weights may be packed as kernels read them.
    Workspace(Backend& backend, const Checkpoint& model, std::uint32_t tokens, std::uint32_t positions, bool packed)
        : cache{KvCache<typename Backend::Device>::shape(backend.device(), model.config)}, backend_{backend} {
        const Config& c = model.config;
        device_bytes = backend.scratch_bytes();
        Activations& a = activations;
        const std::uint64_t rows = tokens;
        for (Bf16** each : {&a.state, &a.normed}) { *each = device<Bf16>(rows * c.hidden); }
        for (Bf16** each : {&a.query, &a.context}) { *each = device<Bf16>(rows * c.heads * c.width); }
        for (Bf16** each : {&a.key, &a.value}) { *each = device<Bf16>(rows * c.cache_heads * c.width); }
        for (Bf16** each : {&a.gate, &a.up}) { *each = device<Bf16>(rows * c.inner); }
        if (packed && tokens > most_direct_tokens) {
            a.unpacked = device<Bf16>(std::uint64_t{c.hidden} * (std::max)(c.inner, c.heads * c.width));
        }
        a.logits = device<float>(c.words);
        a.partial = device<float>(partial_floats(c.heads, c.width, positions));
        const std::uint32_t blocks = KvCache<typename Backend::Device>::blocks(cache, positions);
        a.host = {backend.memory().template pinned<std::uint64_t>(1 + blocks + rows), blocks};
        a.control = {device<std::uint64_t>(1 + blocks + rows), blocks};
        a.next = backend.memory().template pinned<std::uint64_t>(1);
        result_ = backend.memory().template pinned<float>(c.words);

        const std::uint64_t angles = std::uint64_t{positions} * c.width / 2;
        Bf16* const tables = device<Bf16>(2 * angles);
        upload_angles(c, positions, tables);
        a.cosines = tables;
        a.sines = tables + angles;
    }

    /// Rows of the embedding table come from the loaded model from now on, which outlives their use.
    void use_table(const Checkpoint& model) {
        use_table(model.table_catalog().host_bytes(model.words().storage) + model.words().offset_bytes);
    }
    void use_table(const std::byte* table) {
        activations.table = static_cast<const Bf16*>(residency::unwrap(backend_.device().device_view(table)));
    }
    /// The logits of the last pass. Blocks.
    [[nodiscard]] std::vector<float> logits(const Config& config) const {
        backend_.memory().copy(activations.logits, result_, config.words, backend_.stream());
        return {result_, result_ + config.words};
    }

private:
    template <class T>
    [[nodiscard]] T* device(std::uint64_t count) {
        device_bytes += count * sizeof(T);
        return backend_.memory().template on_device<T>(count);
    }
    void upload_angles(const Config& config, std::uint32_t positions, Bf16* to) {
        const std::vector<float> frequencies = config.frequencies();
        const std::uint64_t half = frequencies.size(), angles = positions * half;
        Bf16* const tables = backend_.memory().template pinned<Bf16>(2 * angles);
        for (std::uint32_t position = 0; position < positions; ++position) {
            for (std::uint64_t i = 0; i < half; ++i) {
                const float angle = float(position) * frequencies[i];
                tables[position * half + i] = to_bf16(std::cos(angle));
                tables[angles + position * half + i] = to_bf16(std::sin(angle));
            }
        }
        backend_.memory().copy(tables, to, 2 * angles, backend_.stream());
    }

    Backend& backend_;
    float* result_ = nullptr;  ///< pinned
};

}  // namespace decoder

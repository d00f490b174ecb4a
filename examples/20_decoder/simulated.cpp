// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "simulated.hpp"

#include <bit>
namespace decoder {

using examples::range;

namespace {

/// The cache's rows of a layer, of all positions of the blocks that there are now.
void declare_cache(const Control& control, const Cache& cache, std::uint32_t layer,
                   residency::simulation::ByteRanges& to) {
    for (std::uint64_t i = 0; i < control.blocks && control.block(i) != 0; ++i) {
        const auto* block = std::bit_cast<const Bf16*>(control.block(i));
        to.push_back(range(block + cache.offset(layer, 0, 0, 0), cache.offset(1, 0, 0, 0)));
    }
}

residency::SimulatedDevice::Config device_for(std::uint64_t weight_bytes) {
    residency::SimulatedDevice::Config config;
    if (weight_bytes < std::uint64_t{64} << 20U) {
        config.allocation_granularity = config.chunk_granularity = 4096;
        config.pool_granularity = 16384;
    }
    return config;
}

}  // namespace

Simulated::Simulated(std::uint64_t weight_bytes) : examples::SimulatedBackend{device_for(weight_bytes)} {}

void Simulated::share(const residency::HostBytes& bytes) {
    residency::unwrap(device().pin(const_cast<std::byte*>(bytes.data()), bytes.bytes()));
}
void Simulated::unshare(const residency::HostBytes& bytes) noexcept {
    static_cast<void>(device().unpin(const_cast<std::byte*>(bytes.data())).has_value());
}
void Simulated::wait() {
    residency::unwrap(device().synchronize(stream()));
    rank_.check();
}

void declare(const Upload& o, Kernel& kernel) {
    kernel.reads = {range(o.from.words, o.from.count(o.tokens))};
    kernel.writes = {range(o.to.words, o.to.count(o.tokens))};
}
void declare(const Embed& o, Kernel& kernel) {
    kernel.reads = {range(o.control.words, o.control.count(o.tokens)), range(o.table, o.hidden)};
    kernel.writes = {range(o.out, std::uint64_t{o.tokens} * o.hidden)};
}
void declare(const Normalise& o, Kernel& kernel) {
    const std::uint64_t count = std::uint64_t{o.rows} * o.width;
    kernel.reads = {range(o.in, count), range(o.scale, o.width)};
    kernel.writes = {range(o.out, count)};
}
void declare(const Unpack& o, Kernel& kernel) {
    kernel.reads = {range(o.matrix.data, o.matrix.bytes)};
    kernel.writes = {range(o.out, std::uint64_t{o.rows} * o.columns)};
}
void declare(const Linear& o, Kernel& kernel) {
    kernel.reads = {range(o.in, std::uint64_t{o.tokens} * o.from), o.packed.data != nullptr
                                                                       ? range(o.packed.data, o.packed.bytes)
                                                                       : range(o.weight, std::uint64_t{o.from} * o.to)};
    if (o.bias != nullptr) { kernel.reads.push_back(range(o.bias, o.to)); }
    const std::uint64_t count = std::uint64_t{o.tokens} * o.to;
    kernel.writes = {o.logits != nullptr ? range(o.logits, count) : range(o.out, count)};
}
void declare(const Rotate& o, Kernel& kernel) {
    const std::uint64_t queries = std::uint64_t{o.tokens} * o.heads * o.cache.width;
    const std::uint64_t keys = std::uint64_t{o.tokens} * o.cache.heads * o.cache.width;
    kernel.reads = {range(o.query, queries), range(o.key, keys), range(o.value, keys),
                    range(o.control.words, o.control.count(0))};
    kernel.writes = {range(o.query, queries)};
    declare_cache(o.host, o.cache, o.layer, kernel.writes);
}
void declare(const Attend& o, Kernel& kernel) {
    const std::uint64_t count = std::uint64_t{o.tokens} * o.heads * o.cache.width;
    kernel.reads = {range(o.query, count), range(o.control.words, o.control.count(0))};
    declare_cache(o.host, o.cache, o.layer, kernel.reads);
    kernel.writes = {range(o.out, count)};
}
void declare(const Sum& o, Kernel& kernel) {
    kernel.reads = {range(o.data, o.count)};
    kernel.writes = {range(o.data, o.count)};
}
void declare(const Gather& o, Kernel& kernel) {
    kernel.reads = {range(o.logits + o.rank * o.count, o.count)};
    kernel.writes = {range(o.logits, o.of * o.count)};
}
void declare(const Add& o, Kernel& kernel) {
    kernel.reads = {range(o.in, o.count), range(o.state, o.count)};
    kernel.writes = {range(o.state, o.count)};
}
void declare(const Gate& o, Kernel& kernel) {
    kernel.reads = {range(o.gate, o.count), range(o.up, o.count)};
    kernel.writes = {range(o.gate, o.count)};
}
void declare(const Choose& o, Kernel& kernel) {
    kernel.reads = {range(o.logits, o.words)};
    kernel.writes = {range(o.out, 1)};
}

}  // namespace decoder

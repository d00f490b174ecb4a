// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "simulated.hpp"

#include <bit>

#include "residency/trace/perfetto.hpp"
#include "run.hpp"

namespace decoder {
namespace {

using Range = residency::simulation::ByteRange;
using Device = residency::SimulatedDevice;

template <class T>
Range range(const T* at, std::uint64_t count) {
    return {at, count * sizeof(T)};
}
/// The cache's rows of a layer, of all positions of the blocks that there are now.
void declare_cache(const Control& control, const Cache& cache, std::uint32_t layer,
                   residency::simulation::ByteRanges& to) {
    for (std::uint64_t i = 0; i < control.blocks && control.block(i) != 0; ++i) {
        const auto* block = std::bit_cast<const Bf16*>(control.block(i));
        to.push_back(range(block + cache.offset(layer, 0, 0, 0), cache.offset(1, 0, 0, 0)));
    }
}
Device::Config device_for(std::uint64_t weight_bytes) {
    Device::Config config;
    if (weight_bytes < std::uint64_t{64} << 20U) {
        config.allocation_granularity = config.chunk_granularity = 4096;
        config.pool_granularity = 16384;
    }
    return config;
}

}  // namespace

SimulatedBackend::SimulatedBackend(std::uint64_t weight_bytes)
    : device_{device_for(weight_bytes)}, stream_{residency::unwrap(device_.create_stream("compute"))} {
    device_.observe([this](const Device::ExecutedOperation& operation) {
        using Kind = residency::simulation::OperationKind;
        if (recording_ && (operation.kind == Kind::kernel || operation.kind == Kind::copy_to_device ||
                           operation.kind == Kind::copy_to_host)) {
            operations_.push_back(operation);
        }
    });
}
SimulatedBackend::~SimulatedBackend() {
    static_cast<void>(device_.synchronize().has_value());
    for (void* at : memory_) { static_cast<void>(device_.deallocate(at).has_value()); }
    for (void* at : pinned_) { static_cast<void>(device_.deallocate_host(at).has_value()); }
}

void SimulatedBackend::begin_timeline() {
    operations_.clear();
    recording_ = true;
}
void SimulatedBackend::end_timeline() { recording_ = false; }
std::string SimulatedBackend::save_timeline(const std::string& path) const {
    residency::trace::Perfetto timeline;
    for (const auto& operation : operations_) {
        timeline.event(operation.stream_name, operation.name, std::chrono::nanoseconds{operation.start_ns},
                       std::chrono::nanoseconds{operation.end_ns}, operation.bytes);
    }
    timeline.save(path);
    return "copies and kernels of the last step, on the virtual clock";
}
std::vector<std::string> SimulatedBackend::reports() const {
    std::vector<std::string> texts;
    for (const auto& report : device_.reports()) { texts.push_back(report.text); }
    return texts;
}

void SimulatedBackend::declare(const Upload& o, Device::Kernel& kernel) {
    kernel.reads = {range(o.from.words, o.from.count(o.tokens))};
    kernel.writes = {range(o.to.words, o.to.count(o.tokens))};
}
void SimulatedBackend::declare(const Embed& o, Device::Kernel& kernel) {
    kernel.reads = {range(o.control.words, o.control.count(o.tokens)), range(o.table, o.hidden)};
    kernel.writes = {range(o.out, std::uint64_t{o.tokens} * o.hidden)};
}
void SimulatedBackend::declare(const Normalise& o, Device::Kernel& kernel) {
    const std::uint64_t count = std::uint64_t{o.rows} * o.width;
    kernel.reads = {range(o.in, count), range(o.scale, o.width)};
    kernel.writes = {range(o.out, count)};
}
void SimulatedBackend::declare(const Linear& o, Device::Kernel& kernel) {
    kernel.reads = {range(o.in, std::uint64_t{o.tokens} * o.from), range(o.weight, std::uint64_t{o.from} * o.to)};
    if (o.bias != nullptr) { kernel.reads.push_back(range(o.bias, o.to)); }
    const std::uint64_t count = std::uint64_t{o.tokens} * o.to;
    kernel.writes = {o.logits != nullptr ? range(o.logits, count) : range(o.out, count)};
}
void SimulatedBackend::declare(const Rotate& o, Device::Kernel& kernel) {
    const std::uint64_t queries = std::uint64_t{o.tokens} * o.heads * o.cache.width;
    const std::uint64_t keys = std::uint64_t{o.tokens} * o.cache.heads * o.cache.width;
    kernel.reads = {range(o.query, queries), range(o.key, keys), range(o.value, keys),
                    range(o.control.words, o.control.count(0))};
    kernel.writes = {range(o.query, queries)};
    declare_cache(o.host, o.cache, o.layer, kernel.writes);
}
void SimulatedBackend::declare(const Attend& o, Device::Kernel& kernel) {
    const std::uint64_t count = std::uint64_t{o.tokens} * o.heads * o.cache.width;
    kernel.reads = {range(o.query, count), range(o.control.words, o.control.count(0))};
    declare_cache(o.host, o.cache, o.layer, kernel.reads);
    kernel.writes = {range(o.out, count)};
}
void SimulatedBackend::declare(const Add& o, Device::Kernel& kernel) {
    kernel.reads = {range(o.in, o.count), range(o.state, o.count)};
    kernel.writes = {range(o.state, o.count)};
}
void SimulatedBackend::declare(const Gate& o, Device::Kernel& kernel) {
    kernel.reads = {range(o.gate, o.count), range(o.up, o.count)};
    kernel.writes = {range(o.gate, o.count)};
}
void SimulatedBackend::declare(const Choose& o, Device::Kernel& kernel) {
    kernel.reads = {range(o.logits, o.words)};
    kernel.writes = {range(o.out, 1)};
}

Results run_simulated(const Job& job, const Checkpoint& model) {
    SimulatedBackend backend{model.catalog.streamed_bytes()};
    return run_all(backend, job, model);
}

}  // namespace decoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "simulated.hpp"

#include "residency/residency.hpp"
#include "residency/trace/perfetto.hpp"
#include "run.hpp"

namespace encoder {
namespace {

using Range = residency::simulation::ByteRange;

Range floats(const float* at, std::size_t count) { return {at, count * sizeof(float)}; }
Range integers(const std::int32_t* at, std::size_t count) { return {at, count * sizeof(std::int32_t)}; }

}  // namespace

SimulatedBackend::SimulatedBackend() : stream_{residency::unwrap(device_.create_stream("compute"))} {
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

void SimulatedBackend::read_back(const float* from, float* to, std::size_t count) {
    const residency::Copy copy{to, from, count * sizeof(float)};
    residency::unwrap(device_.copy({&copy, 1}, stream_));
    residency::unwrap(device_.synchronize(stream_));
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
    return "copies and kernels of the last streamed pass, on the virtual clock";
}
std::vector<std::string> SimulatedBackend::reports() const {
    std::vector<std::string> texts;
    for (const auto& report : device_.reports()) { texts.push_back(report.text); }
    return texts;
}

void SimulatedBackend::declare(const Embed& o, Device::Kernel& kernel) {
    kernel.reads = {integers(o.ids, o.tokens), integers(o.positions, o.tokens), floats(o.segments, o.hidden),
                    floats(o.scale, o.hidden)};
    kernel.reads.push_back(floats(o.shift, o.hidden));
    for (std::uint32_t t = 0; t < o.tokens; ++t) {
        kernel.reads.push_back(floats(o.words + std::size_t(o.ids[t]) * o.hidden, o.hidden));
        kernel.reads.push_back(floats(o.places + std::size_t(o.positions[t]) * o.hidden, o.hidden));
    }
    kernel.writes = {floats(o.out, std::size_t{o.tokens} * o.hidden)};
}
void SimulatedBackend::declare(const Linear& o, Device::Kernel& kernel) {
    kernel.reads = {floats(o.in, std::size_t{o.tokens} * o.from), floats(o.weight, std::size_t{o.from} * o.to),
                    floats(o.bias, o.to)};
    kernel.writes = {floats(o.out, std::size_t{o.tokens} * o.to)};
}
void SimulatedBackend::declare(const Attention& o, Device::Kernel& kernel) {
    const std::size_t count = std::size_t{o.tokens} * o.hidden;
    kernel.reads = {floats(o.query, count), floats(o.key, count), floats(o.value, count),
                    integers(o.starts, o.sentences + 1)};
    kernel.writes = {floats(o.out, count)};
}
void SimulatedBackend::declare(const AddNormalise& o, Device::Kernel& kernel) {
    const std::size_t count = std::size_t{o.tokens} * o.hidden;
    kernel.reads = {floats(o.in, count), floats(o.residual, count), floats(o.scale, o.hidden),
                    floats(o.shift, o.hidden)};
    kernel.writes = {floats(o.out, count)};
}
void SimulatedBackend::declare(const Pool& o, Device::Kernel& kernel) {
    kernel.reads = {floats(o.in, std::size_t{o.tokens} * o.hidden), integers(o.starts, o.sentences + 1)};
    kernel.writes = {floats(o.out, std::size_t{o.sentences} * o.hidden)};
}

Results run_simulated(const Job& job) {
    SimulatedBackend backend;
    return run_all(backend, job);
}

}  // namespace encoder

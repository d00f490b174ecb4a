// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "simulated.hpp"

namespace encoder {

using examples::range;

void declare(const Embed& o, Kernel& kernel) {
    kernel.reads = {range(o.ids, o.tokens), range(o.positions, o.tokens), range(o.segments, o.hidden),
                    range(o.scale, o.hidden)};
    kernel.reads.push_back(range(o.shift, o.hidden));
    for (std::uint32_t t = 0; t < o.tokens; ++t) {
        kernel.reads.push_back(range(o.words + std::size_t(o.ids[t]) * o.hidden, o.hidden));
        kernel.reads.push_back(range(o.places + std::size_t(o.positions[t]) * o.hidden, o.hidden));
    }
    kernel.writes = {range(o.out, std::size_t{o.tokens} * o.hidden)};
}
void declare(const Linear& o, Kernel& kernel) {
    kernel.reads = {range(o.in, std::size_t{o.tokens} * o.from), range(o.weight, std::size_t{o.from} * o.to),
                    range(o.bias, o.to)};
    kernel.writes = {range(o.out, std::size_t{o.tokens} * o.to)};
}
void declare(const Attention& o, Kernel& kernel) {
    const std::size_t count = std::size_t{o.tokens} * o.hidden;
    kernel.reads = {range(o.query, count), range(o.key, count), range(o.value, count),
                    range(o.starts, o.sentences + 1)};
    kernel.writes = {range(o.out, count)};
}
void declare(const AddNormalise& o, Kernel& kernel) {
    const std::size_t count = std::size_t{o.tokens} * o.hidden;
    kernel.reads = {range(o.in, count), range(o.residual, count), range(o.scale, o.hidden), range(o.shift, o.hidden)};
    kernel.writes = {range(o.out, count)};
}
void declare(const Pool& o, Kernel& kernel) {
    kernel.reads = {range(o.in, std::size_t{o.tokens} * o.hidden), range(o.starts, o.sentences + 1)};
    kernel.writes = {range(o.out, std::size_t{o.sentences} * o.hidden)};
}

Results run_simulated(const Job& job, const Checkpoint& model) {
    Simulated backend;
    return run_all(backend, job, model);
}

}  // namespace encoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "simulated.hpp"

#include <cstddef>
#include <cstdint>

namespace experts {

using examples::range;

void declare(const Embed& o, Kernel& kernel) { kernel.writes = {range(o.x, std::size_t{o.batch} * o.hidden)}; }
void declare(const Route& o, Kernel& kernel) {
    const std::size_t router = std::size_t{experts_a_layer} * o.hidden;
    kernel.reads = {range(o.x, o.hidden), range(o.here, router), range(o.next, router)};
    kernel.writes = {range(o.scores, 2 * experts_a_layer)};
}
void declare(const Expand& o, Kernel& kernel) {
    const std::size_t matrix = std::size_t{o.inner} * o.hidden;
    kernel.reads = {range(o.x, std::size_t{o.batch} * o.hidden)};
    for (std::uint32_t e = 0; e < chosen; ++e) {
        kernel.reads.push_back(range(o.gate[e], matrix));
        kernel.reads.push_back(range(o.up[e], matrix));
    }
    kernel.writes = {range(o.values, std::size_t{o.batch} * chosen * o.inner)};
}
void declare(const Reduce& o, Kernel& kernel) {
    kernel.reads = {range(o.values, std::size_t{o.batch} * chosen * o.inner),
                    range(o.x, std::size_t{o.batch} * o.hidden)};
    for (const Bf16* down : o.down) { kernel.reads.push_back(range(down, std::size_t{o.inner} * o.hidden)); }
    kernel.writes = {range(o.x, std::size_t{o.batch} * o.hidden)};
}

Results run_simulated(bool packed) {
    Simulated simulated;
    return run_all(
        simulated,
        {.layers = 32, .hidden = mixtral_hidden / 32, .inner = mixtral_inner / 32, .passes = 8, .batches = {1, 4}},
        packed);
}

}  // namespace experts

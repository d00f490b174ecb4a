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
void declare(const Choose& o, Kernel& kernel) {
    kernel.reads = {range(o.scores, 2 * experts_a_layer)};
    kernel.writes = {range(o.choices, 2 * chosen), range(o.shares, chosen)};
}
/// What was chosen on the device is known only when the kernel runs.
static void declare(const ReadExperts& experts, std::size_t numbers, Kernel& kernel) {
    kernel.reads.push_back(range(experts.shared, numbers));
    if (experts.table != nullptr) { return; }
    for (const Bf16* at : experts.at) { kernel.reads.push_back(range(at, numbers)); }
}
void declare(const Expand& o, Kernel& kernel) {
    kernel.reads = {range(o.x, std::size_t{o.batch} * o.hidden), range(o.shares, chosen)};
    declare(o.experts, std::size_t{2} * o.inner * o.hidden, kernel);
    kernel.writes = {range(o.values, std::size_t{o.batch} * read_a_layer * o.inner)};
}
void declare(const Reduce& o, Kernel& kernel) {
    kernel.reads = {range(o.values, std::size_t{o.batch} * read_a_layer * o.inner),
                    range(o.x, std::size_t{o.batch} * o.hidden)};
    declare(o.experts, std::size_t{3} * o.inner * o.hidden, kernel);
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

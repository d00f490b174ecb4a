// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small inference engine as one finds them: C++17, no exceptions, a file format of its own, and one cooperative kernel that runs
// all layers in one launch. It knows nothing of Residency: streaming.cpp is the one file that was added for it.

#include <cstddef>
#include <cstdint>

namespace engine {

using Bf16 = std::uint16_t;

/// The header of a model file, 64 bytes. The tensors follow in the order of `Tensor`, layer by layer, each from a multiple of 256 bytes
/// on.
struct Config {
    std::uint32_t magic = 0x31454E46;  // "FNE1"
    std::uint32_t dim = 0, hidden = 0, heads = 0, layers = 0, vocabulary = 0, positions = 0;
    std::uint32_t unused[9] = {};
};
static_assert(sizeof(Config) == 64, "a header has 64 bytes");

/// What a layer reads: entries [layer · per_layer, (layer + 1) · per_layer) of the table. After the layers: the three of `Last`.
enum Tensor : std::uint32_t { norm_attention, query, key, value, output, norm_ffn, gate, up, down, per_layer };
enum Last : std::uint32_t { norm_last, classifier, embedding, after_layers };

/// The elements of a tensor of the table.
inline std::uint64_t elements_of(const Config& c, std::uint32_t index) {
    const std::uint64_t dim = c.dim, hidden = c.hidden, vocabulary = c.vocabulary;
    if (index >= c.layers * per_layer) { return index == c.layers * per_layer + norm_last ? dim : vocabulary * dim; }
    switch (index % per_layer) {
        case norm_attention:
        case norm_ffn: return dim;
        case gate:
        case up:
        case down: return hidden * dim;
        default: return dim * dim;
    }
}

/// What the engine keeps on the device, in floats.
struct State {
    float* x = nullptr;          // dim: the residual stream
    float* qkv = nullptr;        // 3 · dim
    float* attended = nullptr;   // dim
    float* activated = nullptr;  // hidden
    float* logits = nullptr;     // vocabulary
    float* keys = nullptr;       // layers · positions · dim
    float* values = nullptr;     // layers · positions · dim
};
/// What the host reads of a token.
struct Sampled {
    std::uint32_t token = 0;
    std::uint64_t checksum = 0;  // of the bits of all logits
};

/// One launch: layers [first, last) for one token, and the classifier behind the last one where the host wants a token.
struct Launch {
    Config config;
    Bf16* const* table = nullptr;  // on the device: the address of each tensor
    State state;
    Sampled* sampled = nullptr;  // in pinned host memory
    std::uint32_t token = 0, position = 0, first = 0, last = 0;
    bool classify = false;
};

// The GPU: cuda/gpu.cu, or simulated/gpu.cpp. What fails prints a line and ends the program.

/// False: there is no GPU.
bool gpu_open();
void gpu_close();
const char* gpu_name();
/// Zeroed.
void* gpu_allocate(std::size_t bytes);
void gpu_free(void* at);
void* gpu_allocate_pinned(std::size_t bytes);
void gpu_free_pinned(void* at);
/// Enqueues a copy from pinned memory.
void gpu_copy(void* to, const void* from, std::size_t bytes);
void gpu_run(const Launch& launch);
void gpu_wait();
/// A clock.
double gpu_seconds();

// The weights: streaming.cpp.

struct WeightPlace {
    char name[32];
    std::uint64_t offset, bytes;  // in the file
    std::uint32_t step;           // a layer, or the classifier
    bool on_host;                 // kernels read a few rows of it over the link
};
struct BudgetFigures {
    std::uint64_t bytes, held_bytes, copied_bytes;  // the budget; held now; copied by the last pass
    double bound_seconds, latency_floor_seconds;    // that no plan of copies beats; and with the latency of copies
    std::uint32_t ranges;                           // launches of a pass
};

void weights_open(const char* path, const WeightPlace* places, std::uint32_t count, std::uint32_t steps);
void weights_close();
void weights_set_budget(const char* text);
BudgetFigures weights_figures();
/// Where kernels find a weight, until the generation changes.
void* weights_address(std::uint32_t weight);
std::uint64_t weights_generation();
/// A pass over the first `steps` steps: run(context, first, last) for each range of steps whose weights are there together.
void weights_pass(std::uint32_t steps, void (*run)(void* context, std::uint32_t first, std::uint32_t last),
                  void* context);

}  // namespace engine

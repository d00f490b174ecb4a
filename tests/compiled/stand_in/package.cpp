// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Stands in for the library that AOTInductor generates, of a package (.pt2) or of a program of ExecuTorch (.pte): a method of four
// kernels, of which three read weights. Kernel i writes the sum of its weight into output[i], times the input; the last adds one to each
// element of the cache. Given a stream, it launches them there, with the function that a test has set. Macros plant mistakes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "torch.hpp"

#define EXPORTED extern "C" __attribute__((__visibility__("default")))

extern "C" std::int32_t aoti_torch_delete_tensor_object(void* tensor);
extern "C" stand_in::Launch stand_in_launch;
extern "C" std::int64_t stand_in_live_pools, stand_in_open_pools;

#ifndef STAND_IN_WITHOUT_HOOKS
#ifdef STAND_IN_HOOK_VERSION
constexpr std::int32_t hook_version = 2;
#else
constexpr std::int32_t hook_version = 1;
#endif
EXPORTED std::int32_t (*residency_step_hook)(void* context, std::int64_t step);
EXPORTED std::int32_t (*residency_probe_hook)(void* context, void* weight, std::int64_t probe, void** result);
EXPORTED void* residency_hook_context;
EXPORTED std::int32_t residency_hook_version;
std::int32_t (*residency_step_hook)(void* context, std::int64_t step) = nullptr;
std::int32_t (*residency_probe_hook)(void* context, void* weight, std::int64_t probe, void** result) = nullptr;
void* residency_hook_context = nullptr;
std::int32_t residency_hook_version = hook_version;
#endif

namespace {

struct Constant {
    const char *name, *original;
    std::size_t bytes;
    bool folded;
};
const Constant constants[] = {
    {"cache", "cache", 16 * sizeof(float), false},
#ifdef STAND_IN_FOLDED
    {"folded", "_FOLDED_CONST_0", 64, true},
#endif
    {"w_0", "w.0", (std::size_t{3} << 20), false},
#ifdef STAND_IN_ANOTHER_NAME
    {"w_1", "v.1", (std::size_t{3} << 20), false},
#else
    {"w_1", "w.1", (std::size_t{3} << 20), false},
#endif
#ifndef STAND_IN_CONSTANT_MISSING
    {"w_2", "w.2", (std::size_t{3} << 20), false},
#endif
#ifdef STAND_IN_CONSTANT_MORE
    {"w_3", "w.3", 64, false},
#endif
};

struct Container {
    std::array<stand_in::Tensor*, std::size(constants)> bound{};
};

std::int32_t mark([[maybe_unused]] std::int64_t step) {
#if defined STAND_IN_WITHOUT_HOOKS || defined STAND_IN_UNMARKED
    return 0;
#else
    return residency_step_hook == nullptr ? 0 : residency_step_hook(residency_hook_context, step);
#endif
}

#ifdef STAND_IN_PROBES
/// What a kernel reads in place of the weight. Null: the run fails.
stand_in::Tensor* probe(stand_in::Tensor* weight, std::int64_t number) {
    void* result = nullptr;
    if (residency_probe_hook == nullptr) {
        result = new stand_in::Tensor{*weight};
        ++stand_in::live_tensors();
    } else if (residency_probe_hook(residency_hook_context, weight, number, &result) != 0) {
        return nullptr;
    }
    return static_cast<stand_in::Tensor*>(result);
}
#endif

float sum(const float* values, std::int64_t count) {
    float result = 0;
    for (std::int64_t i = 0; i < count; ++i) { result += values[i]; }
    return result;
}

/// A kernel: at once, or on the stream. What a graph launches again stays for ever.
void run_kernel(void* stream, const stand_in::Tensor* reads, std::function<void()> body) {
    if (stream == nullptr) { return body(); }
    static std::deque<std::function<void()>> bodies;
    bodies.push_back(std::move(body));
    stand_in_launch(
        stream, reads == nullptr ? nullptr : reads->data,
        reads == nullptr ? 0 : static_cast<std::uint64_t>(reads->sizes[0]) * sizeof(float),
        [](void* context) { (*static_cast<std::function<void()>*>(context))(); }, &bodies.back());
}

}  // namespace

EXPORTED std::int32_t AOTInductorModelContainerCreateWithDevice(void** container, std::size_t, const char* device,
                                                                const char*) {
#ifdef STAND_IN_OTHER_ARCHITECTURE
    (void)container, (void)device;
    return 1;
#else
    if (std::strcmp(device, "cpu") != 0 && std::strcmp(device, "cuda:0") != 0) { return 1; }
    *container = new Container;
    return 0;
#endif
}
EXPORTED std::int32_t AOTInductorModelContainerDelete(void* container) {
    delete static_cast<Container*>(container);
    return 0;
}
EXPORTED std::int32_t AOTInductorModelContainerGetNumInputs(void*, std::size_t* count) {
    *count = 1;
    return 0;
}
#ifndef STAND_IN_INTERFACE_MISSING
EXPORTED std::int32_t AOTInductorModelContainerGetNumOutputs(void*, std::size_t* count) {
    *count = 1;
    return 0;
}
#endif
EXPORTED std::int32_t AOTInductorModelContainerGetNumConstants(void*, std::size_t* count) {
    *count = std::size(constants);
    return 0;
}
EXPORTED std::int32_t AOTInductorModelContainerGetConstantName(void*, std::size_t i, const char** name) {
    *name = constants[i].name;
    return 0;
}
EXPORTED std::int32_t AOTInductorModelContainerGetConstantOriginalFQN(void*, std::size_t i, const char** name) {
    *name = constants[i].original;
    return 0;
}
EXPORTED std::int32_t AOTInductorModelContainerGetConstantFromFolded(void*, std::size_t i, bool* folded) {
    *folded = constants[i].folded;
    return 0;
}
EXPORTED std::int32_t AOTInductorModelContainerGetConstantDtype(void*, std::size_t, std::int32_t* dtype) {
    *dtype = 6;
    return 0;
}
#ifndef STAND_IN_SYMBOL_MISSING
EXPORTED std::int32_t AOTInductorModelContainerGetConstantDataSize(void*, std::size_t i, std::size_t* bytes) {
    *bytes = constants[i].bytes;
    return 0;
}
#endif
struct Entry {
    const char* name;
    void* tensor;
};
EXPORTED std::int32_t AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(void* container, const void* pairs,
                                                                                    std::size_t count, bool, bool all) {
    const auto* entries = static_cast<const Entry*>(pairs);
    auto& bound = static_cast<Container*>(container)->bound;
    if (all && count != bound.size()) { return 1; }
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < bound.size(); ++j) {
            if (std::strcmp(constants[j].name, entries[i].name) == 0) {
                bound[j] = static_cast<stand_in::Tensor*>(entries[i].tensor);
            }
        }
    }
    return 0;
}
#ifndef STAND_IN_WITHOUT_POOLS
EXPORTED std::int32_t residency_pool_begin(std::int32_t, void*, std::uint64_t* pool) {
    pool[0] = 7;
    ++stand_in_live_pools;
    ++stand_in_open_pools;
    return 0;
}
EXPORTED std::int32_t residency_pool_end(std::int32_t, const std::uint64_t* pool) {
    --stand_in_open_pools;
    return pool[0] == 7 ? 0 : 1;
}
EXPORTED std::int32_t residency_pool_release(std::int32_t, const std::uint64_t* pool) {
    --stand_in_live_pools;
    return pool[0] == 7 ? 0 : 1;
}
#endif
EXPORTED std::int32_t AOTInductorModelContainerRunSingleThreaded(void* container, void** inputs, std::size_t,
                                                                 void** outputs, std::size_t, void* stream, void*) {
    auto& bound = static_cast<Container*>(container)->bound;
    auto* input = static_cast<stand_in::Tensor*>(inputs[0]);
    const auto* factor = static_cast<const float*>(input->data);
    aoti_torch_delete_tensor_object(input);  // the package takes it
#ifdef STAND_IN_FAILS
    return 1;
#endif
    const auto constant = [&](const char* name) {
        for (std::size_t i = 0; i < bound.size(); ++i) {
            if (std::strcmp(constants[i].name, name) == 0) { return bound[i]; }
        }
        return static_cast<stand_in::Tensor*>(nullptr);
    };
    auto* output = new stand_in::Tensor;
    output->own.assign(3, 0.0F);
    output->data = output->own.data();
    output->dtype = 6;
    output->sizes = {3};
    output->strides = {1};
    ++stand_in::live_tensors();
#if defined STAND_IN_MARKERS_SWAPPED
    const std::int64_t markers[] = {1, 0, -1, 2, 3};
#else
    const std::int64_t markers[] = {0, 1, -1, 2, 3};
#endif
    const auto multiply = [&](int i, const char* name) {
        const stand_in::Tensor* weight = constant(name);
        const auto* values = static_cast<const float*>(weight->data);
        float* to = &output->own[static_cast<std::size_t>(i)];
        run_kernel(stream, weight, [=, count = weight->sizes[0]] { *to = *factor * sum(values, count); });
    };
    const auto fail = [&] {
        aoti_torch_delete_tensor_object(output);
        return 1;
    };
#ifdef STAND_IN_PROBES
    // The first weight is read again behind the second one. Numbers are in the order of the graph, and calls in another.
    const std::int64_t numbers[] = {2, 0, 1};
    stand_in::Tensor* probed[] = {nullptr, nullptr, nullptr};
    const auto end = [&](std::int32_t status) {
        for (stand_in::Tensor* each : probed) {
            if (each != nullptr) { aoti_torch_delete_tensor_object(each); }
        }
        return status == 0 ? 0 : fail();
    };
    const char* const names[] = {"w_0", "w_1", "w_2"};
    for (std::size_t i = 0; i < 3; ++i) {
        probed[i] = probe(constant(names[i]), numbers[i]);
        if (probed[i] == nullptr) { return end(1); }
        // A weight of a kernel is where it was when its probe was called, as long as the tensor lives.
        const auto* values = static_cast<const float*>(probed[i]->data);
        const auto* first = static_cast<const float*>(probed[0]->data);
        float* to = &output->own[i];
        run_kernel(stream, probed[i], [=, count = probed[i]->sizes[0]] {
            *to = *factor * sum(values, count);
            if (i == 1) { *to += first[0]; }
        });
    }
    run_kernel(stream, constant("cache"), [cache = static_cast<float*>(constant("cache")->data)] {
        for (int i = 0; i < 16; ++i) { cache[i] += 1; }
    });
    outputs[0] = output;
    return end(0);
#endif
    if (mark(markers[0]) != 0) { return fail(); }
    multiply(0, "w_0");
#ifndef STAND_IN_MARKER_REMOVED
    if (mark(markers[1]) != 0) { return fail(); }
#endif
    multiply(1, "w_1");
    if (mark(markers[2]) != 0) { return fail(); }  // reads no weight
    run_kernel(stream, nullptr, [to = &output->own[1]] { *to += 1; });
#ifndef STAND_IN_ENDS_EARLY
    if (mark(markers[3]) != 0) { return fail(); }
    multiply(2, "w_2");
    if (mark(markers[4]) != 0) { return fail(); }
    run_kernel(stream, constant("cache"), [cache = static_cast<float*>(constant("cache")->data)] {
        for (int i = 0; i < 16; ++i) { cache[i] += 1; }
    });
#endif
    outputs[0] = output;
    return 0;
}

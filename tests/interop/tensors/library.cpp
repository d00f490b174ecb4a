// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Leases as tensors, in C for tensors.py: a small model on a simulated device, or on a GPU where ON_CUDA is defined. Every function is
// called on one thread; deleters of tensors on any.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/evict/queues.hpp"
#include "residency/interop/dlpack.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#ifdef ON_CUDA
#include "residency/device/cuda.hpp"
#include "residency/interop/cuda_array_interface.hpp"
#else
#include "residency/simulation/simulated_device.hpp"
#endif

using namespace residency;

namespace {

#ifdef ON_CUDA
using Gpu = CudaDevice;
#else
using Gpu = SimulatedDevice;
#endif
using Weights = Residency<evict::Lru, prefetch::None, pool::Slab<Gpu>>;

constexpr std::uint64_t slot_bytes = std::uint64_t{2} << 20U;
constexpr std::uint64_t streamed_slots = 2;  // room for two storages at once

/// A weight that takes a slot. The first values are 0, 1, 2, …, the rest of the storage is 0.
struct Spec {
    const char* name;
    DType dtype;
    Shape shape;
    std::optional<Strides> strides;
    bool is_mutable = false;
    bool on_host = false;
};
const std::vector<Spec>& specs() {
    static const std::vector<Spec> all{
        {"f32", dtype::f32, {8, 16}, std::nullopt},
        {"bf16", dtype::bf16, {8, 16}, std::nullopt},
        {"f8", dtype::f8_e4m3fn, {8, 16}, std::nullopt},
        {"bool", dtype::boolean, {8, 16}, std::nullopt},
        {"i64", dtype::i64, {128}, std::nullopt},
        {"transposed", dtype::f32, {16, 8}, Strides{1, 16}},
        {"scalar", dtype::f64, {}, std::nullopt},
        {"cache", dtype::f16, {8, 16}, std::nullopt, true},
        {"table", dtype::u8, {8, 16}, std::nullopt, false, true},
        {"half a byte", dtype::i4, {8, 16}, std::nullopt},
    };
    return all;
}

std::string last_error;

struct Model {
    Gpu device;
    Gpu::Stream stream{};
    std::byte* host = nullptr;
    Catalog catalog;
    std::optional<Weights> weights;
    std::optional<Weights::Pass> pass;
    std::optional<dlpack::Exporter<Gpu>> exporter;

#ifdef ON_CUDA
    explicit Model(Gpu opened) : device{std::move(opened)} {
#else
    Model() {
#endif
        const auto& all = specs();
        host = static_cast<std::byte*>(unwrap(device.allocate_host(all.size() * slot_bytes)));
        std::memset(host, 0, all.size() * slot_bytes);
        const auto bytes = HostBytes::borrow(std::span{host, all.size() * slot_bytes}, HostMemory::pinned);
        CatalogBuilder builder;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const Spec& spec = all[i];
            std::uint64_t elements = 1;
            for (const std::uint64_t extent : spec.shape) { elements *= extent; }
            std::byte* const at = host + i * slot_bytes;
            for (std::uint64_t byte = 0; byte < elements * spec.dtype.block_bits() / 8; ++byte) {
                at[byte] = static_cast<std::byte>(spec.dtype == dtype::boolean ? byte % 2 : (byte * 37 + i) % 120);
            }
            StorageOptions options;
            options.is_mutable = spec.is_mutable;
            if (spec.on_host) { options.placement = Placement::host; }
            options.source = HostSource{bytes, i * slot_bytes};
            builder.add_weight(spec.name, spec.dtype, spec.shape, builder.add_storage(slot_bytes, options), 0,
                               spec.strides);
        }
        catalog = unwrap(builder.try_build());
        Weights::Options options;
        options.budget = Budget::bytes((streamed_slots + 1) * slot_bytes);  // and the cache
        stream = unwrap(device.create_stream());
        weights.emplace(unwrap(Weights::try_create(device, catalog, std::move(options))));
        exporter.emplace();
        pass.emplace(unwrap(weights->try_begin(stream)));
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() {
        exporter.reset();
        pass.reset();
        weights.reset();
        static_cast<void>(device.destroy_stream(stream).has_value());
        static_cast<void>(device.deallocate_host(host).has_value());
    }
};

template <class R>
bool is_fine(const R& result) {
    if (!result) { last_error = result.error().message(); }
    return result.has_value();
}

using Exported = dlpack::ExportedLease<Gpu>;

#ifdef ON_CUDA
/// DLPack's number of a stream in Python: 1 and 2 are CUDA's own values of the default streams.
Gpu::Stream stream_of(std::int64_t number) {
    return Gpu::Stream{reinterpret_cast<CUstream_st*>(static_cast<std::uintptr_t>(number))};
}
#endif

}  // namespace

#pragma GCC visibility push(default)  // Python looks them up
extern "C" {

const char* tensors_error() { return last_error.c_str(); }
const char* tensors_device() {
#ifdef ON_CUDA
    return "cuda";
#else
    return "cpu";
#endif
}

Model* tensors_open() {
#ifdef ON_CUDA
    auto opened = Gpu::try_open(0);
    if (!is_fine(opened)) { return nullptr; }
    return new Model{std::move(*opened)};
#else
    return new Model{};
#endif
}
/// The number of findings of the simulated device.
std::uint64_t tensors_close(Model* model) {
    std::uint64_t findings = 0;
    static_cast<void>(model->device.synchronize().has_value());
#ifndef ON_CUDA
    for (const auto& report : model->device.reports()) { std::fprintf(stderr, "%s\n", report.text.c_str()); }
    findings = model->device.report_count();
#endif
    delete model;
    return findings;
}
std::uint32_t tensors_count() { return static_cast<std::uint32_t>(specs().size()); }
const char* tensors_name(std::uint32_t weight) { return specs()[weight].name; }
/// The bytes of a weight in host memory.
const void* tensors_expected(const Model* model, std::uint32_t weight) { return model->host + weight * slot_bytes; }

/// A lease on some weights; null on failure.
Exported* tensors_acquire(Model* model, const std::uint32_t* weights, std::uint32_t count) {
    std::vector<WeightId> ids;
    for (std::uint32_t i = 0; i < count; ++i) { ids.push_back(WeightId{weights[i]}); }
    model->exporter->collect();
    auto lease = model->pass->try_acquire(ids);
    if (!is_fine(lease)) { return nullptr; }
    return new Exported{model->exporter->share(std::move(*lease))};
}
/// Lets go of a lease; its tensors keep it open.
void tensors_drop(Exported* lease) { delete lease; }
std::uint64_t tensors_open_leases(Model* model) { return model->exporter->open_leases(); }
void tensors_collect(Model* model) { model->exporter->collect(); }
const void* tensors_address(Exported* lease, std::uint32_t weight) { return lease->lease().data(WeightId{weight}); }
/// Waits until the weights of the model's stream are there.
void tensors_synchronize(Model* model) { static_cast<void>(model->device.synchronize(model->stream).has_value()); }

/// A DLManagedTensorVersioned or a DLManagedTensor, for a stream as __dlpack__ names it; −1 and the lack of one stand for the lease's own.
void* tensors_tensor(Exported* lease, std::uint32_t weight, bool is_versioned, std::int64_t stream) {
    const WeightId id{weight};
#ifdef ON_CUDA
    const bool is_own = stream < 0;
    if (is_versioned) {
        auto tensor = is_own ? lease->try_tensor(id) : lease->try_tensor(id, stream_of(stream));
        return is_fine(tensor) ? tensor->release() : nullptr;
    }
    auto tensor = is_own ? lease->try_unversioned_tensor(id) : lease->try_unversioned_tensor(id, stream_of(stream));
    return is_fine(tensor) ? tensor->release() : nullptr;
#else
    static_cast<void>(stream);
    if (is_versioned) {
        auto tensor = lease->try_tensor(id);
        return is_fine(tensor) ? tensor->release() : nullptr;
    }
    auto tensor = lease->try_unversioned_tensor(id);
    return is_fine(tensor) ? tensor->release() : nullptr;
#endif
}
/// What nobody took.
void tensors_end(void* tensor, bool is_versioned) {
    if (is_versioned) {
        dlpack::EndTensor{}(static_cast<dlpack::VersionedTensor*>(tensor));
    } else {
        dlpack::EndTensor{}(static_cast<dlpack::UnversionedTensor*>(tensor));
    }
}
/// __dlpack_device__.
void tensors_place(const Exported* lease, std::uint32_t weight, std::int32_t* type, std::int32_t* ordinal) {
    const auto place = lease->device_of(WeightId{weight});
    *type = static_cast<std::int32_t>(place.type);
    *ordinal = place.ordinal;
}
/// __cuda_array_interface__ as JSON; null on failure.
const char* tensors_array_interface([[maybe_unused]] Exported* lease, [[maybe_unused]] std::uint32_t weight) {
#ifdef ON_CUDA
    static std::string text;
    const auto described = cuda_array_interface(lease->lease(), WeightId{weight});
    if (!is_fine(described)) { return nullptr; }
    text = described->json();
    return text.c_str();
#else
    last_error = "the simulated device is no CUDA device";
    return nullptr;
#endif
}
/// Another stream reads too.
bool tensors_use_on([[maybe_unused]] Exported* lease, [[maybe_unused]] std::int64_t stream) {
#ifdef ON_CUDA
    return is_fine(lease->lease().try_use_on(stream_of(stream)));
#else
    return true;
#endif
}

}  // extern "C"
#pragma GCC visibility pop

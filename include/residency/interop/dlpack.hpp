// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "residency/core/engine/lease.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/interop/check_readable.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

class CudaDevice;
class SimulatedDevice;

/// Leased weights as tensors of other frameworks, without a copy, by DLPack (https://dmlc.github.io/dlpack/latest/). The structs have
/// the layout of dlpack.h, version 1.2: a pointer to one of them is a pointer to its namesake there.
namespace dlpack {

/// The version of the layout: DLPackVersion.
struct Version {
    std::uint32_t major = 1;  ///< another one has another layout
    std::uint32_t minor = 2;  ///< a later one has more codes
};

/// Kinds of memory that the library has: of DLDeviceType.
enum class DeviceType : std::int32_t {
    none = 0,  ///< nobody said
    cpu = 1,   ///< kDLCPU
    cuda = 2,  ///< kDLCUDA
};
/// Where a tensor lies: DLDevice.
struct TensorDevice {
    DeviceType type = DeviceType::none;  ///< which memory
    std::int32_t ordinal = 0;            ///< of the GPU; 0 for memory of the host
    friend bool operator==(const TensorDevice&, const TensorDevice&) = default;  ///< compares all members
};

/// Kinds of elements that take whole bytes: of DLDataTypeCode.
enum class TypeCode : std::uint8_t {
    signed_integer = 0,
    unsigned_integer = 1,
    ieee_float = 2,
    bfloat = 4,
    complex = 5,
    boolean = 6,
    f8_e4m3 = 8,
    f8_e4m3fn = 10,
    f8_e4m3fnuz = 11,
    f8_e5m2 = 12,
    f8_e5m2fnuz = 13,
    f8_e8m0 = 14,
};
/// The type of elements: DLDataType.
struct DataType {
    TypeCode code = TypeCode::signed_integer;                            ///< what the bits mean
    std::uint8_t bits = 0;                                               ///< of an element
    std::uint16_t lanes = 1;                                             ///< of vectors; no weight has them
    friend bool operator==(const DataType&, const DataType&) = default;  ///< compares all members
};

/// An array, its memory not owned: DLTensor.
struct Tensor {
    void* data = nullptr;             ///< null without elements
    TensorDevice device;              ///< where `data` points to
    std::int32_t dimensions = 0;      ///< number of extents
    DataType dtype;                   ///< of each element
    std::int64_t* shape = nullptr;    ///< extents, slowest first; null if there are none
    std::int64_t* strides = nullptr;  ///< elements; never null unless there are no dimensions
    std::uint64_t byte_offset = 0;    ///< of the first element from `data`; 0 here
};

/// A tensor that whoever takes it ends by its deleter: DLManagedTensorVersioned. Its capsule in Python is named "dltensor_versioned".
struct VersionedTensor {
    static constexpr std::uint64_t read_only = 1;  ///< of `flags`

    Version version;                              ///< of this layout
    void* manager = nullptr;                      ///< what the deleter needs
    void (*deleter)(VersionedTensor*) = nullptr;  ///< called once, with the tensor, from any thread
    std::uint64_t flags = 0;                      ///< `read_only`, or 0
    Tensor tensor;                                ///< valid until the deleter is called
};
/// A tensor as DLPack before 1.0 has it: DLManagedTensor. It cannot say that a tensor is read-only. Its capsule in Python is named
/// "dltensor".
struct UnversionedTensor {
    Tensor tensor;                                  ///< valid until the deleter is called
    void* manager = nullptr;                        ///< what the deleter needs
    void (*deleter)(UnversionedTensor*) = nullptr;  ///< called once, with the tensor, from any thread
};

static_assert(sizeof(void*) != 8 ||
              (sizeof(Tensor) == 48 && sizeof(VersionedTensor) == 80 && sizeof(UnversionedTensor) == 64));
static_assert(sizeof(void*) != 8 || (offsetof(Tensor, device) == 8 && offsetof(Tensor, dimensions) == 16 &&
                                     offsetof(Tensor, dtype) == 20 && offsetof(Tensor, shape) == 24 &&
                                     offsetof(Tensor, strides) == 32 && offsetof(Tensor, byte_offset) == 40));
static_assert(sizeof(void*) != 8 ||
              (offsetof(VersionedTensor, manager) == 8 && offsetof(VersionedTensor, deleter) == 16 &&
               offsetof(VersionedTensor, flags) == 24 && offsetof(VersionedTensor, tensor) == 32 &&
               offsetof(UnversionedTensor, manager) == 48 && offsetof(UnversionedTensor, deleter) == 56));

/// Ends a tensor that nobody took.
struct EndTensor {
    /// Calls the deleter.
    template <class T>
    void operator()(T* tensor) const noexcept {
        tensor->deleter(tensor);
    }
};
/// A tensor that ends here, unless it is given to a framework by release().
template <class T>
using TensorPointer = std::unique_ptr<T, EndTensor>;

/// A weight's type in DLPack. Error unsupported, which names the type: it has blocks, or elements below a byte.
[[nodiscard]] Result<DataType> data_type(const DType& dtype);

/// Where the weights of a device of type `D` lie, for DLPack; `none` where nobody said. Specialise it for a device of your own.
template <class D>
inline constexpr DeviceType device_type = DeviceType::none;
/// A GPU.
template <>
inline constexpr DeviceType device_type<CudaDevice> = DeviceType::cuda;
/// Memory of this process.
template <>
inline constexpr DeviceType device_type<SimulatedDevice> = DeviceType::cpu;

namespace detail {

/// Shape, then strides. Error invalid_argument: one of them is beyond 63 bits, or there are too many.
[[nodiscard]] Result<std::vector<std::int64_t>> dimensions(const Weight& weight);

/// A lease that is open while something refers to it. The lease itself is touched on one thread only.
template <Device D>
struct SharedLease {
    Lease<D> lease;
    std::thread::id thread = std::this_thread::get_id();
    std::atomic<std::uint64_t> references{1};

    explicit SharedLease(Lease<D> taken) noexcept : lease{std::move(taken)} {}
    void drop() noexcept {
        if (references.fetch_sub(1, std::memory_order_acq_rel) == 1 && std::this_thread::get_id() == thread) {
            lease.end();
        }
    }
};

/// A tensor, and what it needs as long as it lives.
template <class T, Device D>
struct Export {
    T tensor;
    std::vector<std::int64_t> dimensions;
    std::shared_ptr<SharedLease<D>> lease;
};

}  // namespace detail

template <Device D>
class Exporter;

/// A lease whose weights can be exported. It is open until this handle and every tensor made from it are dropped. Made by an Exporter;
/// everything but the deleters of tensors is called on that one's thread.
template <Device D>
class [[nodiscard]] ExportedLease {
public:
    using Stream = typename D::Stream;  ///< of the device

    ExportedLease() noexcept = default;
    /// The source is empty afterwards.
    /// @{
    ExportedLease(ExportedLease&&) noexcept = default;
    ExportedLease& operator=(ExportedLease&& other) noexcept {
        if (this != &other) {
            drop();
            shared_ = std::move(other.shared_);
        }
        return *this;
    }
    /// @}
    ~ExportedLease() { drop(); }

    /// Makes a tensor of a weight. `stream` is the one on which it will be read: what other frameworks give. If it is not the lease's own,
    /// it waits for the bytes, and the end of the lease is recorded there as well. The tensor is read-only unless kernels may write to the
    /// weight.
    ///
    /// A weight placed on the host (Placement::host) is exported as a CPU tensor.
    /// Errors: invalid_argument (the lease does not cover the weight), unsupported (kernels read the weight packed; the dtype has no name
    /// in DLPack; the device has no device_type), wrong_state (the lease has ended), or those of Lease::try_use_on.
    [[nodiscard]] Result<TensorPointer<VersionedTensor>> try_tensor(WeightId weight, Stream stream) {
        return make<VersionedTensor>(weight, &stream);
    }
    /// The same for the lease's own stream.
    [[nodiscard]] Result<TensorPointer<VersionedTensor>> try_tensor(WeightId weight) {
        return make<VersionedTensor>(weight, nullptr);
    }
    /// The tensor of try_tensor() for frameworks that know DLPack before 1.0 only. Nothing tells them that they must not write.
    [[nodiscard]] Result<TensorPointer<UnversionedTensor>> try_unversioned_tensor(WeightId weight, Stream stream) {
        return make<UnversionedTensor>(weight, &stream);
    }
    /// The same for the lease's own stream.
    [[nodiscard]] Result<TensorPointer<UnversionedTensor>> try_unversioned_tensor(WeightId weight) {
        return make<UnversionedTensor>(weight, nullptr);
    }
#if RESIDENCY_EXCEPTIONS
    /// As try_tensor() and try_unversioned_tensor(), but throw Exception.
    /// @{
    [[nodiscard]] TensorPointer<VersionedTensor> tensor(WeightId weight, Stream stream) {
        return unwrap(try_tensor(weight, stream));
    }
    [[nodiscard]] TensorPointer<VersionedTensor> tensor(WeightId weight) { return unwrap(try_tensor(weight)); }
    [[nodiscard]] TensorPointer<UnversionedTensor> unversioned_tensor(WeightId weight, Stream stream) {
        return unwrap(try_unversioned_tensor(weight, stream));
    }
    [[nodiscard]] TensorPointer<UnversionedTensor> unversioned_tensor(WeightId weight) {
        return unwrap(try_unversioned_tensor(weight));
    }
    /// @}
#endif
    /// Where the tensor of a weight is: what __dlpack_device__ returns. Precondition: the lease covers the weight.
    [[nodiscard]] TensorDevice device_of(WeightId weight) const noexcept {
        const Lease<D>& lease = shared_->lease;
        if (is_on_host(lease, weight)) { return {DeviceType::cpu, 0}; }
        std::int32_t ordinal = 0;
        if constexpr (requires(const D& device) { device.ordinal(); }) { ordinal = lease.device().ordinal(); }
        return {device_type<D>, ordinal};
    }

    /// The lease itself, as for events. It may have ended with its Exporter. Precondition: this handle was not dropped.
    [[nodiscard]] Lease<D>& lease() noexcept { return shared_->lease; }
    /// Lets go of the lease; tensors keep it open.
    void drop() noexcept {
        if (shared_) { std::exchange(shared_, nullptr)->drop(); }
    }
    /// Whether the handle was not dropped.
    [[nodiscard]] explicit operator bool() const noexcept { return shared_ != nullptr; }

private:
    friend class Exporter<D>;
    explicit ExportedLease(std::shared_ptr<detail::SharedLease<D>> shared) noexcept : shared_{std::move(shared)} {}

    [[nodiscard]] static bool is_on_host(const Lease<D>& lease, WeightId weight) noexcept {
        const Catalog& catalog = lease.catalog();
        return catalog.storage(catalog.storage_of(weight)).placement == Placement::host;
    }

    template <class T>
    [[nodiscard]] Result<TensorPointer<T>> make(WeightId id, const Stream* stream) {
        if (!shared_ || !shared_->lease) {
            return Error{ErrorKind::wrong_state, "the lease has ended: acquire another one to export its weights"};
        }
        Lease<D>& lease = shared_->lease;
        if (auto readable = residency::detail::check_readable(lease, id); !readable) { return readable.error(); }
        if (device_type<D> == DeviceType::none) {
            return Error{ErrorKind::unsupported,
                         "DLPack has no name for memory of this device: specialise "
                         "residency::dlpack::device_type for it"};
        }
        const Catalog& catalog = lease.catalog();
        const Weight& weight = catalog.weight(id);
        const auto dtype = data_type(weight.dtype);
        if (!dtype) { return dtype.error().in("weight " + residency::detail::quoted(weight.name)); }
        auto dimensions = detail::dimensions(weight);
        if (!dimensions) { return dimensions.error().in("weight " + residency::detail::quoted(weight.name)); }
        if (stream != nullptr) {
            if (auto used = lease.try_use_on(*stream); !used) { return used.error(); }
        }
        auto exported = std::make_unique<detail::Export<T, D>>();
        exported->dimensions = std::move(*dimensions);
        exported->lease = shared_;
        T& managed = exported->tensor;
        Tensor& tensor = managed.tensor;
        // A program of the host reads pinned memory under its own address, which a kernel's may differ from.
        void* const at = is_on_host(lease, id)
                             ? const_cast<std::byte*>(catalog.host_bytes(weight.storage) + weight.offset_bytes)
                             : lease.template address<std::byte>(id);
        tensor.data = weight.elements() == 0 ? nullptr : at;
        tensor.device = device_of(id);
        tensor.dimensions = static_cast<std::int32_t>(weight.shape.size());
        tensor.dtype = *dtype;
        if (!weight.shape.empty()) {
            tensor.shape = exported->dimensions.data();
            tensor.strides = tensor.shape + weight.shape.size();
        }
        if constexpr (requires { managed.flags; }) {
            managed.flags = catalog.storage(weight.storage).is_mutable ? 0 : VersionedTensor::read_only;
        }
        managed.deleter = [](T* self) {
            const std::unique_ptr<detail::Export<T, D>> ended{static_cast<detail::Export<T, D>*>(self->manager)};
            ended->lease->drop();
        };
        shared_->references.fetch_add(1, std::memory_order_relaxed);
        managed.manager = exported.get();
        return TensorPointer<T>{&exported.release()->tensor};
    }

    std::shared_ptr<detail::SharedLease<D>> shared_;
};

/// Takes over leases, so that tensors of other frameworks keep them open. A framework drops a tensor on any thread, and a Residency is not
/// thread safe: so a lease whose last tensor is dropped on another thread ends with the next collect() or share(). One that is dropped on the
/// thread that made the lease's export ends at once.
///
/// Make it after the Residency, and use both on one thread. Its end ends every lease that it took over; tensors that are left must not be
/// read any more, and their deleters do no harm.
template <Device D>
class Exporter {
public:
    Exporter() = default;
    Exporter(const Exporter&) = delete;
    Exporter& operator=(const Exporter&) = delete;
    ~Exporter() {
        for (const auto& shared : shared_) { shared->lease.end(); }
    }

    /// Takes over a lease. Does collect() first.
    [[nodiscard]] ExportedLease<D> share(Lease<D> lease) {
        collect();
        return ExportedLease<D>{shared_.emplace_back(std::make_shared<detail::SharedLease<D>>(std::move(lease)))};
    }
    /// Ends the leases whose last tensor was dropped on another thread. Call it before an acquire that needs their room.
    void collect() noexcept {
        std::erase_if(shared_, [](const auto& shared) {
            const bool is_over = shared->references.load(std::memory_order_acquire) == 0;
            if (is_over) { shared->lease.end(); }
            return is_over;
        });
    }
    /// Leases that are open now.
    [[nodiscard]] std::size_t open_leases() const noexcept {
        return static_cast<std::size_t>(
            std::ranges::count_if(shared_, [](const auto& shared) { return static_cast<bool>(shared->lease); }));
    }

private:
    std::vector<std::shared_ptr<detail::SharedLease<D>>> shared_;
};

}  // namespace dlpack

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/interop/impl/dlpack.ipp"
#endif

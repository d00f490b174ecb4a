// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The structs of interop/dlpack.hpp beside those of DLPack's own header, which PyTorch has: `.ci/run torch` compiles this.
#include <cstddef>
#include <cstdint>

#include "residency/interop/dlpack.hpp"
#if __has_include(<ATen/dlpack.h>)
#include <ATen/dlpack.h>
#else
#include <dlpack/dlpack.h>
#endif

namespace ours = residency::dlpack;

#define SAME_PLACE(our, our_member, theirs, their_member)                                                              \
    static_assert(offsetof(ours::our, our_member) == offsetof(theirs, their_member));                                  \
    static_assert(sizeof(ours::our::our_member) == sizeof(theirs::their_member))
SAME_PLACE(Tensor, data, DLTensor, data);
SAME_PLACE(Tensor, device, DLTensor, device);
SAME_PLACE(Tensor, dimensions, DLTensor, ndim);
SAME_PLACE(Tensor, dtype, DLTensor, dtype);
SAME_PLACE(Tensor, shape, DLTensor, shape);
SAME_PLACE(Tensor, strides, DLTensor, strides);
SAME_PLACE(Tensor, byte_offset, DLTensor, byte_offset);
SAME_PLACE(TensorDevice, type, DLDevice, device_type);
SAME_PLACE(TensorDevice, ordinal, DLDevice, device_id);
SAME_PLACE(DataType, code, DLDataType, code);
SAME_PLACE(DataType, bits, DLDataType, bits);
SAME_PLACE(DataType, lanes, DLDataType, lanes);
SAME_PLACE(Version, major, DLPackVersion, major);
SAME_PLACE(Version, minor, DLPackVersion, minor);
SAME_PLACE(VersionedTensor, version, DLManagedTensorVersioned, version);
SAME_PLACE(VersionedTensor, manager, DLManagedTensorVersioned, manager_ctx);
SAME_PLACE(VersionedTensor, deleter, DLManagedTensorVersioned, deleter);
SAME_PLACE(VersionedTensor, flags, DLManagedTensorVersioned, flags);
SAME_PLACE(VersionedTensor, tensor, DLManagedTensorVersioned, dl_tensor);
SAME_PLACE(UnversionedTensor, tensor, DLManagedTensor, dl_tensor);
SAME_PLACE(UnversionedTensor, manager, DLManagedTensor, manager_ctx);
SAME_PLACE(UnversionedTensor, deleter, DLManagedTensor, deleter);
static_assert(sizeof(ours::VersionedTensor) == sizeof(DLManagedTensorVersioned));
static_assert(sizeof(ours::UnversionedTensor) == sizeof(DLManagedTensor));

static_assert(ours::VersionedTensor::read_only == DLPACK_FLAG_BITMASK_READ_ONLY);
static_assert(ours::Version{}.major == DLPACK_MAJOR_VERSION && ours::Version{}.minor <= DLPACK_MINOR_VERSION);
#define SAME_CODE(our, theirs) static_assert(static_cast<int>(our) == static_cast<int>(theirs))
SAME_CODE(ours::DeviceType::cpu, kDLCPU);
SAME_CODE(ours::DeviceType::cuda, kDLCUDA);
SAME_CODE(ours::TypeCode::signed_integer, kDLInt);
SAME_CODE(ours::TypeCode::unsigned_integer, kDLUInt);
SAME_CODE(ours::TypeCode::ieee_float, kDLFloat);
SAME_CODE(ours::TypeCode::bfloat, kDLBfloat);
SAME_CODE(ours::TypeCode::complex, kDLComplex);
SAME_CODE(ours::TypeCode::boolean, kDLBool);
SAME_CODE(ours::TypeCode::f8_e4m3, kDLFloat8_e4m3);
SAME_CODE(ours::TypeCode::f8_e4m3fn, kDLFloat8_e4m3fn);
SAME_CODE(ours::TypeCode::f8_e4m3fnuz, kDLFloat8_e4m3fnuz);
SAME_CODE(ours::TypeCode::f8_e5m2, kDLFloat8_e5m2);
SAME_CODE(ours::TypeCode::f8_e5m2fnuz, kDLFloat8_e5m2fnuz);
SAME_CODE(ours::TypeCode::f8_e8m0, kDLFloat8_e8m0fnu);

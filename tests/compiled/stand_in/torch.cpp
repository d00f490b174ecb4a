// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Stands in for PyTorch's libraries (libtorch_cpu.so) and for ExecuTorch's (libaoti_cuda_shims.so): the functions of PyTorch's C interface
// that the runtime looks up, over plain host memory.
#include "torch.hpp"

#include <cstdint>
#include <memory>

#define EXPORTED extern "C" __attribute__((__visibility__("default")))

EXPORTED std::int32_t aoti_torch_device_type_cpu() { return 0; }
EXPORTED std::int32_t aoti_torch_device_type_cuda() { return 1; }
EXPORTED std::int32_t aoti_torch_layout_strided() { return 0; }
EXPORTED std::int32_t aoti_torch_dtype_float32() { return 6; }
EXPORTED std::int32_t aoti_torch_dtype_int64() { return 4; }

EXPORTED std::int32_t aoti_torch_create_tensor_from_blob_v2(void* data, std::int64_t dim, const std::int64_t* sizes,
                                                            const std::int64_t* strides, std::int64_t,
                                                            std::int32_t dtype, std::int32_t device, std::int32_t,
                                                            void** result, std::int32_t, const std::uint8_t*,
                                                            std::int64_t) {
    if (device != 0 && device != 1) { return 1; }
    auto tensor = std::make_unique<stand_in::Tensor>();
    tensor->data = data;
    tensor->dtype = dtype;
    tensor->sizes.assign(sizes, sizes + dim);
    tensor->strides.assign(strides, strides + dim);
    ++stand_in::live_tensors();
    *result = tensor.release();
    return 0;
}
EXPORTED std::int32_t aoti_torch_delete_tensor_object(void* tensor) {
    --stand_in::live_tensors();
    delete static_cast<stand_in::Tensor*>(tensor);
    return 0;
}
EXPORTED std::int32_t aoti_torch_get_data_ptr(void* tensor, void** result) {
    *result = static_cast<stand_in::Tensor*>(tensor)->data;
    return 0;
}
EXPORTED std::int32_t aoti_torch_get_dim(void* tensor, std::int64_t* result) {
    *result = static_cast<std::int64_t>(static_cast<stand_in::Tensor*>(tensor)->sizes.size());
    return 0;
}
EXPORTED std::int32_t aoti_torch_get_sizes(void* tensor, std::int64_t** result) {
    *result = static_cast<stand_in::Tensor*>(tensor)->sizes.data();
    return 0;
}
EXPORTED std::int32_t aoti_torch_get_strides(void* tensor, std::int64_t** result) {
    *result = static_cast<stand_in::Tensor*>(tensor)->strides.data();
    return 0;
}
EXPORTED std::int32_t aoti_torch_get_dtype(void* tensor, std::int32_t* result) {
    *result = static_cast<stand_in::Tensor*>(tensor)->dtype;
    return 0;
}
/// What a package compiled for CUDA launches its kernels with; set by tests.
EXPORTED stand_in::Launch stand_in_launch;
stand_in::Launch stand_in_launch = nullptr;
/// Pools of graphs that exist, and how many of them allocations come from.
EXPORTED std::int64_t stand_in_live_pools, stand_in_open_pools;
std::int64_t stand_in_live_pools = 0, stand_in_open_pools = 0;
/// Tensors that exist, for tests.
EXPORTED std::int64_t stand_in_live_tensors() { return stand_in::live_tensors(); }

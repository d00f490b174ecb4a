// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Stands in for what is behind the handles of PyTorch's C interface: the tensor of an AtenTensorHandle.
#pragma once

#include <cstdint>
#include <vector>

namespace stand_in {

/// What an AtenTensorHandle of the stand-in points to.
struct Tensor {
    void* data = nullptr;
    std::int32_t dtype = 0;
    std::vector<std::int64_t> sizes, strides;
    std::vector<float> own;  // what `data` points to, where the tensor owns it
};

/// Enqueues `body(context)` on a stream, as a kernel that reads the bytes.
using Launch = void (*)(void* stream, const void* reads, std::uint64_t bytes, void (*body)(void*), void* context);

/// One for all shared objects, also where they are compiled with hidden visibility.
__attribute__((__visibility__("default"))) inline std::int64_t& live_tensors() {
    static std::int64_t count = 0;
    return count;
}

}  // namespace stand_in

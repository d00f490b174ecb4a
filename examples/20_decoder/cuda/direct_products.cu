// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "direct_products.hpp"

#include <algorithm>
#include <cstring>

#include "../checkpoint.hpp"
#include "examples/60_packed/matvec.cuh"
#include "examples/support/cuda_backend.hpp"
#include "kernels.hpp"
#include "residency/error.hpp"
#include "residency/packed/cuda_unpacker.cuh"

namespace decoder {
namespace {

namespace tiles = residency::codec::bf16_tiles;
static_assert(most_direct_tokens == matvec::most_vectors);

tiles::DeviceMatrix matrix_of(const PackedMatrix& packed) {
    tiles::Header header;
    std::memcpy(&header, packed.front, sizeof header);
    return tiles::device_matrix(header, packed.data);
}

}  // namespace

DirectProducts::DirectProducts(residency::CudaDevice& device, const Config& config) : device_{device} {
    int multiprocessors = 0;
    examples::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device.ordinal()),
                    "cudaDeviceGetAttribute");
    multiprocessors_ = static_cast<std::uint32_t>(multiprocessors);
    for (const Tensor& tensor : tensors_of(config)) {
        if (tensor.shape.size() != 2) { continue; }
        const auto matrix = matvec::matrix_of_rows(nullptr, static_cast<std::uint32_t>(tensor.shape[0]),
                                                   static_cast<std::uint32_t>(tensor.shape[1]));
        const bool is_head = tensor.name == "lm_head.weight" || tensor.name == "model.embed_tokens.weight";
        for (std::uint32_t tokens = 1; tokens <= (is_head ? 1 : most_direct_tokens); ++tokens) {
            const matvec::Cut cut = matvec::cut_of(matrix, tokens, multiprocessors_);
            workspace_bytes_ = (std::max)(workspace_bytes_, matvec::workspace_bytes(matrix, tokens, cut));
        }
    }
    workspace_ = static_cast<std::byte*>(residency::unwrap(device.allocate(workspace_bytes_)));
    examples::check(cudaMemset(workspace_, 0, matvec::counter_bytes), "cudaMemset");
    // The stream of the products does not wait for it.
    examples::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

DirectProducts::~DirectProducts() { static_cast<void>(device_.deallocate(workspace_).has_value()); }

cudaError_t DirectProducts::multiply(const Linear& o, cudaStream_t stream) const {
    static_assert(sizeof(Bf16) == sizeof(std::uint16_t));
    matvec::Operands operands;
    operands.matrix = o.packed.data != nullptr
                          ? matrix_of(o.packed)
                          : matvec::matrix_of_rows(reinterpret_cast<const std::uint16_t*>(o.weight), o.to, o.from);
    operands.x = reinterpret_cast<const std::uint16_t*>(o.in);
    operands.y = o.logits;
    operands.vectors = o.tokens;
    operands.workspace = workspace_;
    operands.cut = matvec::cut_of(operands.matrix, o.tokens, multiprocessors_);
    operands.scale = operands.matrix.scale();
    operands.bias = reinterpret_cast<const std::uint16_t*>(o.bias);
    operands.rounded = o.logits == nullptr ? reinterpret_cast<std::uint16_t*>(o.out) : nullptr;
    return matvec::enqueue(operands, !o.is_weight_new, stream);
}

cudaError_t launch(const Unpack& o, cudaStream_t stream) {
    constexpr unsigned blocks = 528;  // several a multiprocessor
    return tiles::enqueue_unpack(matrix_of(o.matrix), reinterpret_cast<std::byte*>(o.out), blocks, stream);
}

const residency::Unpacker<residency::CudaDevice>& unpacker() {
    static const residency::CudaUnpacker one;
    return one;
}

}  // namespace decoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "../operations.hpp"

namespace decoder {

/// What one GPU tells the others that run the model with it. Of one thread at a time.
class Communicator {
public:
    Communicator() = default;
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    // Enqueued; a capture may record them. Every GPU gives the same ones in the same order.
    virtual void launch(const Sum& o, cudaStream_t stream) = 0;
    virtual void launch(const Gather& o, cudaStream_t stream) = 0;
    /// Throws what has gone wrong since, such as with another GPU.
    virtual void check() const = 0;
    /// Ends what waits for the others. Nothing follows.
    virtual void abort() noexcept = 0;
};

/// Connects GPUs 0 to `count` - 1, one communicator each, which the graphs that captured it do not outlive. Blocks. Error unsupported,
/// thrown: there are not so many, or this program was built without NCCL.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> connect(std::uint32_t count);

}  // namespace decoder

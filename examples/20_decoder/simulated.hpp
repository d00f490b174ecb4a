// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>

#include "cold_start.hpp"
#include "examples/support/simulated_backend.hpp"
#include "generate_text.hpp"
#include "host_kernels.hpp"
#include "operations.hpp"
#include "ranks.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/simulation/simulated_unpacker.hpp"

namespace decoder {

/// Runs operations as host functions under the virtual clock of a simulated GPU.
class Simulated : public examples::SimulatedBackend {
public:
    static constexpr bool learns = false;  ///< kernels take exactly the times of the schedule

    /// For a small model the device's memory comes in small pieces, so that there is something to stream.
    explicit Simulated(std::uint64_t weight_bytes);

    /// Device memory that products take.
    [[nodiscard]] static constexpr std::uint64_t scratch_bytes() noexcept { return 0; }
    /// What unpacks weights before kernels read them.
    [[nodiscard]] const residency::Unpacker<Device>& unpacker() const noexcept { return unpacker_; }

    /// Where several GPUs run a model, each is a simulated device of its own: their clocks are apart, and sums wait for each other.
    [[nodiscard]] Rank& rank() noexcept { return rank_; }
    /// Pinned memory of another one can be read from now on.
    void share(const residency::HostBytes& bytes);
    void unshare(const residency::HostBytes& bytes) noexcept;
    void use() const noexcept {}
    /// Blocks until the stream is done; throws where another rank has failed.
    void wait();
    /// The other ranks go on without this one.
    void fail(const std::exception_ptr& why) noexcept { rank_.fail(why); }

    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        if constexpr (std::same_as<Operation, Sum> || std::same_as<Operation, Gather>) {
            SimulatedBackend::launch(name, operation, [operation, rank = rank_] { compute(operation, rank); });
        } else {
            SimulatedBackend::launch(name, operation);
        }
    }

private:
    Rank rank_;
    residency::SimulatedUnpacker unpacker_;
};

// What each operation reads and writes, for the device's checker.
using Kernel = residency::SimulatedDevice::Kernel;
void declare(const Upload& o, Kernel& kernel);
void declare(const Embed& o, Kernel& kernel);
void declare(const Normalise& o, Kernel& kernel);
void declare(const Unpack& o, Kernel& kernel);
void declare(const Linear& o, Kernel& kernel);
void declare(const Rotate& o, Kernel& kernel);
void declare(const Attend& o, Kernel& kernel);
void declare(const Sum& o, Kernel& kernel);
void declare(const Gather& o, Kernel& kernel);
void declare(const Add& o, Kernel& kernel);
void declare(const Gate& o, Kernel& kernel);
void declare(const Choose& o, Kernel& kernel);

extern template ColdStart start_cold(Simulated&, const ColdJob&, Workspace<Simulated>&);
extern template Outcome generate_packed(Simulated&, const TextJob<Simulated>&);

}  // namespace decoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/host/tier.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/simulation/handle_table.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace c {

struct LeaseTag;
struct GraphTag;
using LeaseHandle = simulation::Handle<LeaseTag>;
using GraphHandle = simulation::Handle<GraphTag>;

/// What residency_open() was asked for, and what the file says.
struct OpenRequest {
    Catalog catalog;    ///< its bytes lie in files
    Schedule schedule;  ///< without steps: to be guessed and learned
    std::optional<Budget> budget{};
    host::Tier tier = host::Tier::automatic;
    bool strict = false;
};

/// A model on a device, with its pass, leases, graphs and streams: what a handle of the C API names. A stream is a pointer as c.h
/// describes it. The calls of leases and graphs take handles of this model that exist.
class Model {
public:
    static constexpr std::uint32_t max_leases = 4096;  ///< at once
    static constexpr std::uint32_t max_graphs = 4096;  ///< at once

    Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    virtual ~Model() = default;

    [[nodiscard]] virtual const Catalog& catalog() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t steps() const noexcept = 0;
    [[nodiscard]] virtual std::string_view device_name() const noexcept = 0;
    /// What the checker of a simulated device found; none on a GPU.
    [[nodiscard]] virtual std::optional<std::uint64_t> report_count() const = 0;

    [[nodiscard]] virtual Result<void*> create_stream() = 0;
    [[nodiscard]] virtual Status destroy_stream(void* stream) = 0;
    [[nodiscard]] virtual Status synchronize(void* stream) = 0;

    [[nodiscard]] virtual Status begin_pass(void* stream) = 0;
    [[nodiscard]] virtual Status end_pass() = 0;

    [[nodiscard]] virtual bool has_lease(LeaseHandle lease) const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t open_leases() const noexcept = 0;
    [[nodiscard]] virtual Result<LeaseHandle> acquire_step(std::uint32_t step, void* stream) = 0;
    [[nodiscard]] virtual Result<LeaseHandle> acquire_weights(std::span<const WeightId> weights, void* stream) = 0;
    [[nodiscard]] virtual Status use_on(LeaseHandle lease, void* stream) = 0;
    /// The address of a weight; null where it has no bytes. Error invalid_argument: the lease does not cover it.
    [[nodiscard]] virtual Result<void*> address(LeaseHandle lease, WeightId weight) = 0;
    /// Blocks. Copies bytes of a weight to host memory. Errors: as address(), or the device's own.
    [[nodiscard]] virtual Status read(LeaseHandle lease, WeightId weight, std::uint64_t offset, std::uint64_t bytes,
                                      void* to) = 0;
    /// Ends the lease. Error: its use could not be recorded.
    [[nodiscard]] virtual Status release(LeaseHandle lease) = 0;

    [[nodiscard]] virtual Status set_budget(const Budget& budget) = 0;
    [[nodiscard]] virtual const ResolvedBudget& budget() const noexcept = 0;
    [[nodiscard]] virtual Status set_schedule(Schedule schedule) = 0;
    [[nodiscard]] virtual Status drain() = 0;
    [[nodiscard]] virtual Statistics statistics() const = 0;

    [[nodiscard]] virtual bool has_graph(GraphHandle graph) const noexcept = 0;
    /// Blocks. `body(context)` runs between the beginning and the end of a pass.
    [[nodiscard]] virtual Result<GraphHandle> capture(void* stream, int (*body)(void* context), void* context) = 0;
    [[nodiscard]] virtual Status launch(GraphHandle graph, void* stream) = 0;
    virtual void destroy(GraphHandle graph) = 0;
};

/// Blocks. Opens a simulated device with the model on it.
[[nodiscard]] Result<std::unique_ptr<Model>> open_simulated(OpenRequest request);
/// Whether this library was built with CUDA.
[[nodiscard]] bool has_cuda() noexcept;
/// Blocks. Opens a GPU with the model on it. Error unsupported: the library was built without CUDA.
[[nodiscard]] Result<std::unique_ptr<Model>> open_cuda(int ordinal, OpenRequest request);

}}}  // namespace residency::RESIDENCY_ABI::c

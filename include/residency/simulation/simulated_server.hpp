// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "residency/error.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/routed_experts.hpp"
#include "residency/routed/serve.hpp"
#include "residency/routed/tables.hpp"
#include "residency/simulation/kernel.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Runs a cache of experts on the simulated device: the code of the kernels, by one thread of the host. Its kernels take the time that is
/// given, whatever they bring: what that is, is known only when they run.
template <routed::Policy P = routed::ExpectedUse>
class SimulatedServer final : public routed::Server<SimulatedDevice, P> {
public:
    /// `guess_pieces`: so many pieces a guess brings before the next call ends it, at most.
    explicit SimulatedServer(std::chrono::nanoseconds duration = std::chrono::microseconds{5},
                             std::uint32_t guess_pieces = UINT32_MAX) noexcept
        : duration_{duration}, guess_pieces_{guess_pieces} {}

    /// As Server says.
    /// @{
    [[nodiscard]] Status serve(SimulatedDevice& device, const routed::Tables<P>& tables, const routed::Call& call,
                               SimulatedDevice::Stream stream) const override {
        return launch(device, "serve experts", stream, {{call.choices, choice_bytes(call)}}, [tables, call] {
            routed::Scratch scratch;
            const routed::OneThread one;
            routed::Decision<P, routed::OneThread>{one, scratch, tables, call, false}.make();
            for (std::uint32_t i = 0; i < tables.state->fills; ++i) { bring(tables, tables.fills[i], UINT32_MAX); }
        });
    }
    /// A guess reads its choices unchecked: the next serve() ends it, in no order that the checker knows.
    [[nodiscard]] Status guess(SimulatedDevice& device, const routed::Tables<P>& tables, const routed::Call& call,
                               SimulatedDevice::Stream stream) const override {
        return launch(device, "guess experts", stream, {}, [tables, call, most = guess_pieces_] {
            routed::Scratch scratch;
            const routed::OneThread one;
            routed::Decision<P, routed::OneThread>{one, scratch, tables, call, true}.make();
            for (std::uint32_t i = 0; i < tables.state->guess_fills; ++i) {
                const routed::Fill& fill = tables.guess_fills[i];
                const std::uint32_t pieces =
                    (std::min)(fill.pieces - fill.first_piece, most - tables.state->guess_next);
                bring(tables, fill, pieces);
                tables.state->guess_next += pieces;
            }
        });
    }
    /// @}

private:
    [[nodiscard]] static std::uint64_t choice_bytes(const routed::Call& call) noexcept {
        return call.count * (call.type == routed::ChoiceType::i32 ? sizeof(std::int32_t) : sizeof(std::int64_t));
    }
    static void bring(const routed::Tables<P>& tables, const routed::Fill& fill, std::uint32_t pieces) {
        const routed::Source& source = tables.sources[fill.expert];
        const std::uint64_t first = std::uint64_t{fill.first_piece} * routed::piece_bytes;
        const std::uint64_t bytes = (std::min)(source.bytes - first, std::uint64_t{pieces} * routed::piece_bytes);
        std::memcpy(tables.pool + fill.slot * tables.slot_bytes + first, source.host + first,
                    static_cast<std::size_t>(bytes));
    }
    template <class Body>
    [[nodiscard]] Status launch(SimulatedDevice& device, const char* name, SimulatedDevice::Stream stream,
                                simulation::ByteRanges reads, Body body) const {
        SimulatedDevice::Kernel kernel;
        kernel.name = name;
        kernel.duration = duration_;
        kernel.reads = std::move(reads);
        kernel.body = std::move(body);
        return device.launch(stream, std::move(kernel));
    }

    std::chrono::nanoseconds duration_;
    std::uint32_t guess_pieces_;
};

}}  // namespace residency::RESIDENCY_ABI

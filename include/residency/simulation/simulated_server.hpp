// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/tiers.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/error.hpp"
#include "residency/model/packed_form.hpp"
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
        // Which slots it fills is known when it runs: what kernels read of it, for the checker, is the addresses or the slots of the choices.
        const simulation::ByteRanges written{
            {static_cast<const void*>(call.addresses), call.count * sizeof *call.addresses},
            {call.slots, call.count * sizeof *call.slots}};
        return launch(device, "serve experts", stream, {{call.choices, choice_bytes(call)}}, written, [tables, call] {
            routed::Scratch scratch;
            const routed::OneThread one;
            routed::Decision<P, routed::OneThread>{one, scratch, tables, call, false}.make();
            for (std::uint32_t i = 0; i < tables.state->fills; ++i) { bring(tables, i, UINT32_MAX, false); }
        });
    }
    /// A part that was changed becomes 0xDB.
    [[nodiscard]] Status unpack(SimulatedDevice& device, const routed::Tables<P>& tables,
                                const routed::Unpacking& unpacking, SimulatedDevice::Stream stream) const override {
        return launch(device, "unpack experts", stream, {}, {}, [tables, unpacking] {
            const std::uint32_t parts = routed::staged_parts(tables, unpacking);
            for (std::uint32_t i = 0; i < parts; ++i) { unpack_part(routed::staged_part(tables, unpacking, i)); }
        });
    }
    /// A guess reads its choices unchecked: the next serve() ends it, in no order that the checker knows.
    [[nodiscard]] Status guess(SimulatedDevice& device, const routed::Tables<P>& tables, const routed::Call& call,
                               SimulatedDevice::Stream stream) const override {
        return launch(device, "guess experts", stream, {}, {}, [tables, call, most = guess_pieces_] {
            routed::Scratch scratch;
            const routed::OneThread one;
            routed::Decision<P, routed::OneThread>{one, scratch, tables, call, true}.make();
            for (std::uint32_t i = 0; i < tables.state->guess_fills; ++i) {
                tables.state->guess_next += bring(tables, i, most - tables.state->guess_next, true);
            }
        });
    }
    /// @}

private:
    [[nodiscard]] static std::uint64_t choice_bytes(const routed::Call& call) noexcept {
        return call.count * (call.type == routed::ChoiceType::i32 ? sizeof(std::int32_t) : sizeof(std::int64_t));
    }
    /// Brings the fill at a place of its list, but no more than so many pieces. How many those were.
    static std::uint32_t bring(const routed::Tables<P>& tables, std::uint32_t place, std::uint32_t most,
                               bool is_guess) {
        const routed::Fill& fill = (is_guess ? tables.guess_fills : tables.fills)[place];
        const std::uint32_t moves = (std::min)(routed::moves_of(fill, is_guess), most);
        for (std::uint32_t i = 0; i < moves; ++i) {
            const routed::Move move = routed::move_of(tables, fill, place, i, is_guess);
            std::memcpy(move.to, move.from, static_cast<std::size_t>(move.bytes));
        }
        return moves;
    }
    static void unpack_part(const routed::StagedPart& part) {
        const std::span raw{part.raw, static_cast<std::size_t>(part.raw_bytes)};
        if (part.packed == nullptr) { return; }
        if (part.form == PackedForm::raw) {
            std::memcpy(raw.data(), part.packed, raw.size());
            return;
        }
        codec::PackedHeader header;
        std::memcpy(&header, part.packed, sizeof header);
        codec::tiers::for_each_format([&](auto format) {
            if (part.form != format.form) { return; }
            const std::span packed{part.packed, static_cast<std::size_t>(header.packed_bytes)};
            if (!codec::Tiers<decltype(format)>{}.unpack({}, packed, raw)) {
                std::memset(raw.data(), 0xDB, raw.size());
            }
        });
    }
    template <class Body>
    [[nodiscard]] Status launch(SimulatedDevice& device, const char* name, SimulatedDevice::Stream stream,
                                simulation::ByteRanges reads, simulation::ByteRanges writes, Body body) const {
        SimulatedDevice::Kernel kernel;
        kernel.name = name;
        kernel.duration = duration_;
        kernel.reads = std::move(reads);
        kernel.writes = std::move(writes);
        kernel.body = std::move(body);
        return device.launch(stream, std::move(kernel));
    }

    std::chrono::nanoseconds duration_;
    std::uint32_t guess_pieces_;
};

}}  // namespace residency::RESIDENCY_ABI

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// A neighbour out of whose memory a device copies, and what both need for it.
template <PeerDevice D>
struct Neighbour {
    D* device = nullptr;                       ///< that is fed
    D* neighbour = nullptr;                    ///< as the caller named it
    std::byte* memory = nullptr;               ///< of the neighbour
    std::optional<typename D::Stream> into;    ///< of the neighbour: from the host into its memory
    std::optional<typename D::Stream> out;     ///< of the device: out of it
    std::optional<typename D::Event> is_done;  ///< of the device
    std::optional<typename D::Event> answers;  ///< of the neighbour, never recorded: asked whether it is well
    double bytes_per_second = 0;               ///< of what comes through it, measured; 0: not yet
    std::uint64_t brought_bytes = 0;           ///< enqueued
    bool is_open = false;                      ///< the neighbour counts it as a user
    bool is_pending = false;                   ///< bytes were sent since it was found well
    bool is_unsettled = false;                 ///< the last settle() failed
    std::string reason;                        ///< why it is not used, or less than was asked for

    /// May block. On failure close() gives back what is there.
    [[nodiscard]] Status open() {
        if (auto enabled = device->enable_peer(*neighbour); !enabled) { return enabled; }
        if (auto made = make(into, neighbour->create_stream()); !made) { return made; }
        if (auto made = make(out, device->create_stream()); !made) { return made; }
        if (auto made = make(is_done, device->create_event(Timing::off)); !made) { return made; }
        return make(answers, neighbour->create_event(Timing::off));
    }
    /// The neighbour outlives it from now on.
    void begin_use() {
        is_open = true;
        if constexpr (requires { neighbour->users(); }) { neighbour->users().add(); }
    }
    /// The neighbour is not used any more, and may end.
    void end_use() noexcept {
        if (!std::exchange(is_open, false)) { return; }
        if constexpr (requires { neighbour->users(); }) { neighbour->users().remove(); }
    }
    /// Gives back what open() made, when nothing uses it any more. Blocks.
    void close() noexcept {
        const bool is_idle = !into || neighbour->synchronize(*into).has_value();
        // What may still be written to is never given back.
        if (std::exchange(is_unsettled, false) && !is_idle) { memory = nullptr; }
        if (out) { drop(device->synchronize(*out)); }
        if (is_done) { drop(device->destroy_event(*std::exchange(is_done, std::nullopt))); }
        if (answers) { drop(neighbour->destroy_event(*std::exchange(answers, std::nullopt))); }
        if (out) { drop(device->destroy_stream(*std::exchange(out, std::nullopt))); }
        if (into) { drop(neighbour->destroy_stream(*std::exchange(into, std::nullopt))); }
    }
    /// Later work of the stream starts after what `out` has. Blocks only where that cannot be enqueued.
    [[nodiscard]] Status join(typename D::Stream stream, bool is_captured) {
        const auto enqueue = [&] {
            Status joined = device->record(*is_done, *out);
            return joined ? device->wait(stream, *is_done) : std::move(joined);
        };
        Status joined = enqueue();
        if (joined) { return joined; }
        if (is_captured) { return enqueue(); }  // a stream that is left in a capture ends it with an error
        auto waited = device->synchronize(*out);
        return waited ? std::move(joined) : std::move(waited);
    }
    /// Blocks until nothing is on its way into its memory. An error: it is lost, and with it what was on its way, though the events of
    /// earlier calls are reached. Unless only this call failed: settle_left_out().
    [[nodiscard]] Status settle() {
        auto settled = neighbour->synchronize(*into);
        is_unsettled = !settled;
        return settled;
    }
    /// For a neighbour that is not used any more: as settle(), where that has failed so far. An error: it is well, and may still read from
    /// the host and write to its memory.
    [[nodiscard]] Status settle_left_out() {
        if (!is_unsettled) { return {}; }
        auto settled = settle();
        return status() ? std::move(settled) : Status{};
    }
    /// Whether it is well. Does not block.
    [[nodiscard]] Status status() const {
        auto answer = neighbour->is_complete(*answers);
        return answer ? Status{} : Status{answer.error()};
    }
    /// For calls whose failure changes nothing any more.
    static void drop(Status status) noexcept { static_cast<void>(status.has_value()); }

private:
    template <class T>
    [[nodiscard]] static Status make(std::optional<T>& target, Result<T> made) {
        if (!made) { return made.error(); }
        target = *made;
        return {};
    }
};

}}}  // namespace residency::RESIDENCY_ABI::transport

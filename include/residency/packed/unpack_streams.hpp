// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// Two streams that fill the memory of unpacked weights: one copies packed parts into one half of a stage, while the kernels of the other
/// unpack the other half.
template <Device D>
class UnpackStreams {
public:
    /// Makes the streams and events that are not there yet. Where this fails, a later call goes on.
    [[nodiscard]] Status open(D& device) {
        if (auto made = make_stream(device, kernels_); !made) { return made; }
        if (auto made = make_stream(device, copies_); !made) { return made; }
        for (Half& half : halves_) {
            if (auto made = make_event(device, half.is_full); !made) { return made; }
            if (auto made = make_event(device, half.is_free); !made) { return made; }
        }
        return {};
    }
    /// Of the kernels that unpack. Precondition: it was opened.
    [[nodiscard]] typename D::Stream kernels() const noexcept { return *kernels_; }
    /// Of the copies to the stage. Precondition: it was opened.
    [[nodiscard]] typename D::Stream copies() const noexcept { return *copies_; }
    /// Enqueues copies to a half of the stage, 0 or 1, behind the kernels of its last round; kernels that are enqueued next run behind them.
    [[nodiscard]] Status bring(D& device, std::span<const Copy> copies, std::size_t half) {
        is_unsettled_ = true;
        if (auto waited = device.wait(*copies_, *halves_[half].is_free); !waited) { return waited; }
        if (auto copied = device.copy(copies, *copies_); !copied) { return copied; }
        if (auto recorded = device.record(*halves_[half].is_full, *copies_); !recorded) { return recorded; }
        return device.wait(*kernels_, *halves_[half].is_full);
    }
    /// The kernels of this half's round were enqueued. Returns an event behind them, until the half's next round.
    [[nodiscard]] Result<typename D::Event> note_unpacked(D& device, std::size_t half) {
        if (auto recorded = device.record(*halves_[half].is_free, *kernels_); !recorded) { return recorded.error(); }
        return *halves_[half].is_free;
    }
    /// Blocks until all that is on both streams is complete.
    [[nodiscard]] Status settle(D& device) {
        auto copied = device.synchronize(*copies_);
        auto unpacked = device.synchronize(*kernels_);
        is_unsettled_ = !copied || !unpacked;
        return copied ? std::move(unpacked) : std::move(copied);
    }
    /// Whether something may be on the streams since the last settle() that succeeded.
    [[nodiscard]] bool is_unsettled() const noexcept { return is_unsettled_; }
    /// Something is about to be enqueued on kernels().
    void note_work() noexcept { is_unsettled_ = true; }
    /// Gives everything back, whatever fails. `device` may be null where it was not opened.
    void close(D* device) noexcept {
        for (Half& half : halves_) {
            for (auto* const event : {&half.is_full, &half.is_free}) {
                if (*event) { static_cast<void>(device->destroy_event(**event).has_value()); }
            }
        }
        for (auto* const stream : {&copies_, &kernels_}) {
            if (*stream) { static_cast<void>(device->destroy_stream(**stream).has_value()); }
        }
        abandon();
    }
    /// Forgets everything without a device call.
    void abandon() noexcept { *this = UnpackStreams{}; }

private:
    struct Half {
        std::optional<typename D::Event> is_full;  // its copies have arrived
        std::optional<typename D::Event> is_free;  // its kernels have read it
    };

    [[nodiscard]] static Status make_stream(D& device, std::optional<typename D::Stream>& stream) {
        if (stream) { return {}; }
        auto made = device.create_stream();
        if (!made) { return made.error(); }
        stream = *made;
        return {};
    }
    [[nodiscard]] static Status make_event(D& device, std::optional<typename D::Event>& event) {
        if (event) { return {}; }
        auto made = device.create_event(Timing::off);
        if (!made) { return made.error(); }
        event = *made;
        return {};
    }

    std::optional<typename D::Stream> kernels_, copies_;
    std::array<Half, 2> halves_;
    bool is_unsettled_ = false;
};

}}}  // namespace residency::RESIDENCY_ABI::packed

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/device/link.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/transport/neighbour.hpp"
#include "residency/transport/neighbour_memory.hpp"
#include "residency/transport/pinned.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// The knobs of Links.
template <PeerDevice D>
struct LinksConfig {
    /// Other devices of the same host, each once, which lend their links. They outlive the Residency; several of them may feed different
    /// Residencies. None: as transport::Pinned.
    std::vector<D*> neighbours{};
    /// Device memory of each neighbour, through which its bytes go. It is no part of the budget.
    std::uint64_t bounce_bytes = std::uint64_t{64} << 20;
    /// Device memory of the neighbours, in their order, in which bytes lie that a plan brings in each pass: a budget each, and none for those
    /// that are left out. Bytes from there come faster than over any link. It is no part of the budget of the device that is fed.
    std::vector<std::uint64_t> memory_bytes{};
};

/// Feeds a device through its own link and through those of its neighbours: they take a part of each call into bounce buffers, from where
/// the device copies it (over NVLink, for instance). The parts are such that all links end together. Meant for pinned bytes.
///
/// With memory_bytes a neighbour also holds bytes of the model (NeighbourMemory): a part of each call comes from there, at the same time.
///
/// A neighbour that cannot help is left out, and links() says why: no peer access, no memory for the buffers, a call that failed, or
/// a path that brings nothing, such as one through the same link. Plans are then made for what is left. Its memory may serve all the same.
template <PeerDevice D>
class Links {
public:
    using Config = LinksConfig<D>;            ///< its knobs
    static constexpr bool capturable = true;  ///< streams of neighbours take part in a capture

    /// A call of fewer bytes for a neighbour than this uses the links of others.
    static constexpr std::uint64_t least_bytes = std::uint64_t{512} << 10;
    /// Bounce buffers of one neighbour: while one is filled, others are read.
    static constexpr std::uint32_t buffers = 4;

    /// Does nothing before open().
    explicit Links(Config config) : config_{std::move(config)} {}
    Links(const Links&) = delete;
    Links& operator=(const Links&) = delete;

    /// May block. ErrorKind::unsupported: a storage is not in host memory. ErrorKind::invalid_argument: a neighbour is none, or there are more
    /// budgets than neighbours.
    [[nodiscard]] Status open(D& device, const Catalog& catalog);
    /// Does not block, if the bytes are pinned.
    [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream);
    /// As D::copy(), but by all links. Does not block, if the bytes are pinned.
    [[nodiscard]] Status copy(std::span<const Copy> copies, typename D::Stream stream);

    [[nodiscard]] std::size_t neighbours() const noexcept { return paths_.size(); }            ///< used or not
    [[nodiscard]] D& neighbour(std::size_t i) const noexcept { return *paths_[i].neighbour; }  ///< of these
    /// The bounce buffers of a neighbour, for who measures its link while nothing is on its way. Precondition: uses(i).
    [[nodiscard]] std::span<std::byte> bounce_memory(std::size_t i) const noexcept {
        return {paths_[i].memory, static_cast<std::size_t>(buffer_bytes()) * buffers};
    }
    /// Whether that neighbour's link is used.
    [[nodiscard]] bool uses(std::size_t i) const noexcept { return paths_[i].is_open && paths_[i].reason.empty(); }
    /// What the own link brings alone, in bytes per second. Bytes are counted from here on.
    void set_own_rate(double bytes_per_second) noexcept {
        own_rate_ = bytes_per_second;
        own_bytes_ = 0;
        for (Path& path : paths_) { path.brought_bytes = 0; }
        memory_.reset_counts();
    }
    /// What a neighbour's link brings, in bytes per second; with a reason, it is not used, and links() says so.
    void set_rate(std::size_t i, double bytes_per_second, std::string reason) {
        paths_[i].bytes_per_second = bytes_per_second;
        paths_[i].reason = std::move(reason);
    }
    [[nodiscard]] std::vector<LinkUse> links() const;  ///< the device's own link, then the neighbours in their order
    /// Of the links and neighbours' memories that are used, each by itself, in bytes per second. Less than before: a neighbour was left out.
    [[nodiscard]] double rate() const noexcept { return links_rate() + memory_.rate(); }
    /// What the links that are used now bring together, in bytes per second.
    void set_joint_rate(double bytes_per_second) noexcept { joint_ = bytes_per_second / links_rate(); }
    /// Whether neighbours are to hold bytes of the model: then plans are for rate_of(), and hold() follows each.
    [[nodiscard]] bool holds() const noexcept { return memory_.is_wanted(); }
    /// What calls cost that bring `bytes` different bytes in a pass, once hold() has been told of them.
    [[nodiscard]] CallRate rate_of(std::uint64_t bytes) const {
        const CallRate alone = rate_of(bytes, false), all = rate_of(bytes, true);
        return all.bytes_per_second > alone.bytes_per_second ? all : alone;
    }
    /// The calls of the plan in force: neighbours hold a part of each from now on, chosen and brought there before it returns. The rest comes by
    /// the own link, or by all, whichever is faster. What fails is left out, as links() says. Blocks. Precondition: the copy stream is drained.
    void hold(std::span<const std::span<const Fetch>> calls) {
        const std::uint64_t bytes = memory_.different_bytes(calls);
        forwards_rest_ = rate_of(bytes, true).bytes_per_second > rate_of(bytes, false).bytes_per_second;
        memory_.hold(calls, bytes, host_rate(forwards_rest_));
    }
    /// Gives the neighbours' memory back until the next hold(). On failure some of it is, and it may be called again. Blocks. Precondition:
    /// the copy stream is drained.
    [[nodiscard]] Status release_held() { return memory_.release(); }
    /// For who measures, before hold(): what neighbours hold, and copies of which a share comes out of their memory, whatever lies there.
    /// @{
    [[nodiscard]] NeighbourMemory<D>& memory() noexcept { return memory_; }
    [[nodiscard]] Status copy_sample(std::span<const Copy> copies, double share, typename D::Stream stream) {
        sample_.clear();
        memory_.split_sample(copies, share, sample_);
        return copy_around(sample_, stream);
    }
    /// What such copies of the best share reach, the rest by the own link or by all of them.
    void set_measured(bool is_by_all, const CallRate& measured) {
        Together& together = together_[is_by_all ? 1 : 0];
        together = {1, measured.latency_seconds};
        together.share = (std::min)(1.0, measured.bytes_per_second / memory_.rate_of(0, host_rate(is_by_all)));
    }
    /// By which links the rest comes while it is measured.
    void set_forwards_rest(bool is_by_all) noexcept { forwards_rest_ = is_by_all; }
    /// What the links bring: the own one, or all.
    [[nodiscard]] HostRate host_rate(bool is_by_all) const noexcept {
        const double all = is_by_all ? (std::max)(joint_ * links_rate(), own_rate_) : own_rate_;
        return {all, all - own_rate_};
    }
    /// @}
    /// Leaves neighbours out that are broken; what was lost there, status() says. Blocks until nothing is on its way to a neighbour. An error:
    /// one may still read from the host, or write to its memory.
    [[nodiscard]] Status check_neighbours();
    void close() noexcept;  ///< what TransportPolicy asks for
    /// Gives nothing back that the device may still use.
    void abandon() noexcept {
        memory_.abandon();
        for (Path& path : paths_) { path.end_use(); }
        paths_.clear();
        is_due_.reset();
    }
    /// A neighbour broke while bytes were on their way through it, or does not answer: whether bytes were lost, check_neighbours() finds out.
    [[nodiscard]] Status status() const;
    /// As TransportPolicy says: every storage may have lost bytes, but for mutable ones, which come by the own link.
    void take_failure(std::vector<StorageId>& storages) {
        const bool has_lost_held = memory_.take_failure();
        if (!std::exchange(failure_, std::nullopt) && !has_lost_held) { return; }
        for (std::uint32_t i = 0; i < catalog_.storages().size(); ++i) {
            const Storage& storage = catalog_.storages()[i];
            if (storage.bytes > 0 && !storage.is_mutable) { storages.push_back(StorageId{i}); }
        }
    }
    /// No thread of its own reads sources.
    [[nodiscard]] Status pause(std::span<const StorageId>) { return {}; }
    /// Neighbours hold the new bytes when it returns. Blocks.
    [[nodiscard]] Status sources_changed(std::span<const StorageId> storages) {
        memory_.refresh(storages);
        return {};
    }
    /// Gives back what a neighbour has whose link is not used. Precondition: nothing is on its way.
    void close_unused() noexcept {
        for (Path& path : paths_) {
            if (path.is_open && !path.reason.empty()) { close_path(path, std::string{path.reason}); }
        }
    }

private:
    /// A piece of memory of a neighbour.
    struct Buffer {
        std::optional<typename D::Event> is_full;  // of the neighbour: its bytes have come
        std::optional<typename D::Event> is_free;  // of the device: it has read them
        bool is_used = false;                      // is_free was recorded
    };
    /// The way through one neighbour.
    struct Path : Neighbour<D> {  // its memory are the buffers; a rate of 0: as fast as the own link
        std::vector<Buffer> ring;
        std::uint32_t next = 0;  // buffer
    };
    /// Of copies that come out of memory and by links at the same time.
    struct Together {
        double share = 1;  // of the sum of both rates
        double latency_seconds = 0;
    };
    /// Where a call's copies are cut.
    struct Cursor {
        std::size_t copy = 0;
        std::uint64_t done_bytes = 0;  // of that copy
    };

    [[nodiscard]] std::uint64_t buffer_bytes() const noexcept {
        return config_.bounce_bytes / buffers / granule * granule;
    }
    [[nodiscard]] double rate_of(const Path& path) const noexcept {
        return path.bytes_per_second > 0 ? path.bytes_per_second : own_rate_;
    }
    [[nodiscard]] double links_rate() const noexcept {
        double rate = own_rate_;
        for (std::size_t i = 0; i < paths_.size(); ++i) { rate += uses(i) ? rate_of(paths_[i]) : 0; }
        return rate;
    }
    [[nodiscard]] CallRate rate_of(std::uint64_t bytes, bool is_by_all) const {
        const Together& together = together_[is_by_all ? 1 : 0];
        const HostRate host = host_rate(is_by_all);
        return {(std::max)(host.all, memory_.rate_of(bytes, host) * together.share), together.latency_seconds};
    }
    /// Enqueues what memory_ has split off, beside the rest. What fails there comes by the own link.
    [[nodiscard]] Status copy_around(std::span<const Copy> rest, typename D::Stream stream);
    /// Bytes may be on their way there: graphs bring them whenever they run.
    [[nodiscard]] bool may_lose(const Path& path) const noexcept { return path.is_pending || was_captured_; }
    /// Error: what is named as a neighbour is none.
    [[nodiscard]] Status check_config(const D& device) const;
    [[nodiscard]] Status open_path(Path& path);
    /// Gives back what the path has; leaves it out for that reason.
    void close_path(Path& path, std::string reason) noexcept;
    /// Decides how many bytes of a call each path brings: parts_.
    void divide(std::uint64_t bytes);
    /// Enqueues the next bytes behind the cursor by a neighbour. On failure some of them may be under way.
    [[nodiscard]] Status send_by(Path& path, Cursor& cursor, std::uint64_t bytes);
    /// Leaves a path out that failed. Blocks until nothing is on its way into the buffers; what was lost there, status() says. Where that
    /// fails, check_neighbours() blocks until then.
    void leave_out(Path& path, const Error& error);
    /// The next bytes of a call: appended to pieces_. With a buffer they go there, and from there onward_.
    void take(Cursor& cursor, std::uint64_t bytes, std::byte* buffer);

    static constexpr std::uint64_t granule = std::uint64_t{64} << 10;
    /// So much later than the own link a path ends that has as much to bring: events from device to device, and the last piece.
    static constexpr double path_latency_seconds = 20e-6;

    Config config_;
    Pinned<D> host_;  // knows where storages lie
    NeighbourMemory<D> memory_;
    Catalog catalog_;
    std::optional<Error> failure_;
    D* device_ = nullptr;                 // while open
    std::vector<Path> paths_;             // by neighbour
    double own_rate_ = 55e9;              // bytes per second
    double joint_ = 1;                    // what links bring together, over the sum of what each brings
    std::array<Together, 2> together_{};  // with the own link, with all
    bool forwards_rest_ = false;          // of calls of which neighbours hold a part
    std::uint64_t own_bytes_ = 0;
    std::optional<typename D::Event> is_due_;  // what lies before a call's copies
    bool was_captured_ = false;
    std::span<const Copy> copies_;      // of the call being made
    std::vector<std::uint64_t> parts_;  // by path
    std::vector<Copy> pieces_, onward_;
    std::vector<Copy> again_;   // of a neighbour that failed
    std::vector<Copy> sample_;  // of copy_sample()
};

template <PeerDevice D>
Status Links<D>::check_config(const D& device) const {
    for (std::size_t i = 0; i < config_.neighbours.size(); ++i) {
        const auto begin = config_.neighbours.begin(), at = begin + static_cast<std::ptrdiff_t>(i);
        const auto first = std::find(begin, at, *at);
        if (*at != nullptr && *at != &device && first == at) { continue; }
        return Error{ErrorKind::invalid_argument,
                     "transport.neighbours[" + std::to_string(i) + "] is " +
                         (*at == nullptr   ? std::string{"null"}
                          : *at == &device ? std::string{"the device that is fed"}
                                           : "the same device as [" + std::to_string(first - begin) + "]") +
                         ": give each other device whose link is to be used, once"};
    }
    if (config_.memory_bytes.size() <= config_.neighbours.size()) { return {}; }
    return Error{ErrorKind::invalid_argument,
                 "transport.memory_bytes has " + std::to_string(config_.memory_bytes.size()) +
                     " budgets, and there are " + std::to_string(config_.neighbours.size()) +
                     " neighbours: give one for each neighbour at most, in their order"};
}

template <PeerDevice D>
Status Links<D>::open(D& device, const Catalog& catalog) {
    if (auto checked = check_config(device); !checked) { return checked; }
    if (auto opened = host_.open(device, catalog); !opened) { return opened; }
    device_ = &device;
    catalog_ = catalog;
    pieces_.reserve(256);
    onward_.reserve(256);
    auto event = device.create_event(Timing::off);
    if (!event) { return event.error(); }
    is_due_ = *event;
    for (D* const neighbour : config_.neighbours) {
        paths_.emplace_back();
        Path& path = paths_.back();
        path.device = device_;
        path.neighbour = neighbour;
        if (auto opened = open_path(path); opened) {
            path.begin_use();
        } else {
            close_path(path, opened.error().message());
        }
    }
    parts_.resize(paths_.size());
    memory_.open(device, catalog, host_, config_.neighbours, config_.memory_bytes);
    return {};
}

template <PeerDevice D>
Status Links<D>::open_path(Path& path) {
    if (buffer_bytes() < least_bytes) {
        return Error{ErrorKind::invalid_argument, "transport.bounce_bytes is too small: give at least 2 MiB"};
    }
    if (auto opened = path.open(); !opened) { return opened; }
    D& neighbour = *path.neighbour;
    auto memory = neighbour.allocate(buffer_bytes() * buffers);
    if (!memory) { return memory.error(); }
    path.memory = static_cast<std::byte*>(*memory);
    path.ring.resize(buffers);
    for (Buffer& buffer : path.ring) {
        auto is_full = neighbour.create_event(Timing::off);
        if (!is_full) { return is_full.error(); }
        buffer.is_full = *is_full;
        auto is_free = device_->create_event(Timing::off);
        if (!is_free) { return is_free.error(); }
        buffer.is_free = *is_free;
    }
    return {};
}

template <PeerDevice D>
void Links<D>::close_path(Path& path, std::string reason) noexcept {
    path.reason = std::move(reason);
    path.close();
    for (Buffer& buffer : path.ring) {
        if (buffer.is_full) { path.drop(path.neighbour->destroy_event(*buffer.is_full)); }
        if (buffer.is_free) { path.drop(device_->destroy_event(*buffer.is_free)); }
    }
    path.ring.clear();
    if (path.memory != nullptr) { path.drop(path.neighbour->deallocate(std::exchange(path.memory, nullptr))); }
    path.end_use();
}

template <PeerDevice D>
void Links<D>::close() noexcept {
    memory_.close();
    for (Path& path : paths_) { close_path(path, {}); }
    paths_.clear();
    if (is_due_) { static_cast<void>(device_->destroy_event(*std::exchange(is_due_, std::nullopt)).has_value()); }
    host_.close();
}

template <PeerDevice D>
Status Links<D>::enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
    const auto is_written = [&](const Fetch& fetch) { return catalog_.storage(fetch.storage).is_mutable; };
    if (std::any_of(fetches.begin(), fetches.end(), is_written)) {
        // Once kernels have written there, it could not be brought again after a neighbour broke.
        own_bytes_ += bytes_of(fetches);
        return device_->copy(host_.join(fetches), stream);
    }
    if (!memory_.split(fetches)) { return copy(host_.join(fetches), stream); }
    return copy_around(host_.join(memory_.rest()), stream);
}

template <PeerDevice D>
Status Links<D>::copy_around(std::span<const Copy> rest, typename D::Stream stream) {
    const auto captured = device_->is_capturing(stream);
    if (!captured) { return captured.error(); }
    if (auto recorded = device_->record(*is_due_, stream); !recorded) { return recorded; }
    Status sent = memory_.send(*is_due_, *captured);
    if (sent && forwards_rest_) {
        sent = rest.empty() ? Status{} : copy(rest, stream);
    } else if (sent) {
        for (const Copy& each : rest) { own_bytes_ += *captured ? 0 : each.bytes; }
        sent = device_->copy(rest, stream);
    }
    auto joined = memory_.join(stream, *captured);
    if (!joined && sent) { sent = std::move(joined); }
    if (!sent || memory_.again().empty()) { return sent; }
    own_bytes_ += bytes_of(memory_.again());
    return device_->copy(host_.join(memory_.again()), stream);
}

template <PeerDevice D>
void Links<D>::divide(std::uint64_t bytes) {
    // All end together at t: a path brings rate * (t - latency). If the smallest part is too small, it is left out, and t grows.
    for (std::size_t i = 0; i < paths_.size(); ++i) { parts_[i] = uses(i) ? 1 : 0; }
    std::size_t left_out = 0;
    do {
        left_out = paths_.size();
        double rates = own_rate_, late = 0, smallest = static_cast<double>(least_bytes);
        for (std::size_t i = 0; i < paths_.size(); ++i) {
            if (parts_[i] == 0) { continue; }
            rates += rate_of(paths_[i]);
            late += rate_of(paths_[i]) * path_latency_seconds;
        }
        const double end = (static_cast<double>(bytes) + late) / rates;
        for (std::size_t i = 0; i < paths_.size(); ++i) {
            if (parts_[i] == 0) { continue; }
            const double part = rate_of(paths_[i]) * (end - path_latency_seconds);
            if (part >= static_cast<double>(least_bytes)) {
                parts_[i] = static_cast<std::uint64_t>(part) / granule * granule;
            } else if (part <= smallest) {
                smallest = part;
                left_out = i;
            }
        }
        if (left_out < paths_.size()) { parts_[left_out] = 0; }
    } while (left_out < paths_.size());
}

template <PeerDevice D>
void Links<D>::take(Cursor& cursor, std::uint64_t bytes, std::byte* buffer) {
    while (bytes > 0) {
        const Copy& copy = copies_[cursor.copy];
        const std::uint64_t now = (std::min)(bytes, copy.bytes - cursor.done_bytes);
        auto* const to = static_cast<std::byte*>(copy.to) + cursor.done_bytes;
        const auto* const from = static_cast<const std::byte*>(copy.from) + cursor.done_bytes;
        if (buffer != nullptr) {
            pieces_.push_back({buffer, from, now});
            onward_.push_back({to, buffer, now});
            buffer += now;
        } else {
            pieces_.push_back({to, from, now});
        }
        bytes -= now;
        cursor.done_bytes += now;
        if (cursor.done_bytes == copy.bytes) { cursor = {cursor.copy + 1, 0}; }
    }
}

template <PeerDevice D>
Status Links<D>::send_by(Path& path, Cursor& cursor, std::uint64_t bytes) {
    // Large calls fill the link, but all wait for the last one's way out of its buffer.
    const std::uint64_t piece = std::clamp(bytes / buffers / granule * granule, least_bytes, buffer_bytes());
    D& neighbour = *path.neighbour;
    if (auto waited = device_->wait(*path.out, *is_due_); !waited) { return waited; }
    if (was_captured_) {
        // A graph may have used the buffers since: what lies before this call does.
        if (auto waited = neighbour.wait(*path.into, *is_due_); !waited) { return waited; }
        for (Buffer& buffer : path.ring) { buffer.is_used = false; }
    }
    while (bytes > 0) {
        const std::uint64_t now = (std::min)(bytes, piece);
        bytes -= now;
        Buffer& buffer = path.ring[path.next];
        pieces_.clear();
        onward_.clear();
        take(cursor, now, path.memory + path.next * buffer_bytes());
        path.next = (path.next + 1) % buffers;
        if (buffer.is_used) {
            if (auto waited = neighbour.wait(*path.into, *buffer.is_free); !waited) { return waited; }
        }
        if (auto copied = neighbour.copy(pieces_, *path.into); !copied) { return copied; }
        if (auto recorded = neighbour.record(*buffer.is_full, *path.into); !recorded) { return recorded; }
        if (auto waited = device_->wait(*path.out, *buffer.is_full); !waited) { return waited; }
        if (auto copied = device_->copy(onward_, *path.out); !copied) { return copied; }
        if (auto recorded = device_->record(*buffer.is_free, *path.out); !recorded) { return recorded; }
        buffer.is_used = true;
    }
    return {};
}

template <PeerDevice D>
void Links<D>::leave_out(Path& path, const Error& error) {
    path.reason = error.message();
    const auto settled = path.settle();
    if (!settled && may_lose(path)) { failure_ = settled.error(); }
}

template <PeerDevice D>
Status Links<D>::status() const {
    if (failure_) { return *failure_; }
    if (auto held = memory_.status(); !held) { return held; }
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (!uses(i) || !may_lose(paths_[i])) { continue; }
        if (auto answer = paths_[i].status(); !answer) { return answer; }
    }
    return {};
}

template <PeerDevice D>
Status Links<D>::check_neighbours() {
    Status idle = memory_.check();
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        Path& path = paths_[i];
        if (!uses(i)) {
            if (auto settled = path.settle_left_out(); !settled) { idle = std::move(settled); }
            continue;
        }
        auto settled = path.settle();
        if (settled) {
            path.is_pending = false;
            continue;
        }
        path.reason = settled.error().message();
        if (may_lose(path)) { failure_ = settled.error(); }
        if (path.status()) { idle = std::move(settled); }
    }
    return idle;
}

template <PeerDevice D>
Status Links<D>::copy(std::span<const Copy> copies, typename D::Stream stream) {
    copies_ = copies;
    std::uint64_t own = 0;
    for (const Copy& each : copies) { own += each.bytes; }
    const auto captured = device_->is_capturing(stream);
    if (!captured) { return captured.error(); }
    divide(own);
    if (std::none_of(parts_.begin(), parts_.end(), [](std::uint64_t part) { return part > 0; })) {
        own_bytes_ += *captured ? 0 : own;
        return device_->copy(copies, stream);
    }
    was_captured_ = was_captured_ || *captured;
    if (auto recorded = device_->record(*is_due_, stream); !recorded) { return recorded; }
    Cursor cursor;
    again_.clear();
    Status sent;
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (parts_[i] == 0) { continue; }
        const Cursor begin = cursor;
        own -= parts_[i];
        if (sent = send_by(paths_[i], cursor, parts_[i]); sent) {
            paths_[i].is_pending = true;
            paths_[i].brought_bytes += *captured ? 0 : parts_[i];
            continue;
        }
        if (*captured) {  // the capture may be invalid; the next one does without, after what a graph lost has come again
            paths_[i].reason = sent.error().message();
            failure_ = sent.error();
            std::fill(parts_.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts_.end(), 0);
            break;
        }
        // All of this part comes by the own link, behind what is under way.
        leave_out(paths_[i], sent.error());
        cursor = begin;
        pieces_.clear();
        take(cursor, parts_[i], nullptr);
        again_.insert(again_.end(), pieces_.begin(), pieces_.end());
        sent = {};
    }
    if (sent) {
        pieces_.clear();
        take(cursor, own, nullptr);
        own_bytes_ += *captured ? 0 : own;
        sent = device_->copy(pieces_, stream);
    }
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (parts_[i] == 0) { continue; }
        if (auto joined = paths_[i].join(stream, *captured); !joined && sent) { sent = std::move(joined); }
    }
    if (!sent || again_.empty()) { return sent; }
    for (const Copy& each : again_) { own_bytes_ += each.bytes; }
    return device_->copy(again_, stream);
}

template <PeerDevice D>
std::vector<LinkUse> Links<D>::links() const {
    std::vector<LinkUse> uses{{std::string{device_->name()}, own_rate_, own_bytes_, {}, 0, 0, 0, {}}};
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        const Path& path = paths_[i];
        uses.push_back(
            {std::string{path.neighbour->name()}, rate_of(path), path.brought_bytes, path.reason, 0, 0, 0, {}});
        memory_.describe(i, uses.back());
    }
    return uses;
}

}}}  // namespace residency::RESIDENCY_ABI::transport

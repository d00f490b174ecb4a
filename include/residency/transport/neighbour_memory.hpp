// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/device/link.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/sort.hpp"
#include "residency/transport/neighbour.hpp"
#include "residency/transport/pinned.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// What comes from the host beside what neighbours hold, in bytes per second.
struct HostRate {
    double all = 0;        ///< over every link that is used
    double forwarded = 0;  ///< of that, what comes through neighbours, as what they hold does
};

/// Bytes of a model that lie in the memory of neighbours, inside a budget each, so that a device copies them from there and not from the
/// host. hold() chooses them: the same share of every call of a plan, so that every call takes its bytes over one rate. What is held is
/// equal to its source at every instant at which it can be copied.
///
/// A neighbour without peer access or memory, or with a call that failed, holds nothing from then on, and describe() says why: its bytes
/// come from the host.
template <PeerDevice D>
class NeighbourMemory {
public:
    NeighbourMemory() = default;
    NeighbourMemory(const NeighbourMemory&) = delete;
    NeighbourMemory& operator=(const NeighbourMemory&) = delete;

    /// May block. `host` knows where storages lie, and outlives this. Budgets are in bytes, by neighbour; those that are left out are 0. Holds
    /// nothing yet.
    void open(D& device, const Catalog& catalog, Pinned<D>& host, std::span<D* const> neighbours,
              std::span<const std::uint64_t> budgets);
    /// Whether any neighbour has a budget.
    [[nodiscard]] bool is_wanted() const noexcept {
        const auto has_budget = [](const Shelf& shelf) { return shelf.budget_bytes > 0; };
        return std::any_of(shelves_.begin(), shelves_.end(), has_budget);
    }
    /// Whether a neighbour's memory can be used.
    [[nodiscard]] bool uses(std::size_t i) const noexcept { return shelves_[i].is_open && !shelves_[i].is_left_out; }
    /// What copies out of a neighbour's memory reach, in bytes per second. 0: nothing is taken from there.
    void set_rate(std::size_t i, double bytes_per_second) noexcept { shelves_[i].bytes_per_second = bytes_per_second; }
    /// What copies out of the memory of all neighbours together reach, at most.
    void set_joint_rate(double bytes_per_second) noexcept { joint_rate_ = bytes_per_second; }
    /// Of all that are used, each by itself, in bytes per second. Less than before: a neighbour was left out.
    [[nodiscard]] double rate() const noexcept {
        double rate = 0;
        for (std::size_t i = 0; i < shelves_.size(); ++i) { rate += uses(i) ? shelves_[i].bytes_per_second : 0; }
        return rate;
    }
    /// What calls reach that bring `bytes` different bytes in a pass, if hold() has been told of them and the rest comes from the host. Bytes
    /// per second.
    [[nodiscard]] double rate_of(std::uint64_t bytes, const HostRate& host) const { return divide(bytes, host).rate; }
    /// Has the neighbours hold what these calls bring in each pass, as much as the budgets allow and makes calls faster. What is held
    /// already where it is wanted stays. `bytes`: different_bytes(calls). Blocks until it is there. Precondition: nothing copies from there.
    void hold(std::span<const std::span<const Fetch>> calls, std::uint64_t bytes, const HostRate& host);
    /// Different bytes that these calls bring, of what may be held.
    [[nodiscard]] std::uint64_t different_bytes(std::span<const std::span<const Fetch>> calls) const;
    /// Gives the memory back, until the next hold(). Blocks. On failure some of it is given back, and it may be called again. Precondition: as
    /// hold().
    [[nodiscard]] Status release();
    /// Brings again what is held of storages whose sources were replaced. Blocks. Precondition: as hold().
    void refresh(std::span<const StorageId> storages);

    /// Divides a call: what neighbours hold, send() brings, rest() is to come from the host. False: all of it is to come from there.
    [[nodiscard]] bool split(std::span<const Fetch> fetches);
    /// What the last split() left to the host.
    [[nodiscard]] std::span<const Fetch> rest() const noexcept { return rest_; }
    /// Enqueues what the last split() found, after `is_due`. What fails is left to again(), unless it is captured. Does not block.
    [[nodiscard]] Status send(typename D::Event is_due, bool is_captured);
    /// Later work of the stream starts after what was sent. Blocks only where that cannot be enqueued.
    [[nodiscard]] Status join(typename D::Stream stream, bool is_captured);
    /// What could not be sent, and is to come from the host after join().
    [[nodiscard]] std::span<const Fetch> again() const noexcept { return again_; }

    /// For who measures: takes up to `bytes` bytes of each neighbour's memory, from its budget, until close_sample(). Blocks. Nothing is held.
    void open_sample(std::uint64_t bytes);
    /// As split(), for copies of anything: the first `share` of each comes out of the samples, by the rates of the neighbours, the rest is
    /// appended to `rest`.
    void split_sample(std::span<const Copy> copies, double share, std::vector<Copy>& rest);
    /// Gives back what open_sample() took. Blocks.
    void close_sample() noexcept { static_cast<void>(release().has_value()); }
    /// The share of a call that comes out of memory where budgets do not matter.
    [[nodiscard]] double best_share(const HostRate& host) const noexcept {
        const double memory = (std::max)(0.0, (std::min)(rate(), joint_rate_ - host.forwarded));
        return memory / (memory + host.all);
    }

    /// The first loss of bytes on their way since take_failure().
    [[nodiscard]] Status status() const;
    /// Whether bytes on their way were lost since the last call.
    [[nodiscard]] bool take_failure() noexcept { return std::exchange(failure_, std::nullopt).has_value(); }
    /// Leaves neighbours out that are lost. Blocks until nothing that was sent is on its way. An error: a neighbour may still read or write.
    [[nodiscard]] Status check();
    /// What statistics say of a neighbour's memory.
    void describe(std::size_t i, LinkUse& use) const;
    /// Bytes are counted from here on.
    void reset_counts() noexcept {
        for (Shelf& shelf : shelves_) { shelf.brought_bytes = 0; }
    }
    /// Precondition: nothing copies from there.
    void close() noexcept;
    /// Gives nothing back that the device may still use.
    void abandon() noexcept {
        for (Shelf& shelf : shelves_) { shelf.end_use(); }
        shelves_.clear();
        pieces_.clear();
    }

private:
    /// What one neighbour holds.
    struct Shelf : Neighbour<D> {
        std::uint64_t budget_bytes = 0;  // a multiple of what an allocation takes
        std::uint64_t room_bytes = 0;    // of these, that could be had
        std::uint64_t held_bytes = 0;    // of memory
        bool is_left_out = false;
        JoinedCopies copies;  // of the call being made
        std::vector<Fetch> fetches;
    };
    /// Bytes [begin, end) of a storage lie at `at_bytes` of a shelf.
    struct Piece {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        std::size_t shelf = 0;
        std::uint64_t at_bytes = 0;
        friend bool operator==(const Piece&, const Piece&) = default;
    };
    using Pieces = std::vector<std::vector<Piece>>;  // by storage: ascending, without overlaps
    /// Which share of every call each neighbour holds, and the rate of the calls.
    struct Division {
        std::vector<double> shares;
        double rate = 0;
    };

    static constexpr std::uint64_t granule = 4096;  // bytes of a call that are held are a multiple of it
    static constexpr const char* nothing_planned = "no plan has said yet what to hold: planned compositions do";

    [[nodiscard]] Division divide(std::uint64_t bytes, const HostRate& host) const;
    void close_shelf(Shelf& shelf) noexcept;
    /// It holds nothing from now on.
    void leave_out(std::size_t i, const Error& error);
    /// Whether bytes may be on their way from there: graphs bring them whenever they run.
    [[nodiscard]] bool may_lose(const Shelf& shelf) const noexcept { return shelf.is_pending || was_captured_; }
    /// Has a shelf hold so many bytes, or as many as can be had. What it held is forgotten, unless its memory stays the same.
    void resize(std::size_t i, std::uint64_t bytes);
    [[nodiscard]] static Status give_back(Shelf& shelf);
    void forget_pieces(std::size_t shelf) {
        for (auto& pieces : pieces_) {
            std::erase_if(pieces, [&](const Piece& piece) { return piece.shelf == shelf; });
        }
    }
    /// Chooses what to hold, with memory for it.
    [[nodiscard]] Pieces choose(std::span<const std::span<const Fetch>> calls, std::span<const double> shares) const;
    /// Copies pieces for which is_wanted(storage, piece) holds from the host. Who fails is left out.
    template <class IsWanted>
    void fill(const IsWanted& is_wanted);

    D* device_ = nullptr;  // while open
    Pinned<D>* host_ = nullptr;
    Catalog catalog_;
    std::vector<Shelf> shelves_;  // by neighbour
    double joint_rate_ = 1e15;
    Pieces pieces_;
    std::optional<Error> failure_;
    bool was_captured_ = false;
    std::vector<Fetch> rest_, again_;  // of the call being made
};

template <PeerDevice D>
void NeighbourMemory<D>::open(D& device, const Catalog& catalog, Pinned<D>& host, std::span<D* const> neighbours,
                              std::span<const std::uint64_t> budgets) {
    device_ = &device;
    host_ = &host;
    catalog_ = catalog;
    pieces_.resize(catalog.storages().size());
    shelves_.resize(neighbours.size());
    for (std::size_t i = 0; i < neighbours.size(); ++i) {
        Shelf& shelf = shelves_[i];
        shelf.device = device_;
        shelf.neighbour = neighbours[i];
        shelf.bytes_per_second = 55e9;  // until it is measured
        if (i >= budgets.size() || budgets[i] == 0) { continue; }
        const std::uint64_t unit = shelf.neighbour->allocation_granularity();
        shelf.budget_bytes = shelf.room_bytes = budgets[i] / unit * unit;
        shelf.reason = nothing_planned;
        auto opened =
            shelf.budget_bytes > 0
                ? shelf.open()
                : Status{Error{ErrorKind::invalid_argument,
                               "its budget is less than one allocation takes: " + std::to_string(unit) + " bytes"}};
        if (opened) {
            shelf.begin_use();
        } else {
            close_shelf(shelf);
            shelf.reason = opened.error().message();
        }
    }
}

template <PeerDevice D>
void NeighbourMemory<D>::close_shelf(Shelf& shelf) noexcept {
    shelf.close();
    shelf.drop(give_back(shelf));
    shelf.end_use();
}

template <PeerDevice D>
void NeighbourMemory<D>::close() noexcept {
    for (Shelf& shelf : shelves_) { close_shelf(shelf); }
    shelves_.clear();
    pieces_.clear();
    catalog_ = {};
}

template <PeerDevice D>
auto NeighbourMemory<D>::divide(std::uint64_t bytes, const HostRate& host) const -> Division {
    // At a rate R the links bring host.all / R of each call at most, a neighbour its rate / R, and its budget / bytes. The largest R at
    // which that is everything: the links' part falls with R, so do the others'.
    Division division{std::vector<double>(shelves_.size()), host.all};
    const double joint = (std::max)(0.0, joint_rate_ - host.forwarded);
    const auto shares_at = [&](double rate) {
        double sum = 0;
        for (std::size_t i = 0; i < shelves_.size(); ++i) {
            const double most =
                bytes == 0 ? 1 : static_cast<double>(shelves_[i].room_bytes) / static_cast<double>(bytes);
            division.shares[i] = uses(i) ? (std::min)(most, shelves_[i].bytes_per_second / rate) : 0;
            sum += division.shares[i];
        }
        const double together = (std::min)(sum, joint / rate);
        for (double& share : division.shares) { share *= sum > 0 ? together / sum : 0; }
        return together;
    };
    double low = host.all, high = host.all + rate();
    for (int i = 0; i < 60; ++i) {
        const double middle = (low + high) / 2;
        (host.all / middle + shares_at(middle) >= 1 ? low : high) = middle;
    }
    division.rate = low;
    static_cast<void>(shares_at(low));
    return division;
}

template <PeerDevice D>
Status NeighbourMemory<D>::give_back(Shelf& shelf) {
    if (shelf.memory == nullptr) { return {}; }
    if (auto settled = shelf.settle_left_out(); !settled) { return settled; }
    auto given = shelf.neighbour->deallocate(shelf.memory);
    if (!given && !shelf.is_left_out) { return given; }
    shelf.memory = nullptr;  // that of a neighbour that is lost is lost too
    shelf.held_bytes = 0;
    return {};
}

template <PeerDevice D>
void NeighbourMemory<D>::resize(std::size_t i, std::uint64_t bytes) {
    Shelf& shelf = shelves_[i];
    const std::uint64_t unit = shelf.neighbour->allocation_granularity();
    bytes = (std::min)((bytes + unit - 1) / unit * unit, shelf.room_bytes);
    if (bytes == shelf.held_bytes) { return; }
    forget_pieces(i);
    if (auto given = give_back(shelf); !given) { return leave_out(i, given.error()); }
    while (bytes > 0) {
        auto memory = shelf.neighbour->allocate(bytes);
        if (memory) {
            shelf.memory = static_cast<std::byte*>(*memory);
            shelf.held_bytes = bytes;
            return;
        }
        if (memory.error().kind() != ErrorKind::out_of_memory) { return leave_out(i, memory.error()); }
        bytes = bytes / 2 / unit * unit;
        shelf.room_bytes = bytes;
        shelf.reason =
            "it has no memory for more than " + std::to_string(bytes) + " bytes: " + memory.error().message();
    }
}

template <PeerDevice D>
std::uint64_t NeighbourMemory<D>::different_bytes(std::span<const std::span<const Fetch>> calls) const {
    std::vector<Fetch> all;
    for (const auto& call : calls) {
        for (const Fetch& fetch : call) {
            if (!catalog_.storage(fetch.storage).is_mutable) { all.push_back(fetch); }
        }
    }
    residency::detail::sort(all, [](const Fetch& a, const Fetch& b) {
        return a.storage != b.storage ? index(a.storage) < index(b.storage) : a.offset_bytes < b.offset_bytes;
    });
    std::uint64_t bytes = 0, end = 0;
    StorageId storage = no_storage;
    for (const Fetch& fetch : all) {
        if (std::exchange(storage, fetch.storage) != fetch.storage) { end = 0; }
        const std::uint64_t last = fetch.offset_bytes + fetch.bytes;
        if (last > end) { bytes += last - (std::max)(end, fetch.offset_bytes); }
        end = (std::max)(end, last);
    }
    return bytes;
}

template <PeerDevice D>
auto NeighbourMemory<D>::choose(std::span<const std::span<const Fetch>> calls, std::span<const double> shares) const
    -> Pieces {
    Pieces chosen(pieces_.size());
    std::vector<double> owed(shelves_.size());  // bytes that rounding has left out so far
    std::vector<std::uint64_t> used(shelves_.size());
    for (const auto& call : calls) {
        std::uint64_t bytes = 0;
        for (const Fetch& fetch : call) { bytes += catalog_.storage(fetch.storage).is_mutable ? 0 : fetch.bytes; }
        for (std::size_t i = 0; i < shelves_.size(); ++i) { owed[i] += shares[i] * static_cast<double>(bytes); }
        for (const Fetch& fetch : call) {
            if (catalog_.storage(fetch.storage).is_mutable) { continue; }
            auto& pieces = chosen[index(fetch.storage)];
            const std::uint64_t end = fetch.offset_bytes + fetch.bytes;
            auto next = std::find_if(pieces.begin(), pieces.end(),
                                     [&](const Piece& piece) { return piece.end > fetch.offset_bytes; });
            for (std::uint64_t at = fetch.offset_bytes; at < end;) {
                if (next != pieces.end() && next->begin <= at) {  // an earlier call has it
                    owed[next->shelf] -= static_cast<double>((std::min)(end, next->end) - at);
                    at = next->end;
                    ++next;
                    continue;
                }
                const std::uint64_t gap = (std::min)(end, next != pieces.end() ? next->begin : end) - at;
                const auto most = (std::max_element)(owed.begin(), owed.end());
                const auto shelf = static_cast<std::size_t>(most - owed.begin());
                const std::uint64_t room = shelves_[shelf].held_bytes - used[shelf];
                const std::uint64_t wanted =
                    *most < static_cast<double>(granule) ? 0 : static_cast<std::uint64_t>(*most) / granule * granule;
                const std::uint64_t taken = (std::min)({gap, wanted, room});
                if (wanted > 0 && room == 0) {
                    owed[shelf] = 0;
                    continue;
                }
                if (taken == 0) { break; }
                next = pieces.insert(next, {at, at + taken, shelf, used[shelf]}) + 1;
                used[shelf] += taken;
                owed[shelf] -= static_cast<double>(taken);
                at += taken;
            }
        }
    }
    return chosen;
}

template <PeerDevice D>
void NeighbourMemory<D>::hold(std::span<const std::span<const Fetch>> calls, std::uint64_t bytes,
                              const HostRate& host) {
    Division division = divide(bytes, host);
    for (int round = 0; round < 2; ++round) {  // again with what could be had
        for (std::size_t i = 0; i < shelves_.size(); ++i) {
            Shelf& shelf = shelves_[i];
            if (!uses(i)) {
                static_cast<void>(give_back(shelf).has_value());
                continue;
            }
            if (shelf.room_bytes == shelf.budget_bytes) { shelf.reason.clear(); }
            resize(i, static_cast<std::uint64_t>(division.shares[i] * static_cast<double>(bytes)));
        }
        division = divide(bytes, host);
    }
    Pieces before = std::exchange(pieces_, choose(calls, division.shares));
    fill([&](StorageId storage, const Piece& piece) {
        const auto& old = before[index(storage)];
        return std::find(old.begin(), old.end(), piece) == old.end();
    });
    std::size_t most = 0;
    for (const auto& call : calls) { most = (std::max)(most, call.size()); }
    rest_.reserve(2 * most + 64);
    again_.reserve(2 * most + 64);
    for (Shelf& shelf : shelves_) {
        shelf.copies.reserve(2 * most + 64);
        shelf.fetches.reserve(2 * most + 64);
    }
}

template <PeerDevice D>
template <class IsWanted>
void NeighbourMemory<D>::fill(const IsWanted& is_wanted) {
    std::vector<Fetch> fetches;
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        Shelf& shelf = shelves_[i];
        if (shelf.memory == nullptr || !uses(i)) { continue; }
        fetches.clear();
        for (std::uint32_t s = 0; s < pieces_.size(); ++s) {
            for (const Piece& piece : pieces_[s]) {
                if (piece.shelf == i && is_wanted(StorageId{s}, piece)) {
                    fetches.push_back(
                        {StorageId{s}, piece.begin, piece.end - piece.begin, shelf.memory + piece.at_bytes});
                }
            }
        }
        if (fetches.empty()) { continue; }
        if (auto copied = shelf.neighbour->copy(host_->join(fetches), *shelf.into); !copied) {
            leave_out(i, copied.error());
        }
    }
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        if (!uses(i)) { continue; }
        if (auto filled = shelves_[i].settle(); !filled) { leave_out(i, filled.error()); }
    }
}

template <PeerDevice D>
Status NeighbourMemory<D>::release() {
    Status released;
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        forget_pieces(i);
        if (uses(i)) {
            shelves_[i].room_bytes = shelves_[i].budget_bytes;
            shelves_[i].reason = nothing_planned;
        }
        if (auto given = give_back(shelves_[i]); !given) { released = std::move(given); }
    }
    return released;
}

template <PeerDevice D>
void NeighbourMemory<D>::refresh(std::span<const StorageId> storages) {
    fill([&](StorageId storage, const Piece&) {
        return std::find(storages.begin(), storages.end(), storage) != storages.end();
    });
}

template <PeerDevice D>
void NeighbourMemory<D>::leave_out(std::size_t i, const Error& error) {
    Shelf& shelf = shelves_[i];
    shelf.reason = error.message();
    shelf.is_left_out = true;
    forget_pieces(i);
    const auto settled = shelf.settle();
    if (!settled && may_lose(shelf)) { failure_ = settled.error(); }
}

template <PeerDevice D>
bool NeighbourMemory<D>::split(std::span<const Fetch> fetches) {
    rest_.clear();
    again_.clear();
    for (Shelf& shelf : shelves_) {
        shelf.copies.clear();
        shelf.fetches.clear();
    }
    bool is_held = false;
    for (const Fetch& fetch : fetches) {
        const std::uint64_t end = fetch.offset_bytes + fetch.bytes;
        std::uint64_t at = fetch.offset_bytes;
        const auto take = [&](std::uint64_t bytes) {
            const std::uint64_t done = at - fetch.offset_bytes;
            at += bytes;
            return Fetch{fetch.storage, fetch.offset_bytes + done, bytes, static_cast<std::byte*>(fetch.to) + done,
                         fetch.begins_allocation && done == 0};
        };
        const auto& pieces = pieces_[index(fetch.storage)];
        auto next = std::upper_bound(pieces.begin(), pieces.end(), at,
                                     [](std::uint64_t value, const Piece& piece) { return value < piece.end; });
        for (; at < end && next != pieces.end() && next->begin < end; ++next) {
            if (next->begin > at) { rest_.push_back(take(next->begin - at)); }
            Shelf& shelf = shelves_[next->shelf];
            const std::byte* const from = shelf.memory + next->at_bytes + (at - next->begin);
            shelf.fetches.push_back(take((std::min)(end, next->end) - at));
            shelf.copies.add(shelf.fetches.back(), from, nullptr);
            is_held = true;
        }
        if (at < end) { rest_.push_back(take(end - at)); }
    }
    return is_held;
}

template <PeerDevice D>
Status NeighbourMemory<D>::send(typename D::Event is_due, bool is_captured) {
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        Shelf& shelf = shelves_[i];
        if (shelf.copies.copies().empty()) { continue; }
        was_captured_ = was_captured_ || is_captured;
        Status sent = device_->wait(*shelf.out, is_due);
        if (sent) { sent = device_->copy(shelf.copies.copies(), *shelf.out); }
        if (sent) {
            shelf.is_pending = true;
            shelf.brought_bytes += is_captured ? 0 : bytes_of(shelf.fetches);
            continue;
        }
        if (is_captured) {  // the capture may be invalid; the next one does without, after what a graph lost has come again
            shelf.reason = sent.error().message();
            shelf.is_left_out = true;
            forget_pieces(i);
            failure_ = sent.error();
            return sent;
        }
        leave_out(i, sent.error());
        again_.insert(again_.end(), shelf.fetches.begin(), shelf.fetches.end());
    }
    return {};
}

template <PeerDevice D>
Status NeighbourMemory<D>::join(typename D::Stream stream, bool is_captured) {
    Status result;
    for (Shelf& shelf : shelves_) {
        if (shelf.copies.copies().empty()) { continue; }
        auto joined = shelf.join(stream, is_captured);
        if (!joined && result) { result = std::move(joined); }
    }
    return result;
}

template <PeerDevice D>
void NeighbourMemory<D>::open_sample(std::uint64_t bytes) {
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        Shelf& shelf = shelves_[i];
        if (!uses(i)) { continue; }
        resize(i, bytes);
        if (!uses(i) || shelf.held_bytes == 0) { continue; }
        // Device memory is read only after it was written.
        Status filled = shelf.neighbour->fill(shelf.memory, std::byte{0}, shelf.held_bytes, *shelf.into);
        if (filled) { filled = shelf.settle(); }
        if (!filled) { leave_out(i, filled.error()); }
    }
}

template <PeerDevice D>
void NeighbourMemory<D>::split_sample(std::span<const Copy> copies, double share, std::vector<Copy>& rest) {
    again_.clear();
    double rates = 0;
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        shelves_[i].copies.clear();
        shelves_[i].fetches.clear();
        rates += uses(i) ? shelves_[i].bytes_per_second : 0;
    }
    for (const Copy& copy : copies) {
        std::uint64_t done = 0;
        for (std::size_t i = 0; i < shelves_.size(); ++i) {
            Shelf& shelf = shelves_[i];
            if (!uses(i) || shelf.held_bytes == 0 || !(shelf.bytes_per_second > 0)) { continue; }
            const double part = share * shelf.bytes_per_second / rates * static_cast<double>(copy.bytes);
            for (auto left = (std::min)(static_cast<std::uint64_t>(part), copy.bytes - done); left > 0;) {
                const std::uint64_t now = (std::min)(left, shelf.held_bytes);
                shelf.copies.add({no_storage, 0, now, static_cast<std::byte*>(copy.to) + done}, shelf.memory, nullptr);
                left -= now;
                done += now;
            }
        }
        if (done < copy.bytes) {
            rest.push_back({static_cast<std::byte*>(copy.to) + done, static_cast<const std::byte*>(copy.from) + done,
                            copy.bytes - done});
        }
    }
}

template <PeerDevice D>
Status NeighbourMemory<D>::status() const {
    if (failure_) { return *failure_; }
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        if (!uses(i) || !may_lose(shelves_[i])) { continue; }
        if (auto answer = shelves_[i].status(); !answer) { return answer; }
    }
    return {};
}

template <PeerDevice D>
Status NeighbourMemory<D>::check() {
    Status idle;
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
        Shelf& shelf = shelves_[i];
        if (!uses(i)) {
            if (auto settled = shelf.settle_left_out(); !settled) { idle = std::move(settled); }
            continue;
        }
        const bool is_over = device_->synchronize(*shelf.out).has_value();
        if (auto settled = shelf.settle(); !settled) {
            leave_out(i, settled.error());
            if (shelf.is_unsettled && shelf.status()) { idle = std::move(settled); }
        } else if (is_over) {
            shelf.is_pending = false;
        }
    }
    return idle;
}

template <PeerDevice D>
void NeighbourMemory<D>::describe(std::size_t i, LinkUse& use) const {
    const Shelf& shelf = shelves_[i];
    use.held_bytes = shelf.held_bytes;
    use.bytes_from_held = shelf.brought_bytes;
    use.held_bytes_per_second = shelf.bytes_per_second;
    use.held_reason = shelf.reason;
}

}}}  // namespace residency::RESIDENCY_ABI::transport

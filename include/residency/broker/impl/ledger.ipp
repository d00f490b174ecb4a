// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "residency/broker/ledger.hpp"
#include "residency/config.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

RESIDENCY_INLINE Result<Ledger::Id> Ledger::open(std::string name, ClientKind kind, Claim claim,
                                                 std::uint64_t headroom_bytes, std::uint64_t limit_bytes) {
    if (limit_bytes < claim.floor_bytes) {
        return Error{ErrorKind::invalid_argument,
                     "\"" + name + "\" cannot join: its limit_bytes, " + residency::detail::in_bytes(limit_bytes) +
                         ", are below its floor_bytes, " + residency::detail::in_bytes(claim.floor_bytes) +
                         ", which it is granted in any case: raise the limit, or lower the floor"};
    }
    const std::lock_guard lock{mutex_};
    if (auto fits = check_floors(claim.floor_bytes, none); !fits) {
        return fits.error().in("\"" + name + "\" cannot join");
    }
    std::size_t id = 0;
    while (id < clients_.size() && clients_[id]) { ++id; }
    if (id == clients_.size()) {
        clients_.emplace_back();
        claims_.reserve(clients_.size());
        order_.reserve(clients_.size());
        targets_.resize(clients_.size());
        ranks_.resize(clients_.size());
    }
    Client client;
    client.account.name = std::move(name);
    client.account.kind = kind;
    client.account.priority = claim.priority;
    client.account.floor_bytes = claim.floor_bytes;
    client.account.wanted_bytes = (std::max)(claim.wanted_bytes, claim.floor_bytes);
    client.headroom_bytes = headroom_bytes;
    client.account.limit_bytes = limit_bytes;
    clients_[id] = std::move(client);
    rebalance();
    return static_cast<Id>(id);
}

RESIDENCY_INLINE void Ledger::close(Id id) noexcept {
    const std::lock_guard lock{mutex_};
    clients_[id].reset();
    rebalance();
}

RESIDENCY_INLINE Status Ledger::set_total(std::uint64_t total_bytes) {
    const std::lock_guard lock{mutex_};
    const std::uint64_t before = std::exchange(settings_.total_bytes, total_bytes);
    if (auto fits = check_floors(0, none); !fits) {
        settings_.total_bytes = before;
        return fits;
    }
    rebalance();
    return {};
}

RESIDENCY_INLINE Status Ledger::set_claim(Id id, Claim claim) {
    const std::lock_guard lock{mutex_};
    if (auto fits = check_floors(claim.floor_bytes, id); !fits) { return fits; }
    Account& account = at(id).account;
    account.priority = claim.priority;
    account.floor_bytes = claim.floor_bytes;
    account.wanted_bytes = (std::max)(claim.wanted_bytes, claim.floor_bytes);
    rebalance();
    return {};
}

RESIDENCY_INLINE Result<std::uint64_t> Ledger::start(Id id) {
    const std::lock_guard lock{mutex_};
    Client& client = at(id);
    if (!client.started) {
        rebalance();
        if (client.account.granted_bytes < client.account.floor_bytes) { return refusal(client, 0); }
        client.started = true;
        client.account.used_bytes = client.account.granted_bytes;
    }
    return client.account.used_bytes;
}

RESIDENCY_INLINE Result<std::optional<std::uint64_t>> Ledger::begin(Id id, std::uint64_t in_force_bytes,
                                                                    std::uint64_t pending_bytes) {
    const std::lock_guard lock{mutex_};
    Client& client = at(id);
    Account& account = client.account;
    const std::uint64_t holds = residency::detail::saturating_add(in_force_bytes, pending_bytes);
    if (!client.started || client.changing || holds > account.granted_bytes) {
        return Error{
            ErrorKind::wrong_state,
            holds > account.granted_bytes
                ? "\"" + account.name + "\" has a budget of " + residency::detail::in_bytes(in_force_bytes) + ", and " +
                      residency::detail::in_bytes(account.granted_bytes) +
                      " were granted: the model takes the budget of its client, whose floor_bytes are the smallest "
                      "that works for it"
                : "\"" + account.name + "\" has no budget from here yet, or is changing it"};
    }
    account.granted_bytes = account.used_bytes = holds;
    client.pending_bytes = pending_bytes;
    rebalance();
    client.growing = client.growing && account.target_bytes > in_force_bytes;
    const std::uint64_t next = next_budget(client);
    if (next == in_force_bytes) { return std::optional<std::uint64_t>{}; }
    client.changing = true;
    client.growing = next > in_force_bytes && next < account.target_bytes;
    account.granted_bytes = (std::max)(account.granted_bytes, next);
    return std::optional{next};
}

RESIDENCY_INLINE void Ledger::finish(Id id, std::uint64_t in_force_bytes, std::uint64_t pending_bytes) noexcept {
    const std::lock_guard lock{mutex_};
    Client& client = at(id);
    client.changing = false;
    const std::uint64_t before = client.account.used_bytes - client.pending_bytes;
    client.account.used_bytes = client.account.granted_bytes = in_force_bytes + pending_bytes;
    client.pending_bytes = pending_bytes;
    if (before != in_force_bytes) {
        ++changes_;
        moved_bytes_ += before < in_force_bytes ? in_force_bytes - before : before - in_force_bytes;
    }
    rebalance();
}

RESIDENCY_INLINE bool Ledger::is_due(Id id) const {
    const std::lock_guard lock{mutex_};
    const Client& client = *clients_[id];
    return client.pending_bytes != 0 || client.account.granted_bytes != next_budget(client) || owed(client) != 0;
}

RESIDENCY_INLINE Status Ledger::take(Id id, std::uint64_t bytes) {
    const std::lock_guard lock{mutex_};
    Client& client = at(id);
    const auto sum = residency::detail::checked_add(client.account.used_bytes, bytes);
    if (!sum || *sum > client.account.limit_bytes) {
        return Error{ErrorKind::budget,
                     "\"" + client.account.name + "\" asks for " + residency::detail::in_bytes(bytes) + " and holds " +
                         residency::detail::in_bytes(client.account.used_bytes) + ": its limit is " +
                         residency::detail::in_bytes(client.account.limit_bytes) +
                         ": raise MemoryOptions::limit_bytes, or ask for less",
                     BudgetNumbers{bytes, client.account.limit_bytes, client.account.used_bytes,
                                   client.account.floor_bytes, UINT32_MAX}};
    }
    client.refused_bytes = bytes;
    rebalance();
    if (*sum > client.account.granted_bytes) { return refusal(client, bytes); }
    client.refused_bytes = 0;
    client.account.used_bytes = *sum;
    rebalance();
    return {};
}

RESIDENCY_INLINE void Ledger::put_back(Id id, std::uint64_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    Client& client = at(id);
    RESIDENCY_ASSERT(bytes <= client.account.used_bytes, "put back no more than was taken");
    client.account.used_bytes -= bytes;
    client.refused_bytes = 0;
    rebalance();
}

RESIDENCY_INLINE bool Ledger::charge(Id id, std::uint64_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    Account& account = at(id).account;
    account.used_bytes = residency::detail::saturating_add(account.used_bytes, bytes);
    rebalance();
    return granted() <= settings_.total_bytes;
}

RESIDENCY_INLINE void Ledger::ask(Id id, std::uint64_t bytes) {
    const std::lock_guard lock{mutex_};
    at(id).asked_bytes = bytes;
    at(id).refused_bytes = 0;
    rebalance();
}

RESIDENCY_INLINE Account Ledger::account(Id id) const {
    const std::lock_guard lock{mutex_};
    return clients_[id]->account;
}

RESIDENCY_INLINE std::vector<Account> Ledger::accounts() const {
    const std::lock_guard lock{mutex_};
    std::vector<Account> all;
    for (const auto& client : clients_) {
        if (client) { all.push_back(client->account); }
    }
    return all;
}

RESIDENCY_INLINE Ledger::Sums Ledger::sums() const {
    const std::lock_guard lock{mutex_};
    std::uint64_t used = 0;
    for (const auto& client : clients_) { used += client ? client->account.used_bytes : 0; }
    return {settings_.total_bytes, granted(), peak_granted_bytes_, used, changes_, moved_bytes_};
}

RESIDENCY_INLINE std::uint64_t Ledger::granted() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& client : clients_) { sum += client ? client->account.granted_bytes : 0; }
    return sum;
}

RESIDENCY_INLINE std::uint64_t Ledger::free() const noexcept {
    const std::uint64_t sum = granted();
    return sum < settings_.total_bytes ? settings_.total_bytes - sum : 0;
}

RESIDENCY_INLINE Status Ledger::check_floors(std::uint64_t floor_bytes, Id in_place_of) const {
    std::uint64_t floors = floor_bytes;
    for (Id id = 0; id < clients_.size(); ++id) {
        if (clients_[id] && id != in_place_of) {
            floors = residency::detail::saturating_add(floors, clients_[id]->account.floor_bytes);
        }
    }
    if (floors <= settings_.total_bytes) { return {}; }
    return Error{ErrorKind::budget,
                 "the floors together take " + residency::detail::in_bytes(floors) + ", and the total is " +
                     residency::detail::in_bytes(settings_.total_bytes),
                 BudgetNumbers{floor_bytes, settings_.total_bytes, floors - floor_bytes, floors, UINT32_MAX}};
}

RESIDENCY_INLINE Error Ledger::refusal(const Client& client, std::uint64_t bytes) const {
    const Account& account = client.account;
    std::uint64_t coming = 0;
    for (const auto& other : clients_) {
        if (other && &*other != &client) { coming += other->account.asked_back_bytes(); }
    }
    const std::uint64_t asked = bytes != 0 ? bytes : account.floor_bytes;
    return {ErrorKind::budget,
            "\"" + account.name + "\" asks for " + residency::detail::in_bytes(asked) + " and holds " +
                residency::detail::in_bytes(account.used_bytes) + "; its share of the total of " +
                residency::detail::in_bytes(settings_.total_bytes) + " is " +
                residency::detail::in_bytes(account.target_bytes) + ", " +
                residency::detail::in_bytes(free() + account.granted_bytes - account.used_bytes) + " are free, and " +
                residency::detail::in_bytes(coming) + " are asked back from others: " +
                (asked > settings_.total_bytes ? "that is more than the whole total: raise it, or ask for less"
                                               : "ask again after their next pass ends"),
            BudgetNumbers{asked, settings_.total_bytes, granted(), account.floor_bytes, UINT32_MAX}};
}

RESIDENCY_INLINE void Ledger::rebalance() noexcept {
    claims_.clear();
    for (auto& client : clients_) {
        if (!client) { continue; }
        Account& account = client->account;
        if (account.kind == ClientKind::memory) {
            using residency::detail::saturating_add;
            const std::uint64_t more = (std::max)(client->headroom_bytes, client->refused_bytes);
            account.wanted_bytes =
                (std::max)(account.floor_bytes,
                           (std::min)(account.limit_bytes,
                                      (std::max)(client->asked_bytes, saturating_add(account.used_bytes, more))));
        }
        claims_.push_back({account.priority, account.floor_bytes, account.wanted_bytes});
    }
    static_cast<void>(detail::split(settings_.total_bytes, claims_, std::span{targets_}.first(claims_.size()),
                                    std::span{ranks_}.first(claims_.size())));
    std::size_t next = 0;
    for (auto& client : clients_) {
        if (client) { client->account.target_bytes = targets_[next++]; }
    }
    order_.clear();
    for (auto& client : clients_) {
        if (client && is_elastic(*client)) { order_.push_back(&*client); }
    }
    std::sort(order_.begin(), order_.end(), [](const Client* a, const Client* b) {
        return a->account.priority != b->account.priority ? a->account.priority > b->account.priority : a < b;
    });
    for (Client* client : order_) {
        Account& account = client->account;
        account.granted_bytes = (std::max)(account.used_bytes, (std::min)(account.granted_bytes, account.target_bytes));
    }
    std::uint64_t available = free();
    for (Client* client : order_) {
        Account& account = client->account;
        if (account.granted_bytes >= account.target_bytes) { continue; }
        const std::uint64_t more = (std::min)(available, account.target_bytes - account.granted_bytes);
        account.granted_bytes += more;
        available -= more;
    }
    peak_granted_bytes_ = (std::max)(peak_granted_bytes_, granted());
}

RESIDENCY_INLINE std::uint64_t Ledger::threshold(const Account& account) const noexcept {
    const std::uint64_t streamed = account.wanted_bytes - account.floor_bytes;
    const double share = static_cast<double>(streamed) * (std::clamp)(settings_.hysteresis, 0.0, 1.0);
    return (std::clamp)(static_cast<std::uint64_t>(share), std::uint64_t{1}, (std::max)(std::uint64_t{1}, streamed));
}

RESIDENCY_INLINE std::uint64_t Ledger::owed(const Client& client) const noexcept {
    const Account& account = client.account;
    if (account.target_bytes <= account.granted_bytes) { return 0; }
    const std::uint64_t less = account.target_bytes - account.granted_bytes;
    return is_elastic(client) || client.growing || less >= threshold(account) ||
                   account.granted_bytes < account.floor_bytes
               ? less
               : 0;
}

RESIDENCY_INLINE std::uint64_t Ledger::next_budget(const Client& client) const noexcept {
    const Account& account = client.account;
    const std::uint64_t now = account.granted_bytes - client.pending_bytes;
    const std::uint64_t available = free();
    const std::uint64_t step = threshold(account);
    if (account.target_bytes < now) {
        std::uint64_t wanted = granted() > settings_.total_bytes ? granted() - settings_.total_bytes : 0;
        for (const auto& other : clients_) { wanted += other && &*other != &client ? owed(*other) : 0; }
        if (wanted <= residency::detail::saturating_add(available, client.pending_bytes)) { return now; }
        // A little more than is asked, so that the next small request changes nothing.
        const std::uint64_t least = account.floor_bytes + step / 2;
        const std::uint64_t next = account.target_bytes > least ? account.target_bytes - step / 2 : account.floor_bytes;
        return (std::max)(next, now - (std::min)(now, settings_.most_moved_bytes));
    }
    const std::uint64_t room = (std::min)(account.target_bytes - now, available);
    const std::uint64_t more = (std::min)(room, settings_.most_moved_bytes);
    const bool goes_on = client.growing && (more == settings_.most_moved_bytes || more == account.target_bytes - now);
    const bool completes = now + more == account.wanted_bytes && available - more >= step;
    return room >= step || goes_on || completes || now < account.floor_bytes ? now + more : now;
}

namespace detail {

RESIDENCY_INLINE bool split(std::uint64_t total_bytes, std::span<const Claim> claims, std::span<std::uint64_t> given,
                            std::span<std::uint32_t> order) noexcept {
    std::uint64_t floors = 0;
    for (const Claim& claim : claims) {
        if (claim.floor_bytes > total_bytes - floors) { return false; }
        floors += claim.floor_bytes;
    }
    for (std::size_t i = 0; i < claims.size(); ++i) {
        given[i] = claims[i].floor_bytes;
        order[i] = static_cast<std::uint32_t>(i);
    }
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return claims[a].priority != claims[b].priority ? claims[a].priority > claims[b].priority : a < b;
    });
    const auto streamed = [&](std::uint32_t i) {
        return (std::max)(claims[i].wanted_bytes, claims[i].floor_bytes) - claims[i].floor_bytes;
    };
    std::uint64_t rest = total_bytes - floors;
    for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin;
        std::uint64_t sum = 0;
        for (; end < order.size() && claims[order[end]].priority == claims[order[begin]].priority; ++end) {
            sum = residency::detail::saturating_add(sum, streamed(order[end]));
        }
        const std::uint64_t all = rest;
        for (; begin < end; ++begin) {
            const std::uint32_t i = order[begin];
            const std::uint64_t part = sum <= all ? streamed(i) : share(streamed(i), all, sum);
            given[i] += (std::min)(part, rest);
            rest -= (std::min)(part, rest);
        }
    }
    return true;
}

}  // namespace detail

RESIDENCY_INLINE Result<std::vector<std::uint64_t>> split(std::uint64_t total_bytes, std::span<const Claim> claims) {
    std::vector<std::uint64_t> given(claims.size());
    std::vector<std::uint32_t> order(claims.size());
    if (detail::split(total_bytes, claims, given, order)) { return given; }
    std::uint64_t floors = 0;
    for (const Claim& claim : claims) { floors = residency::detail::saturating_add(floors, claim.floor_bytes); }
    return Error{ErrorKind::budget,
                 "the total of " + residency::detail::in_bytes(total_bytes) + " is below the sum of the floors, " +
                     residency::detail::in_bytes(floors),
                 BudgetNumbers{floors, total_bytes, 0, floors, UINT32_MAX}};
}

}}}  // namespace residency::RESIDENCY_ABI::broker

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/broker/split.hpp"
#include "residency/error.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// What a client holds memory for.
enum class ClientKind : std::uint8_t {
    model,   ///< changes between passes, by its owner
    memory,  ///< allocations of the user: they stay until the user gives them back
};

/// How a ledger shares its total.
struct Settings {
    std::uint64_t total_bytes = 0;  ///< what all clients together may hold of the device
    /// A model's budget is not changed for less than this share of what it would stream at its floor.
    double hysteresis = 1.0 / 32;
    std::uint64_t most_moved_bytes = std::uint64_t{1} << 30;  ///< by which a model's budget changes at a pass end
};

/// What one client has. Device bytes as the driver counts them.
struct Account {
    std::string name;
    ClientKind kind = ClientKind::model;
    std::int32_t priority = 0;
    std::uint64_t floor_bytes = 0;   ///< never granted less, once the floor was granted
    std::uint64_t wanted_bytes = 0;  ///< never granted more
    std::uint64_t target_bytes =
        0;  ///< the share of the total by split(), when everybody has given back what is asked of them
    std::uint64_t granted_bytes = 0;  ///< counts against the total; the client holds no more than that at any instant
    /// Memory: allocated. Models: the budget in force and what a change of it left pending, 0 before there is one.
    std::uint64_t used_bytes = 0;

    std::uint64_t limit_bytes = UINT64_MAX;  ///< memory: never more than that

    /// What others wait for.
    [[nodiscard]] std::uint64_t asked_back_bytes() const noexcept {
        return used_bytes > target_bytes ? used_bytes - target_bytes : 0;
    }
};

/// The books of a BudgetBroker: who has how much, and the rule by which that changes. See BudgetBroker. Thread safe; every call is a
/// short critical section, none waits for a client or for the device.
class Ledger {
public:
    using Id = std::uint32_t;

    explicit Ledger(Settings settings) : settings_{settings} {}

    /// Error budget: the floors together exceed the total.
    [[nodiscard]] Result<Id> open(std::string name, ClientKind kind, Claim claim, std::uint64_t headroom_bytes,
                                  std::uint64_t limit_bytes) {
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
        client.account.limit_bytes = (std::max)(limit_bytes, claim.floor_bytes);
        clients_[id] = std::move(client);
        settle();
        return static_cast<Id>(id);
    }
    /// All that it held is free for others.
    void close(Id id) noexcept {
        const std::lock_guard lock{mutex_};
        clients_[id].reset();
        settle();
    }
    /// Larger at once; smaller as the clients give back. Error budget: below the floors.
    [[nodiscard]] Status set_total(std::uint64_t total_bytes) {
        const std::lock_guard lock{mutex_};
        const std::uint64_t before = std::exchange(settings_.total_bytes, total_bytes);
        if (auto fits = check_floors(0, none); !fits) {
            settings_.total_bytes = before;
            return fits;
        }
        settle();
        return {};
    }
    [[nodiscard]] Status set_claim(Id id, Claim claim) {
        const std::lock_guard lock{mutex_};
        if (auto fits = check_floors(claim.floor_bytes, id); !fits) { return fits; }
        Account& account = at(id).account;
        account.priority = claim.priority;
        account.floor_bytes = claim.floor_bytes;
        account.wanted_bytes = (std::max)(claim.wanted_bytes, claim.floor_bytes);
        settle();
        return {};
    }

    // Models.

    /// The first budget, in force from here on. Error budget: others have not yet given back the floor.
    [[nodiscard]] Result<std::uint64_t> start(Id id) {
        const std::lock_guard lock{mutex_};
        Client& client = at(id);
        if (!client.started) {
            settle();
            if (client.account.granted_bytes < client.account.floor_bytes) { return refusal(client, 0); }
            client.started = true;
            client.account.used_bytes = client.account.granted_bytes;
        }
        return client.account.used_bytes;
    }
    /// What the model's budget should become now, if anything. Grows into what is free, which is granted at once; a smaller one is
    /// granted by finish(). `in_force_bytes`: its budget, which may be smaller than what was granted; `pending_bytes`: what it holds
    /// beyond that still.
    [[nodiscard]] Result<std::optional<std::uint64_t>> begin(Id id, std::uint64_t in_force_bytes,
                                                             std::uint64_t pending_bytes = 0) {
        const std::lock_guard lock{mutex_};
        Client& client = at(id);
        Account& account = client.account;
        const std::uint64_t holds = residency::detail::saturating_add(in_force_bytes, pending_bytes);
        if (!client.started || client.changing || holds > account.granted_bytes) {
            return Error{ErrorKind::wrong_state,
                         holds > account.granted_bytes
                             ? "\"" + account.name + "\" has a budget of " + std::to_string(in_force_bytes) +
                                   " bytes, and " + std::to_string(account.granted_bytes) + " were granted"
                             : "\"" + account.name + "\" has no budget from here yet, or is changing it"};
        }
        account.granted_bytes = account.used_bytes = holds;
        client.pending_bytes = pending_bytes;
        settle();
        client.growing = client.growing && account.target_bytes > in_force_bytes;
        const std::uint64_t next = next_budget(client);
        if (next == in_force_bytes) { return std::optional<std::uint64_t>{}; }
        client.changing = true;
        client.growing = next > in_force_bytes && next < account.target_bytes;
        account.granted_bytes = (std::max)(account.granted_bytes, next);
        return std::optional{next};
    }
    /// The change is over, the budget in force is this one, and so much beyond it is held still. The rest is others' from here on.
    void finish(Id id, std::uint64_t in_force_bytes, std::uint64_t pending_bytes = 0) noexcept {
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
        settle();
    }

    /// Whether it is not yet what it should become.
    [[nodiscard]] bool is_due(Id id) const {
        const std::lock_guard lock{mutex_};
        const Client& client = *clients_[id];
        return client.pending_bytes != 0 || client.account.granted_bytes != next_budget(client) || owed(client) != 0;
    }

    // Memory.

    /// All or nothing, at once. A refused one is wanted from here on, until something is taken or put back.
    [[nodiscard]] Status take(Id id, std::uint64_t bytes) {
        const std::lock_guard lock{mutex_};
        Client& client = at(id);
        const auto sum = residency::detail::checked_add(client.account.used_bytes, bytes);
        if (!sum || *sum > client.account.limit_bytes) {
            return Error{ErrorKind::budget,
                         "\"" + client.account.name + "\" asks for " + std::to_string(bytes) + " bytes and holds " +
                             std::to_string(client.account.used_bytes) + ": its limit is " +
                             std::to_string(client.account.limit_bytes),
                         BudgetNumbers{bytes, client.account.limit_bytes, client.account.used_bytes,
                                       client.account.floor_bytes, UINT32_MAX}};
        }
        client.refused_bytes = bytes;
        settle();
        if (*sum > client.account.granted_bytes) { return refusal(client, bytes); }
        client.refused_bytes = 0;
        client.account.used_bytes = *sum;
        settle();
        return {};
    }
    /// Precondition: so much was taken.
    void put_back(Id id, std::uint64_t bytes) noexcept {
        const std::lock_guard lock{mutex_};
        Client& client = at(id);
        RESIDENCY_ASSERT(bytes <= client.account.used_bytes, "put back no more than was taken");
        client.account.used_bytes -= bytes;
        client.refused_bytes = 0;
        settle();
    }
    /// Bytes that are held already, room or not. False: the total is exceeded by them.
    [[nodiscard]] bool charge(Id id, std::uint64_t bytes) noexcept {
        const std::lock_guard lock{mutex_};
        Account& account = at(id).account;
        account.used_bytes = residency::detail::saturating_add(account.used_bytes, bytes);
        settle();
        return granted() <= settings_.total_bytes;
    }
    void ask(Id id, std::uint64_t bytes) {
        const std::lock_guard lock{mutex_};
        at(id).asked_bytes = bytes;
        at(id).refused_bytes = 0;
        settle();
    }

    // Anybody.

    [[nodiscard]] Account account(Id id) const {
        const std::lock_guard lock{mutex_};
        return clients_[id]->account;
    }
    [[nodiscard]] std::vector<Account> accounts() const {
        const std::lock_guard lock{mutex_};
        std::vector<Account> all;
        for (const auto& client : clients_) {
            if (client) { all.push_back(client->account); }
        }
        return all;
    }
    struct Sums {
        std::uint64_t total_bytes = 0;
        std::uint64_t granted_bytes = 0;  ///< now, to all clients
        std::uint64_t peak_granted_bytes = 0;
        std::uint64_t used_bytes = 0;   ///< now, by all clients: see Account
        std::uint64_t changes = 0;      ///< of budgets of models
        std::uint64_t moved_bytes = 0;  ///< by these
    };
    [[nodiscard]] Sums sums() const {
        const std::lock_guard lock{mutex_};
        std::uint64_t used = 0;
        for (const auto& client : clients_) { used += client ? client->account.used_bytes : 0; }
        return {settings_.total_bytes, granted(), peak_granted_bytes_, used, changes_, moved_bytes_};
    }

private:
    static constexpr Id none = UINT32_MAX;

    struct Client {
        Account account;
        std::uint64_t headroom_bytes = 0;  // memory: wanted beyond what is used
        std::uint64_t asked_bytes = 0;
        std::uint64_t refused_bytes = 0;
        std::uint64_t pending_bytes = 0;  // model: of what is granted, beyond its budget
        bool started = false;             // model: its budget is in force, grants change with it only
        bool changing = false;            // model: between begin and finish
        bool growing = false;             // model: on its way to its target, piece by piece
    };

    [[nodiscard]] Client& at(Id id) noexcept { return *clients_[id]; }
    [[nodiscard]] std::uint64_t granted() const noexcept {
        std::uint64_t sum = 0;
        for (const auto& client : clients_) { sum += client ? client->account.granted_bytes : 0; }
        return sum;
    }
    [[nodiscard]] std::uint64_t free() const noexcept {
        const std::uint64_t sum = granted();
        return sum < settings_.total_bytes ? settings_.total_bytes - sum : 0;
    }
    [[nodiscard]] Status check_floors(std::uint64_t floor_bytes, Id in_place_of) const {
        std::uint64_t floors = floor_bytes;
        for (Id id = 0; id < clients_.size(); ++id) {
            if (clients_[id] && id != in_place_of) {
                floors = residency::detail::saturating_add(floors, clients_[id]->account.floor_bytes);
            }
        }
        if (floors <= settings_.total_bytes) { return {}; }
        return Error{ErrorKind::budget,
                     "the floors together take " + std::to_string(floors) + " bytes, and the total is " +
                         std::to_string(settings_.total_bytes),
                     BudgetNumbers{floor_bytes, settings_.total_bytes, floors - floor_bytes, floors, UINT32_MAX}};
    }
    [[nodiscard]] Error refusal(const Client& client, std::uint64_t bytes) const {
        const Account& account = client.account;
        std::uint64_t coming = 0;
        for (const auto& other : clients_) {
            if (other && &*other != &client) { coming += other->account.asked_back_bytes(); }
        }
        const std::uint64_t asked = bytes != 0 ? bytes : account.floor_bytes;
        return {ErrorKind::budget,
                "\"" + account.name + "\" asks for " + std::to_string(asked) + " bytes and holds " +
                    std::to_string(account.used_bytes) + "; its share of the total of " +
                    std::to_string(settings_.total_bytes) + " is " + std::to_string(account.target_bytes) + ", " +
                    std::to_string(free() + account.granted_bytes - account.used_bytes) + " are free, and " +
                    std::to_string(coming) + " are asked back from others: ask again after their next pass ends",
                BudgetNumbers{asked, settings_.total_bytes, granted(), account.floor_bytes, UINT32_MAX}};
    }

    /// Targets anew; memory clients and models without a budget yet are granted what is free of theirs, and lose what they do
    /// not use.
    void settle() noexcept {
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
            account.granted_bytes =
                (std::max)(account.used_bytes, (std::min)(account.granted_bytes, account.target_bytes));
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
    /// Its grant is a figure only, and changes at once.
    [[nodiscard]] static bool is_elastic(const Client& client) noexcept {
        return client.account.kind == ClientKind::memory || !client.started;
    }
    [[nodiscard]] std::uint64_t threshold(const Account& account) const noexcept {
        const std::uint64_t streamed = account.wanted_bytes - account.floor_bytes;
        const double share = static_cast<double>(streamed) * (std::clamp)(settings_.hysteresis, 0.0, 1.0);
        return (std::clamp)(static_cast<std::uint64_t>(share), std::uint64_t{1},
                            (std::max)(std::uint64_t{1}, streamed));
    }
    /// What a client may claim from others now: 0 where that is less than what a change is made for.
    [[nodiscard]] std::uint64_t owed(const Client& client) const noexcept {
        const Account& account = client.account;
        if (account.target_bytes <= account.granted_bytes) { return 0; }
        const std::uint64_t less = account.target_bytes - account.granted_bytes;
        return is_elastic(client) || client.growing || less >= threshold(account) ||
                       account.granted_bytes < account.floor_bytes
                   ? less
                   : 0;
    }
    [[nodiscard]] std::uint64_t next_budget(const Client& client) const noexcept {
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
            const std::uint64_t next =
                account.target_bytes > least ? account.target_bytes - step / 2 : account.floor_bytes;
            return (std::max)(next, now - (std::min)(now, settings_.most_moved_bytes));
        }
        const std::uint64_t room = (std::min)(account.target_bytes - now, available);
        const std::uint64_t more = (std::min)(room, settings_.most_moved_bytes);
        const bool goes_on =
            client.growing && (more == settings_.most_moved_bytes || more == account.target_bytes - now);
        const bool completes = now + more == account.wanted_bytes && available - more >= step;
        return room >= step || goes_on || completes || now < account.floor_bytes ? now + more : now;
    }

    mutable std::mutex mutex_;
    Settings settings_;
    std::vector<std::optional<Client>> clients_;
    std::vector<Claim> claims_;
    std::vector<Client*> order_;
    std::vector<std::uint64_t> targets_;
    std::vector<std::uint32_t> ranks_;
    std::uint64_t peak_granted_bytes_ = 0;
    std::uint64_t changes_ = 0;
    std::uint64_t moved_bytes_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::broker

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// What one client asks of a total. Bytes as the driver counts them.
struct Claim {
    std::int32_t priority = 0;       ///< the higher one is served first
    std::uint64_t floor_bytes = 0;   ///< given at least
    std::uint64_t wanted_bytes = 0;  ///< given at most, unless the floor is larger: what everything of the client takes
};

/// The rule by which claims share a total, as a pure function:
///  1. Every claim has its floor. Error budget, with the sum of the floors, where the total is below that sum.
///  2. The rest serves the priorities, the highest first. A priority that is served whole has all that it wants.
///  3. Where the rest does not serve a priority whole, each of its claims gets the same share of wanted_bytes − floor_bytes, the
///     bytes that it streams at its floor, rounded down.
/// The sum never exceeds the total. What rounding leaves of a priority, less than a byte per claim, goes to the next one. O(n log
/// n).
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<std::uint64_t>> split(std::uint64_t total_bytes,
                                                                        std::span<const Claim> claims);

namespace detail {

/// whole · part / parts, rounded down, without a product that overflows. Precondition: part < parts.
[[nodiscard]] constexpr std::uint64_t share(std::uint64_t whole, std::uint64_t part, std::uint64_t parts) noexcept {
    std::uint64_t quotient = 0, remainder = 0;
    const auto add = [&](std::uint64_t more) {
        const bool carries = remainder >= parts - more;
        remainder = carries ? remainder - (parts - more) : remainder + more;
        quotient += carries ? 1U : 0U;
    };
    for (int bit = 63; bit >= 0; --bit) {
        quotient <<= 1U;
        add(remainder);
        if ((whole >> static_cast<unsigned>(bit) & 1U) != 0) { add(part); }
    }
    return quotient;
}

/// split() without allocations. `given` and `order` have one entry per claim; `order` is scratch. False: the total is below the
/// floors, and nothing was given.
[[nodiscard]] RESIDENCY_INLINE bool split(std::uint64_t total_bytes, std::span<const Claim> claims,
                                          std::span<std::uint64_t> given, std::span<std::uint32_t> order) noexcept;

}  // namespace detail

/// What a client holds memory for.
enum class ClientKind : std::uint8_t {
    model,   ///< holds a budget that its owner changes between passes
    memory,  ///< holds allocations of the user, which stay until the user gives them back
};

/// How a ledger shares its total.
struct Settings {
    std::uint64_t total_bytes = 0;  ///< of the device, for all clients together
    /// A model's budget changes by no less than this share of the bytes that it would stream at its floor. 0 … 1.
    double hysteresis = 1.0 / 32;
    std::uint64_t most_moved_bytes = std::uint64_t{1}
                                     << 30;  ///< by which a model's budget changes at one pass end, at most
};

/// What one client has. Device bytes as the driver counts them.
struct Account {
    std::string name;                     ///< for messages
    ClientKind kind = ClientKind::model;  ///< a model, or memory
    std::int32_t priority = 0;            ///< the higher one is served first
    std::uint64_t floor_bytes = 0;        ///< granted at least, once they were granted for the first time
    std::uint64_t wanted_bytes = 0;       ///< granted at most
    std::uint64_t target_bytes =
        0;  ///< the client's share of the total by split(): what it has once all others gave back theirs
    std::uint64_t granted_bytes = 0;  ///< count against the total; the client holds no more at any instant
    /// Memory: allocated. Models: the budget in force and what an earlier change of it left pending; 0 before there is a budget.
    std::uint64_t used_bytes = 0;
    std::uint64_t limit_bytes = UINT64_MAX;  ///< memory: used at most

    /// Bytes that others wait for.
    [[nodiscard]] std::uint64_t asked_back_bytes() const noexcept {
        return used_bytes > target_bytes ? used_bytes - target_bytes : 0;
    }
};

/// The accounts of a BudgetBroker's clients; the bytes granted never exceed the total, but for what charge() added. BudgetBroker
/// states the rules B1–B6. Thread safe: every call is a short critical section, and none waits for a client or for the device.
class Ledger {
public:
    using Id = std::uint32_t;  ///< number of a client

    /// Has the total of `settings`, and no clients.
    explicit Ledger(Settings settings) : settings_{settings} {}

    /// Adds a client. `headroom_bytes`: memory wants them beyond what it uses. Error budget: the floors together exceed the total.
    [[nodiscard]] Result<Id> open(std::string name, ClientKind kind, Claim claim, std::uint64_t headroom_bytes,
                                  std::uint64_t limit_bytes);
    /// Removes a client. All that it held is free for the others.
    void close(Id id) noexcept;
    /// A larger total holds at once, a smaller one as the clients give back. Error budget: below the floors; the old total stays.
    [[nodiscard]] Status set_total(std::uint64_t total_bytes);
    /// Error budget: the floors together exceed the total; the old claim stays.
    [[nodiscard]] Status set_claim(Id id, Claim claim);

    // Models.

    /// The model's first budget, in force from here on. Error budget: others have not yet given back what the floor needs.
    [[nodiscard]] Result<std::uint64_t> start(Id id);
    /// What the model's budget should become now; none: it stays. A larger budget is granted at once, out of what is free; a
    /// smaller one is granted by finish(). `in_force_bytes`: the budget, which may be smaller than what was granted.
    /// `pending_bytes`: held beyond it. Error wrong_state: no budget from start(), a change without finish(), or more held than was
    /// granted.
    [[nodiscard]] Result<std::optional<std::uint64_t>> begin(Id id, std::uint64_t in_force_bytes,
                                                             std::uint64_t pending_bytes = 0);
    /// Ends the change: this budget is in force, and `pending_bytes` beyond it are still held. Frees the rest for the others.
    void finish(Id id, std::uint64_t in_force_bytes, std::uint64_t pending_bytes = 0) noexcept;

    /// Whether the model's budget is not yet what it should become.
    [[nodiscard]] bool is_due(Id id) const;

    // Memory.

    /// Takes all the bytes at once, or none. Refused bytes are wanted until something is taken, put back or asked for. Error
    /// budget.
    [[nodiscard]] Status take(Id id, std::uint64_t bytes);
    /// Precondition: at least `bytes` were taken.
    void put_back(Id id, std::uint64_t bytes) noexcept;
    /// Counts bytes that are held already, whether there is room or not. False: the total is exceeded.
    [[nodiscard]] bool charge(Id id, std::uint64_t bytes) noexcept;
    /// Wants `bytes` in all, ahead of their use. 0: what is used, and the headroom.
    void ask(Id id, std::uint64_t bytes);

    // Any client.

    [[nodiscard]] Account account(Id id) const;           ///< what that client has now
    [[nodiscard]] std::vector<Account> accounts() const;  ///< the same, of every client
    /// Over all clients.
    struct Sums {
        std::uint64_t total_bytes = 0;         ///< that may be granted
        std::uint64_t granted_bytes = 0;       ///< now, to all clients
        std::uint64_t peak_granted_bytes = 0;  ///< the most at any instant
        std::uint64_t used_bytes = 0;          ///< now, by all clients: Account::used_bytes
        std::uint64_t changes = 0;             ///< of models' budgets, since construction
        std::uint64_t moved_bytes = 0;         ///< sum of the differences that those changes made
    };
    [[nodiscard]] Sums sums() const;  ///< now

private:
    static constexpr Id none = UINT32_MAX;

    struct Client {
        Account account;
        std::uint64_t headroom_bytes = 0;  // memory: wanted beyond what is used
        std::uint64_t asked_bytes = 0;     // memory: of the last ask()
        std::uint64_t refused_bytes = 0;   // memory: of the last take(), if it was refused
        std::uint64_t pending_bytes = 0;   // model: part of what is granted, beyond its budget
        bool started = false;              // model: its budget is in force; its grant changes only with the budget
        bool changing = false;             // model: between begin() and finish()
        bool growing = false;              // model: on its way to its target, step by step
    };

    // All of these are called with the mutex held.

    [[nodiscard]] Client& at(Id id) noexcept { return *clients_[id]; }
    /// Sum over all clients.
    [[nodiscard]] std::uint64_t granted() const noexcept;
    /// Bytes of the total that are granted to nobody.
    [[nodiscard]] std::uint64_t free() const noexcept;
    /// Error budget: the floors of all clients but `in_place_of`, and `floor_bytes`, exceed the total.
    [[nodiscard]] Status check_floors(std::uint64_t floor_bytes, Id in_place_of) const;
    /// The error of a client that is refused `bytes`, or its floor where they are 0.
    [[nodiscard]] Error refusal(const Client& client, std::uint64_t bytes) const;
    /// Computes all targets anew. Then grants what is free to memory, and to models without a budget yet, up to their targets; and
    /// takes back what these do not use above their targets.
    void rebalance() noexcept;
    /// Whether the ledger may change the client's grant by itself, as the client holds nothing for it.
    [[nodiscard]] static bool is_elastic(const Client& client) noexcept {
        return client.account.kind == ClientKind::memory || !client.started;
    }
    /// The smallest change of a budget, in bytes.
    [[nodiscard]] std::uint64_t threshold(const Account& account) const noexcept;
    /// Bytes that a client may claim from others now; 0 where they are less than the smallest change.
    [[nodiscard]] std::uint64_t owed(const Client& client) const noexcept;
    /// The budget that a model should have now, by rule B4.
    [[nodiscard]] std::uint64_t next_budget(const Client& client) const noexcept;

    mutable std::mutex mutex_;  // guards all that follows
    Settings settings_;
    std::vector<std::optional<Client>> clients_;  // by id; an empty place is taken by the next client
    std::vector<Claim> claims_;                   // scratch of rebalance(), as are the next three: it allocates nothing
    std::vector<Client*> order_;
    std::vector<std::uint64_t> targets_;
    std::vector<std::uint32_t> ranks_;
    std::uint64_t peak_granted_bytes_ = 0;
    std::uint64_t changes_ = 0;      // of models' budgets
    std::uint64_t moved_bytes_ = 0;  // by those changes
};

namespace detail {

/// One of what a state counts by numbers. `end`, a member of the state, is told the number when it ends. The source of a move is empty.
template <class State, auto end>
class Handle {
public:
    Handle() noexcept = default;
    Handle(std::shared_ptr<State> state, std::uint32_t id) noexcept : state_{std::move(state)}, id_{id} {}
    Handle(Handle&& other) noexcept : state_{std::move(other.state_)}, id_{other.id_} {}
    Handle& operator=(Handle&& other) noexcept {
        if (this != &other) {
            leave();
            state_ = std::move(other.state_);
            id_ = other.id_;
        }
        return *this;
    }
    ~Handle() { leave(); }

    void leave() noexcept {
        if (const auto state = std::exchange(state_, nullptr)) { (state.get()->*end)(id_); }
    }
    /// Null: it is empty.
    [[nodiscard]] State* state() const noexcept { return state_.get(); }
    [[nodiscard]] std::uint32_t id() const noexcept { return id_; }

private:
    std::shared_ptr<State> state_;
    std::uint32_t id_ = 0;
};
/// Of a client.
using ClientHandle = Handle<Ledger, &Ledger::close>;

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::broker

#if RESIDENCY_HEADER_ONLY
#include "residency/broker/impl/ledger.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "residency/broker/memory_client.hpp"
#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"
#include "residency/pool/chunk_stock.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// A member of a group, as others see it.
struct GroupAccount {
    std::string name;              ///< for messages
    std::int32_t priority = 0;     ///< the higher one is woken first, and sleeps last
    bool is_pinned = false;        ///< it does not sleep
    bool is_awake = false;         ///< it has its memory
    std::uint32_t users = 0;       ///< of them, it is not put to sleep
    std::uint64_t held_bytes = 0;  ///< of the device; asleep: what prepare() brought
    std::uint64_t wakes = 0;       ///< so far
};

namespace detail {

/// What a group wants to know of a model.
struct GroupSight {
    bool is_awake = true;
    std::uint64_t budget_bytes = 0;
    std::uint64_t held_bytes = 0;
    /// What may come for another model during a pass of this one, so that it takes at most 2 % longer: a hundredth of what it brings itself; where it
    /// streams nothing, 14 bytes a nanosecond of its last pass, a quarter of PCIe 5 x16.
    std::uint64_t spare_bytes = 0;
};

/// A model as a group sees it, of any type.
struct GroupModel {
    void* model = nullptr;
    Status (*suspend)(void*) = nullptr;
    Status (*resume)(void*) = nullptr;
    Result<std::uint64_t> (*bring_asleep)(void*, std::uint64_t) = nullptr;
    void (*count_group)(void*, bool) = nullptr;
    GroupSight (*look)(const void*) = nullptr;

    /// Keeps the reference.
    template <class Model>
    [[nodiscard]] static GroupModel of(Model& model) {
        GroupModel result;
        result.model = &model;
        result.suspend = [](void* it) { return static_cast<Model*>(it)->try_suspend(); };
        result.resume = [](void* it) { return static_cast<Model*>(it)->try_resume(); };
        result.bring_asleep = [](void* it, std::uint64_t most_bytes) {
            return static_cast<Model*>(it)->try_bring_asleep(most_bytes);
        };
        result.count_group = [](void* it, bool is_in) { static_cast<Model*>(it)->count_group(is_in); };
        result.look = [](const void* it) {
            const Model& seen = *static_cast<const Model*>(it);
            const auto statistics = seen.statistics();
            const auto time = statistics.pass_time.value_or(std::chrono::milliseconds{5});
            const std::uint64_t spare = statistics.streaming ? statistics.last_pass.fetched_bytes / 100
                                                             : static_cast<std::uint64_t>(time.count()) * 14;
            return GroupSight{!seen.is_suspended(), seen.budget().bytes, statistics.held_bytes, spare};
        };
        return result;
    }
};

/// What a group shares among its handles. Thread safe.
template <VirtualMemoryDevice D>
class GroupState {
public:
    using Id = std::uint32_t;

    GroupState(D& device, MemoryClient client, std::uint64_t chunk_bytes)
        : client_{std::move(client)}, stock_{device, 0, chunk_bytes} {
        stock_.on_short([this](std::uint64_t bytes) { return client_.try_take(bytes).has_value(); });
    }

    [[nodiscard]] pool::ChunkStock<D>& stock() noexcept { return stock_; }
    [[nodiscard]] Status make_room(std::uint64_t bytes, std::chrono::nanoseconds most_wait) {
        const Deadline deadline{most_wait};
        Lock lock{mutex_};
        if (auto turn = await_turn(lock, 0, deadline); !turn) { return turn; }
        auto made = make_room(lock, bytes, nullptr, deadline);
        end_turn();
        return made;
    }
    [[nodiscard]] Result<Id> add(GroupModel model, std::string name, std::int32_t priority, bool is_pinned);
    [[nodiscard]] Status give_back() {
        Lock lock{mutex_};
        if (auto turn = await_turn(lock, 0, Deadline{std::chrono::nanoseconds{0}}); !turn) { return turn; }
        auto given = give_back(lock, nullptr);
        end_turn();
        return given;
    }
    void remove(Id id) noexcept;
    [[nodiscard]] Status activate(Id id, std::chrono::nanoseconds most_wait);
    /// Others that are awake and idle fall asleep where the broker asks for memory.
    void end_use(Id id) noexcept;
    [[nodiscard]] Result<std::uint64_t> prepare(Id id, std::optional<std::uint64_t> most_bytes);
    [[nodiscard]] std::vector<GroupAccount> accounts() const;

private:
    struct Each {
        GroupModel model;
        std::string name;
        std::int32_t priority = 0;
        bool is_pinned = false;
        bool is_moving = false;         // it falls asleep or wakes, in some thread
        GroupSight seen;                // as it moved last, or a use of it ended
        std::uint64_t awake_bytes = 0;  // that it held when it was awake
        std::uint64_t last_use = 0;     // by clock_
        std::uint64_t place = 0;        // models of one place have each other's chunks
        std::uint64_t wakes = 0;
        std::vector<std::thread::id> users{};

        /// Nobody else uses or moves it.
        void look() {
            seen = model.look(model.model);
            if (seen.is_awake) { awake_bytes = seen.held_bytes; }
        }
        [[nodiscard]] bool is_used_by(std::thread::id thread) const {
            return std::find(users.begin(), users.end(), thread) != users.end();
        }
    };
    struct Turn {
        std::int32_t priority;
        std::uint64_t number;
    };
    using Lock = std::unique_lock<std::mutex>;
    /// Until when a request waits for others.
    class Deadline {
    public:
        explicit Deadline(std::chrono::nanoseconds most_wait)
            : most_wait_{most_wait}, begin_{std::chrono::steady_clock::now()} {}
        [[nodiscard]] bool is_over() const { return std::chrono::steady_clock::now() - begin_ >= most_wait_; }
        /// Until something changes, or it is over.
        void wait(std::condition_variable& changed, Lock& lock) const {
            // A time that far away has no clock.
            if (most_wait_ >= std::chrono::hours{24 * 365}) { return changed.wait(lock); }
            static_cast<void>(changed.wait_until(lock, begin_ + most_wait_));
        }

    private:
        std::chrono::nanoseconds most_wait_;
        std::chrono::steady_clock::time_point begin_;
    };

    /// Times that a model tries to wake, while others take what was made free for it: models that are made, budgets that grow.
    static constexpr int wake_tries = 16;
    /// Requests a member, after which a model leaves its place to others.
    static constexpr std::uint64_t long_unused = 16;

    /// This thread uses a model: it waits for nobody.
    [[nodiscard]] bool is_user() const {
        const auto self = std::this_thread::get_id();
        return std::any_of(members_.begin(), members_.end(),
                           [&](const auto& each) { return each && each->is_used_by(self); });
    }
    /// Requests that change who is awake come one by one: the higher priority first, and of equal ones the first that came.
    [[nodiscard]] Status await_turn(Lock& lock, std::int32_t priority, const Deadline& deadline);
    void end_turn() noexcept {
        turns_.erase(turns_.begin());
        changed_.notify_all();
    }
    /// In its turn. `self`: whose room it is to be; null: of a model that is to be made.
    [[nodiscard]] Status make_room(Lock& lock, std::uint64_t bytes, Each* self, const Deadline& deadline);
    [[nodiscard]] Status wake(Lock& lock, Each& each, const Deadline& deadline);
    /// In its turn. What the broker asks for: those that are awake and idle fall asleep, but for `stays`.
    [[nodiscard]] Status give_back(Lock& lock, const Each* stays);
    /// Others may run meanwhile.
    [[nodiscard]] Status move(Lock& lock, Each& each, Status (*how)(void*));
    /// Takes of the broker's total what the members, and one that is to be made, could use and nobody has; gives back what is free and asked for.
    void settle_with_broker(std::uint64_t wanted_bytes = 0) noexcept;
    [[nodiscard]] Error no_room(std::uint64_t bytes, const Each* self);
    /// It is awake, and may fall asleep.
    [[nodiscard]] static bool is_idle(const Each& each) noexcept {
        return each.seen.is_awake && !each.is_pinned && each.users.empty();
    }
    /// Who sleeps next: of the lowest priority, the one that was used least recently; null: nobody may. A model that wakes gets the memory that
    /// it had without a call of the driver, so that one in its place goes first, unless another one has not been used for long.
    [[nodiscard]] Each* next_to_sleep(const Each* self);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    MemoryClient client_;
    pool::ChunkStock<D> stock_;
    std::vector<std::unique_ptr<Each>> members_;
    std::vector<Turn> turns_;  // in their order; the first one has it
    std::uint64_t clock_ = 0;
    std::uint64_t wanted_place_ = 0;  // of a model that is to be made; 0: its own
};

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::broker

namespace residency { inline namespace RESIDENCY_ABI {

/// Models that take turns in one part of a BudgetBroker's total: more models than fit. Those that are awake have their memory and run; the
/// others sleep, and hold none. Host bytes are read only, so that sleeping copies nothing but what kernels wrote, and a model that
/// wakes runs its first pass while its weights arrive. Physical memory stays with the group (pool::ChunkStock): addresses and captured passes
/// of a model are valid again when it wakes with the same budget.
///
///     auto broker = BudgetBroker::create(device, "20GiB");
///     ModelGroup<CudaDevice> group{device, broker};
///     group.make_room(bytes);                               // others fall asleep
///     options.policies.pool.stock = &group.stock();
///     Planned<CudaDevice> draft{device, catalog, options};
///     auto member = group.add(draft, {.name = "draft"});
///     …
///     {
///         const auto use = group.activate(member);          // wakes it, others fall asleep; it stays awake until `use` ends
///         auto pass = draft.begin(stream);                  // or the launch of a captured pass
///         …
///     }
///     group.prepare(next);                                  // once a pass, when it is enqueued: what fits beside the one that runs
///
/// Memory of the program, such as a KV cache, is another client of the broker: what it takes, the group gives back as models fall
/// asleep. Thread safe: a model runs in the thread that has a Use of it. Outlives its members.
template <VirtualMemoryDevice D>
class ModelGroup {
    using State = broker::detail::GroupState<D>;

public:
    using Account = broker::GroupAccount;  ///< of a member

    /// What it is made with.
    struct Options {
        std::string name = "models";    ///< as a client of the broker, for messages
        std::int32_t priority = 0;      ///< the same
        std::uint64_t floor_bytes = 0;  ///< the same: granted at least
        std::uint64_t chunk_bytes = pool::ChunkStock<D>::usual_chunk_bytes;  ///< in which memory changes hands
    };
    /// How a model takes part.
    struct MemberOptions {
        std::string name;           ///< for messages
        std::int32_t priority = 0;  ///< the higher one is woken first, and sleeps last
        bool is_pinned = false;     ///< it never sleeps
    };
    /// A request waits until others end their uses, however long that takes.
    static constexpr auto forever = (std::chrono::nanoseconds::max)();

    /// A model in the group. Ends before the model, and after its uses. A move empties its source.
    class [[nodiscard]] Member {
    public:
        Member() noexcept = default;
        /// Made by add().
        Member(std::shared_ptr<State> state, typename State::Id id) noexcept : handle_{std::move(state), id} {}

    private:
        friend ModelGroup;
        broker::detail::Handle<State, &State::remove> handle_;
    };
    /// While it exists, the model is awake. It belongs to the thread that called activate(), wherever it is moved. A move empties its source.
    class [[nodiscard]] Use {
    public:
        Use() noexcept = default;
        /// Made by activate().
        Use(std::shared_ptr<State> state, typename State::Id id) noexcept : handle_{std::move(state), id} {}
        /// Ends it. What was enqueued may still run: the model falls asleep after it.
        void end() noexcept { handle_.leave(); }

    private:
        broker::detail::Handle<State, &State::end_use> handle_;
    };

    /// A client of that broker. Errors: as BudgetBroker::try_add_memory(); invalid_argument: chunks of no bytes.
    [[nodiscard]] static Result<ModelGroup> try_create(D& device, BudgetBroker& broker, Options options = {}) {
        if (options.chunk_bytes == 0) {
            return Error{ErrorKind::invalid_argument,
                         "chunk_bytes of a group of models is 0: leave it as it is, or give a multiple of 2 MiB"};
        }
        auto client = broker.try_add_memory(
            {.name = options.name, .priority = options.priority, .floor_bytes = options.floor_bytes});
        if (!client) { return client.error(); }
        return ModelGroup{std::make_shared<State>(device, std::move(*client), options.chunk_bytes)};
    }

    /// Where its models take their memory: policies.pool.stock of their options.
    [[nodiscard]] pool::ChunkStock<D>& stock() noexcept { return state_->stock(); }
    /// Blocks. Makes room for a model that is about to be made: others fall asleep. Waits for others for so long at most; 0: not at all.
    /// Errors: budget (the total, or those that do not sleep, leave less), wrong_state (others are still in the way, or this thread uses a model
    /// that is), the device's own.
    [[nodiscard]] Status try_make_room(std::uint64_t bytes, std::chrono::nanoseconds most_wait = forever) {
        return state_->make_room(bytes, most_wait);
    }
    /// A planned Residency of this stock becomes a member. The group keeps the reference, and decides when it sleeps.
    /// Error invalid_argument: it has memory that is not of the stock, or is a member already.
    template <class Model>
    [[nodiscard]] Result<Member> try_add(Model& model, MemberOptions options) {
        if (model.stock() != &state_->stock()) {
            return Error{ErrorKind::invalid_argument,
                         "\"" + options.name +
                             "\" has memory that is not of this group's stock: set policies.pool.stock = "
                             "&group.stock() in its options before it is made"};
        }
        const auto id = state_->add(broker::detail::GroupModel::of(model), std::move(options.name), options.priority,
                                    options.is_pinned);
        if (!id) { return id.error(); }
        return Member{state_, *id};
    }
    /// Blocks until it is this request's turn, others that are in the way sleep, and the model is awake. Its weights come with its next pass.
    /// Waits for others for so long at most; 0: not at all.
    /// Errors: budget, wrong_state: as try_make_room(); those of Residency::try_resume(). After an error every model is as it was, or asleep.
    [[nodiscard]] Result<Use> try_activate(const Member& member, std::chrono::nanoseconds most_wait = forever) {
        if (auto active = state_->activate(id_of(member), most_wait); !active) { return active.error(); }
        return Use{state_, member.handle_.id()};
    }
    /// Blocks. Gives other clients of the broker what they ask for: free memory, and that of models that are awake and idle, which fall asleep
    /// until it is enough. Errors: wrong_state (other requests wait), the device's own.
    [[nodiscard]] Status try_give_back() { return state_->give_back(); }
    /// Brings weights of a model that sleeps to memory that no other model has, and that it had before. Once a pass of the model that runs, when it
    /// is enqueued: as much as makes that pass at most 2 % longer, a chunk at least; all that there is room for where no model is used; or
    /// `most_bytes`. Returns the bytes whose copies were enqueued; 0: there is no more to bring, or no room. Does not block. Errors: the
    /// device's own.
    [[nodiscard]] Result<std::uint64_t> try_prepare(const Member& member,
                                                    std::optional<std::uint64_t> most_bytes = std::nullopt) {
        return state_->prepare(id_of(member), most_bytes);
    }
#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throw Exception.
    /// @{
    ModelGroup(D& device, BudgetBroker& broker, Options options = {})
        : ModelGroup{unwrap(try_create(device, broker, std::move(options)))} {}
    void make_room(std::uint64_t bytes, std::chrono::nanoseconds most_wait = forever) {
        unwrap(try_make_room(bytes, most_wait));
    }
    void give_back() { unwrap(try_give_back()); }
    template <class Model>
    [[nodiscard]] Member add(Model& model, MemberOptions options) {
        return unwrap(try_add(model, std::move(options)));
    }
    [[nodiscard]] Use activate(const Member& member, std::chrono::nanoseconds most_wait = forever) {
        return unwrap(try_activate(member, most_wait));
    }
    std::uint64_t prepare(const Member& member, std::optional<std::uint64_t> most_bytes = std::nullopt) {
        return unwrap(try_prepare(member, most_bytes));
    }
    /// @}
#endif
    /// All members, in the order in which they were added.
    [[nodiscard]] std::vector<Account> accounts() const { return state_->accounts(); }

private:
    explicit ModelGroup(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}

    [[nodiscard]] typename State::Id id_of(const Member& member) const noexcept {
        RESIDENCY_ASSERT(member.handle_.state() == state_.get(),
                         "this member is of another group, or was moved from: use what add() of this group returned");
        return member.handle_.id();
    }

    std::shared_ptr<State> state_;
};

namespace broker { namespace detail {

template <VirtualMemoryDevice D>
auto GroupState<D>::add(GroupModel model, std::string name, std::int32_t priority, bool is_pinned) -> Result<Id> {
    const std::scoped_lock lock{mutex_};
    for (const auto& other : members_) {
        if (other && other->model.model == model.model) {
            return Error{ErrorKind::invalid_argument, "\"" + name + "\" is a member of this group already, as \"" +
                                                          other->name + "\": use what add() returned then"};
        }
    }
    auto each = std::make_unique<Each>();
    each->model = model;
    each->name = std::move(name);
    each->priority = priority;
    each->is_pinned = is_pinned;
    each->look();
    each->last_use = ++clock_;
    each->place = wanted_place_ != 0 ? std::exchange(wanted_place_, 0) : clock_;
    const auto free = std::find(members_.begin(), members_.end(), nullptr);
    const auto id = static_cast<Id>(free - members_.begin());
    if (free == members_.end()) { members_.emplace_back(); }
    members_[id] = std::move(each);
    model.count_group(model.model, true);
    return id;
}

template <VirtualMemoryDevice D>
void GroupState<D>::remove(Id id) noexcept {
    Lock lock{mutex_};
    RESIDENCY_ASSERT(members_[id]->users.empty(), "end the uses of a model before it leaves its group");
    changed_.wait(lock, [&] { return !members_[id]->is_moving; });
    members_[id]->model.count_group(members_[id]->model.model, false);
    members_[id].reset();
    changed_.notify_all();
}

template <VirtualMemoryDevice D>
Status GroupState<D>::await_turn(Lock& lock, std::int32_t priority, const Deadline& deadline) {
    if (!turns_.empty() && is_user()) {
        return Error{ErrorKind::wrong_state,
                     "other requests wait for models that sleep, and this thread uses one: end its use before the next "
                     "request"};
    }
    const std::uint64_t number = ++clock_;
    // The first one has its turn already.
    auto place = turns_.empty() ? turns_.end() : turns_.begin() + 1;
    while (place != turns_.end() && place->priority >= priority) { ++place; }
    turns_.insert(place, {priority, number});
    while (turns_.front().number != number) {
        if (deadline.is_over()) {
            std::erase_if(turns_, [&](const Turn& turn) { return turn.number == number; });
            return Error{ErrorKind::wrong_state,
                         "other requests still wait for models that sleep: ask again later, or wait longer"};
        }
        deadline.wait(changed_, lock);
    }
    return {};
}

template <VirtualMemoryDevice D>
Status GroupState<D>::activate(Id id, std::chrono::nanoseconds most_wait) {
    const Deadline deadline{most_wait};
    Lock lock{mutex_};
    Each& each = *members_[id];
    if (each.users.empty() && !each.is_moving) { each.look(); }  // its owner may have put it to sleep
    // A thread that uses a model may use another one that is awake, whoever waits: it has to come to an end.
    const bool is_at_once = (turns_.empty() || is_user()) && !each.is_moving && each.seen.is_awake;
    if (!is_at_once) {
        if (auto turn = await_turn(lock, each.priority, deadline); !turn) {
            return turn.error().in("to wake \"" + each.name + "\"");
        }
        auto woken = wake(lock, each, deadline);
        end_turn();
        if (!woken) { return woken.error().in("to wake \"" + each.name + "\""); }
    }
    each.users.push_back(std::this_thread::get_id());
    each.last_use = ++clock_;
    return {};
}

template <VirtualMemoryDevice D>
void GroupState<D>::end_use(Id id) noexcept {
    Lock lock{mutex_};
    Each& each = *members_[id];
    const auto own = std::find(each.users.begin(), each.users.end(), std::this_thread::get_id());
    each.users.erase(own != each.users.end() ? own : each.users.begin());
    if (each.users.empty()) { each.look(); }
    each.last_use = ++clock_;
    if (!turns_.empty()) {
        changed_.notify_all();
        return;
    }
    turns_.push_back({each.priority, ++clock_});
    static_cast<void>(give_back(lock, &each).has_value());  // it would only be woken again
    end_turn();
}

template <VirtualMemoryDevice D>
Status GroupState<D>::give_back(Lock& lock, const Each* stays) {
    settle_with_broker();
    while (client_.asked_back_bytes() > 0) {
        Each* const idle = next_to_sleep(stays);
        if (idle == nullptr) { break; }
        if (auto slept = move(lock, *idle, idle->model.suspend); !slept) {
            return slept.error().in("to put \"" + idle->name + "\" to sleep");
        }
        settle_with_broker();
    }
    return {};
}

template <VirtualMemoryDevice D>
Status GroupState<D>::wake(Lock& lock, Each& each, const Deadline& deadline) {
    if (each.seen.is_awake) { return {}; }
    each.look();  // its owner may have changed it while it slept
    std::uint64_t bytes = (std::min)(each.awake_bytes, each.seen.budget_bytes);
    for (int tries = 1;; ++tries) {
        if (auto made = make_room(lock, bytes, &each, deadline); !made) { return made; }
        const std::uint64_t refused = stock_.refused();
        auto resumed = move(lock, each, each.model.resume);
        if (resumed) {
            ++each.wakes;
            return {};
        }
        const ErrorKind kind = resumed.error().kind();
        const std::uint64_t budget = each.seen.budget_bytes;
        // Its budget has changed while it slept; or others took what was free, without a turn.
        const bool is_more = (kind == ErrorKind::out_of_memory || kind == ErrorKind::budget) && bytes < budget;
        if (!is_more && (stock_.refused() == refused || tries == wake_tries)) { return resumed; }
        bytes = is_more ? budget : bytes;
    }
}

template <VirtualMemoryDevice D>
Status GroupState<D>::move(Lock& lock, Each& each, Status (*how)(void*)) {
    each.is_moving = true;
    lock.unlock();
    Status moved = how(each.model.model);
    lock.lock();
    each.look();
    each.is_moving = false;
    changed_.notify_all();
    return moved;
}

template <VirtualMemoryDevice D>
Status GroupState<D>::make_room(Lock& lock, std::uint64_t bytes, Each* self, const Deadline& deadline) {
    for (;;) {
        settle_with_broker(self == nullptr ? bytes : 0);
        std::uint64_t could = stock_.free_bytes() + (self != nullptr ? self->seen.held_bytes : 0);
        if (could >= bytes) {
            client_.ask(0);
            return {};
        }
        // Nobody falls asleep for a request that fails all the same.
        for (const auto& each : members_) {
            const bool may_leave = each && each.get() != self && (!each->seen.is_awake || is_idle(*each));
            could += may_leave ? each->seen.held_bytes : 0;
        }
        could -= (std::min)(could, client_.asked_back_bytes());  // others come first
        Each* leaving = nullptr;
        for (const auto& each : members_) {  // what was brought ahead
            const bool is_ahead = each && each.get() != self && !each->seen.is_awake && each->seen.held_bytes > 0;
            if (could >= bytes && is_ahead) { leaving = each.get(); }
        }
        if (could >= bytes && leaving == nullptr) {
            leaving = next_to_sleep(self);
            if (leaving != nullptr && self != nullptr) {
                self->place = leaving->place;
            } else if (leaving != nullptr) {
                wanted_place_ = leaving->place;
            }
        }
        if (leaving != nullptr) {
            if (auto slept = move(lock, *leaving, leaving->model.suspend); !slept) {
                return slept.error().in("to put \"" + leaving->name + "\" to sleep");
            }
            continue;
        }
        const bool is_any_used = std::any_of(members_.begin(), members_.end(), [](const auto& each) {
            return each && !each->users.empty() && !each->is_pinned;
        });
        if (!is_any_used) { return no_room(bytes, self); }
        if (is_user() || deadline.is_over()) {
            return Error{ErrorKind::wrong_state,
                         no_room(bytes, self).message() + "; " +
                             (is_user() ? "this thread uses one of them: end its use before"
                                        : "others still use them: ask again later, or wait longer")};
        }
        deadline.wait(changed_, lock);
    }
}

template <VirtualMemoryDevice D>
auto GroupState<D>::next_to_sleep(const Each* self) -> Each* {
    Each *next = nullptr, *in_place = nullptr;
    const auto is_before = [](const Each& each, const Each* other) {
        return other == nullptr || each.priority < other->priority ||
               (each.priority == other->priority && each.last_use < other->last_use);
    };
    for (const auto& each : members_) {
        if (!each || each.get() == self || !is_idle(*each)) { continue; }
        if (is_before(*each, next)) { next = each.get(); }
        if (self != nullptr && each->place == self->place && is_before(*each, in_place)) { in_place = each.get(); }
    }
    const bool is_equal = in_place != nullptr && in_place->priority == next->priority;
    return is_equal && clock_ - next->last_use < long_unused * members_.size() ? in_place : next;
}

template <VirtualMemoryDevice D>
void GroupState<D>::settle_with_broker(std::uint64_t wanted_bytes) noexcept {
    const auto account = client_.account();
    // More than the stock's limit, where chunks could not be given back.
    const std::uint64_t chunk = stock_.chunk_bytes(), limit = account.used_bytes;
    if (const std::uint64_t asked = account.asked_back_bytes(); asked > 0) {
        const std::uint64_t free = limit - (std::min)(limit, stock_.used_bytes());
        const std::uint64_t given = (std::min)(free, (asked + chunk - 1) / chunk * chunk);
        static_cast<void>(stock_.try_set_limit(limit - given).has_value());
        const std::uint64_t kept = (std::max)(stock_.limit_bytes(), stock_.held_bytes());
        if (kept < account.used_bytes) { client_.give_back(account.used_bytes - kept); }
        return;
    }
    if (stock_.limit_bytes() < limit) { static_cast<void>(stock_.try_set_limit(limit).has_value()); }
    std::uint64_t useful = wanted_bytes;
    for (const auto& each : members_) {
        if (each) { useful += each->awake_bytes; }
    }
    if (limit >= useful) { return; }
    // All at once, or what there is.
    for (std::uint64_t more = (useful - limit + chunk - 1) / chunk; more > 0; more /= 2) {
        while (stock_.limit_bytes() < useful && client_.try_take(more * chunk)) {
            static_cast<void>(stock_.try_set_limit(stock_.limit_bytes() + more * chunk).has_value());
        }
    }
}

template <VirtualMemoryDevice D>
Error GroupState<D>::no_room(std::uint64_t bytes, const Each* self) {
    using residency::detail::in_bytes;
    std::string message = in_bytes(bytes) + " are needed, and the models of the group may hold " +
                          in_bytes(stock_.limit_bytes()) + " of the broker's total";
    for (const auto& each : members_) {
        if (!each || each.get() == self || !each->seen.is_awake) { continue; }
        message += "; \"" + each->name + "\" has " + in_bytes(each->seen.held_bytes) +
                   (each->is_pinned       ? " and is pinned"
                    : each->users.empty() ? ""
                                          : " and is used");
    }
    if (const std::uint64_t asked = client_.asked_back_bytes(); asked > 0) {
        message += "; the broker asks " + in_bytes(asked) +
                   " of it back, for other clients or a lower total (the group's floor_bytes are its own)";
    }
    return {ErrorKind::budget, message + ": give the broker a larger total, or the models smaller budgets",
            BudgetNumbers{bytes, stock_.limit_bytes(), stock_.used_bytes(), bytes, UINT32_MAX}};
}

template <VirtualMemoryDevice D>
Result<std::uint64_t> GroupState<D>::prepare(Id id, std::optional<std::uint64_t> most_bytes) {
    const std::scoped_lock lock{mutex_};
    Each& each = *members_[id];
    if (!turns_.empty() || each.is_moving) { return std::uint64_t{0}; }
    if (each.users.empty()) { each.look(); }  // as in activate()
    if (each.seen.is_awake) { return std::uint64_t{0}; }
    settle_with_broker();
    std::uint64_t most = most_bytes.value_or(UINT64_MAX);
    for (const auto& other : members_) {
        if (most_bytes || !other || other->users.empty()) { continue; }
        if (other->is_used_by(std::this_thread::get_id())) { other->look(); }
        most = (std::min)(most, (std::max)(other->seen.spare_bytes, stock_.chunk_bytes()));
    }
    auto brought = each.model.bring_asleep(each.model.model, most);
    each.look();
    return brought;
}

template <VirtualMemoryDevice D>
std::vector<GroupAccount> GroupState<D>::accounts() const {
    const std::scoped_lock lock{mutex_};
    std::vector<GroupAccount> result;
    for (const auto& each : members_) {
        if (!each) { continue; }
        result.push_back({each->name, each->priority, each->is_pinned, !each->is_moving && each->seen.is_awake,
                          static_cast<std::uint32_t>(each->users.size()), each->seen.held_bytes, each->wakes});
    }
    return result;
}

}}  // namespace broker::detail

}}  // namespace residency::RESIDENCY_ABI

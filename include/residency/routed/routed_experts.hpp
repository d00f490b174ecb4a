// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/tables.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed {

/// Runs the code of a cache of experts on a device. CudaServer (routed/cuda_server.cuh) and SimulatedServer
/// (simulation/simulated_server.hpp) are its models. Calls come from one thread at a time, do not block, and work in a capture. Errors:
/// the device's own.
template <Device D, Policy P>
class Server {
public:
    Server() = default;
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    virtual ~Server() = default;

    /// Enqueues what makes the chosen experts of a layer readable for what follows on the stream, and writes where they are.
    [[nodiscard]] virtual Status serve(D& device, const Tables<P>& tables, const Call& call,
                                       typename D::Stream stream) const = 0;
    /// Enqueues what unpacks experts from the staging area into their slots. Called where some experts are packed.
    [[nodiscard]] virtual Status unpack(D& device, const Tables<P>& tables, const Unpacking& unpacking,
                                        typename D::Stream stream) const = 0;
    /// Enqueues what brings experts that are likely to be chosen, until the next serve() begins.
    [[nodiscard]] virtual Status guess(D& device, const Tables<P>& tables, const Call& call,
                                       typename D::Stream stream) const = 0;
    /// Whether a guess may be enqueued beside the call that it follows (Call::is_early): it waits on the device for that call's decision.
    [[nodiscard]] virtual bool waits_for_calls() const noexcept { return false; }
};

/// A router's choices in device memory: the numbers of experts within their layer, -1 for padding.
struct Choices {
    /// `number` choices at an address of the device.
    /// @{
    Choices(const std::int32_t* at, std::uint32_t number) noexcept : choices{at}, count{number} {}
    Choices(const std::int64_t* at, std::uint32_t number) noexcept
        : choices{at}, count{number}, type{ChoiceType::i64} {}
    /// @}

    const void* choices;                ///< in device memory
    std::uint32_t count;                ///< how many
    ChoiceType type = ChoiceType::i32;  ///< of each
};

/// The experts of a layer that are likely to be chosen next.
struct Guess {
    std::uint32_t layer;  ///< of them
    Choices choices;      ///< as of a call; they stay as they are until the call of that layer has run
};

/// Where kernels find the experts that were chosen: by choice, in device memory. Valid for what follows on the stream, until the next
/// call of serve(); the two arrays, until the next one for the same layer.
struct Served {
    const std::byte* const* addresses = nullptr;  ///< null for padding
    const std::int32_t* slots =
        nullptr;  ///< an expert is at base + slot × slot_bytes; -1: padding, or it is in host memory
    const std::byte* base = nullptr;  ///< of slot 0
    std::uint64_t slot_bytes = 0;     ///< from one slot to the next
};

/// What a cache of experts did, and what it holds.
struct Statistics {
    Counters total;                ///< since it was made
    std::uint32_t slots = 0;       ///< experts that the budget holds
    std::uint32_t experts = 0;     ///< of the model
    std::uint64_t held_bytes = 0;  ///< of the device, as the driver counts them
    /// Fewer slots than three times the choices of every layer: most of what is brought leaves before it is chosen again.
    bool churns = false;
};

/// A cache of experts whose router is on the device. One call a layer: what the router chose becomes readable, without the host knowing
/// it, so that a token is one CUDA graph:
///
///     CudaServer<> server;                                    // in a file that nvcc compiles
///     RoutedExperts<CudaDevice> cache{gpu, catalog, experts, {.budget = Budget::parse("50%"), .server = &server, .choices = 6}};
///     …
///     router<<<…, stream>>>(…, choices);                      // int32 or int64, in device memory
///     const auto served = cache.serve(layer, {choices, 6}, stream);
///     products<<<…, stream>>>(served.addresses, …);           // or served.slots
///
/// Slots are equal, one for an expert of any layer. Experts lie in pinned host memory. Everything else of the model belongs to a Residency
/// beside it, such as a Planned one whose schedule leaves the experts out; a BudgetBroker gives both one total. One call at a time, of
/// one thread. The streams of its calls follow each other.
///
/// Packed experts (PackedHostSource, such as packed::pack() makes) travel packed, and are unpacked into their slots in front of what follows a
/// call: slots hold raw bytes. They need room for the packed bytes of one call beside the slots.
///
/// Addresses and captured graphs stay valid as long as it lives, also over try_set_budget().
template <VirtualMemoryDevice D, Policy P = ExpectedUse>
class RoutedExperts {
public:
    using Device = D;                   ///< where the experts are brought to
    using Stream = typename D::Stream;  ///< of the device

    /// What it is made with.
    struct Options {
        std::optional<Budget> budget{};         ///< set by whoever runs the model; a percentage is one of the experts
        std::optional<Budget> stored_budget{};  ///< set by whoever made the model; without either: automatic
        std::uint64_t reserve_bytes = std::uint64_t{512} << 20;  ///< that an automatic budget leaves to others
        const Server<D, P>* server = nullptr;                    ///< outlives this object
        std::uint32_t choices = 0;                               ///< of one call at most: experts per token × tokens
        typename P::Config evictor{};                            ///< how it decides who leaves
        typename pool::Virtual<D>::Config pool{};                ///< in which pieces device memory is held
        bool read_in_place =
            false;  ///< an expert that is needed later than all that would leave for it is not brought: kernels read it in host memory, where none is packed
    };

    /// Blocks. `experts`: by layer, each expert's weight; an expert is the whole storage of it. Errors: invalid_argument, with the layer and
    /// the expert; unsupported: the bytes are not in pinned host memory, or packed in a form that is not unpacked; budget; the device's own.
    [[nodiscard]] static Result<RoutedExperts> try_create(D& device, Catalog catalog,
                                                          const std::vector<std::vector<WeightId>>& experts,
                                                          Options options);
    /// The budget that try_create would resolve to, with the floor and the total: what a broker asks before there is anything. Allocates
    /// nothing on the device, and needs no Options::server. Errors: as of try_create.
    [[nodiscard]] static Result<ResolvedBudget> try_resolve_budget(D& device, Catalog catalog,
                                                                   const std::vector<std::vector<WeightId>>& experts,
                                                                   Options options);
#if RESIDENCY_EXCEPTIONS
    /// As the functions above, but throw Exception.
    /// @{
    RoutedExperts(D& device, Catalog catalog, const std::vector<std::vector<WeightId>>& experts, Options options)
        : RoutedExperts{unwrap(try_create(device, std::move(catalog), experts, std::move(options)))} {}
    [[nodiscard]] static ResolvedBudget resolve_budget(D& device, Catalog catalog,
                                                       const std::vector<std::vector<WeightId>>& experts,
                                                       Options options) {
        return unwrap(try_resolve_budget(device, std::move(catalog), experts, std::move(options)));
    }
    /// @}
#endif
    /// The source is empty afterwards.
    /// @{
    RoutedExperts(RoutedExperts&&) noexcept = default;
    RoutedExperts& operator=(RoutedExperts&&) noexcept = default;
    /// @}
    /// Blocks until the device is idle.
    ~RoutedExperts() = default;

    /// Enqueues what makes the chosen experts readable. Does not block. Errors: invalid_argument: there is no such layer, more choices
    /// than Options::choices, or an earlier call had a choice that its layer has not; the device's own. `next`: a guess that is known already,
    /// as by try_guess() behind it, but decided while this call brings what it lacks.
    [[nodiscard]] Result<Served> try_serve(std::uint32_t layer, const Choices& choices, Stream stream,
                                           const std::optional<Guess>& next = std::nullopt);
    /// Says which experts of a layer are likely to be chosen next. They are brought beside what follows on the stream, and no longer than
    /// until the next call of try_serve(). The choices stay as they are until that call has run: give each layer memory of its own. Does not block. After the last one of a capture comes try_join(). Errors: as try_serve(); a wrong choice
    /// is told once a guess with one is tried, which is seldom while guesses rest.
    [[nodiscard]] Status try_guess(std::uint32_t layer, const Choices& choices, Stream stream);
    /// What follows on the stream comes after what guesses bring. A capture in which there are guesses needs it at its end. A guess of the next
    /// token's first layer before it is waited for as a whole.
    [[nodiscard]] Status try_join(Stream stream);
    /// Blocks until the device is idle. What was chosen wrongly is said here, too.
    [[nodiscard]] Result<Statistics> try_statistics();

    /// Experts of a layer that are there together, for a pass that reads all of them.
    struct Group {
        std::uint32_t first = 0;  ///< of the layer
        std::uint32_t last = 0;   ///< behind the last one
        const std::byte* const* addresses =
            nullptr;  ///< by expert of the layer, in device memory; those of the group are valid
    };
    /// Begins passes that read all experts, layer by layer, such as a long prompt's. Blocks until the device is idle. What the cache holds is read
    /// where it lies; the rest, if there is any, goes through `ring` of its slots, which are empty afterwards (0: 16, or as many as there are; where experts are packed, no more than one call may choose). It is not captured. No call of
    /// try_serve() or try_guess() comes before try_end_prefill(). Errors: wrong_state (one has begun), the device's own.
    [[nodiscard]] Status try_begin_prefill(std::uint32_t ring = 0);
    /// Groups of a layer. Precondition: a prefill has begun.
    [[nodiscard]] std::uint32_t prefill_groups(std::uint32_t layer) const {
        const State& state = this->state();
        RESIDENCY_ASSERT(state.is_prefilling, "call begin_prefill() before prefill_groups()");
        RESIDENCY_ASSERT(layer < state.tables.layers, "prefill_groups() of a layer that there is");
        return state.first_group[layer + 1] - state.first_group[layer];
    }
    /// Makes a group readable for what follows on the stream, and enqueues the copies of the next one. The group before is not read by what
    /// follows. Does not block. Errors: invalid_argument (there is no such group), wrong_state (no prefill has begun), the device's own.
    [[nodiscard]] Result<Group> try_acquire(std::uint32_t layer, std::uint32_t group, Stream stream);
    /// The cache serves again. Errors: as try_begin_prefill().
    [[nodiscard]] Status try_end_prefill();

    /// Blocks until the device is idle. Another budget: with fewer slots, what is in the others leaves. On failure the old one is in force,
    /// but slots() may be the fewer ones already; memory that could not be given back, since several calls failed, is pending. Errors: budget; out_of_memory; the device's own.
    [[nodiscard]] Result<BudgetChange> try_set_budget(const Budget& budget);
    /// Device bytes that are held beyond the budget in force. Any call gives them back that blocks until the device is idle.
    [[nodiscard]] std::uint64_t pending_bytes() const noexcept {
        const std::uint64_t held = state().held_bytes(), allowed = state().budget.bytes;
        return held > allowed ? held - allowed : 0;
    }
    /// Gives pending bytes back. Blocks until the device is idle, if a change of the budget has failed. Errors: the device's own.
    [[nodiscard]] Status try_reclaim_pending() {
        return state().is_settled ? Status{} : state().wait_idle("try_reclaim_pending");
    }
#if RESIDENCY_EXCEPTIONS
    /// As the functions above, but throw Exception.
    /// @{
    [[nodiscard]] Served serve(std::uint32_t layer, const Choices& choices, Stream stream,
                               const std::optional<Guess>& next = std::nullopt) {
        return unwrap(try_serve(layer, choices, stream, next));
    }
    void guess(std::uint32_t layer, const Choices& choices, Stream stream) {
        unwrap(try_guess(layer, choices, stream));
    }
    void join(Stream stream) { unwrap(try_join(stream)); }
    [[nodiscard]] Statistics statistics() { return unwrap(try_statistics()); }
    void begin_prefill(std::uint32_t ring = 0) { unwrap(try_begin_prefill(ring)); }
    [[nodiscard]] Group acquire(std::uint32_t layer, std::uint32_t group, Stream stream) {
        return unwrap(try_acquire(layer, group, stream));
    }
    void end_prefill() { unwrap(try_end_prefill()); }
    BudgetChange set_budget(const Budget& wanted) { return unwrap(try_set_budget(wanted)); }
    void reclaim_pending() { unwrap(try_reclaim_pending()); }
    /// @}
#endif
    /// The budget in force.
    [[nodiscard]] const ResolvedBudget& budget() const noexcept { return state().budget; }
    /// Experts that the budget holds.
    [[nodiscard]] std::uint32_t slots() const noexcept { return state().slots; }

private:
    struct State;
    struct End {
        void operator()(State* state) const noexcept;
    };
    explicit RoutedExperts(std::unique_ptr<State, End> state) noexcept : state_{std::move(state)} {}
    [[nodiscard]] Result<Call> check(std::uint32_t layer, const Choices& choices);
    /// Enqueues a guess beside what follows on the stream.
    [[nodiscard]] Status fork(const Call& call, Stream stream);
    [[nodiscard]] State& state() const noexcept {
        RESIDENCY_ASSERT(state_ != nullptr, "this RoutedExperts was moved from: use the one that it was moved to");
        return *state_;
    }

    std::unique_ptr<State, End> state_;
};

/// At a fixed address, beside the device's memory.
template <VirtualMemoryDevice D, Policy P>
struct RoutedExperts<D, P>::State {
    State(D& of, Options chosen) : device{&of}, options{std::move(chosen)}, pool{options.pool} {}

    D* device;
    Catalog catalog;
    Options options;
    Tables<P> tables;
    std::uint32_t experts = 0;       // of all layers
    std::uint64_t expert_bytes = 0;  // of all of them
    std::vector<std::uint32_t> first_expert;
    std::vector<Source> sources;  // by expert
    std::vector<Part> parts;      // of packed ones
    pool::Virtual<D> pool;
    void* memory = nullptr;  // the tables, and the staging area behind them
    std::uint64_t table_bytes = 0;
    std::uint64_t memory_bytes = 0;  // as the device rounds it
    Mistake* mistake = nullptr;      // in pinned host memory
    const std::byte** addresses = nullptr;
    std::int32_t* slots_of_choices = nullptr;
    typename D::Stream side{};  // of guesses
    typename D::Event fork{}, join{};
    std::size_t events = 0;  // that were made
    bool has_side = false;
    bool is_side_used = false;
    std::uint32_t last_layer = none;  // of the last serve()
    bool owes_unpacking = false;      // what it has brought
    ResolvedBudget budget;
    std::uint32_t slots = 0;
    // False: a change has failed. The device may count other slots than the host does; the memory of both is held.
    bool is_settled = true;

    /// What one group of a prefill copies.
    struct GroupCopies {
        std::uint32_t layer = 0, first = 0, last = 0;  // experts, numbered over all layers
        std::vector<Copy> copies;                      // into one half of the ring, or of the staging area
        Unpacking unpacking;                           // of them
    };
    bool is_prefilling = false;
    std::vector<GroupCopies> groups;                   // of a prefill
    std::vector<std::uint32_t> first_group;            // by layer; layers + 1
    const std::byte** all_addresses = nullptr;         // by expert, in device memory
    Fill* ring_fills = nullptr;                        // of all groups, in device memory, where experts are packed
    std::array<std::uint32_t, 2> in_half{none, none};  // the group whose bytes are, or come, there
    std::array<bool, 2> is_unpacked{};                 // what is packed of them
    std::array<typename D::Event, 2> arrived{};

    [[nodiscard]] BudgetContext context(BudgetKind kind) const;
    /// An error of the budget, with what sets the floor.
    [[nodiscard]] Error in_words(const Error& error) const {
        return error.in("for the tables and the " + std::to_string(least_slots()) +
                        " experts that one call may choose (Options::choices)" +
                        (has_packed() ? ", and for the packed bytes of " + std::to_string(staged()) : std::string{}));
    }
    [[nodiscard]] bool has_packed() const { return tables.most_parts != 0; }
    /// The tables and the staging area.
    [[nodiscard]] std::uint64_t taken_bytes() const { return table_bytes + staged() * tables.staged_bytes; }
    /// Slots of the smallest budget: a prefill unpacks into two.
    [[nodiscard]] std::uint32_t least_slots() const {
        return (std::min)((std::max)(options.choices, has_packed() ? 2U : 0U), experts);
    }
    /// Places of the staging area: for the different experts of one call.
    [[nodiscard]] std::uint32_t staged() const {
        std::uint32_t most = 2;
        for (std::uint32_t i = 0; i < tables.layers; ++i) {
            most = (std::max)(most, (std::min)(options.choices, first_expert[i + 1] - first_expert[i]));
        }
        return has_packed() ? (std::min)(most, experts) : 0;
    }
    /// As many slots as a budget holds, at most all.
    [[nodiscard]] std::uint32_t slots_in(std::uint64_t bytes) const {
        const std::uint64_t chunk = pool.chunk_bytes(*device), held = (bytes - memory_bytes) / chunk * chunk;
        return static_cast<std::uint32_t>((std::min)(std::uint64_t{experts}, held / tables.slot_bytes));
    }
    /// Holds the memory of so many slots.
    [[nodiscard]] Status hold(std::uint32_t number) {
        const std::uint64_t chunk = pool.chunk_bytes(*device);
        return pool.hold(static_cast<std::uint32_t>(pool::round_up(number * tables.slot_bytes, chunk) / chunk));
    }
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return memory_bytes + pool.held_bytes(); }
    /// Makes a change of the budget good that has failed: there are `slots` slots, and no memory of others. Precondition: the device is idle.
    [[nodiscard]] Status settle() {
        if (is_settled) { return {}; }
        Status settled = drop_slots(slots);
        if (settled) { settled = hold(slots); }
        is_settled = settled.has_value();
        return settled;
    }
    /// Blocks until the device is idle, and settles. `call`: of the caller's, for the error.
    [[nodiscard]] Status wait_idle(const char* call) {
        Status idle = device->synchronize();
        if (idle && owes_unpacking) {
            idle = unpack_served(side);
            if (idle) { idle = device->synchronize(side); }
        }
        if (!idle) { return idle.error().in(std::string{call} + "() waits for the device"); }
        Status settled = settle();
        return settled
                   ? std::move(settled)
                   : settled.error().in(std::string{call} + "() makes a change of the budget good that failed before");
    }
    /// Enqueues the unpacking of what the last call has brought, unless that was done.
    [[nodiscard]] Status unpack_served(Stream stream) {
        if (!owes_unpacking) { return {}; }
        Status done =
            options.server->unpack(*device, tables, {tables.fills, &tables.state->fills, 0, tables.staging}, stream);
        owes_unpacking = !done;
        return done;
    }
    /// Memory of the host that the device sees, for one copy.
    template <class Use>
    [[nodiscard]] Status with_pinned(std::uint64_t bytes, const Use& use) {
        auto pinned = device->allocate_host(bytes);
        if (!pinned) { return pinned.error(); }
        Status used = use(static_cast<std::byte*>(*pinned));
        // A copy that failed may run: its memory stays until it is known that it does not.
        Status idle = device->synchronize(side);
        if (!idle && !device->synchronize(side)) { return used ? std::move(idle) : std::move(used); }
        Status freed = device->deallocate_host(*pinned);
        if (!freed) { freed = device->deallocate_host(*pinned); }
        return !used ? std::move(used) : !idle ? std::move(idle) : std::move(freed);
    }
    [[nodiscard]] Status copy(void* to, const void* from, std::uint64_t bytes) {
        const Copy one{to, from, bytes};
        return device->copy({&one, 1}, side);
    }
    /// Blocks. Memory of the device through pinned memory of the host.
    template <class T>
    [[nodiscard]] Status exchange(std::span<T> values, T* on_device, bool is_read);
    [[nodiscard]] Status read_state(routed::State& state) { return exchange(std::span{&state, 1}, tables.state, true); }
    /// There are so many slots from now on. Precondition: the device is idle; of fewer slots, the others are empty.
    [[nodiscard]] Status set_slots(std::uint32_t number) {
        return exchange(std::span{&number, 1}, &tables.state->slots, false);
    }
    /// Where experts lie, without those in `ring` slots, and these slots: the ones that were served longest ago.
    struct Found {
        std::vector<std::uint32_t> slot_of;
        std::vector<std::uint32_t> ring;
    };
    [[nodiscard]] Result<Found> take_ring(std::uint32_t ring);
    /// Enqueues the copies of a group into a half of the ring, after what the caller's stream has.
    [[nodiscard]] Status bring_group(std::uint32_t group, std::uint32_t half, Stream stream);
    /// There are `number` slots from now on, and those that `choose(slots, slot_of, empty)` calls `empty(slot)` for are empty. Gives the slots by
    /// expert. Precondition: the device is idle.
    template <class Choose>
    [[nodiscard]] Result<std::vector<std::uint32_t>> empty_slots(std::uint32_t number, const Choose& choose);
    [[nodiscard]] Status drop_slots(std::uint32_t number) {
        auto left = empty_slots(number, [](const auto&, const auto&, const auto&) {});
        return left ? Status{} : Status{left.error()};
    }
    /// What was chosen wrongly, once.
    [[nodiscard]] Status take_mistake() {
        if (std::atomic_ref{mistake->is_whole}.load(std::memory_order_acquire) == 0) { return {}; }
        const Mistake made = *mistake;
        mistake->is_whole = 0;
        std::atomic_ref{mistake->is_set}.store(0,
                                               std::memory_order_release);  // last: the device may write the next one
        return Error{
            ErrorKind::invalid_argument,
            "layer " + std::to_string(made.layer) + ": choice " + std::to_string(made.place) +
                " of an earlier call or guess was expert " + std::to_string(made.choice) + ", and the layer has " +
                std::to_string(first_expert[made.layer + 1] - first_expert[made.layer]) +
                " experts: kernels of a call read expert 0 instead; choices are numbers within their layer, and "
                "negative ones are padding"};
    }
    /// Where an expert comes from; its parts are appended. `what`: names it in errors.
    [[nodiscard]] Result<Source> source_of(const Catalog& of, StorageId id, const std::string& what);
    [[nodiscard]] Status add_parts(const PackedHostSource& source, const std::string& what);
    /// The next expert.
    void add(const Source& source, std::uint64_t raw_bytes) {
        sources.push_back(source);
        expert_bytes += raw_bytes;
        tables.slot_bytes = (std::max)(tables.slot_bytes, pool::round_up((std::max)(raw_bytes, source.bytes), 256));
        if (source.parts == 0) { return; }
        tables.most_parts = (std::max)(tables.most_parts, source.parts);
        tables.staged_bytes =
            (std::max)(tables.staged_bytes, pool::round_up(source.bytes, codec::packed_alignment_bytes));
    }
    /// What there is to hold, and the budget. Allocates nothing on the device.
    [[nodiscard]] Status read(Catalog of, const std::vector<std::vector<WeightId>>& ids);
    [[nodiscard]] Status open();
    /// Lays the tables out, from `at` on; null: only counts. The number of bytes.
    [[nodiscard]] std::uint64_t lay_out(std::byte* at);
    void close() noexcept;
};

template <VirtualMemoryDevice D, Policy P>
template <class T>
Status RoutedExperts<D, P>::State::exchange(std::span<T> values, T* on_device, bool is_read) {
    return with_pinned(values.size_bytes(), [&](std::byte* pinned) -> Status {
        if (!is_read) {
            std::memcpy(pinned, values.data(), values.size_bytes());
            return copy(on_device, pinned, values.size_bytes());
        }
        if (Status copied = copy(pinned, on_device, values.size_bytes()); !copied) { return copied; }
        if (Status idle = device->synchronize(side); !idle) { return idle; }
        std::memcpy(static_cast<void*>(values.data()), pinned, values.size_bytes());
        return {};
    });
}

template <VirtualMemoryDevice D, Policy P>
template <class Choose>
auto RoutedExperts<D, P>::State::empty_slots(std::uint32_t number, const Choose& choose)
    -> Result<std::vector<std::uint32_t>> {
    // What has to agree goes back in one copy: where that fails, nothing has changed.
    std::byte* const begin = reinterpret_cast<std::byte*>(tables.slot_of);
    const auto bytes = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(tables.state + 1) - begin);
    std::vector<std::uint32_t> left(experts);  // here: nothing may throw while pinned memory is held
    Status done = with_pinned(bytes, [&](std::byte* pinned) -> Status {
        if (Status read = copy(pinned, begin, bytes); !read) { return read; }
        if (Status idle = device->synchronize(side); !idle) { return idle; }
        const auto read = [&]<class T>(T* on_device) {
            return reinterpret_cast<T*>(pinned + (reinterpret_cast<std::byte*>(on_device) - begin));
        };
        const std::span slot_of{read(tables.slot_of), experts};
        const std::span there{read(tables.slot), experts};  // all: the device may have got to know more than the host
        const auto empty = [&](std::uint32_t at) {
            if (there[at].expert != none) { slot_of[there[at].expert] = none; }
            there[at] = {};
        };
        for (std::uint32_t at = number; at < experts; ++at) { empty(at); }
        choose(std::span<const Slot>{there}, std::span<const std::uint32_t>{slot_of}, empty);
        routed::State& now = *read(tables.state);
        now.slots = number;
        now.fresh = (std::min)(now.fresh, number);
        now.fills = 0;  // of a call that is over
        now.ahead_of = 0;
        now.guess_made = now.guess_fills = 0;  // what the last guess has not brought is brought by a miss
        std::ranges::copy(slot_of, left.begin());
        return copy(begin, pinned, bytes);
    });
    if (!done) { return done.error(); }
    return left;
}

template <VirtualMemoryDevice D, Policy P>
void RoutedExperts<D, P>::End::operator()(State* state) const noexcept {
    state->close();
    delete state;
}

template <VirtualMemoryDevice D, Policy P>
BudgetContext RoutedExperts<D, P>::State::context(BudgetKind kind) const {
    BudgetContext context;
    const std::uint64_t chunk = pool.chunk_bytes(*device);
    context.streamed_bytes = expert_bytes;
    context.everything_bytes = memory_bytes + pool::round_up(experts * tables.slot_bytes, chunk);
    context.floor_bytes = memory_bytes + pool::round_up(least_slots() * tables.slot_bytes, chunk);
    context.reserve_bytes = options.reserve_bytes;
    if (kind == BudgetKind::automatic || kind == BudgetKind::percent_of_free) {
        if (const auto memory_now = device->memory()) {
            context.free_device_bytes = memory_now->free_bytes;
            context.device_bytes = memory_now->total_bytes;
        }
    }
    return context;
}

template <VirtualMemoryDevice D, Policy P>
auto RoutedExperts<D, P>::try_create(D& device, Catalog catalog, const std::vector<std::vector<WeightId>>& experts,
                                     Options options) -> Result<RoutedExperts> {
    if (options.server == nullptr) {
        return Error{ErrorKind::invalid_argument,
                     "RoutedExperts needs Options::server: a CudaServer (residency/routed/cuda_server.cuh), made in a "
                     "file that nvcc compiles, or a SimulatedServer (residency/simulation/simulated_server.hpp)"};
    }
    std::unique_ptr<State, End> state{new State{device, std::move(options)}};
    if (Status read = state->read(std::move(catalog), experts); !read) { return read.error(); }
    if (Status opened = state->open(); !opened) { return opened.error(); }
    return RoutedExperts{std::move(state)};
}

template <VirtualMemoryDevice D, Policy P>
Result<ResolvedBudget> RoutedExperts<D, P>::try_resolve_budget(D& device, Catalog catalog,
                                                               const std::vector<std::vector<WeightId>>& experts,
                                                               Options options) {
    State state{device, std::move(options)};
    if (Status read = state.read(std::move(catalog), experts); !read) { return read.error(); }
    return std::move(state.budget);
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::State::read(Catalog of, const std::vector<std::vector<WeightId>>& ids) {
    const auto refused = [](std::string message) { return Error{ErrorKind::invalid_argument, std::move(message)}; };
    if (options.choices == 0 || options.choices > most_choices) {
        return refused("Options::choices is " + std::to_string(options.choices) +
                       ": give the experts per token times the tokens of one call, 1 to " +
                       std::to_string(most_choices));
    }
    if (ids.empty()) { return refused("RoutedExperts needs the experts of at least one layer"); }
    std::vector<bool> is_taken(of.storages().size());
    first_expert.push_back(0);
    for (std::size_t layer = 0; layer < ids.size(); ++layer) {
        const auto where = [&](std::size_t expert) {
            return "layer " + std::to_string(layer) + ", expert " + std::to_string(expert);
        };
        if (ids[layer].empty() || ids[layer].size() > most_experts) {
            return refused("layer " + std::to_string(layer) + " has " + std::to_string(ids[layer].size()) +
                           " experts: give 1 to " + std::to_string(most_experts));
        }
        for (std::size_t i = 0; i < ids[layer].size(); ++i) {
            const WeightId id = ids[layer][i];
            if (index(id) >= of.weights().size()) {
                return refused(where(i) + ": the catalog has no weight " + std::to_string(index(id)));
            }
            const StorageId storage_id = of.storage_of(id);
            const Storage& storage = of.storage(storage_id);
            if (is_taken[index(storage_id)]) {
                return refused(
                    where(i) + ": " + of.describe(storage_id) +
                    " is another expert, too: what is chosen alone is a storage of its own (CatalogBuilder::split)");
            }
            is_taken[index(storage_id)] = true;
            if (storage.is_mutable || storage.bytes == 0) {
                return refused(
                    where(i) + ": " + of.describe(storage_id) +
                    (storage.bytes == 0 ? " has no bytes" : " is written by kernels, and what leaves would be lost"));
            }
            auto source = source_of(of, storage_id, where(i) + ": " + of.describe(storage_id));
            if (!source) { return source.error(); }
            add(*source, storage.bytes);
        }
        first_expert.push_back(static_cast<std::uint32_t>(sources.size()));
    }
    catalog = std::move(of);
    experts = static_cast<std::uint32_t>(sources.size());
    tables.layers = static_cast<std::uint32_t>(first_expert.size() - 1);
    tables.layer_share = 1.0 / tables.layers;
    tables.reads_in_place = options.read_in_place;
    table_bytes = pool::round_up(lay_out(nullptr), codec::packed_alignment_bytes);
    memory_bytes = pool::round_up(taken_bytes(), device->allocation_granularity());
    const BudgetSources stated{options.budget, options.stored_budget, Budget::automatic()};
    auto resolved = stated.try_resolve(context(stated.winner().first.kind()));
    if (!resolved) { return in_words(resolved.error()); }
    budget = std::move(*resolved);
    return {};
}

template <VirtualMemoryDevice D, Policy P>
Result<Source> RoutedExperts<D, P>::State::source_of(const Catalog& of, StorageId id, const std::string& what) {
    const StorageSource& source = of.storage(id).source;
    const auto* raw = std::get_if<HostSource>(&source);
    const auto* packed = std::get_if<PackedHostSource>(&source);
    const HostBytes* const host = raw != nullptr ? raw->host.get() : packed != nullptr ? packed->host.get() : nullptr;
    Result<const void*> view = Error{ErrorKind::unsupported, "it is not in pinned host memory"};
    if (host != nullptr && host->kind() == HostMemory::pinned) {
        view = device->device_view(host->data() + (raw != nullptr ? raw->offset_bytes : packed->offset_bytes));
    }
    if (!view) {
        const bool is_packed = packed != nullptr || std::holds_alternative<PackedSource>(source);
        return Error{ErrorKind::unsupported,
                     what + " is not where kernels can read it: " + view.error().message() +
                         (is_packed ? "; packed::pack and packed::load bring packed bytes there"
                                    : "; host::load reads it from a file into pinned memory, and what a program has "
                                      "in memory belongs into the device's allocate_host(), or is pinned where it lies "
                                      "(pin()), as HostMemory::pinned")};
    }
    if (reinterpret_cast<std::uintptr_t>(*view) % 16 != 0) {
        return Error{ErrorKind::invalid_argument,
                     what + " does not begin at a multiple of 16 bytes in host memory: kernels bring 16 at once"};
    }
    Source found{static_cast<const std::byte*>(*view), packed != nullptr ? packed->bytes : of.storage(id).bytes};
    if (packed == nullptr) { return found; }
    found.first_part = static_cast<std::uint32_t>(parts.size());
    found.parts = static_cast<std::uint32_t>(packed->parts->size());
    if (Status added = add_parts(*packed, what); !added) { return added.error(); }
    return found;
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::State::add_parts(const PackedHostSource& source, const std::string& what) {
    if (options.read_in_place) {
        return Error{ErrorKind::invalid_argument,
                     what +
                         " is packed, and kernels cannot read it so in host memory: leave Options::read_in_place "
                         "out, or keep experts raw"};
    }
    std::uint64_t raw_at = 0;
    for (const PackedPart& part : *source.parts) {
        if (part.form != PackedForm::raw && !codec::tiers::is_tiers(part.form)) {
            return Error{ErrorKind::unsupported,
                         what + " is packed as " + codec::form_name(static_cast<std::uint32_t>(part.form)) +
                             ", which this cache does not unpack: pack it without PackOptions::form, in chunks"};
        }
        if ((part.offset_bytes | raw_at) % 16 != 0) {
            return Error{ErrorKind::unsupported, what + " has a packed part at byte " +
                                                     std::to_string(part.offset_bytes) + " for its bytes from " +
                                                     std::to_string(raw_at) +
                                                     " on; kernels need multiples of 16: pack it again"};
        }
        parts.push_back({part.offset_bytes, raw_at, part.raw_bytes, part.form});
        tables.forms |= 1U << static_cast<std::uint32_t>(part.form);
        tables.part_bytes = (std::max)(tables.part_bytes, part.raw_bytes);
        raw_at += part.raw_bytes;
    }
    return {};
}

template <VirtualMemoryDevice D, Policy P>
std::uint64_t RoutedExperts<D, P>::State::lay_out(std::byte* at) {
    std::uint64_t end = 0;
    const auto take = [&]<class T>(T*& pointer, std::uint64_t count) {
        end = pool::round_up(end, 256);
        if (at != nullptr) { pointer = reinterpret_cast<T*>(at + end); }
        end += count * sizeof(std::remove_const_t<T>);
    };
    take(tables.sources, experts);
    take(tables.numbers, 1);
    take(tables.slot_of, experts);  // from here to the state: what empty_slots() exchanges
    take(tables.slot, experts);
    take(tables.state, 1);
    take(tables.rounds, tables.layers);
    take(tables.of_expert, experts);
    take(tables.of_slot, experts);
    take(tables.fills, (std::min)(options.choices, most_experts));
    take(tables.guess_fills, (std::min)(options.choices, most_experts));
    take(addresses, std::uint64_t{tables.layers} * options.choices);
    take(slots_of_choices, std::uint64_t{tables.layers} * options.choices);
    take(all_addresses, experts);
    take(tables.parts, parts.size());
    take(ring_fills, has_packed() ? experts : 0);
    return end;
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::State::open() {
    auto numbers = P::numbers(options.evictor);
    if (!numbers) { return numbers.error(); }
    auto stream = device->create_stream();
    if (!stream) { return stream.error(); }
    side = *stream;
    has_side = true;
    for (auto* event : {&fork, &join, &arrived[0], &arrived[1]}) {
        auto created = device->create_event(Timing::off);
        if (!created) { return created.error(); }
        *event = *created;
        ++events;
    }
    auto pinned = device->allocate_host(sizeof(Mistake));
    if (!pinned) { return pinned.error(); }
    mistake = new (*pinned) Mistake{};
    auto seen = device->device_view(mistake);
    if (!seen) { return seen.error(); }
    auto held = device->allocate(taken_bytes());
    if (!held) { return held.error().in("for the tables of the experts"); }
    memory = *held;
    if (Status opened = pool.open(*device, experts * tables.slot_bytes); !opened) { return opened; }
    slots = slots_in(budget.bytes);
    if (Status taken = hold(slots); !taken) { return taken.error().in("for " + std::to_string(slots) + " experts"); }

    // The tables as they begin: written in pinned memory in the same layout, and copied.
    Status written = with_pinned(table_bytes, [&](std::byte* begin) {
        std::memset(begin, 0, static_cast<std::size_t>(table_bytes));
        static_cast<void>(lay_out(begin));
        std::memcpy(const_cast<Source*>(tables.sources), sources.data(), sources.size() * sizeof(Source));
        if (has_packed()) { std::memcpy(const_cast<Part*>(tables.parts), parts.data(), parts.size() * sizeof(Part)); }
        std::memcpy(const_cast<typename P::Numbers*>(tables.numbers), &*numbers, sizeof *numbers);
        std::fill_n(tables.slot_of, experts, none);
        std::uninitialized_value_construct_n(tables.slot, experts);
        std::uninitialized_value_construct_n(tables.of_expert, experts);
        std::uninitialized_value_construct_n(tables.of_slot, experts);
        new (tables.state) routed::State{};
        tables.state->slots = slots;
        return copy(memory, begin, table_bytes);
    });
    static_cast<void>(lay_out(static_cast<std::byte*>(memory)));
    tables.staging = static_cast<std::byte*>(memory) + table_bytes;
    tables.pool = pool.base();
    tables.mistake = static_cast<Mistake*>(
        const_cast<void*>(*seen));  // NOLINT(bugprone-casting-through-void): D::device_view is const
    return written;
}

template <VirtualMemoryDevice D, Policy P>
void RoutedExperts<D, P>::State::close() noexcept {
    const auto twice = [](const auto& call) { return call().has_value() || call().has_value(); };
    if (!twice([&] { return device->synchronize(); })) {  // the device is lost: leak rather than touch
        pool.abandon();
        return;
    }
    pool.close();
    if (memory != nullptr) {
        twice([&] { return device->deallocate(memory); });
    }
    if (mistake != nullptr) {
        twice([&] { return device->deallocate_host(mistake); });
    }
    const std::array made{fork, join, arrived[0], arrived[1]};
    for (std::size_t i = 0; i < events; ++i) {
        twice([&] { return device->destroy_event(made[i]); });
    }
    if (has_side) {
        twice([&] { return device->destroy_stream(side); });
    }
}

template <VirtualMemoryDevice D, Policy P>
Result<Call> RoutedExperts<D, P>::check(std::uint32_t layer, const Choices& choices) {
    State& state = this->state();
    if (Status fine = state.take_mistake(); !fine) { return fine.error(); }
    if (state.is_prefilling) {
        return Error{ErrorKind::wrong_state,
                     "a prefill has begun: call try_end_prefill() before the cache serves again"};
    }
    if (layer >= state.tables.layers) {
        return Error{ErrorKind::invalid_argument, "there is no layer " + std::to_string(layer) +
                                                      " of experts: there are " + std::to_string(state.tables.layers) +
                                                      ", numbered from 0"};
    }
    if (choices.count > state.options.choices || choices.count == 0 || choices.choices == nullptr) {
        return Error{ErrorKind::invalid_argument,
                     "layer " + std::to_string(layer) + ": " + std::to_string(choices.count) + " choices" +
                         (choices.choices == nullptr ? " at a null address" : "") + ": give 1 to " +
                         std::to_string(state.options.choices) + " of them, as Options::choices says"};
    }
    const std::uint64_t at = std::uint64_t{layer} * state.options.choices;
    const std::uint32_t first = state.first_expert[layer];
    return Call{layer,
                first,
                state.first_expert[layer + 1] - first,
                choices.count,
                choices.type,
                choices.choices,
                state.addresses + at,
                state.slots_of_choices + at};
}

template <VirtualMemoryDevice D, Policy P>
Result<Served> RoutedExperts<D, P>::try_serve(std::uint32_t layer, const Choices& choices, Stream stream,
                                              const std::optional<Guess>& next) {
    State& state = this->state();
    auto call = check(layer, choices);
    if (!call) { return call.error(); }
    std::optional<Call> guess;
    if (next) {
        auto checked = check(next->layer, next->choices);
        if (!checked) { return checked.error().in("the guess beside layer " + std::to_string(layer)); }
        guess = *checked;
        guess->after = layer;
        // Of one layer alone, nothing tells a call from the one before.
        guess->is_early = state.options.server->waits_for_calls() && state.tables.layers > 1;
    }
    Status done = state.unpack_served(stream);  // of a call whose own could not be enqueued
    if (done && guess && guess->is_early) { done = fork(*guess, stream); }
    if (done) { done = state.options.server->serve(*state.device, state.tables, *call, stream); }
    if (done) {
        state.last_layer = layer;
        state.owes_unpacking = state.has_packed();
        done = state.unpack_served(stream);
    }
    if (done && guess && !guess->is_early) { done = fork(*guess, stream); }
    if (!done) { return done.error().in("serve() of layer " + std::to_string(layer) + " and its choices"); }
    return Served{call->addresses, call->slots, state.tables.pool, state.tables.slot_bytes};
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::fork(const Call& call, Stream stream) {
    State& state = this->state();
    if (Status recorded = state.device->record(state.fork, stream); !recorded) { return recorded; }
    if (Status waited = state.device->wait(state.side, state.fork); !waited) { return waited; }
    state.is_side_used = true;
    return state.options.server->guess(*state.device, state.tables, call, state.side);
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::try_guess(std::uint32_t layer, const Choices& choices, Stream stream) {
    auto call = check(layer, choices);
    if (!call) { return call.error(); }
    call->after = state().last_layer;
    return fork(*call, stream);
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::try_join(Stream stream) {
    State& state = this->state();
    if (!state.is_side_used) { return {}; }
    if (Status recorded = state.device->record(state.join, state.side); !recorded) { return recorded; }
    Status waited = state.device->wait(stream, state.join);
    if (waited) { state.is_side_used = false; }
    return waited;
}

template <VirtualMemoryDevice D, Policy P>
auto RoutedExperts<D, P>::try_statistics() -> Result<Statistics> {
    State& state = this->state();
    if (Status idle = state.wait_idle("try_statistics"); !idle) { return idle.error(); }
    if (Status fine = state.take_mistake(); !fine) { return fine.error(); }
    routed::State now;
    auto read = state.read_state(now);
    if (!read) { return read.error(); }
    Statistics statistics;
    statistics.total = now.counters;
    statistics.slots = state.slots;
    statistics.experts = state.experts;
    statistics.held_bytes = state.held_bytes();
    statistics.churns =
        state.slots < state.experts && state.slots < 3 * std::uint64_t{state.options.choices} * state.tables.layers;
    return statistics;
}

template <VirtualMemoryDevice D, Policy P>
auto RoutedExperts<D, P>::State::take_ring(std::uint32_t ring) -> Result<Found> {
    Found found;
    found.ring.reserve(slots);
    auto left = empty_slots(slots, [&](std::span<const Slot> there, std::span<const std::uint32_t> slot_of,
                                       const auto& empty) {
        for (std::uint32_t at = 0; at < slots; ++at) {  // what a guess has brought a part of is not read where it lies
            const std::uint32_t expert = there[at].expert;
            if (expert != none && there[at].pieces != all_pieces(sources[expert])) { empty(at); }
        }
        if (std::ranges::find(slot_of, none) == slot_of.end()) { return; }
        for (std::uint32_t at = 0; at < slots; ++at) { found.ring.push_back(at); }
        std::ranges::sort(found.ring, [&](std::uint32_t a, std::uint32_t b) {
            const bool a_free = there[a].expert == none, b_free = there[b].expert == none;
            return a_free != b_free ? a_free : there[a].call != there[b].call ? there[a].call < there[b].call : a < b;
        });
        found.ring.resize((std::min)(ring, slots));
        for (const std::uint32_t at : found.ring) { empty(at); }
    });
    if (!left) { return left.error(); }
    found.slot_of = std::move(*left);
    return found;
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::try_begin_prefill(std::uint32_t ring) {
    State& state = this->state();
    if (state.is_prefilling) { return Error{ErrorKind::wrong_state, "a prefill has begun already"}; }
    if (Status idle = state.wait_idle("try_begin_prefill"); !idle) { return idle; }
    if (Status fine = state.take_mistake(); !fine) { return fine; }
    const std::uint32_t wanted = ring == 0 ? 16 : (std::max)(ring, 2U);
    auto found = state.take_ring(state.has_packed() ? (std::min)(wanted, state.staged()) : wanted);
    if (!found) { return found.error(); }
    // Of packed experts no half is empty: the smallest budget has two slots, or there is one expert.
    const auto half = (std::max)(static_cast<std::uint32_t>(found->ring.size() / 2), state.has_packed() ? 1U : 0U);
    std::vector<const std::byte*> addresses(state.experts);
    std::vector<Fill> fills;
    state.groups.clear();
    state.first_group.assign(1, 0);
    const Tables<P>& tables = state.tables;
    for (std::uint32_t layer = 0; layer < tables.layers; ++layer) {
        for (std::uint32_t expert = state.first_expert[layer]; expert < state.first_expert[layer + 1]; ++expert) {
            const std::uint32_t at = found->slot_of[expert];
            const Source& source = state.sources[expert];
            const bool is_new = expert == state.first_expert[layer];
            if (is_new || (at == none && half > 0 && state.groups.back().copies.size() == half)) {
                state.groups.push_back({layer, expert, expert, {}, {}});
                state.groups.back().unpacking = {
                    state.ring_fills + fills.size(), nullptr, 0,
                    tables.staging + (state.groups.size() - 1) % 2 * half * tables.staged_bytes};
            }
            auto& group = state.groups.back();
            group.last = expert + 1;
            if (at != none) {
                addresses[expert] = tables.pool + at * tables.slot_bytes;
            } else if (half == 0) {  // one slot: kernels read host memory
                addresses[expert] = source.host;
            } else {
                const std::size_t place = group.copies.size() + (state.groups.size() - 1) % 2 * half;
                std::byte* const to = tables.pool + found->ring[place] * tables.slot_bytes;
                addresses[expert] = to;
                std::byte* const staged = tables.staging + place * tables.staged_bytes;
                group.copies.push_back({source.parts != 0 ? staged : to, source.host, source.bytes});
                if (!state.has_packed()) { continue; }
                fills.push_back({source, expert, found->ring[place], 0, all_pieces(source)});
                if (source.parts != 0) { group.unpacking.count = static_cast<std::uint32_t>(group.copies.size()); }
            }
        }
        state.first_group.push_back(static_cast<std::uint32_t>(state.groups.size()));
    }
    if (Status written = state.exchange(std::span{addresses}, state.all_addresses, false); !written) { return written; }
    if (!fills.empty()) {
        if (Status written = state.exchange(std::span{fills}, state.ring_fills, false); !written) { return written; }
    }
    state.in_half = {none, none};
    state.is_prefilling = true;
    return {};
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::State::bring_group(std::uint32_t group, std::uint32_t half, Stream stream) {
    in_half[half] = none;
    is_side_used = true;
    if (Status recorded = device->record(fork, stream); !recorded) { return recorded; }
    if (Status waited = device->wait(side, fork); !waited) { return waited; }
    if (!groups[group].copies.empty()) {
        if (Status copied = device->copy(groups[group].copies, side); !copied) { return copied; }
    }
    Status recorded = device->record(arrived[half], side);
    if (recorded) { in_half[half] = group; }
    is_unpacked[half] = groups[group].unpacking.count == 0;
    return recorded;
}

template <VirtualMemoryDevice D, Policy P>
auto RoutedExperts<D, P>::try_acquire(std::uint32_t layer, std::uint32_t group, Stream stream) -> Result<Group> {
    State& state = this->state();
    if (!state.is_prefilling) {
        return Error{ErrorKind::wrong_state, "no prefill has begun: call try_begin_prefill()"};
    }
    if (layer >= state.tables.layers || group >= prefill_groups(layer)) {
        const std::uint32_t groups = layer < state.tables.layers ? prefill_groups(layer) : 0;
        return Error{ErrorKind::invalid_argument, "layer " + std::to_string(layer) + " has no group " +
                                                      std::to_string(group) + ": there are " + std::to_string(groups) +
                                                      " (prefill_groups), numbered from 0"};
    }
    const std::uint32_t wanted = state.first_group[layer] + group, half = wanted % 2;
    if (state.in_half[half] != wanted) {
        if (Status brought = state.bring_group(wanted, half, stream); !brought) { return brought.error(); }
    }
    // What follows in the other half: its last group has been read by what the stream has so far.
    const std::uint32_t next = wanted + 1;
    if (next < state.groups.size() && state.in_half[1 - half] != next) {
        if (Status brought = state.bring_group(next, 1 - half, stream); !brought) { return brought.error(); }
    }
    if (Status waited = state.device->wait(stream, state.arrived[half]); !waited) { return waited.error(); }
    const auto& there = state.groups[wanted];
    if (!state.is_unpacked[half]) {
        Status done = state.options.server->unpack(*state.device, state.tables, there.unpacking, stream);
        if (!done) { return done.error(); }
        state.is_unpacked[half] = true;
    }
    const std::uint32_t first = state.first_expert[layer];
    return Group{there.first - first, there.last - first, state.all_addresses + first};
}

template <VirtualMemoryDevice D, Policy P>
Status RoutedExperts<D, P>::try_end_prefill() {
    State& state = this->state();
    if (!state.is_prefilling) { return Error{ErrorKind::wrong_state, "no prefill has begun"}; }
    if (Status idle = state.wait_idle("try_end_prefill"); !idle) { return idle; }
    state.is_prefilling = false;
    return {};
}

template <VirtualMemoryDevice D, Policy P>
Result<BudgetChange> RoutedExperts<D, P>::try_set_budget(const Budget& wanted) {
    State& state = this->state();
    D& device = *state.device;
    if (state.is_prefilling) {
        return Error{ErrorKind::wrong_state, "a prefill has begun: the budget changes after try_end_prefill()"};
    }
    if (Status idle = state.wait_idle("try_set_budget"); !idle) { return idle.error(); }
    const std::uint64_t held = state.held_bytes();
    BudgetContext context = state.context(wanted.kind());
    if (context.free_device_bytes) { *context.free_device_bytes += held; }
    auto resolved = wanted.try_resolve(context);
    if (!resolved) { return state.in_words(resolved.error()); }
    const std::uint32_t before = state.slots, after = state.slots_in(resolved->bytes);
    state.is_settled = false;
    Status changed;
    if (after < before) {  // first no kernel finds what goes
        changed = state.drop_slots(after);
        if (changed) { state.slots = after; }
    }
    if (changed) { changed = state.hold(after); }
    if (changed && after > before) { changed = state.set_slots(after); }
    if (!changed) {
        static_cast<void>(state.settle().has_value());
        return changed.error().in("for " + std::to_string(after) + " experts");
    }
    state.is_settled = true;
    state.slots = after;
    BudgetChange change;
    change.budget_before_bytes = state.budget.bytes;
    change.budget_bytes = resolved->bytes;
    change.held_before_bytes = held;
    change.held_bytes = state.held_bytes();
    if (after < before) { change.evicted_bytes = (before - after) * state.tables.slot_bytes; }
    change.returned_at = device.host_time();
    change.complete_at = change.returned_at;
    state.budget = std::move(*resolved);
    return change;
}

}}}  // namespace residency::RESIDENCY_ABI::routed

namespace residency { inline namespace RESIDENCY_ABI {

using routed::RoutedExperts;

}}  // namespace residency::RESIDENCY_ABI

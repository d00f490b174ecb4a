// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/transport/pinned.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// What a member of a group of replicas has done.
struct ReplicaUse {
    std::string device;               ///< whose member it is
    std::uint64_t brought_bytes = 0;  ///< that came from the host over its link, for whomever
    std::uint64_t shared_bytes = 0;  ///< that it took out of a ring for itself, after another member had asked for them
    std::string reason;              ///< why its link is its own only; empty: the group uses it
};

template <PeerDevice D>
class Replicas;

/// Replicas of one model on several GPUs of a host: bytes that one member asks for are there for all. Each member lends its link, and a ring
/// of buffers in its device memory; the group knows which host bytes lie in which buffer. Made once, given to every member
/// (ReplicasConfig::group). Thread safe.
template <PeerDevice D>
class ReplicaGroup {
public:
    /// Without members.
    ReplicaGroup() = default;
    ReplicaGroup(const ReplicaGroup&) = delete;
    ReplicaGroup& operator=(const ReplicaGroup&) = delete;

    /// Those that are open, in the order in which they were made.
    [[nodiscard]] std::vector<ReplicaUse> members() const {
        const std::lock_guard lock{mutex_};
        std::vector<ReplicaUse> uses;
        for (const auto& member : members_) { uses.push_back(member->use); }
        return uses;
    }

private:
    friend class Replicas<D>;

    struct Member;
    /// Bytes of the host that lie in a buffer.
    struct Portion {
        const std::byte* from = nullptr;
        std::byte* at = nullptr;  // in the buffer
        std::uint64_t bytes = 0;
    };
    /// That a member reads a buffer.
    struct Reading {
        Member* reader = nullptr;
        std::optional<typename D::Event> has_taken;  // of the reader
        bool is_recorded = false;                    // for what the buffer holds
        bool is_unknown = false;                     // a copy may read it of which has_taken does not tell
    };
    /// Memory of a member.
    struct Buffer {
        std::byte* memory = nullptr;
        std::optional<typename D::Event> is_full;  // of its owner
        std::vector<Portion> portions;             // that it holds, or will
        std::vector<Reading> readings;             // of each member that can read it
        Member* asked = nullptr;                   // who asked for what it holds
    };
    /// What a member has from the ring of another one.
    struct Source {
        Member* owner = nullptr;
        Buffer* last = nullptr;  // that was taken from; null: nothing since the owner was seen alive after it
    };
    /// A plan for the steps of a problem and a budget: members that have the same bytes at the same time share all.
    struct Common {
        std::vector<std::uint32_t> step_offsets, step_storages, kept;
        std::uint64_t budget_bytes = 0;
        plan::Plan plan;
        std::vector<const Member*> users;  // that have this plan; others had one before it
    };
    struct Member {
        D* device = nullptr;
        std::byte* memory = nullptr;
        std::optional<typename D::Stream> into;  // from the host into the ring
        std::vector<Buffer> ring;
        std::uint32_t next = 0;       // buffer
        std::vector<Source> sources;  // the others whose rings it can read
        std::size_t common = none;    // its plan, of plans_; none: it has one of its own
        std::optional<Error> failure;
        ReplicaUse use;
        std::uint64_t load_bytes = 0;  // enqueued for its link, for a fair division

        /// Whether others may ask for its link.
        [[nodiscard]] bool lends() const noexcept { return !ring.empty() && use.reason.empty(); }
        /// Whether its device still answers.
        [[nodiscard]] bool is_alive() const { return device->is_complete(*ring.front().is_full).has_value(); }
    };

    [[nodiscard]] static Reading* reading_of(Buffer& buffer, const Member& reader) noexcept {
        for (Reading& reading : buffer.readings) {
            if (reading.reader == &reader) { return &reading; }
        }
        return nullptr;
    }
    /// Error mismatch: the catalog has other host bytes than that of the group.
    [[nodiscard]] Status check_catalog(const Catalog& catalog) const;
    /// Two members, or one and itself: `reader` may read the ring of `owner` from now on.
    [[nodiscard]] Status let_read(Member& reader, Member& owner);
    /// The link of a member is its own from now on. Who had bytes from it that may not have arrived is told by its status.
    void leave_out(Member& member, const Error& error) {
        if (member.use.reason.empty()) { member.use.reason = error.message(); }
        for (Buffer& buffer : member.ring) { buffer.portions.clear(); }
        if (member.is_alive()) { return; }
        for (const auto& other : members_) {
            for (Source& source : other->sources) {
                if (source.owner == &member && std::exchange(source.last, nullptr) != nullptr) {
                    other->failure = error;
                }
            }
        }
    }
    /// Looks whether the members from which it has bytes are alive, or were once those bytes had arrived.
    void look_at_sources(Member& reader) {
        for (std::size_t i = 0; i < reader.sources.size(); ++i) {
            const Source source = reader.sources[i];
            if (source.last == nullptr) { continue; }
            const auto taken = reader.device->is_complete(*reading_of(*source.last, reader)->has_taken);
            const auto alive = source.owner->device->is_complete(*source.owner->ring.front().is_full);
            if (!alive) {
                leave_out(*source.owner, alive.error());
            } else if (taken && *taken) {
                reader.sources[i].last = nullptr;
            }
        }
    }
    /// Takes a member out. Its copy stream is drained, unless `is_abandoned`: then nothing of it is given back.
    void remove(Member& member, bool is_abandoned) noexcept;

    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// The place of the plan for these steps and this budget, of plans_; none.
    [[nodiscard]] std::size_t find_common(const plan::Problem& problem, std::uint64_t budget_bytes,
                                          bool is_captured) const {
        for (std::size_t i = 0; i < plans_.size(); ++i) {
            const Common& common = plans_[i];
            const plan::PlanData& plan = common.plan.data();
            if (common.budget_bytes == budget_bytes && common.step_offsets == problem.step_offsets &&
                common.step_storages == problem.step_storages && common.kept == problem.kept &&
                plan.storage_bytes == problem.storage_bytes && plan.captured == is_captured &&
                plan.cyclic == problem.cyclic && plan.chunk_bytes == problem.chunk_bytes &&
                (problem.image_offsets.empty() || problem.image_offsets == plan.storage_offsets)) {
                return i;
            }
        }
        return none;
    }
    /// A place of plans_ that is no member's, or a new one.
    [[nodiscard]] std::size_t find_unused() {
        for (std::size_t i = 0; i < plans_.size(); ++i) {
            if (std::none_of(members_.begin(), members_.end(), [&](const auto& each) { return each->common == i; })) {
                return i;
            }
        }
        plans_.emplace_back();
        return plans_.size() - 1;
    }
    [[nodiscard]] static bool is_user(const Common& common, const Member& member) {
        return std::find(common.users.begin(), common.users.end(), &member) != common.users.end();
    }

    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Member>> members_;
    std::vector<Common> plans_;
    Catalog catalog_;  // of the first member: keeps the host bytes, as long as there is one
};

/// The knobs of Replicas.
template <PeerDevice D>
struct ReplicasConfig {
    /// The same for every member, made by std::make_shared. The members are on different devices.
    std::shared_ptr<ReplicaGroup<D>> group{};
    /// Device memory of this member for what its link brings. It is no part of the budget.
    std::uint64_t lent_bytes = std::uint64_t{64} << 20;
};

/// Feeds the members of a group of replicas: what one of them asks for comes once over one of their links into a ring on that GPU, and each
/// copies it from there (over NVLink, for instance). So N members that go through their passes in step see N links. Who asks for bytes that
/// are in no ring any more, or not yet, has them brought: members may run apart, with other budgets, or alone, and only lose what sharing
/// gains. No member waits on the host for another one. Meant for pinned bytes.
///
/// On the device a ring waits until who was given a buffer has copied it. So the kernels of members must not wait for each other, as
/// collectives do. Links are taken to be equally fast.
template <PeerDevice D>
class Replicas {
public:
    using Config = ReplicasConfig<D>;          ///< its knobs
    static constexpr bool capturable = false;  ///< which bytes a ring holds is decided as calls come

    /// Calls of fewer bytes go over the own link, and are not shared.
    static constexpr std::uint64_t least_bytes = std::uint64_t{512} << 10;
    /// Buffers of a ring.
    static constexpr std::uint32_t buffers = 8;

    /// Does nothing before open().
    explicit Replicas(Config config) : config_{std::move(config)} {}
    Replicas(const Replicas&) = delete;
    Replicas& operator=(const Replicas&) = delete;

    /// May block. ErrorKind::unsupported: a storage is not in host memory. ErrorKind::invalid_argument: no group, a ring that is too small,
    /// or a device that is in the group. ErrorKind::mismatch: the group has other host bytes. A device that has no memory for its ring, or
    /// is without peer access, is no error: its link is its own.
    [[nodiscard]] Status open(D& device, const Catalog& catalog);
    /// Does not block, if the bytes are pinned.
    [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream);
    void close() noexcept;  ///< what TransportPolicy asks for
    /// Gives nothing back that the device may still use.
    void abandon() noexcept { leave(true); }
    /// A device was lost while bytes were on their way through its ring.
    [[nodiscard]] Status status() const {
        if (member_ == nullptr) { return {}; }
        const std::lock_guard lock{config_.group->mutex_};
        config_.group->look_at_sources(*member_);
        return member_->failure ? Status{*member_->failure} : Status{};
    }
    /// As TransportPolicy says: every storage may have lost bytes, but for mutable ones, which come by the own link.
    void take_failure(std::vector<StorageId>& storages) {
        const std::lock_guard lock{config_.group->mutex_};
        if (!std::exchange(member_->failure, std::nullopt)) { return; }
        for (std::uint32_t i = 0; i < catalog_.storages().size(); ++i) {
            const Storage& storage = catalog_.storages()[i];
            if (storage.bytes > 0 && !storage.is_mutable) { storages.push_back(StorageId{i}); }
        }
    }
    /// The plan that another member has for the same steps and budget, made after the one that this member has of them. None: there is no such.
    [[nodiscard]] std::optional<plan::Plan> common_plan(const plan::Problem& problem, std::uint64_t budget_bytes,
                                                        bool is_captured) {
        const std::lock_guard lock{config_.group->mutex_};
        const std::size_t at = config_.group->find_common(problem, budget_bytes, is_captured);
        member_->common = at;
        if (at == Group::none || Group::is_user(config_.group->plans_[at], *member_)) { return std::nullopt; }
        config_.group->plans_[at].users.push_back(member_);
        return config_.group->plans_[at].plan;
    }
    /// This member has made a plan, which the others take, too.
    void tell_plan(const plan::Problem& problem, std::uint64_t budget_bytes, const plan::Plan& plan) {
        const std::lock_guard lock{config_.group->mutex_};
        std::size_t at = config_.group->find_common(problem, budget_bytes, plan.is_captured());
        if (at == Group::none) { at = config_.group->find_unused(); }
        config_.group->plans_[at] = {
            problem.step_offsets, problem.step_storages, problem.kept, budget_bytes, plan, {member_}};
        member_->common = at;
    }
    /// Whether another member has made a plan in place of the one that this member took last.
    [[nodiscard]] bool has_newer_plan() const {
        const std::lock_guard lock{config_.group->mutex_};
        return member_->common != Group::none && !Group::is_user(config_.group->plans_[member_->common], *member_);
    }
    /// No thread of its own reads sources.
    [[nodiscard]] Status pause(std::span<const StorageId>) { return {}; }
    /// No ring has their bytes any more.
    [[nodiscard]] Status sources_changed(std::span<const StorageId>) {
        const std::lock_guard lock{config_.group->mutex_};
        for (const auto& member : config_.group->members_) {
            for (auto& buffer : member->ring) { buffer.portions.clear(); }
        }
        return {};
    }

private:
    using Group = ReplicaGroup<D>;
    using Member = typename Group::Member;
    using Buffer = typename Group::Buffer;
    using Portion = typename Group::Portion;

    /// Bytes in a buffer that this member can read.
    struct Found {
        Member* owner = nullptr;  // null: there are none
        Buffer* buffer = nullptr;
        const std::byte* at = nullptr;
        std::uint64_t bytes = 0;  // found; else up to the next ones that are there
    };

    static constexpr std::uint64_t granule = std::uint64_t{64} << 10;
    static constexpr std::size_t most_portions = 64;  // of a buffer

    [[nodiscard]] std::uint64_t buffer_bytes() const noexcept {
        return config_.lent_bytes / buffers / granule * granule;
    }
    /// Makes the ring of a member, which is in the group.
    [[nodiscard]] Status make_ring(Member& member) const;
    void leave(bool is_abandoned) noexcept;
    /// Where the bytes from `from` on are.
    [[nodiscard]] Found find(const std::byte* from, std::uint64_t bytes) const;
    /// Whose link is to bring the next piece; null: the own one, straight to its place.
    [[nodiscard]] Member* choose_link() const;
    [[nodiscard]] Status share(std::span<const Copy> copies, std::uint64_t bytes, typename D::Stream stream);
    /// Has pieces_ brought over one of the links, and takes them.
    [[nodiscard]] Status bring(typename D::Stream stream);
    /// Brings bytes into the next buffer of a member. Null: its link is left out now.
    [[nodiscard]] Buffer* fill_next(Member& owner);
    /// Copies takes_ out of a buffer. What fails at a lost owner comes by the own link.
    [[nodiscard]] Status take(Member& owner, Buffer& buffer, typename D::Stream stream);
    [[nodiscard]] Status take_found(typename D::Stream stream) {
        if (takes_.empty()) { return {}; }
        if (found_.buffer->asked != member_) { member_->use.shared_bytes += takes_bytes_; }
        return take(*found_.owner, *found_.buffer, stream);
    }
    /// Over the own link, to their places.
    [[nodiscard]] Status copy_alone(std::span<const Copy> copies, typename D::Stream stream) {
        for (const Copy& copy : copies) { member_->use.brought_bytes += copy.bytes; }
        return device_->copy(copies, stream);
    }

    Config config_;
    Pinned<D> host_;  // knows where storages lie
    Catalog catalog_;
    D* device_ = nullptr;       // while open
    Member* member_ = nullptr;  // of the group, while open
    // Of the call being made:
    std::vector<Copy> pieces_;  // from the host to their places, to be brought
    std::uint64_t pieces_bytes_ = 0;
    std::vector<Copy> takes_;  // out of found_.buffer
    std::vector<Copy> alone_;  // the same, from the host
    std::uint64_t takes_bytes_ = 0;
    std::vector<Copy> filling_;
    Found found_;
};

template <PeerDevice D>
Status ReplicaGroup<D>::check_catalog(const Catalog& catalog) const {
    if (members_.empty()) { return {}; }
    const auto refused = [](const std::string& what) {
        return Error{ErrorKind::mismatch,
                     "transport.group: " + what +
                         ": the members of a group run one model from one host copy; give each of them the same "
                         "catalog"};
    };
    if (catalog.hash() != catalog_.hash()) { return refused("its members run another model"); }
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        if (catalog.storage(StorageId{i}).bytes == 0 ||
            catalog.host_bytes(StorageId{i}) == catalog_.host_bytes(StorageId{i})) {
            continue;
        }
        return refused(catalog.describe(StorageId{i}) + " lies elsewhere in host memory");
    }
    return {};
}

template <PeerDevice D>
Status ReplicaGroup<D>::let_read(Member& reader, Member& owner) {
    if (owner.ring.empty()) { return {}; }
    if (&reader != &owner) {
        if (auto enabled = reader.device->enable_peer(*owner.device); !enabled) { return enabled; }
        reader.sources.push_back({&owner, nullptr});
    }
    for (Buffer& buffer : owner.ring) {
        auto event = reader.device->create_event(Timing::off);
        if (!event) { return event.error(); }
        buffer.readings.push_back({&reader, *event, false});
    }
    return {};
}

template <PeerDevice D>
void ReplicaGroup<D>::remove(Member& member, bool is_abandoned) noexcept {
    const auto drop = [](Status status) { static_cast<void>(status.has_value()); };
    member.sources.clear();
    for (const auto& other : members_) {  // what it has read
        for (Buffer& buffer : other->ring) {
            for (Reading& reading : buffer.readings) {
                if (reading.reader == &member && !is_abandoned) {
                    drop(member.device->destroy_event(*reading.has_taken));
                }
            }
            std::erase_if(buffer.readings, [&](const Reading& reading) { return reading.reader == &member; });
            if (buffer.asked == &member) { buffer.asked = nullptr; }
        }
    }
    bool is_in_use = false;               // a copy may still read or write the ring: it is left alone
    for (Buffer& buffer : member.ring) {  // what others read
        for (Reading& reading : buffer.readings) {
            if (!reading.is_recorded && !reading.is_unknown) { continue; }
            D& device = *reading.reader->device;
            if (!reading.is_unknown && device.synchronize(*reading.has_taken)) { continue; }
            // What a lost device was reading is lost too.
            if (!device.synchronize() && device.is_complete(*reading.has_taken)) { is_in_use = true; }
        }
    }
    for (const auto& other : members_) {
        look_at_sources(*other);
        std::erase_if(other->sources, [&](const Source& source) { return source.owner == &member; });
    }
    for (Buffer& buffer : member.ring) {
        for (Reading& reading : buffer.readings) { drop(reading.reader->device->destroy_event(*reading.has_taken)); }
    }
    if (!is_abandoned) {
        const bool is_idle =
            member.ring.empty() || member.device->synchronize(*member.into) || member.device->synchronize();
        if (!is_idle && member.is_alive()) { is_in_use = true; }
        for (Buffer& buffer : member.ring) {
            if (buffer.is_full) { drop(member.device->destroy_event(*buffer.is_full)); }
        }
        if (member.into) { drop(member.device->destroy_stream(*member.into)); }
        if (member.memory != nullptr && !is_in_use) { drop(member.device->deallocate(member.memory)); }
    }
    for (Common& common : plans_) { std::erase(common.users, &member); }
    std::erase_if(members_, [&](const auto& each) { return each.get() == &member; });
    if (members_.empty()) {
        plans_.clear();
        catalog_ = {};
    }
}

template <PeerDevice D>
Status Replicas<D>::make_ring(Member& member) const {
    auto memory = member.device->allocate(buffer_bytes() * buffers);
    if (!memory) { return memory.error(); }
    member.memory = static_cast<std::byte*>(*memory);
    auto stream = member.device->create_stream();
    if (!stream) { return stream.error(); }
    member.into = *stream;
    for (std::uint32_t i = 0; i < buffers; ++i) {
        auto event = member.device->create_event(Timing::off);
        if (!event) { return event.error(); }
        Buffer& buffer = member.ring.emplace_back();
        buffer.memory = member.memory + i * buffer_bytes();
        buffer.is_full = *event;
        buffer.portions.reserve(most_portions);
    }
    return {};
}

template <PeerDevice D>
Status Replicas<D>::open(D& device, const Catalog& catalog) {
    if (config_.group == nullptr || buffer_bytes() < least_bytes) {
        return Error{ErrorKind::invalid_argument,
                     config_.group == nullptr
                         ? "transport.group is missing: give all members of the group the same one, of "
                           "std::make_shared<transport::ReplicaGroup<…>>()"
                         : "transport.lent_bytes is too small: give at least 4 MiB"};
    }
    if (auto opened = host_.open(device, catalog); !opened) { return opened; }
    Group& group = *config_.group;
    const std::lock_guard lock{group.mutex_};
    for (const auto& other : group.members_) {
        if (other->device != &device) { continue; }
        return Error{ErrorKind::invalid_argument,
                     "transport.group has a member on this device already: the members are on different devices"};
    }
    if (auto checked = group.check_catalog(catalog); !checked) { return checked; }
    if (group.members_.empty()) { group.catalog_ = catalog; }
    Member& member = *group.members_.emplace_back(std::make_unique<Member>());
    member.device = &device;
    member.use.device = std::string{device.name()};
    if (auto made = make_ring(member); !made) { member.use.reason = made.error().message(); }
    for (const auto& other : group.members_) {
        member.load_bytes = (std::max)(member.load_bytes, other->load_bytes);
        auto reads = member.lends() || other.get() != &member ? group.let_read(member, *other) : Status{};
        if (reads && other.get() != &member) { reads = group.let_read(*other, member); }
        if (!reads && member.use.reason.empty()) { member.use.reason = reads.error().message(); }
    }
    device_ = &device;
    member_ = &member;
    catalog_ = catalog;
    for (std::vector<Copy>* each : {&pieces_, &takes_, &alone_, &filling_}) { each->reserve(2 * most_portions); }
    return {};
}

template <PeerDevice D>
void Replicas<D>::leave(bool is_abandoned) noexcept {
    if (member_ == nullptr) { return; }
    const std::lock_guard lock{config_.group->mutex_};
    config_.group->remove(*std::exchange(member_, nullptr), is_abandoned);
}

template <PeerDevice D>
void Replicas<D>::close() noexcept {
    leave(false);
    host_.close();
    catalog_ = {};
    device_ = nullptr;
}

template <PeerDevice D>
Status Replicas<D>::enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
    const auto copies = host_.join(fetches);
    const std::uint64_t bytes = bytes_of(fetches);
    const auto captured = device_->is_capturing(stream);
    if (!captured) { return captured.error(); }
    if (*captured) {
        return Error{ErrorKind::unsupported,
                     "transport::Replicas decides as calls come which bytes a ring holds, and a graph repeats one "
                     "decision: take "
                     "transport::Pinned or transport::Links"};
    }
    const std::lock_guard lock{config_.group->mutex_};
    // Once kernels have written there, it could not be brought again after a device was lost.
    const auto is_written = [&](const Fetch& fetch) { return catalog_.storage(fetch.storage).is_mutable; };
    if (bytes < least_bytes || member_->sources.empty() || std::any_of(fetches.begin(), fetches.end(), is_written)) {
        return copy_alone(copies, stream);
    }
    return share(copies, bytes, stream);
}

template <PeerDevice D>
typename Replicas<D>::Found Replicas<D>::find(const std::byte* from, std::uint64_t bytes) const {
    Found none{nullptr, nullptr, nullptr, bytes};
    for (const auto& owner : config_.group->members_) {
        for (Buffer& buffer : owner->ring) {
            if (Group::reading_of(buffer, *member_) == nullptr) { break; }
            for (const Portion& portion : buffer.portions) {
                if (portion.from >= from + none.bytes || portion.from + portion.bytes <= from) { continue; }
                if (portion.from > from) {
                    none.bytes = static_cast<std::uint64_t>(portion.from - from);
                    continue;
                }
                const auto skipped = static_cast<std::uint64_t>(from - portion.from);
                return {owner.get(), &buffer, portion.at + skipped, (std::min)(bytes, portion.bytes - skipped)};
            }
        }
    }
    return none;
}

template <PeerDevice D>
typename Replicas<D>::Member* Replicas<D>::choose_link() const {
    Member* best = nullptr;
    for (const auto& member : config_.group->members_) {
        if (!member->lends() || Group::reading_of(member->ring.back(), *member_) == nullptr) { continue; }
        if (best == nullptr || member->load_bytes < best->load_bytes) { best = member.get(); }
    }
    return best;
}

template <PeerDevice D>
Status Replicas<D>::share(std::span<const Copy> copies, std::uint64_t bytes, typename D::Stream stream) {
    // A piece a link: while it is copied out of its buffer, those of the next call come.
    const std::uint64_t links = config_.group->members_.size();
    const std::uint64_t piece =
        std::clamp((bytes + links * granule - 1) / (links * granule) * granule, least_bytes, buffer_bytes());
    takes_.clear();
    alone_.clear();
    pieces_.clear();
    takes_bytes_ = pieces_bytes_ = 0;
    for (const Copy& copy : copies) {
        for (std::uint64_t done = 0; done < copy.bytes;) {
            const auto* const from = static_cast<const std::byte*>(copy.from) + done;
            auto* const to = static_cast<std::byte*>(copy.to) + done;
            Found found = find(from, copy.bytes - done);
            if (found.owner != nullptr && !pieces_.empty()) {
                if (auto brought = bring(stream); !brought) { return brought; }
                continue;  // that may have taken the buffer
            }
            if (found.owner != nullptr) {
                if (found.buffer != found_.buffer || takes_.size() == takes_.capacity()) {
                    if (auto taken = take_found(stream); !taken) { return taken; }
                }
                found_ = found;
                takes_.push_back({to, found.at, found.bytes});
                alone_.push_back({to, from, found.bytes});
                takes_bytes_ += found.bytes;
            } else {
                if (auto taken = take_found(stream); !taken) { return taken; }
                found.bytes = (std::min)(found.bytes, piece - pieces_bytes_);
                pieces_.push_back({to, from, found.bytes});
                pieces_bytes_ += found.bytes;
                if (pieces_bytes_ == piece || pieces_.size() == most_portions) {
                    if (auto brought = bring(stream); !brought) { return brought; }
                }
            }
            done += found.bytes;
        }
    }
    auto brought = bring(stream);
    return brought ? take_found(stream) : std::move(brought);
}

template <PeerDevice D>
Status Replicas<D>::bring(typename D::Stream stream) {
    if (pieces_.empty()) { return {}; }
    Buffer* buffer = nullptr;
    Member* owner = choose_link();
    while (owner != nullptr && buffer == nullptr) {
        buffer = fill_next(*owner);
        if (buffer == nullptr) { owner = choose_link(); }
    }
    Status done;
    if (buffer == nullptr) {
        done = copy_alone(pieces_, stream);
    } else {
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            takes_.push_back({pieces_[i].to, buffer->portions[i].at, pieces_[i].bytes});
            alone_.push_back(pieces_[i]);
        }
        done = take(*owner, *buffer, stream);
    }
    pieces_.clear();
    pieces_bytes_ = 0;
    return done;
}

template <PeerDevice D>
typename Replicas<D>::Buffer* Replicas<D>::fill_next(Member& owner) {
    Buffer& buffer = owner.ring[owner.next];
    owner.next = (owner.next + 1) % buffers;
    buffer.portions.clear();
    buffer.asked = member_;
    const auto fill = [&]() -> Status {
        for (auto& reading : buffer.readings) {
            if (reading.is_unknown) {
                auto idle = reading.reader->device->synchronize();
                if (!idle && reading.reader->device->is_complete(*reading.has_taken)) { return idle; }
                reading.is_unknown = false;
            }
            if (!reading.is_recorded) { continue; }
            auto waited = owner.device->wait(*owner.into, *reading.has_taken);
            // What a lost device was reading is lost too.
            if (!waited && reading.reader->device->is_complete(*reading.has_taken)) { return waited; }
            reading.is_recorded = false;
        }
        filling_.clear();
        std::byte* at = buffer.memory;
        for (const Copy& piece : pieces_) {
            filling_.push_back({at, piece.from, piece.bytes});
            at += piece.bytes;
        }
        if (auto copied = owner.device->copy(filling_, *owner.into); !copied) { return copied; }
        return owner.device->record(*buffer.is_full, *owner.into);
    };
    if (auto filled = fill(); !filled) {
        config_.group->leave_out(owner, filled.error());
        return nullptr;
    }
    for (const Copy& copy : filling_) {
        buffer.portions.push_back(
            {static_cast<const std::byte*>(copy.from), static_cast<std::byte*>(copy.to), copy.bytes});
    }
    owner.load_bytes += pieces_bytes_;
    owner.use.brought_bytes += pieces_bytes_;
    return &buffer;
}

template <PeerDevice D>
Status Replicas<D>::take(Member& owner, Buffer& buffer, typename D::Stream stream) {
    auto& reading = *Group::reading_of(buffer, *member_);
    Status taken = device_->wait(stream, *buffer.is_full);
    if (taken) { taken = device_->copy(takes_, stream); }
    const bool has_begun = taken.has_value();
    if (taken) { taken = device_->record(*reading.has_taken, stream); }
    reading.is_recorded = reading.is_recorded || taken.has_value();
    for (auto& source : member_->sources) {
        if (source.owner == &owner && has_begun) { source.last = &buffer; }
    }
    if (!taken && &owner != member_ && !owner.is_alive()) {
        config_.group->leave_out(owner, taken.error());
        taken = copy_alone(alone_, stream);
    } else if (!taken) {
        // Nothing says when it has been read: no one overwrites it before.
        reading.is_unknown = !device_->synchronize(stream);
    }
    takes_.clear();
    alone_.clear();
    takes_bytes_ = 0;
    return taken;
}

}}}  // namespace residency::RESIDENCY_ABI::transport

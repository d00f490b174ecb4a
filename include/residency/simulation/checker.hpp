// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/number.hpp"
#include "residency/simulation/access.hpp"
#include "residency/simulation/address_space.hpp"
#include "residency/simulation/handle_table.hpp"
#include "residency/simulation/shadow_memory.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// What the checker found.
enum class ReportKind : std::uint8_t {
    unordered,      ///< two accesses of the same bytes, at least one of them a write, and nothing orders them
    uninitialised,  ///< a read of bytes that nothing has written since they were allocated
    dead_memory,    ///< an access of bytes that are freed, unmapped, or outside of any allocation
    misuse,  ///< a call that is wrong whatever the order: a dead or foreign handle, a double free, work lost in a capture
};

/// An operation as a report names it.
struct OperationInfo {
    std::string stream;                          ///< "host" for what the host does itself
    std::string name;                            ///< the kernel's, or what the operation is
    OperationKind kind = OperationKind::kernel;  ///< what it does
    std::uint64_t sequence = 0;                  ///< position in the order of all calls; 0: there is no such operation
    std::string device;                          ///< the name of the GPU; empty for what the host does itself
};

/// One finding of the checker: it names the operations at fault, and says in words what is missing between them.
struct Report {
    ReportKind kind = ReportKind::misuse;  ///< what is wrong
    OperationInfo first;                   ///< the one called earlier; sequence 0: there is only one
    OperationInfo second;                  ///< the one called later
    const void* at = nullptr;              ///< first byte concerned, as the second operation addresses it
    std::uint64_t bytes = 0;               ///< that are concerned
    std::string text;                      ///< the finding in words, with the wait that is missing
};

/// A happens-before checker: reports every two accesses of the same physical byte, at least one of them a write, that nothing orders.
/// It checks in the order of the calls. Every ordering on a real device comes from an earlier call, so a missing one is found
/// whatever the timing. One finding counts once, however many reports are kept.
class Checker {
public:
    Checker(AddressMap& map, NameTable& names) : map_{map}, names_{names} {}
    Checker(const Checker&) = delete;
    Checker& operator=(const Checker&) = delete;

    bool on = true;
    std::size_t max_reports = 1000;  ///< kept; later findings are only counted
    std::function<void(const Report&)> on_report;
    std::vector<std::uint32_t> gpus;  ///< numbers of their names, by number; where there are several, texts name them

    /// Makes the history of new physical memory, and returns its number. `access`: the operation that made the memory.
    [[nodiscard]] std::uint32_t add_region(std::uint64_t bytes, Content content, const Access& access) {
        if (free_regions_.empty()) {
            free_regions_.push_back(static_cast<std::uint32_t>(regions_.size()));
            regions_.emplace_back();
        }
        const std::uint32_t region = free_regions_.back();
        free_regions_.pop_back();
        regions_[region].reset(lists_, bytes, content, access);
        return region;
    }
    void remove_region(std::uint32_t region) {
        regions_[region].clear(lists_);
        free_regions_.push_back(region);
    }

    /// Checks a read at `clock`. Precondition: the range is mapped. `exclusive`: the parts of the operation are unordered among
    /// themselves. `later(access)`: whether an access called earlier is known to run after this one.
    template <class Later>
    void read(const void* at, std::uint64_t bytes, const Access& access, const VectorClock& clock, bool exclusive,
              Later&& later) {
        visit(
            at, bytes, access, clock,
            [&](ShadowMemory& shadow, std::uint64_t begin, std::uint64_t end, auto& sink) {
                sink.writes = false;
                shadow.read(lists_, begin, end, access, clock, exclusive, sink);
            },
            later);
    }
    /// Checks a write, an allocation or a deallocation. Parameters: as of read().
    template <class Later>
    void write(const void* at, std::uint64_t bytes, const Access& access, const VectorClock& clock, bool exclusive,
               Content content, Later&& later) {
        visit(
            at, bytes, access, clock,
            [&](ShadowMemory& shadow, std::uint64_t begin, std::uint64_t end, auto& sink) {
                sink.writes = true;
                shadow.write(lists_, begin, end, access, clock, exclusive, content, sink);
            },
            later);
    }
    /// The pool handed these bytes out again: what was known of them is forgotten, unchecked.
    void assign(const void* at, std::uint64_t bytes, const Access& access, Content content) {
        if (!on) { return; }
        map_.for_each(at, bytes, [&](AddressMap::Entry& entry, std::uintptr_t address, std::uint64_t here) {
            const std::uint64_t offset = entry.offset + (address - entry.begin);
            regions_[entry.region].assign(lists_, offset, offset + here, access, content);
        });
    }
    /// Reports accesses that do not lie before `clock`: of host memory, or through mapped addresses. Returns how many there were.
    std::size_t check_unused(const void* at, std::uint64_t bytes, const Access& access, const VectorClock& clock) {
        if (!on) { return 0; }
        std::size_t found = 0;
        map_.for_each(at, bytes, [&](AddressMap::Entry& entry, std::uintptr_t address, std::uint64_t here) {
            const auto check = [&](const Access& earlier, bool wrote, std::uint64_t size) {
                if (earlier.before(clock)) { return; }
                ++found;
                conflict(earlier, wrote, access, true, reinterpret_cast<const void*>(address), size, clock);
            };
            if (entry.mapped) {
                lists_.for_each(entry.uses,
                                [&](const Access& use) { check(use, use.kind != OperationKind::kernel, here); });
            } else {
                const std::uint64_t offset = entry.offset + (address - entry.begin);
                regions_[entry.region].for_each(lists_, offset, offset + here,
                                                [&](const Access& earlier, bool wrote, std::uint64_t begin,
                                                    std::uint64_t end) { check(earlier, wrote, end - begin); });
            }
        });
        return found;
    }
    /// Forgets the accesses through these mapped addresses.
    void forget_uses(const void* at, std::uint64_t bytes) {
        map_.for_each(at, bytes,
                      [&](AddressMap::Entry& entry, std::uintptr_t, std::uint64_t) { lists_.clear(entry.uses); });
    }

    [[nodiscard]] OperationInfo describe(const Access& access) const {
        if (access.sequence == 0) { return {}; }
        const bool by_host = access.actor == 0;
        return {by_host ? std::string{"host"} : names_.name(access.stream), names_.name(access.label), access.kind,
                access.sequence, by_host ? std::string{} : names_.name(gpus[access.gpu])};
    }
    /// Reports an access of memory that is not there.
    void dead(const Access& access, const void* at, std::uint64_t bytes, const std::string& why) {
        add({ReportKind::dead_memory,
             {},
             describe(access),
             at,
             bytes,
             words(access) + " accesses " + range(at, bytes) + ": " + why});
    }
    /// Reports a call that is wrong whatever the order.
    void misuse(const Access& access, const std::string& text, const void* at = nullptr, std::uint64_t bytes = 0) {
        add({ReportKind::misuse, {}, describe(access), at, bytes, text});
    }

    [[nodiscard]] const std::vector<Report>& reports() const noexcept { return reports_; }
    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    void clear_reports() noexcept {
        reports_.clear();
        count_ = 0;
    }

private:
    /// Turns findings of one entry of the address map into reports.
    template <class Later>
    struct Sink {
        Checker& checker;
        const Access& access;
        const VectorClock& clock;
        Later& is_later;
        std::uintptr_t base = 0;  ///< address of offset 0
        bool writes = false;

        [[nodiscard]] bool later(const Access& earlier) const { return is_later(earlier); }
        void conflict(const Access& earlier, bool wrote, std::uint64_t begin, std::uint64_t end) {
            checker.conflict(earlier, wrote, access, writes, at(begin), end - begin, clock);
        }
        void uninitialised(const Access& earlier, std::uint64_t begin, std::uint64_t end) {
            checker.add({ReportKind::uninitialised, checker.describe(earlier), checker.describe(access), at(begin),
                         end - begin,
                         checker.words(access) + " reads " + range(at(begin), end - begin) +
                             ", which nothing has written since " + checker.words(earlier)});
        }
        void dead(const Access& earlier, std::uint64_t begin, std::uint64_t end) {
            checker.add({ReportKind::dead_memory, checker.describe(earlier), checker.describe(access), at(begin),
                         end - begin,
                         checker.words(access) + (writes ? " writes " : " reads ") + range(at(begin), end - begin) +
                             (earlier.sequence == 0 ? std::string{", which the pool has not handed out"}
                                                    : ", which " + checker.words(earlier) + " gave back")});
        }
        [[nodiscard]] const void* at(std::uint64_t offset) const noexcept {
            return reinterpret_cast<const void*>(base + offset);
        }
    };

    template <class F, class Later>
    void visit(const void* at, std::uint64_t bytes, const Access& access, const VectorClock& clock, F&& f,
               Later& later) {
        if (!on || bytes == 0) { return; }
        map_.for_each(at, bytes, [&](AddressMap::Entry& entry, std::uintptr_t address, std::uint64_t here) {
            const std::uint64_t offset = entry.offset + (address - entry.begin);
            Sink<Later> sink{*this, access, clock, later, address - offset};
            f(regions_[entry.region], offset, offset + here, sink);
            if (entry.mapped) { lists_.add(entry.uses, access, clock); }
        });
    }

    void conflict(const Access& earlier, bool wrote, const Access& access, bool writes, const void* at,
                  std::uint64_t bytes, const VectorClock& clock) {
        std::string text = words(access) + (writes ? verb(access.kind) : " reads ") + range(at, bytes) + " that " +
                           words(earlier) + (wrote ? verb(earlier.kind) : " reads ") + "and nothing orders them: ";
        if (earlier.sequence == access.sequence) {
            text += "the pieces of one copy must not overlap";
        } else if (access.actor == 0) {
            text += "the host has to synchronise with stream '" + names_.name(earlier.stream) + "'" + of(earlier) +
                    " after #" + std::to_string(earlier.sequence) + " first";
        } else {
            text += "stream '" + names_.name(access.stream) + "'" + of(access) +
                    " has to wait for an event recorded on stream '" + names_.name(earlier.stream) + "'" + of(earlier) +
                    " after #" + std::to_string(earlier.sequence);
            const std::uint64_t known = clock.of(earlier.actor);
            text += known == 0 ? "; it has waited for nothing there"
                               : "; it has waited only up to #" + std::to_string(known);
        }
        add({ReportKind::unordered, describe(earlier), describe(access), at, bytes, std::move(text)});
    }
    static const char* verb(OperationKind kind) noexcept {
        switch (kind) {
            case OperationKind::deallocate:
            case OperationKind::host_memory: return " frees ";
            case OperationKind::allocate: return " allocates ";
            case OperationKind::mapping: return " unmaps ";
            default: return " writes ";
        }
    }
    [[nodiscard]] std::string words(const Access& access) const {
        std::string text{name(access.kind)};
        if (const std::string& label = names_.name(access.label); label != text) { text += " '" + label + "'"; }
        text += " (#" + std::to_string(access.sequence);
        text +=
            access.actor == 0 ? " by the host)" : " on stream '" + names_.name(access.stream) + "'" + of(access) + ")";
        return text;
    }
    /// The GPU, in words, where there are several.
    [[nodiscard]] std::string of(const Access& access) const {
        return gpus.size() > 1 ? " of '" + names_.name(gpus[access.gpu]) + "'" : std::string{};
    }
    [[nodiscard]] static std::string range(const void* at, std::uint64_t bytes) {
        static constexpr char digits[] = "0123456789abcdef";
        std::string hex;
        for (auto value = reinterpret_cast<std::uintptr_t>(at); value != 0; value >>= 4U) {
            hex.insert(hex.begin(), digits[value & 15U]);
        }
        return residency::detail::in_bytes(bytes) + " at 0x" + (hex.empty() ? "0" : hex);
    }
    void add(Report report) {
        // Neighbouring ranges of the same two operations are one finding.
        if (!reports_.empty() && report.kind != ReportKind::misuse) {
            Report& last = reports_.back();
            const auto last_end = reinterpret_cast<std::uintptr_t>(last.at) + last.bytes;
            if (last.kind == report.kind && last.first.sequence == report.first.sequence &&
                last.second.sequence == report.second.sequence &&
                last_end == reinterpret_cast<std::uintptr_t>(report.at)) {
                last.bytes += report.bytes;
                return;
            }
        }
        ++count_;
        if (on_report) { on_report(report); }
        if (reports_.size() < max_reports) { reports_.push_back(std::move(report)); }
    }

    AddressMap& map_;
    NameTable& names_;
    std::vector<ShadowMemory> regions_;  // by number
    std::vector<std::uint32_t> free_regions_;
    AccessLists lists_;
    std::vector<Report> reports_;
    std::uint64_t count_ = 0;  // of findings since the last clear_reports()
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

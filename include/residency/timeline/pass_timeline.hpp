// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/timeline/perfetto.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What ran when in some passes, in the one form in which every tool draws it: a row of kernels with their steps around them and the
/// stalls between them, a row of copies named by weight, arrows from copies to the kernels that waited for them, curves of the
/// bytes held and of the budget, and a row of the passes. What is added to a row is added in the order in which it ran.
class PassTimeline {
public:
    using Time = PerfettoTrace::Time;  ///< ns

    /// Names of the rows.
    /// @{
    static constexpr std::string_view pass_row = "passes";
    static constexpr std::string_view compute_row = "compute";
    static constexpr std::string_view copy_row = "copies to the device";
    static constexpr std::string_view copy_back_row = "copies to the host";
    /// @}

    /// One pass.
    struct Pass {
        std::string name;                ///< such as its number
        Time start{};                    ///< of the pass, on its stream
        Time end{};                      ///< the same
        std::uint64_t copied_bytes = 0;  ///< by copies that were enqueued in it
    };
    /// The bytes of one weight in a copy.
    struct Piece {
        std::string weight;       ///< its name
        std::uint64_t bytes = 0;  ///< of that weight
    };
    /// One kernel.
    struct Kernel {
        std::string step;       ///< empty: of no step
        std::string name;       ///< of the kernel
        Time start{};           ///< of the kernel
        Time end{};             ///< the same
        std::size_t row = 0;    ///< of several streams with kernels, from 0
        std::uint64_t run = 0;  ///< kernels of the same step with another number belong to another run of it
    };
    /// One copy to the device.
    struct Copy {
        std::vector<Piece> pieces;  ///< in the order in which they came
        Time start{};               ///< of the copy
        Time end{};                 ///< the same
        /// The sum of the bytes of its pieces.
        [[nodiscard]] std::uint64_t bytes() const noexcept {
            std::uint64_t sum = 0;
            for (const Piece& piece : pieces) { sum += piece.bytes; }
            return sum;
        }
    };
    /// A time in which the next kernel of a row could not run, since it waited for a copy.
    struct Stall {
        Time start{};                     ///< of the wait
        Time end{};                       ///< the same
        std::optional<std::size_t> copy;  ///< that was awaited, by its number, where it is known
        std::size_t row = 0;              ///< of the kernel
        std::size_t next_kernel = 0;      ///< its number, or a lower one
    };
    /// What is held from a time on.
    struct Memory {
        Time at{};                       ///< from which on it holds
        std::uint64_t held_bytes = 0;    ///< of the device
        std::uint64_t budget_bytes = 0;  ///< in force
    };

    /// The next one of its row.
    /// @{
    void add_pass(Pass pass) { passes_.push_back(std::move(pass)); }
    void add_kernel(Kernel kernel) { kernels_.push_back(std::move(kernel)); }
    /// @}
    /// Returns its number among the copies to the device.
    std::size_t add_copy(Copy copy) {
        copies_.push_back(std::move(copy));
        return copies_.size() - 1;
    }
    /// A copy to the host.
    void add_copy_back(std::uint64_t bytes, Time start, Time end) {
        copies_back_.push_back({{{{}, bytes}}, start, end});
    }
    /// The next kernel of that row could not start before `end`, since it waited for a copy: its number, where it is known.
    void add_stall(Time start, Time end, std::optional<std::size_t> copy, std::size_t row = 0) {
        stalls_.push_back({start, end, copy, row, kernels_.size()});
    }
    /// The device bytes that are held from that time on, and the budget in force.
    void add_memory(Time at, std::uint64_t held_bytes, std::uint64_t budget_bytes) {
        memory_.push_back({at, held_bytes, budget_bytes});
    }

    /// All that were added.
    /// @{
    [[nodiscard]] std::span<const Pass> passes() const noexcept { return passes_; }
    [[nodiscard]] std::span<const Kernel> kernels() const noexcept { return kernels_; }
    [[nodiscard]] std::span<const Copy> copies() const noexcept { return copies_; }
    [[nodiscard]] std::span<const Stall> stalls() const noexcept { return stalls_; }
    [[nodiscard]] std::span<const Memory> memory() const noexcept { return memory_; }
    /// @}

    /// The weights of a copy, in few words.
    [[nodiscard]] static std::string name_of(const Copy& copy);
    /// The step of a kernel, or where it is of none, its own name.
    [[nodiscard]] static std::string name_of_step(const Kernel& kernel) {
        return kernel.step.empty() ? kernel.name : kernel.step;
    }
    /// The weights on a storage, as copies are named.
    [[nodiscard]] static std::string name_of(const Catalog& catalog, StorageId storage);
    /// The kernel that a stall is before, by its number; none: it was not added.
    [[nodiscard]] std::optional<std::size_t> kernel_after(const Stall& stall) const noexcept;
    /// Whether the copy that a stall waited for began late: most of the wait was time in which the link had stood idle. False: the link was
    /// busy, or the copy is not known.
    [[nodiscard]] bool began_late(const Stall& stall) const;

    [[nodiscard]] PerfettoTrace trace() const;  ///< all of it as a trace

    /// A pass as a table of plain text, by its number among passes(); none: the last, or all where no pass was added. A line for each step,
    /// each copy that began in it and each time in which nothing ran, in the order in which they began: step, weights, start, end, how
    /// long it waited for a copy, and why. Times are in ms, from the start of the pass. Precondition: there is such a pass.
    [[nodiscard]] std::string table(std::optional<std::size_t> pass = std::nullopt) const;
    /// A sentence about the last pass: how long the device ran no kernel between two steps and waited for no copy. Empty: that was less
    /// than 3 % of the pass. Times below 5 µs do not count: events and launches cost about as much.
    [[nodiscard]] std::string idle_in_words() const;

private:
    /// A time in which nothing ran.
    struct Gap {
        Time start{}, end{};
        std::size_t after = 0;  // the number of the kernel that ran before it
    };
    static constexpr Time least_gap{5000};

    [[nodiscard]] static std::string name_of_row(std::size_t row);
    /// The last kernel of the step that begins with that one: those of its name that follow each other on its row.
    [[nodiscard]] std::size_t last_of_step(std::size_t first) const;
    /// Between the first and the last kernel that begin in these times.
    [[nodiscard]] std::vector<Gap> gaps(Time from, Time to) const;
    /// What a stall waited for, and what the link did meanwhile.
    [[nodiscard]] std::string cause_of(const Stall& stall) const;

    std::vector<Pass> passes_;
    std::vector<Kernel> kernels_;
    std::vector<Copy> copies_, copies_back_;
    std::vector<Stall> stalls_;
    std::vector<Memory> memory_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/timeline/impl/pass_timeline.ipp"
#endif

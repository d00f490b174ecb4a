// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "residency/core/measure/stalls.hpp"
#include "residency/core/measure/statistics.hpp"

namespace compiled {

/// What is run, as the command line says.
struct Job {
    std::string model;                 ///< folder that residency_export wrote
    std::vector<std::string> budgets;  ///< each in turn; "stored": that of the program
    std::vector<std::string> methods;  ///< in the order of a round; empty: all of the program
    std::uint32_t rounds = 10;         ///< timed ones
    bool eager = false;                ///< each method by eager runs too
    bool graph = false;                ///< on a GPU: each method as a graph too
    std::string timeline;              ///< file for a run of each method at the last budget that works; empty: none
    std::string report;                ///< file for a page with that timeline and what to change; empty: none
    bool waits = false;                ///< Row::why of every row that streams, also of one near the least
    bool first = false;                ///< only: from the folder to the first outputs
    std::string beside;                ///< folder of a second model: both share one total; empty: none
    std::vector<std::string> totals;   ///< of both models, each in turn
    std::string torch_folder;          ///< of PyTorch's libraries; empty: where the dynamic linker looks
    /// ExecuTorch's libaoti_cuda_shims.so, in place of PyTorch's libraries; empty: those.
    std::string executorch_shims;
};

/// How the runs of a row were made.
enum class Way : std::uint8_t {
    chosen,  ///< eagerly or as a graph, whichever took less time
    eager,   ///< eagerly, each of them
    graph,   ///< as a graph, each of them
};

/// Why a row takes longer than the least: of one more run, with events in its streams.
struct Why {
    double milliseconds = 0;          ///< of that run
    std::uint64_t waits = 0;          ///< steps of it that waited for bytes
    double waited_milliseconds = 0;   ///< all of them together
    double longest_milliseconds = 0;  ///< at `step`
    std::string step;                 ///< that waited longest: its kernels and modules; empty: none waited
    residency::StallCause cause{};    ///< of that wait
    std::string failure;              ///< why that run failed, and nothing else is known; empty: it did not
    std::string text;                 ///< the same in words, and what would remove it
    std::string idle;                 ///< how long the device ran nothing, since the host was late; empty: not long
    std::uint64_t ring_pieces = 0;    ///< of device memory that take turns
    std::uint64_t piece_bytes = 0;    ///< of one of them
};
/// One method at one budget.
struct Row {
    std::string budget, method;
    residency::Statistics statistics;
    double milliseconds = 0;  ///< of a run, the median
    double alone_milliseconds =
        0;  ///< of the package without the library; where everything is resident, run by turns with these
    double bound_milliseconds = 0;    ///< the larger of the exact bound and the latency floor; 0: nothing is streamed
    bool is_right = false;            ///< each output has the bits of the package's own run, without the library
    bool is_graph = false;            ///< the runs were launches of a graph
    std::uint64_t driver_bytes = 0;   ///< by which the device's free memory fell when the model was opened
    Way way = Way::chosen;            ///< how its runs were made
    double planned_milliseconds = 0;  ///< what the plan in force predicts; 0: nothing is streamed
    std::string choice{};             ///< of a chosen way: what each took, or why no graph could be captured
    std::optional<Why> why{};         ///< of a row above 1.02 of the least, or with Job::waits

    /// Milliseconds of a run that nothing beats: the bound, and the package without the library.
    [[nodiscard]] double least() const noexcept { return (std::max)(bound_milliseconds, alone_milliseconds); }
};
/// From one method to another, at one budget.
struct Switch {
    std::string budget, from, to;
    std::uint64_t plans = 0;             ///< made for it
    std::uint64_t copied_bytes = 0;      ///< by the first run behind it
    std::uint64_t steady_bytes = 0;      ///< by a run that follows one of the same method
    std::uint64_t difference_bytes = 0;  ///< held between runs of the one method, and not of the other
    double milliseconds = 0;             ///< the first run, planning and waits included
};
/// From a folder to the first outputs, with PyTorch's libraries loaded and the device ready.
struct First {
    std::string method;                 ///< that ran
    double open_milliseconds = 0;       ///< until the weights are in pinned memory, and planned
    double run_milliseconds = 0;        ///< the first run: its package loaded, weights brought, outputs complete
    std::vector<std::uint64_t> hashes;  ///< of the bytes of each output, FNV-1a
};
/// Another total for two models that take turns.
struct TotalChange {
    std::uint64_t before_bytes = 0, total_bytes = 0;
    std::uint64_t rounds = 0;  ///< until both had their shares: in each, both take what is due, and run each method
    double milliseconds = 0;   ///< of these rounds, and the change
    double steady_milliseconds = 0;    ///< as many rounds at that total, from the median of later ones
    double changing_milliseconds = 0;  ///< of the former, in calls of the broker and of at_pass_end
    std::uint64_t new_bytes = 0;       ///< held between runs that were not before
    double link_milliseconds = 0;      ///< of these, at the measured rate of the link
    bool is_right = false;             ///< outputs have the bits of the first runs
};
struct Results {
    std::string device, compiler;
    std::uint64_t weight_bytes = 0;
    std::vector<Row> rows;  ///< the first of each method is the package without the library
    std::vector<Switch> switches;
    std::vector<std::string> budgets;   ///< how each was understood, a line each
    std::vector<std::string> refused;   ///< budgets that the model cannot have, with the reason
    std::vector<std::string> left_out;  ///< steps that a run never called, and weights that it never reached
    std::string timeline;               ///< what is in the file
    std::vector<std::string> reports;   ///< of the simulated device's checker
    std::optional<First> first;
    std::vector<TotalChange> totals;
};

/// The same on either device. Throws residency::Exception.
[[nodiscard]] Results run_simulated(const Job& job);
[[nodiscard]] Results run_cuda(const Job& job);

}  // namespace compiled

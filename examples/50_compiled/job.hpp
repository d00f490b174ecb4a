// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
};

/// The same on either device. Throws residency::Exception.
[[nodiscard]] Results run_simulated(const Job& job);
[[nodiscard]] Results run_cuda(const Job& job);

}  // namespace compiled

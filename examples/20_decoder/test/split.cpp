// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Several simulated GPUs that run one model, while calls of one of them fail, each in turn: either the text is what it was, or the error
// says which GPU it is of, and the others end. Where a call was refused, the same GPUs write the text again afterwards.

#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <string>
#include <vector>

#include "examples/20_decoder/checkpoint.hpp"
#include "examples/20_decoder/generate.hpp"
#include "examples/20_decoder/job.hpp"
#include "examples/20_decoder/run_split.hpp"
#include "examples/20_decoder/simulated.hpp"
#include "examples/support/terminal.hpp"
#include "residency/budget/budget.hpp"
#include "residency/error.hpp"
#include "residency/simulation/call_kind.hpp"

namespace decoder { namespace {

using residency::ErrorKind;
using residency::simulation::CallKind;

void fail_in_turn(const std::string& folder, std::uint32_t count, std::uint32_t failing, CallKind kind, ErrorKind error,
                  examples::Checks& checks) {
    const Checkpoint model = Checkpoint::read(folder);
    Job job;
    job.prompt = {1, 17, 200, 3};
    job.new_tokens = 12;
    job.budgets = {residency::Budget::parse("40%")};
    std::deque<Simulated> devices;
    std::vector<Simulated*> all;
    all.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        all.push_back(&devices.emplace_back(model.catalog.streamed_bytes() / count));
    }
    SplitModel<Simulated> split{all, job, model};
    const auto generate = [&] { return split.generate(job.budgets.front(), true, false, nullptr).tokens; };
    const std::vector<std::uint64_t> expected = generate();
    const std::string name = std::string{residency::simulation::name(kind)} + " of GPU " + std::to_string(failing) +
                             " of " + std::to_string(count);
    const auto& device = devices[failing].device();
    const auto calls_before = device.statistics().of(kind);
    checks.check(generate() == expected, name + ": the same text again");
    const auto calls = device.statistics().of(kind) - calls_before;

    std::uint32_t refused = 0, wrong = 0;
    std::string text;
    const auto every = 1 + calls / 12;
    for (std::uint64_t nth = 1; nth <= calls; nth += every) {
        devices[failing].device().fail(kind, nth, error);
        try {
            wrong += generate() != expected ? 1U : 0U;
        } catch (const residency::Exception& problem) {
            text = problem.what();
            ++refused;
            wrong += text.ends_with(": on GPU " + std::to_string(failing) + " of " + std::to_string(count)) ? 0U : 1U;
        }
        devices[failing].device().clear_failures();
    }
    checks.check(refused > 0 && wrong == 0,
                 name + ": " + std::to_string(refused) + " times the error names it (" + text + ")");
    checks.check(generate() == expected, name + ": the same text afterwards");
    std::vector<std::string> reports;
    for (Simulated* each : all) {
        for (std::string& report : each->reports()) { reports.push_back(std::move(report)); }
    }
    checks.check_reports(reports);
}

/// One of the GPUs, each with tokens of its own, gets to the end of its text before the others.
void end_apart(const std::string& folder, std::uint32_t count, examples::Checks& checks) {
    Checkpoint model = Checkpoint::read(folder);
    Job job;
    job.prompt = {1, 17, 200, 3};
    job.new_tokens = 12;
    job.budgets = {residency::Budget::parse("40%")};
    const auto generate = [&] {
        std::deque<Simulated> devices;
        std::vector<Simulated*> all;
        for (std::uint32_t i = 0; i < count; ++i) {
            all.push_back(&devices.emplace_back(model.catalog.streamed_bytes() / count));
        }
        SplitModel<Simulated> split{all, job, model};
        return split.generate(job.budgets.front(), false, false, nullptr).tokens;
    };
    const std::vector<std::uint64_t> expected = generate();
    model.config.ends = {static_cast<std::uint32_t>(expected.front())};
    checks.check(generate() == expected && expected.size() == job.new_tokens,
                 std::to_string(count) + " GPUs apart: all write on where one would end");
}

}}  // namespace decoder

int main() {
    try {
        const std::string folder = "decoder_split_model";
        decoder::generate(folder, decoder::shape("tiny-heads"), [](std::uint64_t, std::uint64_t) {});
        examples::Checks checks;
        using decoder::CallKind;
        using decoder::ErrorKind;
        for (const std::uint32_t count : {2U, 4U}) {
            for (const CallKind kind : {CallKind::launch_kernel, CallKind::launch_graph, CallKind::synchronize_stream,
                                        CallKind::begin_capture, CallKind::copy}) {
                decoder::fail_in_turn(folder, count, count - 1, kind, ErrorKind::device, checks);
            }
            decoder::fail_in_turn(folder, count, 0, CallKind::create_chunk, ErrorKind::out_of_memory, checks);
            decoder::fail_in_turn(folder, count, 1, CallKind::pool_allocate, ErrorKind::out_of_memory, checks);
            decoder::end_apart(folder, count, checks);
        }
        return checks.failed() == 0 ? 0 : 1;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "decoder_split: %s\n", problem.what());
        return 1;
    }
}

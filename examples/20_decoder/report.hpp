// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/support/terminal.hpp"
#include "job.hpp"

namespace decoder {

/// Throws: the input has to be another one.
[[noreturn]] void refuse(const std::string& what);

/// A token's time is the host's, from one token to the next, the median of them. Regret is the device's time over the bound that no plan
/// of copies beats; with the latency of each copy counted, the bound is a little higher.
void print_table(const Results& results);

/// A reference: a prompt in one line, the tokens that follow it in another, then the logits after the prompt, one a line.
struct Reference {
    std::vector<std::uint64_t> prompt, tokens;
    std::vector<float> logits;

    [[nodiscard]] static Reference read(const std::string& path);
};
void check_reference(const Outcome& outcome, const Reference& reference, examples::Checks& checks);
/// Whether several GPUs, which went on with the tokens of one, gave in each pass its logits and its token, or one that bf16 does not tell
/// from it.
void check_split(const Outcome& several, const Outcome& one, examples::Checks& checks);
/// Writes one of a run of ours, to compare another device with. Its tokens end where bf16 can no longer tell the best from the next one.
void write_reference(const std::string& path, const Job& job, const Outcome& outcome);

/// Every figure, for other programs. Times are medians, in seconds. The link's rates: planned with, then each that was measured.
void write_json(const std::string& path, const Job& job, const Results& results);

}  // namespace decoder

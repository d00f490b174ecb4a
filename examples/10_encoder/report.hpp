// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "examples/support/terminal.hpp"
#include "fetch.hpp"
#include "job.hpp"

namespace encoder {

/// Those whose embeddings are known.
extern const std::vector<std::string> known_sentences;

/// The embeddings of the sentences, one after the other.
void print_similarities(const std::vector<std::string>& sentences, const std::vector<float>& embeddings);

[[nodiscard]] bool equal_bits(const std::vector<std::vector<float>>& passes, const std::vector<float>& expected);

/// Compares the embeddings of known_sentences with those of the reference implementation; of a model of the user's own, which may be
/// another one, only those that are like a reference.
void check_reference(const std::vector<float>& embeddings, const Source& source, bool is_own, examples::Checks& checks);

void print_presets(const Results& results, examples::Checks& checks);
void print_packed(const Results& results, examples::Checks& checks);

}  // namespace encoder

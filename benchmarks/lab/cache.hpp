// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace lab {

/// Adds the subcommand `cache`: demand caching alone, policies × budgets on one trace. Throws Failed.
void add_cache_command(CLI::App& app);

}  // namespace lab

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace lab {

/// Adds the subcommand `run`, which calls run() of run.hpp.
void add_run_command(CLI::App& app);

}  // namespace lab

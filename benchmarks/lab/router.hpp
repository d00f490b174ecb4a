// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace lab {

/// Adds the subcommand `router`: hit ratios on the experts that a router chose, policies × shares of all experts. Throws Failed.
void add_router_command(CLI::App& app);

}  // namespace lab

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "residency/error.hpp"
#include "residency/format/program.hpp"

/// The program that `path` is or, as a folder, holds, also as what a program of ExecuTorch carries; none: there is none.
std::optional<residency::Result<residency::format::Program>> find_program(const std::string& path);

/// What is in the program of a compiled model, on standard output, as JSON.
void print_json(const residency::format::Program& program);

/// The same for people. Live ranges and times are left out where the export recorded none.
void print_table(const residency::format::Program& program);

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/format/model_file.hpp"

/// A number of bytes for people.
std::string human(std::uint64_t bytes);

/// What is in the file, on standard output: a manifest that can be read again.
void print_json(const residency::format::ModelFile& model);

/// The same for people.
void print_table(const residency::format::ModelFile& model);

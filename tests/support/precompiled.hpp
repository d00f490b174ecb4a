// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What most test files of compositions include, compiled once.

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/support/compositions.hpp"

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one file of a program includes that is compiled with RESIDENCY_SEPARATE=1, see config.hpp.
#include "residency/budget/definitions/budget.hpp"
#include "residency/core/definitions/course.hpp"
#include "residency/core/definitions/planning.hpp"
#include "residency/device/definitions/simulated.hpp"
#include "residency/device/definitions/simulated_memory.hpp"
#include "residency/device/definitions/simulated_work.hpp"
#include "residency/host/definitions/loading.hpp"
#include "residency/host/definitions/memory_limits.hpp"
#include "residency/host/definitions/region.hpp"
#include "residency/host/definitions/weight_file.hpp"
#include "residency/model/definitions/catalog.hpp"
#include "residency/model/definitions/catalog_builder.hpp"
#include "residency/model/definitions/container_reader.hpp"
#include "residency/model/definitions/container_writer.hpp"
#include "residency/model/definitions/schedule.hpp"
#include "residency/model/definitions/use_order.hpp"
#include "residency/plan/definitions/bounds.hpp"
#include "residency/plan/definitions/check.hpp"
#include "residency/plan/definitions/cyclic.hpp"
#include "residency/plan/definitions/first_pass.hpp"
#include "residency/plan/definitions/one_shot.hpp"
#include "residency/plan/definitions/planner.hpp"
#include "residency/plan/definitions/problem.hpp"
#include "residency/plan/definitions/token_ring.hpp"

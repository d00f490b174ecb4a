// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one file of a program includes that is compiled with RESIDENCY_HEADER_ONLY=0, see config.hpp.
#include "residency/budget/impl/budget.ipp"
#include "residency/core/impl/course.ipp"
#include "residency/core/impl/planning.ipp"
#include "residency/device/impl/simulated.ipp"
#include "residency/device/impl/simulated_memory.ipp"
#include "residency/device/impl/simulated_work.ipp"
#include "residency/host/impl/loading.ipp"
#include "residency/host/impl/memory_limits.ipp"
#include "residency/host/impl/region.ipp"
#include "residency/host/impl/weight_file.ipp"
#include "residency/model/impl/catalog.ipp"
#include "residency/model/impl/catalog_builder.ipp"
#include "residency/model/impl/container_reader.ipp"
#include "residency/model/impl/container_writer.ipp"
#include "residency/model/impl/schedule.ipp"
#include "residency/model/impl/use_order.ipp"
#include "residency/plan/impl/bounds.ipp"
#include "residency/plan/impl/check.ipp"
#include "residency/plan/impl/cyclic.ipp"
#include "residency/plan/impl/first_pass.ipp"
#include "residency/plan/impl/one_shot.ipp"
#include "residency/plan/impl/planner.ipp"
#include "residency/plan/impl/problem.ipp"
#include "residency/plan/impl/token_ring.ipp"

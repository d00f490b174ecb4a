// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "benchmarks/lab/any_policy.hpp"
#include "benchmarks/lab/run_job.hpp"
#include "residency/error.hpp"

/// The job on the simulated device, its storages in a slab.
residency::Result<lab::RunCounts> run_on_slab(const lab::RunJob& job, const lab::MakeEvictor& evictor,
                                              const std::function<lab::AnyPrefetcher()>& prefetcher);

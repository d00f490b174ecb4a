// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "benchmarks/lab/run_job.hpp"
#include "residency/device/link.hpp"
#include "residency/error.hpp"

namespace lab {

/// The first GPU, where copies are real and a kernel is one that takes the step's time. Error unsupported: there is none, or this
/// program was built without CUDA. Blocks.
[[nodiscard]] residency::Result<std::shared_ptr<Gpu>> open_gpu();
/// Bandwidth and latency of its link. Blocks, about 20 ms.
[[nodiscard]] residency::Result<residency::LinkModel> measured_link(Gpu& gpu);

/// As in run_job.hpp; job.gpu is not null.
residency::Result<RunCounts> run_online_on_gpu(const RunJob& job, const MakeEvictor& evictor,
                                               std::function<AnyPrefetcher()> prefetcher);
residency::Result<RunCounts> run_hinted_on_gpu(const RunJob& job, const MakeEvictor& evictor);
residency::Result<RunCounts> run_planned_on_gpu(const RunJob& job);
residency::Result<RunCounts> run_packed_on_gpu(const RunJob& job);

}  // namespace lab

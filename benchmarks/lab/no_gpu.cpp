// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// What cuda/ has, where this program is built without it.
#ifndef WITH_CUDA

#include "benchmarks/lab/gpu.hpp"

namespace lab {

class Gpu {};

namespace {
residency::Error no_gpu() { return {residency::ErrorKind::unsupported, "this program was built without CUDA"}; }
}  // namespace

residency::Result<std::shared_ptr<Gpu>> open_gpu() { return no_gpu(); }
residency::Result<residency::LinkModel> measured_link(Gpu&) { return no_gpu(); }
residency::Result<RunCounts> run_online_on_gpu(const RunJob&, const MakeEvictor&, std::function<AnyPrefetcher()>) {
    return no_gpu();
}
residency::Result<RunCounts> run_hinted_on_gpu(const RunJob&, const MakeEvictor&) { return no_gpu(); }
residency::Result<RunCounts> run_planned_on_gpu(const RunJob&) { return no_gpu(); }
residency::Result<RunCounts> run_packed_on_gpu(const RunJob&) { return no_gpu(); }

}  // namespace lab

#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/trace_writer.hpp"

namespace lab::trace {

using namespace residency;

/// Writes a whole trace. Blocks.
[[nodiscard]] inline Status try_save(const Trace& trace, const std::string& path) {
    auto writer = TraceWriter::try_open(path, trace.name, trace.catalog_hash, trace.bytes, trace.groups);
    if (!writer) { return writer.error(); }
    for (std::size_t i = 0; i < trace.steps(); ++i) {
        if (auto put = writer->try_step(trace.step(i), trace.compute_ns[i]); !put) { return put; }
    }
    return writer->try_finish();
}
#if RESIDENCY_EXCEPTIONS
inline void save(const Trace& trace, const std::string& path) { unwrap(try_save(trace, path)); }
#endif

}  // namespace lab::trace

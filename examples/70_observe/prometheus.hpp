// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "residency/core/measure/event.hpp"

/// Counts events, and writes the counts in Prometheus's text format, version 0.0.4. The engine's thread calls handle(), any thread text().
class PrometheusExporter {
public:
    void handle(const residency::Event& event) {
        using residency::EventKind;
        const std::lock_guard lock{mutex_};
        switch (event.kind) {
            case EventKind::pass_ended: ++eager_passes_; break;
            case EventKind::graph_launched:  // of its copies nothing else is told
                ++graph_passes_;
                copied_bytes_ += event.counters->fetched_bytes;
                evicted_bytes_ += event.counters->evicted_bytes;
                break;
            case EventKind::copy_ended: copied_bytes_ += event.error == nullptr ? event.bytes : 0; break;
            case EventKind::evicted: evicted_bytes_ += event.bytes; break;
            case EventKind::stalled: stalls_[event.cause] += {1, event.duration}; break;
            case EventKind::diverged: ++divergences_; break;
            case EventKind::budget_changed: budget_bytes_ = event.bytes; break;
            case EventKind::failed: ++failures_; break;
            default: break;
        }
    }
    /// Until the budget changes for the first time, nobody tells it.
    void set_budget(std::uint64_t bytes) {
        const std::lock_guard lock{mutex_};
        budget_bytes_ = bytes;
    }

    [[nodiscard]] std::string text() const {
        const std::lock_guard lock{mutex_};
        std::string out;
        head(out, "residency_passes_total", "counter", "Passes that ended or were launched as a graph.");
        sample(out, "residency_passes_total{kind=\"eager\"}", std::to_string(eager_passes_));
        sample(out, "residency_passes_total{kind=\"graph\"}", std::to_string(graph_passes_));
        single(out, "residency_copied_bytes_total", "counter", "Bytes copied to the device.", copied_bytes_);
        single(out, "residency_evicted_bytes_total", "counter", "Bytes that left the device.", evicted_bytes_);
        single(out, "residency_divergences_total", "counter", "Accesses that the schedule did not announce.",
               divergences_);
        single(out, "residency_failures_total", "counter", "Errors of the library.", failures_);
        single(out, "residency_budget_bytes", "gauge", "The cap on device bytes.", budget_bytes_);
        head(out, "residency_stalls_total", "counter", "Waits of a stream for weights, by cause.");
        for (std::size_t i = 0; i < residency::stall_causes; ++i) {
            sample(out, with_cause("residency_stalls_total", i), std::to_string(stalls_.by_cause[i].stalls));
        }
        head(out, "residency_stall_seconds_total", "counter", "Time that streams waited for weights, by cause.");
        for (std::size_t i = 0; i < residency::stall_causes; ++i) {
            const double seconds = std::chrono::duration<double>(stalls_.by_cause[i].time).count();
            sample(out, with_cause("residency_stall_seconds_total", i), std::to_string(seconds));
        }
        return out;
    }

private:
    static void head(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
        out.append("# HELP ").append(name).append(" ").append(help).append("\n");
        out.append("# TYPE ").append(name).append(" ").append(type).append("\n");
    }
    static void sample(std::string& out, std::string_view name, std::string_view value) {
        out.append(name).append(" ").append(value).append("\n");
    }
    static void single(std::string& out, std::string_view name, std::string_view type, std::string_view help,
                       std::uint64_t value) {
        head(out, name, type, help);
        sample(out, name, std::to_string(value));
    }
    [[nodiscard]] static std::string with_cause(std::string_view name, std::size_t cause) {
        const auto label = residency::to_string(static_cast<residency::StallCause>(cause));
        return std::string{name} + "{cause=\"" + std::string{label} + "\"}";
    }

    mutable std::mutex mutex_;
    std::uint64_t eager_passes_ = 0, graph_passes_ = 0, copied_bytes_ = 0, evicted_bytes_ = 0, divergences_ = 0,
                  failures_ = 0, budget_bytes_ = 0;
    residency::Stalls stalls_;
};

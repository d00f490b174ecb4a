// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/timeline/pass_timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What a run did, for a page that a browser shows without a network: one file that loads nothing and sends nothing.
struct HtmlReport {
    std::string title;      ///< such as the program and its model
    std::string device;     ///< its name; empty: not shown
    std::string budget;     ///< ResolvedBudget::text: who asked for what; empty: not shown
    Statistics statistics;  ///< of the Residency
    PassTimeline timeline;  ///< of its last passes; what is shown of steps and copies comes from it
    std::string gaps;       ///< what the timeline lacks: TimelineGaps::text
    /// What to change, a sentence each, such as StallReport::lines. Empty: the page tells of divergences in the last pass instead.
    std::vector<std::string> advice;
};

/// The whole page, as UTF-8. All text is escaped. It has at most 20,000 shapes: of a longer timeline the last passes are drawn, and the
/// page says so; its tables are of all of it.
[[nodiscard]] std::string html_page(const HtmlReport& report);
/// Blocks. Writes the page, whole or not at all. Error io.
[[nodiscard]] Status try_write_html_report(const std::string& path, const HtmlReport& report);
#if RESIDENCY_EXCEPTIONS
/// As try_write_html_report(), but throws Exception.
inline void write_html_report(const std::string& path, const HtmlReport& report) {
    unwrap(try_write_html_report(path, report));
}
#endif

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/timeline/impl/html_report.ipp"
#endif

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What a running Residency tells: counts as Prometheus reads them on standard output, and what to change on standard error. A server
// would give the same text at /metrics.
#include <iostream>

#include "prometheus.hpp"
#include "residency/core/measure/stall_report.hpp"
#include "small_model.hpp"

int main() try {
    SmallModel model;
    PrometheusExporter exporter;
    SmallModel::Weights weights{model.gpu,
                                model.catalog,
                                {.budget = residency::Budget::parse("50%"),
                                 .schedule = model.schedule,
                                 .on_event = [&](const residency::Event& event) { exporter.handle(event); },
                                 .time_stalls = true}};
    exporter.set_budget(weights.statistics().budget_bytes);

    for (int token = 0; token < 10; ++token) {
        auto pass = weights.begin(model.stream);
        model.run(pass);
    }
    weights.drain();
    std::cerr << residency::report_stalls(weights).text();

    auto graph = weights.capture(model.stream, [&](auto& pass) { model.run(pass); });
    for (int token = 0; token < 5; ++token) { graph.launch(model.stream); }
    weights.drain();

    std::cout << exporter.text();
    std::cout.flush();
    return std::cout ? 0 : 1;
} catch (const residency::Exception& error) { return std::cerr << error.what() << '\n', 1; }

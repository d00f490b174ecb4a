// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Events into spdlog: errors and what costs time as such, the rest for those who ask for it. The program looks at what was logged.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "residency/core/measure/event.hpp"
#include "small_model.hpp"

namespace {

void log(spdlog::logger& logger, const residency::Event& event) {
    using residency::EventKind;
    switch (event.kind) {
        case EventKind::failed: logger.error("{}", event.error->message()); break;
        case EventKind::diverged:
            logger.warn("{} was not announced at step {}", event.weight(), event.steps.first);
            break;
        case EventKind::stalled:
            logger.info("pass {}: {} waited {} ns for {}: {}", event.pass, event.step_name(), event.duration.count(),
                        event.weight(), residency::to_string(event.cause));
            break;
        case EventKind::budget_changed: logger.info("the budget is {} bytes", event.bytes); break;
        case EventKind::pass_ended:
            logger.debug("pass {}: {} bytes copied", event.pass, event.counters->fetched_bytes);
            break;
        default:
            if (logger.should_log(spdlog::level::trace)) {
                logger.trace("{} {} {} bytes", residency::to_string(event.kind), event.weight(), event.bytes);
            }
    }
}

}  // namespace

int main() try {
    std::ostringstream kept;
    spdlog::logger logger{
        "residency",
        {std::make_shared<spdlog::sinks::stdout_sink_mt>(), std::make_shared<spdlog::sinks::ostream_sink_mt>(kept)}};
    logger.set_level(spdlog::level::debug);

    SmallModel model;
    SmallModel::Weights weights{model.gpu,
                                model.catalog,
                                {.budget = residency::Budget::parse("50%"),
                                 .schedule = model.schedule,
                                 .on_event = [&](const residency::Event& event) { log(logger, event); },
                                 .time_stalls = true}};
    for (int token = 0; token < 3; ++token) {
        auto pass = weights.begin(model.stream);
        model.run(pass);
    }
    static_cast<void>(weights.try_set_budget(residency::Budget::bytes(1)));  // refused
    weights.set_budget(residency::Budget::parse("75%"));
    weights.drain();

    logger.flush();
    for (const std::string wanted : {"[error]", "waited", "the budget is", "bytes copied"}) {
        if (kept.str().find(wanted) == std::string::npos) { return std::cerr << "not logged: " << wanted << '\n', 1; }
    }
    return 0;
} catch (const residency::Exception& error) { return std::cerr << error.what() << '\n', 1; }

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/budgets.md quotes of models that take turns.
#include <doctest/doctest.h>

#include <cstdint>

#include "residency/broker/model_group.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_switching {

using namespace residency;
using Gpu = SimulatedDevice;
using Weights = Planned<Gpu>;

TEST_CASE("docs/budgets.md: more models than fit") {
    docs::Model model;
    auto& gpu = model.gpu;
    const auto stream = model.stream;
    const auto run = [&](Weights& weights) {
        auto pass = weights.begin(stream);
        for (const auto& step : weights.schedule()) { const auto lease = pass.acquire(step); }
    };
    auto broker = BudgetBroker::create(gpu, "48MiB");
    {
        ModelGroup<Gpu> group{gpu, broker};
        Weights::Options options{.budget = Budget::bytes(32 * docs::Model::mib), .schedule = model.schedule};
        options.policies.pool.stock = &group.stock();  // memory of the group, not of the driver

        Weights chat{gpu, model.catalog, options};
        const auto chat_member = group.add(chat, {.name = "chat"});
        group.make_room(32 * docs::Model::mib);  // the chat model falls asleep
        Weights code{gpu, model.catalog, options};
        const auto code_member = group.add(code, {.name = "code"});

        {
            const auto use = group.activate(chat_member);  // the other one falls asleep, this one wakes
            run(chat);                                     // its weights arrive in the order of the steps
            group.prepare(code_member);                    // once a pass, when it is enqueued: what fits beside it
        }
        const auto use = group.activate(code_member);
        run(code);

        CHECK(chat.is_suspended());
        CHECK_FALSE(code.is_suspended());
        CHECK(code.statistics().total.fetched_bytes >= 32 * docs::Model::mib);
        CHECK(broker.statistics().granted_bytes <= 48 * docs::Model::mib);
    }
    CHECK(broker.statistics().used_bytes == 0);
    CHECK(gpu.report_count() == 0);
}

}  // namespace docs_switching

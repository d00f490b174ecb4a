// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint.hpp"
#include "cold_start.hpp"
#include "engine.hpp"
#include "examples/support/advice.hpp"
#include "examples/support/load.hpp"
#include "generate_text.hpp"
#include "job.hpp"
#include "ranks.hpp"
#include "residency/budget/budget.hpp"
#include "residency/error.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/model/storage.hpp"
#include "split.hpp"
#include "workspace.hpp"

namespace decoder {

/// A model on several GPUs, each with its part in pinned memory that is its own, and a budget of its own.
template <class Backend>
class SplitModel {
public:
    /// Reads the model. The back ends, one a GPU, outlive it. Throws residency::Exception.
    SplitModel(std::span<Backend* const> backends, const Job& job, const Checkpoint& on_disk)
        : backends_{backends}, job_{job}, split_{on_disk, static_cast<std::uint32_t>(backends.size())} {
        const auto prompt = std::uint32_t(job.prompt.size());
        for (std::size_t i = 0; i < backends.size(); ++i) {
            backends[i]->use();
            const Checkpoint& share = split_.shares()[i];
            work_.emplace_back(*backends[i], share, prompt, prompt + job.new_tokens, false);
            // Refuse a budget before any time is spent.
            for (const auto& budget : job.budgets) {
                on_gpu(i, [&] {
                    static_cast<void>(
                        Engine<Backend>::resolve(*backends[i], share, work_[i], budget, prompt + job.new_tokens));
                });
            }
        }
        const auto begin = std::chrono::steady_clock::now();
        std::vector<std::byte*> memory;
        memory.reserve(backends.size());
        for (Backend* each : backends) {
            memory.push_back(each->memory().template pinned<std::byte>(split_.share_bytes()));
        }
        table_ = examples::load_pinned(backends.front()->device(), split_.table());
        for (std::size_t i = 0; i < backends.size(); ++i) {
            if (i != 0) { backends[i]->share(rows()); }
            work_[i].use_table(table_.host_bytes(residency::StorageId{0}));
        }
        split_.load(memory, table_);
        seconds_ = std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
    }

    ~SplitModel() {
        for (Backend* each : backends_.subspan(1)) { each->unshare(rows()); }
    }
    SplitModel(const SplitModel&) = delete;
    SplitModel& operator=(const SplitModel&) = delete;

    [[nodiscard]] double seconds() const noexcept { return seconds_; }
    [[nodiscard]] std::uint64_t share_bytes() const noexcept { return split_.share_bytes(); }
    [[nodiscard]] std::uint64_t workspace_bytes() const noexcept { return work_.front().device_bytes; }

    /// The whole text on all GPUs, a thread each. `sums`: otherwise they tell each other nothing. Throws what the first of them that
    /// failed has thrown; the others end.
    [[nodiscard]] Outcome generate(const residency::Budget& budget, bool sums, bool record,
                                   const std::vector<std::uint64_t>* follow) {
        Ranks ranks{static_cast<std::uint32_t>(backends_.size())};
        std::vector<Outcome> outcomes(backends_.size());
        Job job = job_;
        if (!sums) { job.kept_logits = 0; }  // no GPU has all of them
        {
            residency::host::ThreadGroup threads;
            for (std::uint32_t i = 0; i < ranks.count(); ++i) {
                Backend& backend = *backends_[i];
                backend.rank() = {ranks, i};
                auto started = threads.try_start([&, i] {
                    try {
                        backend.use();
                        Checkpoint share = split_.shares()[i];
                        share.part.sums = sums;
                        const auto link = link_now(backend);
                        const TextJob<Backend> text{share, work_[i], job, budget, link, job.graphs, record, follow};
                        outcomes[i] = generate_text<Engine<Backend>>(backend, text);
                    } catch (...) {
                        backend.fail(std::current_exception());
                        static_cast<void>(backend.device().synchronize().has_value());  // nothing meets the others now
                    }
                });
                if (!started) { backend.fail(std::make_exception_ptr(residency::OutOfMemory{started.error()})); }
            }
        }
        for (Backend* each : backends_) { each->rank() = {}; }
        if (ranks.has_failed()) {
            on_gpu(ranks.failure().rank, [&] { std::rethrow_exception(ranks.failure().why); });
        }
        return joined(std::move(outcomes), sums);
    }

private:
    /// The embedding table.
    [[nodiscard]] const residency::HostBytes& rows() const {
        return *std::get<residency::HostSource>(table_.storage(residency::StorageId{0}).source).host;
    }
    /// Errors say which GPU they are of.
    template <class Work>
    void on_gpu(std::size_t rank, const Work& work) const {
        examples::with_advice("on GPU " + std::to_string(rank) + " of " + std::to_string(backends_.size()), work);
    }
    [[nodiscard]] static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
        return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    }
    /// That of the first GPU, and whether all are as it is.
    [[nodiscard]] static Outcome joined(std::vector<Outcome> outcomes, bool sums) {
        Outcome all = std::move(outcomes.front());
        all.gpus = static_cast<std::uint32_t>(outcomes.size());
        all.is_comparable = sums;
        for (const Outcome& each : std::span{outcomes}.subspan(1)) {
            all.gpus_agree =
                all.gpus_agree && each.tokens == all.tokens && std::ranges::equal(each.logits, all.logits, same_bits);
            all.is_within_budget = all.is_within_budget && each.is_within_budget;
        }
        return all;
    }

    std::span<Backend* const> backends_;
    const Job& job_;
    Split split_;
    residency::Catalog table_;
    std::deque<Workspace<Backend>> work_;  ///< of each GPU
    double seconds_ = 0;
};

/// Lets several GPUs write the same text within each budget. To compare with, the first one writes it alone, with everything resident and
/// within each budget, in turns with them; they go on with its tokens.
template <class Backend>
Results run_split(std::span<Backend* const> backends, const Job& job, const Checkpoint& on_disk) {
    Results results;
    Backend& first = *backends.front();
    results.device = std::to_string(backends.size()) + " × " + std::string{first.device().name()};
    SplitModel<Backend> split{backends, job, on_disk};
    results.workspace_bytes = split.workspace_bytes();
    results.share_bytes = split.share_bytes();
    results.split_seconds = split.seconds();

    const auto prompt = std::uint32_t(job.prompt.size());
    const std::uint32_t positions = prompt + job.new_tokens;
    std::optional<Workspace<Backend>> work;
    if (job.with_resident) {
        first.use();
        work.emplace(first, on_disk, prompt, positions, false);
        results.cold =
            start_cold(first, {job.folder, job.prompt, positions, residency::Budget::bytes(0), true, false}, *work);
    }
    const auto run = [&](const residency::Budget& budget, const std::string& asked, bool record) {
        const std::vector<std::uint64_t>* follow = nullptr;
        if (job.with_resident) {
            const TextJob<Backend> text{results.cold.model, *work, job, budget, link_now(first), job.graphs, false};
            results.outcomes.push_back(generate_text<Engine<Backend>>(first, text));
            results.outcomes.back().asked = asked;
            follow = &results.outcomes.front().tokens;
        }
        const std::vector<std::uint64_t> tokens = follow == nullptr ? std::vector<std::uint64_t>{} : *follow;
        const auto add = [&](bool sums) {
            Outcome outcome = split.generate(budget, sums, record && sums, follow == nullptr ? nullptr : &tokens);
            outcome.asked = asked + " of " + std::to_string(backends.size()) + (sums ? "" : ", apart");
            results.outcomes.push_back(std::move(outcome));
        };
        if (job.without_sums) { add(false); }
        add(true);
    };
    if (job.with_resident) { run(residency::Budget::percent_of_weights(100'000), "resident", false); }
    for (std::size_t i = 0; i < job.budgets.size(); ++i) {
        run(job.budgets[i], job.budgets[i].text(), i + 1 == job.budgets.size());
    }
    results.timeline = first.recorded().save(job.timeline);
    first.recorded().save_report(job.report, "decoder: " + job.folder, results.device, results.outcomes.back().asked,
                                 results.outcomes.back().statistics);
    for (Backend* each : backends) {
        for (std::string& report : each->reports()) { results.reports.push_back(std::move(report)); }
    }
    results.cold.model = on_disk;  // pinned memory ends before its device
    return results;
}

}  // namespace decoder

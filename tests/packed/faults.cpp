// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The preset Packed on a device whose calls fail: random programs, each with a few failures. Whatever fails, no kernel reads wrong bytes,
// the budget holds, nothing is left behind, and once calls work again, everything does.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/pool/chunk_stock.hpp"
#include "tests/packed/support.hpp"
#include "tests/support/sanitized.hpp"

namespace faults_test {

using namespace packed_tests;
using residency::Budget;
using residency::ErrorKind;

namespace {

struct Tally {
    std::uint64_t operations = 0, failures = 0, refused = 0, launches = 0, budgets = 0, layouts = 0, made = 0;
};

/// One model, one Packed, one program.
class Program {
public:
    Program(Device& device, std::uint64_t seed, Tally& tally)
        : device_{device}, random_{seed}, tally_{tally}, model_{device, specs(), seed} {
        for (auto& stream : streams_) { stream = must(device.create_stream()); }
        for (int i = 0; i < 3; ++i) { schedules_.push_back(schedule()); }
        make_options();
        const auto resolved = must(Weights::try_resolve_budget(device_, model_.packed.catalog, options_));
        plenty_ = std::max(resolved.floor_bytes + (std::uint64_t{64} << 10U), model_.raw_bytes() * 13 / 10);
        options_.budget = Budget::bytes(resolved.floor_bytes + random_() % (plenty_ - resolved.floor_bytes));
        before_ = used_bytes(device_);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        graph_.reset();
        weights_.reset();
        for (const Stream stream : streams_) { must(device_.destroy_stream(stream)); }
    }

    void run() {
        for (int turn = 0; turn < 30; ++turn) {
            const bool is_faulty = random_() % 2 == 0;
            if (is_faulty) { faults_.inject(device_, random_); }
            ++tally_.operations;
            const std::string what = operate();
            CAPTURE(turn);
            CAPTURE(what);
            if (error_) {
                CAPTURE(error_->message());
                CHECK((is_faulty || is_refusal_));
                if (is_faulty && !is_refusal_) { ++tally_.failures; }
                if (is_refusal_) { ++tally_.refused; }
            }
            device_.clear_failures();
            REQUIRE(wrong_ == 0);
            if (weights_ && !faults_.may_hold()) {
                CHECK(weights_->statistics().held_bytes <= weights_->budget().bytes);
                CHECK(used_bytes(device_) - before_ <= weights_->budget().bytes);
                if (weights_->is_suspended() && !holds_asleep_) { CHECK(used_bytes(device_) == before_); }
            }
            faults_.expect_few_reports(device_);
        }
        // Nothing fails any more: all of it works.
        if (!weights_) { make(); }
        if (!error_) { run_pass(true); }
        if (weights_->is_suspended()) { must(weights_->try_resume()); }
        error_.reset();
        run_pass(true);
        if (error_) { FAIL(error_->message()); }
        CHECK(weights_->statistics().held_bytes <= weights_->budget().bytes);
        must(weights_->try_drain());
        CHECK(wrong_ == 0);
        faults_.expect_few_reports(device_);
    }
    [[nodiscard]] bool may_hold() const noexcept { return faults_.may_hold(); }

private:
    std::vector<Model::Spec> specs() {
        std::vector<Model::Spec> result;
        for (std::uint64_t i = 3 + random_() % 6; i > 0; --i) {
            Model::Spec spec;
            spec.elements = 200 + random_() % 10'000;
            spec.is_noise = random_() % 7 == 0;
            if (random_() % 4 == 0) { spec.type = other_type(random_, spec.elements); }
            if (random_() % 8 == 0) { spec.placement = residency::Placement::resident; }
            result.push_back(spec);
        }
        if (random_() % 3 == 0) {
            Model::Spec cache{1000};
            cache.is_written = true;
            cache.placement = residency::Placement::resident;
            result.push_back(cache);
            has_cache_ = true;
        }
        return result;
    }
    Schedule schedule() {
        const auto weights = static_cast<std::uint32_t>(model_.contents.size());
        Steps steps;
        for (std::uint32_t i = 0; i < weights; ++i) {
            std::vector<std::uint32_t> step{i};
            if (random_() % 4 == 0) { step.push_back(static_cast<std::uint32_t>(random_() % weights)); }
            steps.push_back(std::move(step));
        }
        std::shuffle(steps.begin(), steps.end(), random_);
        return schedule_of(model_.packed.catalog, steps);
    }
    void make_options() {
        options_ = options(unpacker_, std::uint64_t{16} << 20U, schedules_[0]);
        options_.learn = random_() % 3 == 0;
        options_.policies.leases_at_once = 1 + static_cast<std::uint32_t>(random_() % 2);
    }
    template <class R>
    bool seen(const R& result) {
        if (!result && !error_) { error_ = result.error(); }
        return static_cast<bool>(result);
    }
    void make() {
        options_.schedule = schedules_[0];
        auto made = Weights::try_create(device_, model_.packed.catalog, options_);
        if (seen(made)) {
            weights_ = std::make_unique<Weights>(std::move(*made));
            ++tally_.made;
            is_written_ = false;
        }
    }

    /// What it did.
    std::string operate() {
        error_.reset();
        is_refusal_ = false;
        if (!weights_) {
            make();
            return "make";
        }
        switch (random_() % 12) {
            case 0:
            case 1: {
                const auto floor = weights_->statistics().floor_bytes;
                const std::uint64_t bytes = floor - 100 + random_() % (plenty_ - floor);
                const auto layout_before = weights_->statistics().held_bytes;
                seen(weights_->try_set_budget(Budget::bytes(bytes)));
                is_refusal_ = error_ && error_->kind() == ErrorKind::budget;
                tally_.budgets += error_ ? 0U : 1U;
                tally_.layouts += weights_->statistics().held_bytes != layout_before ? 1U : 0U;
                return "set_budget";
            }
            case 2:
                seen(weights_->try_set_schedule(schedules_[random_() % schedules_.size()]));
                is_refusal_ = error_ && (error_->kind() == ErrorKind::budget || weights_->is_suspended());
                return "set_schedule";
            case 3: holds_asleep_ = !seen(weights_->try_suspend()); return "suspend";
            case 4: holds_asleep_ = !seen(weights_->try_resume()); return "resume";
            case 5: seen(weights_->try_drain()); return "drain";
            case 6: capture(); return "capture";
            case 7:
            case 8:
                if (!graph_) { break; }
                seen(graph_->try_launch(stream()));
                is_refusal_ = error_ && (error_->kind() == ErrorKind::stale || weights_->is_suspended());
                tally_.launches += error_ ? 0U : 1U;
                if (is_refusal_) { graph_.reset(); }
                return "launch";
            case 9:
                if (random_() % 4 != 0) { break; }
                graph_.reset();
                weights_.reset();
                return "destroy";
            default: break;
        }
        run_pass(random_() % 4 != 0);
        is_refusal_ = error_ && weights_->is_suspended();
        return "pass";
    }
    /// Kernels that write the cache follow one another.
    Stream stream() { return streams_[has_cache_ ? 0 : random_() % 2]; }
    void capture() {
        graph_.reset();
        const Stream on = stream();
        auto captured = weights_->try_capture(on, [&](Weights::Pass& pass) -> residency::Status {
            for (const Schedule::Step& step : weights_->schedule()) {
                auto lease = pass.try_acquire(step);
                if (!lease) { return lease.error(); }
                if (auto launched = read(*lease, step.weights, on); !launched) { return launched; }
            }
            return {};
        });
        if (seen(captured)) { graph_ = std::move(*captured); }
        is_refusal_ = error_ && (weights_->is_suspended() || error_->kind() == ErrorKind::budget);
    }
    void run_pass(bool is_whole) {
        const Stream first = stream();
        auto pass = weights_->try_begin(first);
        if (!seen(pass)) { return; }
        std::optional<residency::Lease<Device>> last;
        for (const Schedule::Step& step : weights_->schedule()) {
            if (!is_whole && random_() % 8 == 0) { break; }
            if (!is_whole && random_() % 8 == 0) { continue; }
            const Stream on = random_() % 4 == 0 ? stream() : first;
            residency::Result<residency::Lease<Device>> lease = residency::Error{ErrorKind::device, "none"};
            if (random_() % 4 == 0) {
                auto ticket = pass->try_request(step);
                if (!seen(ticket)) { break; }
                lease = ticket->try_lease(on);
            } else {
                lease = pass->try_acquire(step, on);
            }
            if (!seen(lease)) { break; }
            if (!seen(read(*lease, step.weights, on))) { break; }
            if (random_() % 6 == 0) {
                const Stream also = stream();
                if (seen(lease->try_use_on(also)) && !has_cache_) { seen(read(*lease, step.weights, also)); }
            }
            last.reset();
            if (is_whole && options_.policies.leases_at_once > 1) { last = std::move(*lease); }
        }
        last.reset();
        seen(pass->try_end());
    }
    /// A kernel that compares leased weights with what they are; the cache with what kernels wrote before.
    residency::Status read(const residency::Lease<Device>& lease, std::span<const WeightId> weights, Stream on) {
        Device::Kernel kernel;
        kernel.name = "reader";
        std::vector<residency::simulation::ByteRange> reads, writes;
        std::vector<std::pair<const std::byte*, std::span<const std::byte>>> pairs;
        std::byte* cache = nullptr;
        std::size_t cache_bytes = 0;
        for (const WeightId id : weights) {
            const auto expected = model_.contents[residency::index(id)];
            const auto* const at = lease.data(id);
            reads.push_back({at, expected.size()});
            if (has_cache_ && residency::index(id) + 1 == model_.contents.size()) {
                cache = const_cast<std::byte*>(at);
                cache_bytes = expected.size();
                writes.push_back({at, expected.size()});
            } else {
                pairs.emplace_back(at, expected);
            }
        }
        kernel.reads = reads;
        kernel.writes = writes;
        kernel.duration = std::chrono::microseconds{random_() % 20};
        kernel.body = [this, pairs, cache, cache_bytes] {
            for (const auto& [at, expected] : pairs) {
                if (std::memcmp(at, expected.data(), expected.size()) != 0) { ++wrong_; }
            }
            if (cache == nullptr) { return; }
            const auto is_kept = [&](std::byte b) { return b == std::byte{0x5A}; };
            if (is_written_ && !std::all_of(cache, cache + cache_bytes, is_kept)) { ++wrong_; }
            std::memset(cache, 0x5A, cache_bytes);
            is_written_ = true;
        };
        return device_.launch(on, std::move(kernel));
    }

    Device& device_;
    std::mt19937_64 random_;
    Tally& tally_;
    bool has_cache_ = false;
    bool is_written_ = false;
    const Model model_;
    residency::SimulatedUnpacker unpacker_;
    Stream streams_[2]{};
    std::vector<Schedule> schedules_;
    Weights::Options options_;
    std::uint64_t plenty_ = 0, before_ = 0, wrong_ = 0;
    std::unique_ptr<Weights> weights_;
    std::optional<residency::CapturedPass<Device>> graph_;
    std::optional<residency::Error> error_;
    bool is_refusal_ = false;
    bool holds_asleep_ = false;  // a call failed that gives the memory back: the next one goes on
    Faults faults_;
};

/// A model on the chunks of a stock, or of the device, of which one call fails while its memory is taken or laid out anew.
class Relayout {
public:
    enum class Change : std::uint8_t { resume, resume_with_less, resume_with_more, less, more, order };
    /// What comes after the call that failed, before everything has to work again.
    enum class Next : std::uint8_t { pass, bring_asleep, budget_before, suspend };

    explicit Relayout(bool has_stock) {
        auto chosen = options(unpacker_, 0, layers_.schedule());
        chosen.policies.link = residency::plan::Link{};  // nothing is measured
        chosen.policies.memory_bytes_per_second = 1e12;
        chosen.policies.unpack_rate = residency::packed::UnpackRate{};
        chosen.policies.options.effort = residency::plan::Effort::quick;
        chosen.policies.pool.stock = has_stock ? &stock_ : nullptr;
        options_ = std::move(chosen);
    }
    Relayout(const Relayout&) = delete;
    Relayout& operator=(const Relayout&) = delete;
    ~Relayout() {
        for (const std::uint32_t number : others_) { stock_.give_back(number); }
        weights_.reset();
        CHECK(stock_.used_bytes() == 0);
        must(device_.destroy_stream(stream_));
    }

    /// Makes the change, of which call `nth` fails and so many in a row, and uses the model afterwards. False: it has fewer calls.
    /// `has_failed`: it has an error.
    [[nodiscard]] bool run(Change change, Next next, std::uint64_t nth, std::uint64_t in_a_row, bool& has_failed) {
        const bool grows = change == Change::more || change == Change::resume_with_more;
        const bool is_awake = change >= Change::less;
        const std::uint64_t before = layers_.share(grows ? 70 : 100);
        const std::uint64_t wanted = change == Change::resume ? before : layers_.share(grows ? 300 : 70);
        options_.budget = Budget::bytes(before);
        weights_ =
            std::make_unique<Weights>(must(Weights::try_create(device_, layers_.model.packed.catalog, options_)));
        pass();
        if (!is_awake) {
            must(weights_->try_suspend());
            must(weights_->try_set_budget(Budget::bytes(wanted)));
            // Others have some of what it had, or none of it.
            if (nth % 2 == 0 && options_.policies.pool.stock != nullptr) {
                for (int i = 0; i < 3; ++i) { others_.push_back(must(stock_.take())); }
            }
            static_cast<void>(must(weights_->try_bring_asleep(3 * chunk)));
        }
        const std::uint64_t calls_before = calls();
        for (std::uint64_t i = 0; i < in_a_row; ++i) { device_.fail(Device::CallKind::any, nth + i); }
        std::optional<residency::Error> error;
        if (change == Change::order) {
            if (auto changed = weights_->try_set_schedule(other_order()); !changed) { error = changed.error(); }
        } else if (is_awake) {
            if (auto changed = weights_->try_set_budget(Budget::bytes(wanted)); !changed) { error = changed.error(); }
        } else {
            if (auto resumed = weights_->try_resume(); !resumed) { error = resumed.error(); }
        }
        const bool is_reached = calls() - calls_before >= nth;
        device_.clear_failures();
        has_failed = error.has_value();
        if (has_failed) {
            if (next == Next::bring_asleep && weights_->is_suspended()) {
                static_cast<void>(must(weights_->try_bring_asleep(4 * chunk)));
            }
            if (next == Next::budget_before) { must(weights_->try_set_budget(Budget::bytes(before))); }
            if (next == Next::suspend) { must(weights_->try_suspend()); }
        }
        expect_no_reports(device_);
        for (int turn = 0; turn < 2; ++turn) {
            if (weights_->is_suspended()) { must(weights_->try_resume()); }
            pass();
            pass();
            CHECK(weights_->statistics().held_bytes <= weights_->budget().bytes);
            must(weights_->try_suspend());
        }
        return is_reached;
    }

private:
    static constexpr std::uint64_t chunk = 4096;

    [[nodiscard]] std::uint64_t calls() const {
        const auto statistics = device_.statistics();
        std::uint64_t sum = 0;
        for (std::size_t kind = 0; kind < residency::simulation::call_kinds; ++kind) {
            sum += statistics.of(static_cast<Device::CallKind>(kind));
        }
        return sum;
    }
    [[nodiscard]] residency::Schedule other_order() const {
        return schedule_of(layers_.model.packed.catalog, {{5, 0}, {3}, {4}, {3}, {5}});
    }
    void pass() {
        run_pass(device_, layers_.model, *weights_, stream_, wrong_);
        must(weights_->try_drain());
        REQUIRE(wrong_ == 0);
        expect_no_reports(device_);
    }

    Device device_{device_config()};
    const Layers layers_{device_, {{12'000}, {12'000}, {12'000}, {12'000, true}, {12'000}, {12'000, true}}};
    residency::SimulatedUnpacker unpacker_;
    const Stream stream_ = must(device_.create_stream());
    residency::pool::ChunkStock<Device> stock_{device_, layers_.share(300), chunk};
    Weights::Options options_;
    std::unique_ptr<Weights> weights_;
    std::vector<std::uint32_t> others_;
    std::uint64_t wrong_ = 0;
};

}  // namespace

TEST_CASE("random programs with failures lose nothing, leave nothing, and work again") {
    Tally tally;
    for (std::uint64_t seed = 1; seed <= 210; ++seed) {
        CAPTURE(seed);
        Device device{device_config()};
        bool may_hold = false;
        {
            Program program{device, seed, tally};
            program.run();
            may_hold = program.may_hold();
        }
        for (const auto& leak : device.leaks()) {
            if (!may_hold) { FAIL_CHECK("left: " << leak.what); }
        }
    }
    MESSAGE(tally.operations << " operations, " << tally.failures << " failed, " << tally.refused << " refused, "
                             << tally.launches << " launches, " << tally.budgets << " budgets, " << tally.made
                             << " made");
    CHECK(tally.failures > 150);
    CHECK(tally.launches > 30);
    CHECK(tally.budgets > 130);
    CHECK(tally.layouts > 60);
    CHECK(tally.made > 200);
}

TEST_CASE(
    "any call fails once in a resume or a change of the budget: afterwards every byte is right, in memory that is "
    "there") {
    using Change = Relayout::Change;
    using Next = Relayout::Next;
    std::uint64_t failed = 0;
    constexpr std::uint64_t stride =
        support::is_sanitized ? 4 : 1;  // then every call fails before some of what comes next
    for (const bool has_stock : {true, false}) {
        for (const auto change :
             {Change::resume, Change::resume_with_less, Change::resume_with_more, Change::less, Change::more}) {
            for (const auto next : {Next::pass, Next::bring_asleep, Next::budget_before, Next::suspend}) {
                bool is_reached = true;
                for (std::uint64_t nth = 1 + static_cast<std::uint64_t>(next) % stride; is_reached; nth += stride) {
                    CAPTURE(has_stock);
                    CAPTURE(static_cast<int>(change));
                    CAPTURE(static_cast<int>(next));
                    CAPTURE(nth);
                    Relayout relayout{has_stock};
                    bool has_failed = false;
                    is_reached = relayout.run(change, next, nth, 1, has_failed);
                    failed += has_failed ? 1U : 0U;
                }
            }
        }
    }
    MESSAGE(failed << " failed");
    CHECK(failed > (support::is_sanitized ? 75 : 300));
}

TEST_CASE("a change of budget or schedule that fails, and what undoes it fails too: nothing is unmapped under a copy") {
    std::uint64_t failed = 0;
    for (const bool has_stock : {true, false}) {
        for (const auto change : {Relayout::Change::less, Relayout::Change::more, Relayout::Change::order}) {
            for (const std::uint64_t in_a_row : {2U, 3U, 4U, 5U}) {
                bool is_reached = true;
                for (std::uint64_t nth = 1; is_reached; ++nth) {
                    CAPTURE(has_stock);
                    CAPTURE(static_cast<int>(change));
                    CAPTURE(in_a_row);
                    CAPTURE(nth);
                    Relayout relayout{has_stock};
                    const auto next = nth % 2 == 0 ? Relayout::Next::suspend : Relayout::Next::pass;
                    bool has_failed = false;
                    is_reached = relayout.run(change, next, nth, in_a_row, has_failed);
                    failed += has_failed ? 1U : 0U;
                }
            }
        }
    }
    MESSAGE(failed << " failed");
    CHECK(failed > 500);
}

TEST_CASE("10,000 mutations of packed bytes in host memory: right bytes, or those of an unpacker that refuses") {
    std::mt19937_64 random{7};
    Device device{device_config()};
    Layers layers{device, std::vector<Model::Spec>(40, {4090})};
    layers.steps.assign(4, {});
    for (std::uint32_t i = 0; i < 40; ++i) { layers.steps[i / 10].push_back(i); }
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    std::uint64_t mutations = 0, refused = 0, wrong = 0;
    for (const bool streams : {true, false}) {  // packed bytes come in each pass; they come when the memory is taken
        auto made = options(unpacker, layers.share(300), layers.schedule());
        if (streams) { made.budget = Budget::parse("0"); }
        auto weights = must(Weights::try_create(device, layers.model.packed.catalog, std::move(made)));
        std::vector<bool> is_changed(40, false), was_changed(40, false);  // copies ahead of a pass bring what was there
        while (mutations < (streams ? 9700U : 10'000U)) {
            must(weights.try_drain());
            if (!streams) { must(weights.try_suspend()); }
            std::vector<std::pair<std::byte*, std::byte>> before;
            was_changed = std::exchange(is_changed, {});
            for (const residency::Storage& storage : layers.model.packed.catalog.storages()) {
                is_changed.push_back(random() % 8 != 0);
                const auto& source = std::get<residency::PackedHostSource>(storage.source);
                const residency::PackedPart& part = source.parts->front();
                auto* const at = const_cast<std::byte*>(source.host->data() + source.offset_bytes + part.offset_bytes);
                for (std::uint64_t flips = is_changed.back() ? 1 + random() % 3 : 0; flips > 0; --flips) {
                    std::byte* const byte = at + random() % (random() % 3 == 0 ? 128 : part.packed_bytes);
                    before.emplace_back(byte, *byte);
                    *byte ^= static_cast<std::byte>(1 + random() % 255);
                }
                if (is_changed.back()) { ++mutations; }
            }
            if (!streams) { must(weights.try_resume()); }
            {
                auto pass = must(weights.try_begin(stream));
                for (const Schedule::Step& step : weights.schedule()) {
                    const auto lease = must(pass.try_acquire(step));
                    for (const WeightId id : step.weights) {
                        const std::span<const std::byte> expected = layers.model.contents[residency::index(id)];
                        Device::Kernel kernel;
                        kernel.reads = {{lease.data(id), expected.size()}};
                        kernel.body = [&wrong, &refused, at = lease.data(id), expected,
                                       changed =
                                           is_changed[residency::index(id)] || was_changed[residency::index(id)]] {
                            const std::span<const std::byte> bytes{at, expected.size()};
                            const bool is_right = std::equal(bytes.begin(), bytes.end(), expected.begin());
                            const bool is_refused = std::all_of(bytes.begin(), bytes.end(),
                                                                [](std::byte byte) { return byte == std::byte{0xDB}; });
                            refused += is_refused ? 1U : 0U;
                            wrong += is_right || (is_refused && changed) ? 0U : 1U;
                        };
                        must(device.launch(stream, std::move(kernel)));
                    }
                }
                must(pass.try_end());
            }
            must(weights.try_drain());
            std::reverse(before.begin(), before.end());  // a byte may have been changed twice
            for (const auto& [byte, was] : before) { *byte = was; }
        }
        must(weights.try_suspend());
        must(weights.try_resume());
        run_pass(device, layers.model, weights, stream, wrong);
        must(weights.try_drain());
    }
    CHECK(wrong == 0);
    CHECK(refused > mutations * 3 / 4);
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

}  // namespace faults_test

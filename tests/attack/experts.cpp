// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/attack/experts.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "residency/model/catalog_builder.hpp"
#include "residency/packed/pack.hpp"
#include "tests/attack/failed.hpp"

namespace attack {

using namespace residency;

Experts::Experts(Device& device, Random& random) : device_{device} {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    is_packed_ = below(3) == 0;
    const bool are_equal = below(3) != 0;
    const std::uint64_t values = 100 + below(3000);
    std::uint64_t total = 1;
    for (std::uint64_t layer = 1 + below(3); layer > 0; --layer) {
        content_.emplace_back();
        for (std::uint64_t expert = 1 + below(10); expert > 0; --expert) {
            std::vector<std::byte> bytes(static_cast<std::size_t>(2 * (are_equal ? values : 1 + below(values))));
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                bytes[i] = static_cast<std::byte>(random() >> 40U);
                if (is_packed_ && i % 2 == 1) { bytes[i] = std::byte{0x3c}; }
            }
            total += (bytes.size() + 255) / 256 * 256;
            content_.back().push_back(std::move(bytes));
        }
    }
    const auto memory = device.allocate_host(total);
    if (!memory) { failed("pinned memory", memory.error().message()); }
    host_ = HostBytes::adopt(static_cast<std::byte*>(*memory), total, HostMemory::pinned,
                             [&device](std::byte* at) { static_cast<void>(device.deallocate_host(at).has_value()); });
    CatalogBuilder builder;
    std::uint64_t at = 0;
    std::uint32_t id = 0;
    for (const auto& layer : content_) {
        experts_.emplace_back();
        for (const std::vector<std::byte>& bytes : layer) {
            std::memcpy(static_cast<std::byte*>(*memory) + at, bytes.data(), bytes.size());
            builder.add("e" + std::to_string(id), dtype::bf16, {bytes.size() / 2}, HostSource{host_, at});
            at += (bytes.size() + 255) / 256 * 256;
            experts_.back().push_back(WeightId{id++});
        }
    }
    auto catalog = builder.try_build();
    if (!catalog) { failed("a catalog of experts", catalog.error().message()); }
    catalog_ = std::move(*catalog);
    if (is_packed_) {
        auto packed = packed::try_pack(device, catalog_, {{}, 1});
        if (!packed) { failed("experts that are packed", packed.error().message()); }
        catalog_ = std::move(packed->catalog);
    }
    const auto stream = device.create_stream();
    const auto choices = device.allocate(most_choices * sizeof(std::int32_t));
    const auto staged = device.allocate_host(most_choices * sizeof(std::int32_t));
    if (!stream || !choices || !staged) { failed("memory for choices"); }
    stream_ = *stream;
    choices_ = static_cast<std::int32_t*>(*choices);
    staged_ = static_cast<std::int32_t*>(*staged);
    own_bytes_ = device.allocation_granularity();
}

Experts::~Experts() {
    cache_.reset();
    static_cast<void>(device_.synchronize().has_value());
    static_cast<void>(device_.deallocate(choices_).has_value());
    static_cast<void>(device_.deallocate_host(staged_).has_value());
    static_cast<void>(device_.destroy_stream(stream_).has_value());
}

void Experts::refused(const char* what, const Error& error) const {
    if (!may_fail_) { failed(what, error.message()); }
}

void Experts::operate(Random& random, bool may_fail, const Allow& allow) {
    may_fail_ = may_fail_ || may_fail;
    if (!cache_) { return construct(random, allow); }
    switch (random() % 12) {
        case 0: return set_budget(random, allow);
        case 1: return prefill(random);
        case 2:
            if (random() % 6 == 0) { cache_.reset(); }
            return;
        default: return serve(random);
    }
}

void Experts::construct(Random& random, const Allow& allow) {
    Cache::Options options;
    options.budget = Budget::bytes(0);
    options.server = &server_;
    options.choices = most_choices;
    options.pool.chunk_bytes = 4096;
    options.read_in_place = random() % 3 == 0 && !is_packed_;
    allow(own_bytes_ + catalog_.total_bytes() * 2 +
          (std::uint64_t{1} << 17U));  // the smallest budget is not known before
    auto made = Cache::try_create(device_, catalog_, experts_, options);
    if (!made) { return refused("a cache of experts", made.error()); }
    cache_.emplace(std::move(*made));
}

void Experts::set_budget(Random& random, const Allow& allow) {
    const ResolvedBudget before = cache_->budget();
    const std::uint64_t wanted = random() % (before.total_bytes + before.total_bytes / 8 + 1);
    allow(own_bytes_ + (std::max)(wanted, before.floor_bytes));  // also where the change fails in the middle
    const auto changed = cache_->try_set_budget(Budget::bytes(wanted));
    if (changed) { return; }
    if (cache_->budget().bytes != before.bytes) { failed("a refused budget of experts is in force"); }
    if (changed.error().kind() == ErrorKind::budget && wanted < before.floor_bytes) { return; }
    refused("a budget of experts", changed.error());
}

bool Experts::is_at(const std::byte* at, std::uint32_t layer, std::uint32_t expert) const {
    const std::vector<std::byte>& expected = content_[layer][expert];
    return at != nullptr && std::memcmp(at, expected.data(), expected.size()) == 0;
}

template <class Count>
void Experts::read(Count wrong) {
    Device::Kernel kernel;
    kernel.name = "products";
    kernel.body = [this, wrong = std::move(wrong)] {
        wrong_ += wrong();
        ++ran_;
    };
    if (auto launched = device_.launch(stream_, std::move(kernel)); !launched) {
        refused("a kernel that reads experts", launched.error());
    }
}

void Experts::serve(Random& random) {
    const auto layer = static_cast<std::uint32_t>(random() % experts_.size());
    const auto count = static_cast<std::uint32_t>(1 + random() % most_choices);
    std::vector<std::int32_t> chosen(count);
    for (std::int32_t& each : chosen) {
        each = random() % 9 == 0 ? -1 : static_cast<std::int32_t>(random() % experts_[layer].size());
    }
    const std::uint64_t guess = random() % 3;
    // The memory of the choices is read by what runs.
    if (auto idle = device_.synchronize(); !idle) { return refused("synchronize", idle.error()); }
    if (auto written = device_.host_write(staged_, chosen.size() * sizeof(std::int32_t)); !written) {
        return refused("choices", written.error());
    }
    std::memcpy(staged_, chosen.data(), chosen.size() * sizeof(std::int32_t));
    const Copy copy{choices_, staged_, chosen.size() * sizeof(std::int32_t)};
    if (auto copied = device_.copy({&copy, 1}, stream_); !copied) { return refused("choices", copied.error()); }
    const auto served = cache_->try_serve(layer, {choices_, count}, stream_);
    if (!served) { return refused("experts to serve", served.error()); }
    read([this, layer, chosen, served = *served] {
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            const std::byte* const at = served.addresses[i];
            const bool is_right = chosen[i] < 0 ? at == nullptr && served.slots[i] == -1
                                                : is_at(at, layer, static_cast<std::uint32_t>(chosen[i]));
            wrong += is_right ? 0U : 1U;
        }
        return wrong;
    });
    if (guess != 0) { return; }
    // What is guessed is a number of any layer that has it.
    const auto next = static_cast<std::uint32_t>((layer + 1) % experts_.size());
    const bool fits = std::ranges::all_of(
        chosen, [&](std::int32_t each) { return each < static_cast<std::int32_t>(experts_[next].size()); });
    if (!fits) { return; }
    if (auto guessed = cache_->try_guess(next, {choices_, count}, stream_); !guessed) {
        refused("a guess", guessed.error());
    }
    if (auto joined = cache_->try_join(stream_); !joined) { refused("the end of guesses", joined.error()); }
}

Status Experts::run_prefill(std::uint32_t ring) {
    if (auto begun = cache_->try_begin_prefill(ring); !begun) { return begun; }
    for (std::uint32_t layer = 0; layer < experts_.size(); ++layer) {
        for (std::uint32_t group = 0; group < cache_->prefill_groups(layer); ++group) {
            const auto there = cache_->try_acquire(layer, group, stream_);
            if (!there) { return there.error(); }
            read([this, layer, there = *there] {
                std::uint64_t wrong = 0;
                for (std::uint32_t i = there.first; i < there.last; ++i) {
                    wrong += is_at(there.addresses[i], layer, i) ? 0U : 1U;
                }
                return wrong;
            });
        }
    }
    return {};
}

void Experts::prefill(Random& random) {
    if (auto done = run_prefill(static_cast<std::uint32_t>(random() % 8)); !done) {
        refused("a prefill", done.error());
    }
    if (auto ended = cache_->try_end_prefill(); !ended) { refused("the end of a prefill", ended.error()); }
}

std::optional<std::uint64_t> Experts::held_bytes() {
    if (!cache_) { return own_bytes_; }
    const auto statistics = cache_->try_statistics();
    if (!statistics) {
        refused("the statistics of experts", statistics.error());
        return std::nullopt;
    }
    return own_bytes_ + statistics->held_bytes;
}

void Experts::recover(Random& random) {
    if (cache_) {
        static_cast<void>(cache_->try_end_prefill().has_value());
        static_cast<void>(cache_->try_statistics().has_value());  // what failed before is said once
    }
    may_fail_ = false;
    if (cache_ && cache_->pending_bytes() != 0) { failed("bytes of experts are pending, and everything is complete"); }
    if (!cache_) {
        construct(random, [](std::uint64_t) {});
    }
    for (int i = 0; i < 4; ++i) { serve(random); }
    prefill(random);
    for (int i = 0; i < 2; ++i) { serve(random); }
    if (auto idle = device_.synchronize(); !idle) { failed("synchronize", idle.error().message()); }
    collect();
}

void Experts::collect() const {
    if (wrong_ != 0) { failed("a kernel read wrong bytes of an expert"); }
}

}  // namespace attack

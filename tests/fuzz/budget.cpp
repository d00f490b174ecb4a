// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/budget/budget.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "../support/fuzz.hpp"
#include "residency/error.hpp"

namespace {

using namespace residency;
using support::fuzz_failed;

/// A budget of bytes or of the weights, such that a larger whole has no smaller share and no part of it is more than it.
void check_shares(const Budget& budget, std::uint64_t whole) {
    const std::uint64_t share = budget.share_of(whole), next = budget.share_of(whole + (whole < UINT64_MAX ? 1 : 0));
    if (share > next) { fuzz_failed("a larger whole has a smaller share", budget.text()); }
    if (budget.amount() < 100 && share > whole) { fuzz_failed("a part is more than the whole", budget.text()); }
    if (budget.amount() >= 100 && share < whole) { fuzz_failed("all is less than the whole", budget.text()); }
}

void check_resolved(const Budget& budget, const BudgetContext& context, BudgetOrigin origin) {
    const auto resolved = budget.try_resolve(context, origin);
    if (!resolved) {
        support::check_message(resolved.error());
        if (resolved.error().kind() != ErrorKind::budget || resolved.error().detail<BudgetNumbers>() == nullptr) {
            fuzz_failed("an error without numbers", resolved.error().message());
        }
        return;
    }
    if (resolved->bytes < resolved->floor_bytes || resolved->bytes > resolved->total_bytes) {
        fuzz_failed("a budget is not between the floor and the total", resolved->text);
    }
    const bool may_be_more =
        budget.is_zero() || budget.kind() == BudgetKind::automatic || origin == BudgetOrigin::automatic;
    if (resolved->bytes > resolved->asked_bytes && !may_be_more) {
        fuzz_failed("more than was asked for", resolved->text);
    }
}

}  // namespace

/// A budget in the first line; then, in decimal, what it is resolved against.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    support::with_copy(data, bytes, [](std::span<const std::byte> copy) {
        const std::string_view all = support::text_of(copy);
        const std::string_view text = all.substr(0, all.find('\n'));
        const auto budget = Budget::try_parse(text);
        if (!budget) {
            support::check_message(budget.error());
            if (budget.error().kind() != ErrorKind::malformed) { fuzz_failed("not malformed", std::string{text}); }
            const auto* place = budget.error().detail<FileLocation>();
            if (place->offset > text.size()) { fuzz_failed("a place behind the text", std::string{text}); }
            return;
        }
        const auto again = Budget::try_parse(budget->text());
        if (!again || *again != *budget) { fuzz_failed("a budget does not come back from its text", budget->text()); }

        std::array<std::uint64_t, 9> numbers{};
        const char* at = all.data() + std::min(all.size(), text.size() + 1);
        for (std::uint64_t& number : numbers) {
            const auto parsed = std::from_chars(at, all.data() + all.size(), number);
            at = std::min(parsed.ptr + 1, all.data() + all.size());
        }
        if (budget->kind() == BudgetKind::percent_of_weights || budget->kind() == BudgetKind::percent_of_free) {
            check_shares(*budget, numbers[0]);
        }
        BudgetContext context;
        context.streamed_bytes = numbers[0];
        context.resident_bytes = numbers[1];
        context.everything_bytes = numbers[2];
        context.resident_from_bytes = numbers[3];
        context.floor_bytes = numbers[4];
        context.floor_step_bytes = numbers[5];
        if (numbers[6] != 0) { context.free_device_bytes = numbers[6]; }
        context.reserve_bytes = numbers[7];
        context.granularity_bytes = std::max<std::uint64_t>(numbers[8], 1);
        for (const auto origin : {BudgetOrigin::load_time, BudgetOrigin::stored, BudgetOrigin::automatic}) {
            check_resolved(*budget, context, origin);
        }
    });
    return 0;
}

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "residency/broker/ledger.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// The right of the user's own memory, such as a KV cache or activations, to part of a BudgetBroker's total: what is taken may be
/// allocated. It allocates nothing itself; interop/memory_resource.hpp takes and allocates in one. Thread safe. Its end gives
/// everything back. A move empties its source.
class [[nodiscard]] MemoryClient {
public:
    MemoryClient() noexcept = default;
    /// Made by BudgetBroker.
    MemoryClient(std::shared_ptr<Ledger> ledger, Ledger::Id id) noexcept : handle_{std::move(ledger), id} {}

    /// Never blocks. Takes the right to allocate `bytes` more, from what is granted or free. Error budget, with the numbers;
    /// then the bytes are wanted: models give them back at their pass ends, and a later try succeeds.
    [[nodiscard]] Status try_take(std::uint64_t bytes) { return ledger().take(handle_.id(), bytes); }
    /// Gives back bytes that were taken and are no longer allocated. Withdraws what was refused. Precondition: at least `bytes` were taken.
    void give_back(std::uint64_t bytes) noexcept { ledger().put_back(handle_.id(), bytes); }
    /// Counts bytes that are allocated already, whether there is room or not. False: they exceed the total; give them back.
    [[nodiscard]] bool charge(std::uint64_t bytes) noexcept { return ledger().charge(handle_.id(), bytes); }
    /// Wants `bytes` in all, ahead of their use. 0: what is used, and the headroom. Withdraws what was refused.
    void ask(std::uint64_t bytes) { ledger().ask(handle_.id(), bytes); }
    /// Bytes that others wait for. Nothing takes them away: the owner gives them back when it can.
    [[nodiscard]] std::uint64_t asked_back_bytes() const { return account().asked_back_bytes(); }
#if RESIDENCY_EXCEPTIONS
    /// As try_take(), but throws Exception.
    void take(std::uint64_t bytes) { unwrap(try_take(bytes)); }
#endif
    /// What the client has now.
    [[nodiscard]] Account account() const { return ledger().account(handle_.id()); }

private:
    [[nodiscard]] Ledger& ledger() const noexcept {
        RESIDENCY_ASSERT(handle_.state() != nullptr, "this client was moved from: use the one that it was moved to");
        return *handle_.state();
    }

    detail::ClientHandle handle_;
};

}}}  // namespace residency::RESIDENCY_ABI::broker

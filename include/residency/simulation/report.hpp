// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/simulation/operation_kind.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// What the checker found.
enum class ReportKind : std::uint8_t {
    unordered,      ///< two accesses of the same bytes, at least one of them a write, and nothing orders them
    uninitialised,  ///< a read of bytes that nothing has written since they were allocated
    dead_memory,    ///< an access of bytes that are freed, unmapped, or outside of any allocation
    misuse,  ///< a call that is wrong whatever the order: a dead or foreign handle, a double free, work lost in a capture
};

/// An operation as a report names it.
struct OperationInfo {
    std::string stream;                          ///< "host" for what the host does itself
    std::string name;                            ///< the kernel's, or what the operation is
    OperationKind kind = OperationKind::kernel;  ///< what it does
    std::uint64_t sequence = 0;                  ///< position in the order of all calls; 0: there is no such operation
};

/// One finding of the checker: it names the operations at fault, and says in words what is missing between them.
struct Report {
    ReportKind kind = ReportKind::misuse;  ///< what is wrong
    OperationInfo first;                   ///< the one called earlier; sequence 0: there is only one
    OperationInfo second;                  ///< the one called later
    const void* at = nullptr;              ///< first byte concerned, as the second operation addresses it
    std::uint64_t bytes = 0;               ///< that are concerned
    std::string text;                      ///< the finding in words, with the wait that is missing
};

}}}  // namespace residency::RESIDENCY_ABI::simulation

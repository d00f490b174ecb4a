// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "residency/config.hpp"

// The nodes of a machine with several memories (NUMA): copies from the node that a GPU is attached to do not cross the machine.

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Nodes that are asked for are below.
inline constexpr unsigned most_memory_nodes = 1024;

/// The node that a PCI device such as "0000:3b:00.0" is attached to. None: the system does not say. `root` is put before /sys.
[[nodiscard]] inline std::optional<unsigned> memory_node_of_pci(const std::string& address,
                                                                const std::string& root = "") {
    std::FILE* const file = std::fopen((root + "/sys/bus/pci/devices/" + address + "/numa_node").c_str(), "re");
    if (file == nullptr) { return std::nullopt; }
    int node = -1;  // what the system says where it does not know
    const bool is_read = std::fscanf(file, "%d", &node) == 1;
    std::fclose(file);
    if (!is_read || node < 0 || node >= static_cast<int>(most_memory_nodes)) { return std::nullopt; }
    return static_cast<unsigned>(node);
}

/// Asks that pages of [at, at + bytes) that are touched from now on are taken on that node while it has room. False: the system refuses,
/// as in a container without the right to. Precondition: `at` begins a page.
inline bool prefer_memory_node(void* at, std::uint64_t bytes, unsigned node) noexcept {
    constexpr unsigned bits = 8 * sizeof(unsigned long);
    unsigned long nodes[most_memory_nodes / bits] = {};
    nodes[node / bits] = 1UL << node % bits;
    return syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, nodes, most_memory_nodes + 1UL, 0U) == 0;
}

/// The node on which the page of a byte lies; a page that is missing is made. None: the system does not say, or refuses. Precondition:
/// the byte can be read.
[[nodiscard]] inline std::optional<unsigned> memory_node_at(const void* at) noexcept {
    int node = -1;
    const auto flags = static_cast<unsigned long>(MPOL_F_NODE | MPOL_F_ADDR);
    if (syscall(SYS_get_mempolicy, &node, nullptr, 0UL, at, flags) != 0 || node < 0) { return std::nullopt; }
    return static_cast<unsigned>(node);
}

/// The node that a device is attached to. None: it does not say.
template <class D>
[[nodiscard]] std::optional<unsigned> memory_node_of(const D& device) {
    if constexpr (requires { device.memory_node(); }) {
        return device.memory_node();
    } else {
        return std::nullopt;
    }
}

}}}  // namespace residency::RESIDENCY_ABI::detail

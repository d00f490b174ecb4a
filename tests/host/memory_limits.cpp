// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/host/memory_limits.hpp"

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "../support/files.hpp"

using namespace residency;

namespace {

class System : public support::TemporaryFolder {
public:
    void put(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories(std::filesystem::path{file(name)}.parent_path());
        write(name, text);
    }
};

}  // namespace

TEST_CASE("memory limits: those of this machine can be read") {
    const auto limits = host::read_memory_limits();
    CHECK(limits.room_bytes() > 0);
    CHECK(limits.room_bytes() <= limits.available_bytes);
    CHECK(limits.text().find("RLIMIT_MEMLOCK") != std::string::npos);
}

TEST_CASE("memory limits: without files nothing binds") {
    const System system;
    const auto limits = host::read_memory_limits(system.file(""));
    CHECK(limits.available_bytes == UINT64_MAX);
    CHECK(limits.room_bytes() == UINT64_MAX);
    CHECK_FALSE(limits.group_limit_bytes);
}

TEST_CASE("memory limits: control groups of version 2, the one with least room binds") {
    const System system;
    system.put("proc/meminfo", "MemTotal:       2000 kB\nMemAvailable:   1000 kB\nOther: 1\n");
    system.put("proc/self/cgroup", "0::/a/b\n");
    system.put("sys/fs/cgroup/a/b/memory.max", "max\n");
    system.put("sys/fs/cgroup/a/memory.max", "900000\n");
    system.put("sys/fs/cgroup/a/memory.current", "500000\n");
    system.put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 200000\n");
    system.put("sys/fs/cgroup/memory.max", "5000000\n");
    system.put("sys/fs/cgroup/memory.current", "5000\n");
    const auto limits = host::read_memory_limits(system.file("."));
    CHECK(limits.available_bytes == 1000 * 1024);
    CHECK(limits.group_limit_bytes == 900000);
    CHECK(limits.group_used_bytes == 300000);
    CHECK(limits.room_bytes() == 600000);
    CHECK(limits.group.ends_with("/a"));
    CHECK(limits.text().find("900000") != std::string::npos);
    system.put("sys/fs/cgroup/a/memory.current", "99900000\n");
    CHECK(host::read_memory_limits(system.file(".")).room_bytes() == 0);
}

TEST_CASE("memory limits: control groups of version 1, seen from inside a container") {
    const System system;
    system.put("proc/meminfo", "MemAvailable: 1000 kB\n");
    system.put("proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/1234\n");
    system.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
    system.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
    system.put("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 50000\n");
    CHECK(host::read_memory_limits(system.file(".")).room_bytes() == 350000);
    system.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(host::read_memory_limits(system.file(".")).room_bytes() == 1000 * 1024);
}

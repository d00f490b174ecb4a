// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/device/memory_limits.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "../support/files.hpp"
#include "residency/error.hpp"

namespace memory_limits_test {

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
    CHECK(limits.text().find("900,000 bytes") != std::string::npos);
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

TEST_CASE("memory limits: pages of files can be dropped, read once or twice") {
    const System system;
    system.put("proc/meminfo", "MemAvailable: 8000 kB\n");
    system.put("proc/self/cgroup", "0::/\n");
    system.put("sys/fs/cgroup/memory.max", "1000000\n");
    system.put("sys/fs/cgroup/memory.current", "900000\n");
    for (const char* stat : {"anon 50000\nfile 850000\nactive_file 800000\ninactive_file 50000\n",
                             "anon 50000\nfile 850000\ninactive_file 800000\nactive_file 50000\n",
                             "workingset_activate_file 7\nactive_file 850000\nactive_file_other 9\n"}) {
        system.put("sys/fs/cgroup/memory.stat", stat);
        const auto limits = host::read_memory_limits(system.file("."));
        CHECK(limits.group_used_bytes == 50000);
        CHECK(limits.room_bytes() == 950000);
    }
    // The counts are not of one moment: more pages than bytes used leave the whole limit.
    system.put("sys/fs/cgroup/memory.stat", "active_file 18446744073709551615\ninactive_file 900000\n");
    CHECK(host::read_memory_limits(system.file(".")).room_bytes() == 1000000);
    // Version 1 counts the groups below in its totals.
    const System first;
    first.put("proc/meminfo", "MemAvailable: 8000 kB\n");
    first.put("proc/self/cgroup", "4:memory:/job\n");
    first.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
    first.put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "990000\n");
    first.put("sys/fs/cgroup/memory/job/memory.stat",
              "active_file 1\ninactive_file 2\ntotal_inactive_file 40000\ntotal_active_file 900000\n");
    CHECK(host::read_memory_limits(first.file(".")).room_bytes() == 950000);
}

TEST_CASE("memory limits: memory.high is a limit, of the group or of one above it") {
    const System system;
    system.put("proc/meminfo", "MemAvailable: 8000 kB\n");
    system.put("proc/self/cgroup", "0::/user/job\n");
    system.put("sys/fs/cgroup/user/job/memory.max", "max\n");
    system.put("sys/fs/cgroup/user/job/memory.high", "320000\n");
    system.put("sys/fs/cgroup/user/job/memory.current", "200000\n");
    const auto room = [&] { return host::read_memory_limits(system.file(".")).room_bytes(); };
    CHECK(room() == 120000);
    system.put("sys/fs/cgroup/user/job/memory.max", "300000\n");
    CHECK(room() == 100000);
    system.put("sys/fs/cgroup/user/job/memory.high", "max\n");
    CHECK(room() == 100000);
    // The group above has its own use and its own pages of files.
    system.put("sys/fs/cgroup/user/memory.high", "700000\n");
    system.put("sys/fs/cgroup/user/memory.current", "690000\n");
    system.put("sys/fs/cgroup/user/memory.stat", "active_file 20000\ninactive_file 30000\n");
    CHECK(room() == 60000);
    CHECK(host::read_memory_limits(system.file(".")).group.ends_with("/user"));
    // A group that is over its soft limit has no room left.
    system.put("sys/fs/cgroup/user/job/memory.high", "100000\n");
    CHECK(room() == 0);
}

TEST_CASE("memory limits: a group of version 1 above binds") {
    const System system;
    system.put("proc/meminfo", "MemAvailable: 8000 kB\n");
    system.put("proc/self/cgroup", "4:memory:/jobs/one\n");
    system.put("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "9223372036854771712\n");
    system.put("sys/fs/cgroup/memory/jobs/one/memory.usage_in_bytes", "5000\n");
    system.put("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "600000\n");
    system.put("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "550000\n");
    system.put("sys/fs/cgroup/memory/jobs/memory.stat", "total_active_file 100000\n");
    const auto limits = host::read_memory_limits(system.file("."));
    CHECK(limits.room_bytes() == 150000);
    CHECK(limits.group.ends_with("/jobs"));
}

TEST_CASE("memory limits: what has no room is refused with the limit that binds, and what to do") {
    host::MemoryLimits limits{1000, 500, 100, "/some/group", std::nullopt};
    CHECK(limits.check_room(400, "weights"));
    const Status beyond = limits.check_room(401, "weights", ", or load less");
    REQUIRE_FALSE(beyond);
    CHECK(beyond.error().kind() == ErrorKind::out_of_memory);
    CHECK(beyond.error().message() ==
          "the host has no room for weights: 401 bytes needed, 1,000 bytes of memory available, the control group "
          "/some/group has used 100 bytes of its limit of 500 bytes, RLIMIT_MEMLOCK is unlimited: raise the limit of "
          "that "
          "group (memory.max or memory.high; of a container: --memory), or load less");
    REQUIRE(beyond.error().detail<DeviceFailure>() != nullptr);
    limits.available_bytes = 300;  // the machine has less than the group may take
    CHECK(limits.check_room(300, "weights"));
    CHECK(limits.check_room(301, "weights").error().message().ends_with(": end what else uses memory"));
    CHECK(host::MemoryLimits{}.check_room(UINT64_MAX, "weights"));
}

TEST_CASE("memory limits: where memory is not pinned, a limit on locked memory is one that can be raised") {
    const Error error{ErrorKind::device, "no"};
    host::MemoryLimits limits{1000, std::nullopt, 0, {}, std::nullopt};
    CHECK(limits.not_pinned(error) ==
          "the memory cannot be pinned: no; 1,000 bytes of memory available, RLIMIT_MEMLOCK is unlimited");
    limits.locked_bytes = 64;
    CHECK(limits.not_pinned(error).ends_with(
        "RLIMIT_MEMLOCK is 64 bytes: raise that limit (ulimit -l unlimited; of a container: --ulimit memlock=-1)"));
}

}  // namespace memory_limits_test

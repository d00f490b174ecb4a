// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "residency/device/cuda.hpp"
#include "residency/device/cuda_error.hpp"
#include "tests/gpu/support.hpp"

extern char** environ;

int gpu::lose_device() {
    auto device = residency::CudaDevice::try_open(0);
    if (!device) { return 2; }
    auto stream = device->create_stream();
    auto event = device->create_event(residency::Timing::off);
    if (!stream || !event || device->is_lost()) { return 3; }
    if (gpu::launch_bad_write(*stream) != cudaSuccess) { return 4; }
    const auto waited = device->synchronize(*stream);
    if (waited || waited.error().kind() != residency::ErrorKind::device) { return 5; }
    if (waited.error().message().find("lost") == std::string::npos || !device->is_lost()) { return 6; }
    const auto* failure = waited.error().detail<residency::DeviceFailure>();
    if (failure == nullptr || !residency::detail::is_lost_device(failure->code)) { return 7; }
    // Everything else fails too, with the same message, and destruction touches nothing.
    const auto complete = device->is_complete(*event);
    const auto allocated = device->allocate(1024);
    if (complete || allocated || allocated.error().message().find("lost") == std::string::npos) { return 8; }
    std::printf("%s\n", waited.error().message().c_str());
    return 0;
}

TEST_CASE("a lost device is named as such") {
    std::string self = "/proc/self/exe";
    std::string argument{gpu::lost_device_argument};
    char* arguments[] = {self.data(), argument.data(), nullptr};
    pid_t child = 0;
    REQUIRE(posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments, environ) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <utility>

#include "residency/error.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Whether a code means that the device's context is broken for the rest of the process, so that every later call fails too.
[[nodiscard]] constexpr bool is_lost_device(int code) noexcept {
    switch (code) {
        case 53:   // cudaErrorPriorLaunchFailure
        case 214:  // cudaErrorECCUncorrectable
        case 220:  // cudaErrorNvlinkUncorrectable
        case 226:  // cudaErrorContained
        case 700:  // cudaErrorIllegalAddress
        case 702:  // cudaErrorLaunchTimeout
        case 709:  // cudaErrorContextIsDestroyed
        case 710:  // cudaErrorAssert
        case 714:  // cudaErrorHardwareStackError
        case 715:  // cudaErrorIllegalInstruction
        case 716:  // cudaErrorMisalignedAddress
        case 717:  // cudaErrorInvalidAddressSpace
        case 718:  // cudaErrorInvalidPc
        case 719:  // cudaErrorLaunchFailure
        case 721:  // cudaErrorTensorMemoryLeak
        case 810:  // cudaErrorMpsClientTerminated
        case 911:  // cudaErrorExternalDevice
        case 999:  // cudaErrorUnknown
            return true;
        default: return false;
    }
}

/// What to do about a code. Empty: the code's own name says it.
[[nodiscard]] constexpr const char* cuda_advice(int code) noexcept {
    switch (code) {
        case 2: return "free memory, or ask for less";
        case 46: return "another process holds the GPU for itself, or its compute mode forbids more: see nvidia-smi";
        case 214:
        case 220:
        case 226: return "the GPU's own memory or links failed: see nvidia-smi -q and dmesg, and restart";
        case 810: return "the MPS server or another client of it failed: restart it, and this process";
        case 911: return "a device beside this one failed: see dmesg, and restart";
        case 999: return "the driver failed: see dmesg; its kernel module may have to be loaded again";
        case 4: return "the process is ending: destroy what uses the device before that";
        case 35: return "install a newer NVIDIA driver, or build with the CUDA toolkit that this one supports";
        case 36: return "install a newer NVIDIA driver";
        case 100: return "no NVIDIA GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES";
        case 101: return "no GPU has this ordinal: check CUDA_VISIBLE_DEVICES";
        case 400:
        case 709:  // of a stream that was destroyed, or after cudaDeviceReset
            return "the stream or event is not valid: it was destroyed, or is of another device or context: pass a "
                   "stream of this device that lives until the last lease on it has ended";
        case 712: return "these bytes are pinned already: pin each range once";
        case 713: return "these bytes are not pinned";
        case 801: return "this GPU or driver cannot do it";
        case 900: return "the call is not allowed during a stream capture";
        case 901: return "an earlier error has invalidated the capture: end it and capture again";
        case 904: return "a stream forked from the capture was not joined: wait on an event of it before the end";
        case 905: return "the event was recorded outside of the capture";
        case 907: return "the event was recorded in a capture and means nothing outside of it";
        case 908: return "end the capture in the thread that began it";
        default: break;
    }
    return is_lost_device(code) ? "the device is lost for this process: run under compute-sanitizer to find the kernel "
                                  "at fault, and restart"
                                : "";
}

/// The library's kind of error for a code.
[[nodiscard]] constexpr ErrorKind cuda_error_kind(int code) noexcept {
    switch (code) {
        case 1: return ErrorKind::invalid_argument;
        case 2: return ErrorKind::out_of_memory;
        case 35:
        case 36:
        case 801: return ErrorKind::unsupported;
        case 101: return ErrorKind::invalid_argument;
        case 900:
        case 901:
        case 902:
        case 903:
        case 904:
        case 905:
        case 906:
        case 907:
        case 908: return ErrorKind::wrong_state;
        default: return ErrorKind::device;
    }
}

/// The error of a failed call. `bytes`: what was asked for; 0: nothing. Driver codes equal the runtime's for all that are named here.
[[nodiscard]] inline Error cuda_error(int code, const char* call, std::uint64_t bytes = 0) {
    const auto runtime_code = static_cast<cudaError_t>(code);
    std::string message = call;
    if (bytes != 0) { message += " of " + residency::detail::in_bytes(bytes); }
    message += std::string{": "} + cudaGetErrorName(runtime_code) + " (" + std::to_string(code) +
               "): " + cudaGetErrorString(runtime_code);
    if (const char* advice = cuda_advice(code); *advice != '\0') { message += std::string{"; "} + advice; }
    return {cuda_error_kind(code), std::move(message), DeviceFailure{code, call, bytes}};
}

}}}  // namespace residency::RESIDENCY_ABI::detail

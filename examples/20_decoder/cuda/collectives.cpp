// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives.hpp"

#include <string>
#include <thread>

#include "examples/support/cuda_backend.hpp"
#include "residency/error.hpp"

#ifdef WITH_NCCL
#include <nccl.h>
#endif

namespace decoder {

using residency::ErrorKind;

#ifdef WITH_NCCL
namespace {

void check_nccl(ncclResult_t code, const char* what) {
    if (code != ncclSuccess) {
        residency::throw_error({ErrorKind::device, std::string{"NCCL: "} + what + ": " + ncclGetErrorString(code) +
                                                       "; NCCL_DEBUG=WARN says more"});
    }
}

class Nccl final : public Communicator {
public:
    explicit Nccl(ncclComm_t handle) : handle_{handle} {}
    ~Nccl() override {
        if (!aborting_.joinable()) { static_cast<void>(ncclCommDestroy(handle_)); }
    }
    void launch(const Sum& o, cudaStream_t stream) override {
        check_nccl(ncclAllReduce(o.data, o.data, o.count, ncclBfloat16, ncclSum, handle_, stream), "the sum");
    }
    void launch(const Gather& o, cudaStream_t stream) override {
        check_nccl(ncclAllGather(o.logits + o.rank * o.count, o.logits, o.count, ncclFloat32, handle_, stream),
                   "gathering the logits");
    }
    void check() const override {
        ncclResult_t since = ncclSuccess;
        check_nccl(ncclCommGetAsyncError(handle_, &since), "asking for errors");
        check_nccl(since, "between GPUs");
    }
    /// In a thread: NCCL waits there until no graph has the communicator any more.
    void abort() noexcept override {
        if (aborting_.joinable()) { return; }
        aborting_ = std::jthread{[handle = handle_] { static_cast<void>(ncclCommAbort(handle)); }};
    }

private:
    ncclComm_t handle_;
    std::jthread aborting_;
};

}  // namespace
#endif

std::vector<std::unique_ptr<Communicator>> connect(std::uint32_t count) {
    int there = 0;
    examples::check(cudaGetDeviceCount(&there), "the number of GPUs");
    if (there < int(count)) {
        residency::throw_error({ErrorKind::unsupported, "--gpus " + std::to_string(count) + ": this process sees " +
                                                            std::to_string(there) +
                                                            ": give no more, and check CUDA_VISIBLE_DEVICES"});
    }
#ifdef WITH_NCCL
    std::vector<ncclComm_t> handles(count);
    check_nccl(ncclCommInitAll(handles.data(), int(count), nullptr), "connecting the GPUs");
    std::vector<std::unique_ptr<Communicator>> all;
    for (const ncclComm_t handle : handles) { all.push_back(std::make_unique<Nccl>(handle)); }
    return all;
#else
    residency::throw_error(
        {ErrorKind::unsupported,
         "--gpus " + std::to_string(count) +
             ": this program was built without NCCL, which adds up what GPUs have: install libnccl-dev of NVIDIA or "
             "Debian, or nvidia-nccl-cu13 of PyPI, name its folder with include/ and lib/ in CMAKE_PREFIX_PATH, and "
             "build again"});
#endif
}

}  // namespace decoder

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Stands in for ExecuTorch's libextension_cuda.so (1.5: extension/cuda/caller_stream.h): the same names and layouts.
#include <optional>

#pragma GCC visibility push(default)  // as ExecuTorch exports them

struct CUstream_st;

namespace executorch::extension::cuda {

namespace {
thread_local std::optional<CUstream_st*> chosen;
}  // namespace

std::optional<CUstream_st*> getCallerStream() { return chosen; }

class CallerStreamGuard {
public:
    explicit CallerStreamGuard(CUstream_st* stream);
    ~CallerStreamGuard();

private:
    std::optional<CUstream_st*> previous_;
};

CallerStreamGuard::CallerStreamGuard(CUstream_st* stream) : previous_{chosen} { chosen = stream; }
CallerStreamGuard::~CallerStreamGuard() { chosen = previous_; }

}  // namespace executorch::extension::cuda

#pragma GCC visibility pop

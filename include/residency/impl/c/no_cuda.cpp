// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// In place of cuda.cpp where the CUDA toolkit is not there.
#include "residency/impl/c/model.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace c {

bool has_cuda() noexcept { return false; }

Result<std::unique_ptr<Model>> open_cuda(int, OpenRequest) {
    return Error{ErrorKind::unsupported,
                 "this libresidency_c was built without CUDA: ask for the device \"simulated\", or build the library "
                 "where the CUDA toolkit is"};
}

}}}  // namespace residency::RESIDENCY_ABI::c

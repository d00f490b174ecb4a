// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "residency/device/cuda.hpp"
#include "residency/device/cuda_state.hpp"

// CudaDevice: captures and graphs.

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Status CudaDevice::refuse_in_capture(Stream stream, const char* what) {
    const Result<bool> capturing = is_capturing(stream);
    if (!capturing) { return capturing.error(); }
    if (!*capturing) [[likely]] { return {}; }
    return detail::refused_in_capture(what);
}

RESIDENCY_INLINE Result<bool> CudaDevice::is_capturing(Stream stream) {
    if (stream.is_legacy_default()) { return false; }
    const detail::CudaState::Scope scope{*state_};
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t code = cudaStreamIsCapturing(stream.get(), &status);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaStreamIsCapturing"); }
    return status != cudaStreamCaptureStatusNone;
}

RESIDENCY_INLINE Status CudaDevice::begin_capture(Stream stream) {
    if (stream.is_legacy_default()) {
        return Error{ErrorKind::invalid_argument,
                     "the legacy default stream cannot be captured: pass a stream of your own"};
    }
    const detail::CudaState::Scope scope{*state_};
    state_->captures->enter();
    Status begun = state_->checked(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                                   "cudaStreamBeginCapture");
    if (!begun) { state_->captures->leave(); }
    return begun;
}

RESIDENCY_INLINE Status CudaDevice::record_in_graph(Event event, Stream stream) {
    const detail::CudaState::Scope scope{*state_};
    return state_->checked(cudaEventRecordWithFlags(event.handle, stream.get(), cudaEventRecordExternal),
                           "cudaEventRecordWithFlags");
}

RESIDENCY_INLINE Result<CudaDevice::Graph> CudaDevice::end_capture(Stream stream) {
    const detail::CudaState::RelaxedScope scope{*state_};
    cudaGraph_t recorded = nullptr;
    cudaError_t code = cudaStreamEndCapture(stream.get(), &recorded);
    // After these errors the stream still captures, or never did.
    if (code != cudaErrorStreamCaptureWrongThread && code != cudaErrorIllegalState && code != cudaErrorInvalidValue &&
        code != cudaErrorStreamCaptureUnmatched) {
        state_->captures->leave();
    }
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaStreamEndCapture"); }
    Graph graph;
    code = cudaGraphInstantiate(&graph.handle, recorded, 0);
    const cudaError_t destroyed = cudaGraphDestroy(recorded);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaGraphInstantiate"); }
    if (destroyed != cudaSuccess) {
        const Error error = state_->runtime_failure(destroyed, "cudaGraphDestroy");
        static_cast<void>(cudaGraphExecDestroy(graph.handle));
        return error;
    }
    return graph;
}

RESIDENCY_INLINE Status CudaDevice::launch(Graph graph, Stream stream) {
    const detail::CudaState::Scope scope{*state_};
    return state_->checked(cudaGraphLaunch(graph.handle, stream.get()), "cudaGraphLaunch");
}

RESIDENCY_INLINE Status CudaDevice::destroy_graph(Graph graph) {
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked_destruction(cudaGraphExecDestroy(graph.handle), "cudaGraphExecDestroy");
}

}}  // namespace residency::RESIDENCY_ABI

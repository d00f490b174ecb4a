// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A tool, as NVTX injects one into a program: it writes down what it is called with.
#define NVTX_NO_IMPL
#include "tests/nvtx/injected.hpp"

#include <nvtx3/nvToolsExt.h>

#include <string>

using injected::seen;

namespace {

nvtxDomainHandle_t create_domain(const char* name) {
    seen.domains.push_back(name);
    return reinterpret_cast<nvtxDomainHandle_t>(&seen);
}
std::string name_of(const nvtxEventAttributes_t* attributes) {
    return attributes->messageType == NVTX_MESSAGE_TYPE_ASCII ? attributes->message.ascii : "";
}
nvtxRangeId_t start_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
    if (domain != reinterpret_cast<nvtxDomainHandle_t>(&seen)) { return 0; }
    seen.open[seen.next] = name_of(attributes);
    if (attributes->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
        seen.bytes[name_of(attributes)] = attributes->payload.ullValue;
    }
    return seen.next++;
}
void end_range(nvtxDomainHandle_t, nvtxRangeId_t id) {
    const auto found = seen.open.find(id);
    if (found == seen.open.end()) {
        ++seen.unknown_ends;
        return;
    }
    seen.ended.push_back(found->second);
    seen.open.erase(found);
}
void mark(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) { seen.marks.push_back(name_of(attributes)); }

int inject(NvtxGetExportTableFunc_t get_table) {
    const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
        return 0;
    }
    const auto set = [&](unsigned int id, auto* function) {
        if (id < size) { *table[id] = reinterpret_cast<NvtxFunctionPointer>(function); }
    };
    set(NVTX_CBID_CORE2_DomainCreateA, create_domain);
    set(NVTX_CBID_CORE2_DomainRangeStartEx, start_range);
    set(NVTX_CBID_CORE2_DomainRangeEnd, end_range);
    set(NVTX_CBID_CORE2_DomainMarkEx, mark);
    return 1;
}

}  // namespace

// NVTX asks for it when it is called first, where NVTX_INJECTION64_PATH names no library.
extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = inject;
}

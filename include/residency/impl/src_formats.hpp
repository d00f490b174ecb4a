// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The source of residency::compiled_formats, beside src.hpp: what reads and writes model files.
#if !defined(RESIDENCY_HEADER_ONLY) || RESIDENCY_HEADER_ONLY
#error "residency/impl/src_formats.hpp is for programs that are compiled with RESIDENCY_HEADER_ONLY=0, in every file"
#endif

#include "residency/aoti/impl/aoti_package.ipp"
#include "residency/format/impl/aoti.ipp"
#include "residency/format/impl/equal_storages.ipp"
#include "residency/format/impl/executorch.ipp"
#include "residency/format/impl/folder.ipp"
#include "residency/format/impl/gguf.ipp"
#include "residency/format/impl/input.ipp"
#include "residency/format/impl/json_tree.ipp"
#include "residency/format/impl/manifest.ipp"
#include "residency/format/impl/model_file.ipp"
#include "residency/format/impl/open.ipp"
#include "residency/format/impl/other_kinds.ipp"
#include "residency/format/impl/packed.ipp"
#include "residency/format/impl/program.ipp"
#include "residency/format/impl/safetensors.ipp"
#include "residency/format/impl/torch.ipp"
#include "residency/format/impl/torch_pickle.ipp"
#include "residency/format/impl/torch_tree.ipp"
#include "residency/format/impl/view.ipp"
#include "residency/format/impl/zip.ipp"

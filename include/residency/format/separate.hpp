// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one file of a program includes that is compiled with RESIDENCY_SEPARATE=1 and reads model files, see config.hpp.
#include "residency/format/definitions/aoti.hpp"
#include "residency/format/definitions/gguf.hpp"
#include "residency/format/definitions/json_tree.hpp"
#include "residency/format/definitions/manifest.hpp"
#include "residency/format/definitions/open.hpp"
#include "residency/format/definitions/safetensors.hpp"
#include "residency/format/definitions/safetensors_writer.hpp"
#include "residency/format/definitions/shard_index.hpp"
#include "residency/format/definitions/torch.hpp"
#include "residency/format/definitions/torch_archive.hpp"
#include "residency/format/definitions/torch_pickle.hpp"
#include "residency/format/definitions/zip.hpp"

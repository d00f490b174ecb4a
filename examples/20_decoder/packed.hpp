// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <variant>

#include "checkpoint.hpp"
#include "engine.hpp"
#include "generate_text.hpp"
#include "job.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed.hpp"
#include "residency/transport/pinned.hpp"

namespace decoder {

/// An engine for a model that is packed in host memory.
template <class Backend>
using PackedEngine = Engine<Backend, residency::transport::Pinned<typename Backend::Device>,
                            residency::pool::Packed<typename Backend::Device>>;

/// The weights of a model, packed in pinned memory, which ends before the device: those of its packed file as they lie there, or `loaded`
/// ones, matrices in the form that kernels read. Blocks.
template <class Device>
[[nodiscard]] residency::Catalog pack_weights(Device& device, const residency::Catalog& on_disk,
                                              const residency::Catalog& loaded, PackedSizes& sizes) {
    namespace packed = residency::packed;
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& storage : on_disk.storages()) {
        sizes.is_file = sizes.is_file || std::holds_alternative<residency::PackedSource>(storage.source);
    }
    packed::PackOptions options;
    options.form = [](const residency::Weight& weight) {
        const bool is_matrix = weight.shape.size() == 2 && weight.shape[1] % 8 == 0;
        return is_matrix ? residency::PackedForm::bf16_tiles : residency::PackedForm::raw;
    };
    packed::PackedModel model = sizes.is_file ? packed::load(device, on_disk) : packed::pack(device, loaded, options);
    sizes.raw_bytes = model.raw_bytes;
    sizes.packed_bytes = model.packed_bytes;
    sizes.kept_raw = model.kept_raw.size();
    sizes.seconds = std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
    return std::move(model.catalog);
}

template <class Backend>
Outcome generate_packed(Backend& backend, const TextJob<Backend>& text) {
    return generate_text<PackedEngine<Backend>>(backend, text);
}

}  // namespace decoder

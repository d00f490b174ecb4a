// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/format/input.hpp"
#include "residency/format/view.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE bool is_dense(const Shape& shape, const Strides& strides) noexcept {
    std::uint64_t expected = 1;
    bool dense = true;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        if (shape[axis] == 0) { return true; }
        dense = dense && (shape[axis] == 1 || strides[axis] == expected);
        expected *= shape[axis];
    }
    return dense;
}

RESIDENCY_INLINE Result<std::uint64_t> view_bytes(const DType& type, const Shape& shape, const Strides& strides) {
    const auto refuse = [&](const std::string& why) {
        return Error{ErrorKind::malformed, std::string{type.name()} + shape_text(shape) + ": " + why};
    };
    const auto elements = count_elements(shape);
    if (!elements) { return refuse("the elements do not fit in 64 bits"); }
    if (!strides.empty() && strides.size() != shape.size()) {
        return refuse(std::to_string(strides.size()) + " strides for " + std::to_string(shape.size()) + " extents");
    }
    const bool dense = strides.empty() || is_dense(shape, strides);
    std::optional<std::uint64_t> reach = elements;
    if (!dense) {
        if (!type.is_byte_addressable()) { return refuse("this type cannot be strided"); }
        reach = 1;
        for (std::size_t axis = 0; axis < shape.size() && reach; ++axis) {
            const auto step = residency::detail::checked_multiply(shape[axis] - 1, strides[axis]);
            reach = step ? residency::detail::checked_add(*reach, *step) : std::nullopt;
        }
        if (!reach) { return refuse("the strides reach beyond 64 bits"); }
    }
    const std::uint64_t row = shape.empty() ? 1 : shape.back();
    if (row % type.block_elements() != 0) {
        return refuse("a row does not fill blocks of " + std::to_string(type.block_elements()));
    }
    const auto bytes = type.bytes_of(*reach);
    return bytes ? bytes : Result<std::uint64_t>{refuse(bytes.error().message())};
}

RESIDENCY_INLINE Status append_view(ModelFile& model, ModelFile::WeightEntry weight) {
    const auto bytes = view_bytes(weight.type, weight.shape, weight.strides);
    if (!bytes) { return bytes.error(); }
    const std::uint64_t whole = model.storages[weight.storage].bytes;
    if (!residency::detail::lies_inside(weight.offset_bytes, *bytes, whole)) {
        return Error{ErrorKind::malformed,
                     weight.dtype + shape_text(weight.shape) + ", " + residency::detail::in_bytes(*bytes) + " from " +
                         std::to_string(weight.offset_bytes) + " on, does not lie inside its storage of " +
                         residency::detail::in_bytes(whole)};
    }
    if (weight.offset_bytes % weight.type.alignment_bytes() != 0) {
        return Error{ErrorKind::malformed, "its offset of " + residency::detail::in_bytes(weight.offset_bytes) +
                                               " is not a multiple of the " +
                                               residency::detail::in_bytes(weight.type.alignment_bytes()) + " that " +
                                               weight.dtype + " needs"};
    }
    weight.bytes = *bytes;
    if (!weight.strides.empty() && is_dense(weight.shape, weight.strides)) { weight.strides.clear(); }
    model.weights.push_back(std::move(weight));
    return {};
}

RESIDENCY_INLINE void separate_storages(ModelFile& model, std::size_t first_storage) {
    std::vector<std::uint32_t> order;  // of the weights, by storage and offset
    for (std::uint32_t i = 0; i < model.weights.size(); ++i) {
        if (model.weights[i].storage >= first_storage) { order.push_back(i); }
    }
    residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        const ModelFile::WeightEntry &first = model.weights[a], &second = model.weights[b];
        if (first.storage != second.storage) { return first.storage < second.storage; }
        return first.offset_bytes != second.offset_bytes ? first.offset_bytes < second.offset_bytes : a < b;
    });
    for (std::size_t i = 0; i < order.size();) {
        const std::uint32_t storage = model.weights[order[i]].storage;
        const ModelFile::StorageEntry whole = model.storages[storage];
        std::uint64_t until = 0;  // of the weights so far
        for (bool is_first = true; i < order.size() && model.weights[order[i]].storage == storage; is_first = false) {
            // Weights that overlap, in a row.
            const std::uint64_t from = model.weights[order[i]].offset_bytes;
            // At the same place within the largest alignment that leaves no byte to two storages.
            std::uint64_t alignment = Storage::default_alignment_bytes;
            while (from - from % alignment < until) { alignment /= 2; }
            const std::uint64_t begin = from - from % alignment;
            const std::uint32_t own = is_first ? storage : static_cast<std::uint32_t>(model.storages.size());
            until = from;
            do {
                ModelFile::WeightEntry& weight = model.weights[order[i]];
                until = (std::max)(until, weight.offset_bytes + weight.bytes);
                weight.storage = own;
                weight.offset_bytes -= begin;
                ++i;
            } while (i < order.size() && model.weights[order[i]].storage == storage &&
                     model.weights[order[i]].offset_bytes < until);
            if (!is_first) { model.storages.push_back(whole); }
            model.storages[own].offset_bytes = whole.offset_bytes + begin;
            model.storages[own].bytes = until - begin;
        }
    }
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

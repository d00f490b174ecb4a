// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/safetensors_dtype.hpp"
#include "residency/format/safetensors_writer.hpp"
#include "residency/format/text.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

RESIDENCY_INLINE Result<std::string> SafetensorsWriter::try_header(std::span<const SafetensorsTensor> tensors,
                                                                   std::span<const ModelFile::Metadata> metadata,
                                                                   std::uint64_t& data_bytes) {
    const auto json_text = [](const std::string& text) {
        return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    const auto refuse = [](const std::string& what) { return Error{ErrorKind::invalid_argument, what}; };
    std::string header(8, '\0');
    header += '{';
    std::unordered_set<std::string_view> names;
    if (!metadata.empty()) {
        header += "\"__metadata__\":{";
        for (const auto& [key, value] : metadata) {
            if (!detail::is_utf8(key) || !detail::is_utf8(value)) {
                return refuse("metadata " + detail::shown(key) + " is not UTF-8");
            }
            if (!names.insert(key).second) { return refuse("metadata " + detail::shown(key) + " is given twice"); }
            header += (header.back() == '{' ? "" : ",") + json_text(key) + ':' + json_text(value);
        }
        header += '}';
        names.clear();
    }
    std::uint64_t offset = 0;
    for (const SafetensorsTensor& tensor : tensors) {
        const std::string what = "tensor " + detail::shown(tensor.name) + ": ";
        const std::string_view dtype = safetensors_name(tensor.type);
        const auto elements = detail::count_elements(tensor.shape);
        if (!detail::is_utf8(tensor.name)) { return refuse(what + "its name is not UTF-8"); }
        if (tensor.name == "__metadata__") { return refuse(what + "the format keeps this name for itself"); }
        if (!names.insert(tensor.name).second) { return refuse(what + "it is given twice"); }
        if (dtype.empty()) { return refuse(what + "safetensors has no type " + std::string{tensor.type.name()}); }
        if (!elements) { return refuse(what + "its elements do not fit in 64 bits"); }
        const auto bytes = tensor.type.bytes_of(*elements);
        if (!bytes) { return bytes.error().in("tensor " + detail::shown(tensor.name)); }
        const auto end = residency::detail::checked_add(offset, *bytes);
        if (!end) { return refuse(what + "the data do not fit in 64 bits"); }
        header += (header.size() > 9 ? "," : "") + json_text(tensor.name) + ":{\"dtype\":\"" + std::string{dtype} +
                  "\",\"shape\":[";
        for (const std::uint64_t extent : tensor.shape) {
            if (header.back() != '[') { header += ','; }
            header += std::to_string(extent);
        }
        header += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(*end) + "]}";
        offset = *end;
    }
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::uint64_t length = header.size() - 8;
    if (length > safetensors_header_limit) {
        return refuse("the header of " + std::to_string(length) + " bytes is larger than the format's limit of " +
                      std::to_string(safetensors_header_limit));
    }
    for (std::size_t i = 0; i < 8; ++i, length >>= 8) { header[i] = static_cast<char>(length & 255); }
    data_bytes = offset;
    return header;
}

}}}  // namespace residency::RESIDENCY_ABI::format

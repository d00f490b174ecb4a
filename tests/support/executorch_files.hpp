// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// Little-endian bytes of a number.
template <class Number>
std::string number_bytes(Number value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

/// Writes an object at the end of the bytes, and returns where it begins.
using FlatObject = std::function<std::size_t(std::string&)>;
/// A field of a table: nothing, the bytes of a number, or an object.
struct FlatField {
    std::string number{};
    FlatObject object{};
};

namespace flat {

inline std::size_t align(std::string& out, std::size_t to = 8) {
    out.append((to - out.size() % to) % to, '\0');
    return out.size();
}
inline void point(std::string& out, std::size_t from, std::size_t to) {
    const auto offset = static_cast<std::uint32_t>(to - from);
    std::memcpy(out.data() + from, &offset, sizeof offset);
}
inline FlatObject table(std::vector<FlatField> fields) {
    return [fields = std::move(fields)](std::string& out) {
        const std::size_t vtable = align(out);
        out += number_bytes(static_cast<std::uint16_t>(4 + 2 * fields.size()));
        out += number_bytes(static_cast<std::uint16_t>(8 + 8 * fields.size()));
        for (std::size_t i = 0; i < fields.size(); ++i) {
            const bool is_there = !fields[i].number.empty() || fields[i].object;
            out += number_bytes(static_cast<std::uint16_t>(is_there ? 8 + 8 * i : 0));
        }
        const std::size_t at = align(out);
        out += number_bytes(static_cast<std::int32_t>(at - vtable));
        out.append(4 + 8 * fields.size(), '\0');
        for (std::size_t i = 0; i < fields.size(); ++i) {
            const std::size_t slot = at + 8 + 8 * i;
            out.replace(slot, fields[i].number.size(), fields[i].number);
            if (fields[i].object) { point(out, slot, fields[i].object(out)); }
        }
        return at;
    };
}
inline FlatObject bytes(std::string text, std::size_t element_bytes = 1) {
    return [text = std::move(text), element_bytes](std::string& out) {
        align(out);
        out.append(4, '\0');  // so that elements of 8 bytes are aligned
        const std::size_t at = out.size();
        out += number_bytes(static_cast<std::uint32_t>(text.size() / element_bytes)) + text;
        return at;
    };
}
inline FlatObject list(std::vector<FlatObject> objects) {
    return [objects = std::move(objects)](std::string& out) {
        const std::size_t at = align(out);
        out += number_bytes(static_cast<std::uint32_t>(objects.size()));
        out.append(4 * objects.size(), '\0');
        for (std::size_t i = 0; i < objects.size(); ++i) { point(out, at + 4 + 4 * i, objects[i](out)); }
        return at;
    };
}
/// The same object, `count` times.
inline FlatObject repeated(FlatObject object, std::uint32_t count) {
    return [object = std::move(object), count](std::string& out) {
        const std::size_t at = align(out);
        out += number_bytes(count);
        out.append(4 * std::size_t{count}, '\0');
        const std::size_t to = object(out);
        for (std::uint32_t i = 0; i < count; ++i) { point(out, at + 4 + 4 * i, to); }
        return at;
    };
}
/// A file: the root's offset, the identifier, room for a header, and the objects.
inline std::string file(const std::string& identifier, std::size_t header_bytes, const FlatObject& root) {
    std::string out = std::string(4, '\0') + identifier + std::string(header_bytes, '\0');
    point(out, 0, root(out));
    align(out);
    return out;
}

}  // namespace flat

/// Bytes under a name in a file of ExecuTorch, with the table TensorLayout where there is one.
struct ExecutorchBytes {
    std::string key, bytes;
    std::optional<FlatObject> layout{};
};
struct ExecutorchPart {
    std::string backend, bytes;
};
struct ExecutorchPlan {
    std::string name;
    std::vector<ExecutorchPart> delegates;
};

/// A program (.pte) whose delegates' and data's bytes are segments; `as_data`: data alone (.ptd).
inline std::string executorch_file(const std::vector<ExecutorchPlan>& plans, const std::vector<ExecutorchBytes>& data,
                                   bool as_data = false, std::uint32_t version = 0) {
    std::string segments;
    std::vector<FlatObject> segment_tables;
    const auto add = [&](const std::string& bytes) {
        flat::align(segments, 16);
        segment_tables.push_back(flat::table(
            {{number_bytes<std::uint64_t>(segments.size()), {}}, {number_bytes<std::uint64_t>(bytes.size()), {}}}));
        segments += bytes;
        return static_cast<std::uint32_t>(segment_tables.size() - 1);
    };
    std::vector<FlatObject> methods, named;
    for (const ExecutorchPlan& plan : plans) {
        std::vector<FlatObject> delegates;
        for (const ExecutorchPart& part : plan.delegates) {
            const auto reference =
                flat::table({{number_bytes<std::int8_t>(1), {}}, {number_bytes(add(part.bytes)), {}}});
            delegates.push_back(flat::table({{{}, flat::bytes(part.backend)}, {{}, reference}}));
        }
        std::vector<FlatField> fields(8);
        fields[0].object = flat::bytes(plan.name);
        fields[7].object = flat::list(std::move(delegates));
        methods.push_back(flat::table(std::move(fields)));
    }
    for (const ExecutorchBytes& each : data) {
        named.push_back(flat::table({{{}, flat::bytes(each.key)},
                                     {number_bytes(add(each.bytes)), {}},
                                     {{}, each.layout ? *each.layout : FlatObject{}}}));
    }
    std::vector<FlatField> fields(as_data ? 3 : 8);
    fields[0].number = number_bytes(version);
    fields[as_data ? 1 : 4].object = flat::list(std::move(segment_tables));
    fields[as_data ? 2 : 7].object = flat::list(std::move(named));
    if (!as_data) { fields[1].object = flat::list(std::move(methods)); }
    const std::size_t header_bytes = as_data ? 48 : 32;
    std::string out = flat::file(as_data ? "FT01" : "ET12", header_bytes, flat::table(std::move(fields)));
    const std::size_t described = out.size();
    flat::align(out, 16);
    std::string header = as_data ? "FH01" : "eh00";
    header += number_bytes<std::uint32_t>(as_data ? 40 : 32);
    if (as_data) { header += number_bytes<std::uint64_t>(header_bytes); }
    header += number_bytes<std::uint64_t>(as_data ? described - header_bytes : described);
    header += number_bytes<std::uint64_t>(out.size()) + number_bytes<std::uint64_t>(segments.size());
    out.replace(8, header.size(), header);
    return out + segments;
}

/// A constant as ExecuTorch's CUDA backend describes it.
struct ExecutorchRecord {
    std::string name, key;
    std::uint64_t storage_bytes = 0;
    std::int32_t dtype = 6, device = 1;
    std::int64_t offset = 0;
    std::vector<std::int64_t> sizes{}, strides{};
};
inline std::string executorch_cuda(const std::string& library, const std::vector<ExecutorchRecord>& records,
                                   const std::string& magic = "ETCUDAFQN3") {
    const auto text = [](const std::string& value) {
        return number_bytes(static_cast<std::uint32_t>(value.size())) + value;
    };
    std::string out = magic + text(library) + number_bytes(static_cast<std::uint32_t>(records.size()));
    for (const ExecutorchRecord& each : records) {
        out += text(each.name) + text(each.key) + number_bytes(each.storage_bytes) + number_bytes(each.dtype) +
               number_bytes(each.device) + number_bytes(each.offset) +
               number_bytes(static_cast<std::uint32_t>(each.sizes.size()));
        for (const std::int64_t size : each.sizes) { out += number_bytes(size); }
        for (const std::int64_t stride : each.strides) { out += number_bytes(stride); }
    }
    return out;
}

}  // namespace support

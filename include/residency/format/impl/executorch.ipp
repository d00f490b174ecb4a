// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "residency/format/executorch.hpp"
#include "residency/format/flatbuffer.hpp"
#include "residency/format/folder.hpp"
#include "residency/format/torch_dtype.hpp"
#include "residency/format/view.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// The type that ExecuTorch's number (c10::ScalarType) stands for.
[[nodiscard]] inline std::optional<TorchDType> find_executorch_dtype(std::int64_t number) noexcept {
    constexpr const char* names[] = {"uint8",           "int8",
                                     "int16",           "int32",
                                     "int64",           "float16",
                                     "float32",         "float64",
                                     "complex32",       "complex64",
                                     "complex128",      "bool",
                                     nullptr,           nullptr,
                                     nullptr,           "bfloat16",
                                     nullptr,           nullptr,
                                     nullptr,           nullptr,
                                     nullptr,           nullptr,
                                     nullptr,           "float8_e5m2",
                                     "float8_e4m3fn",   "float8_e5m2fnuz",
                                     "float8_e4m3fnuz", "uint16",
                                     "uint32",          "uint64"};
    if (number < 0 || static_cast<std::uint64_t>(number) >= std::size(names)) { return std::nullopt; }
    const char* const name = names[number];
    return name == nullptr ? std::nullopt : find_torch_dtype(std::string_view{name});
}

/// The most extents of a tensor.
inline constexpr std::uint64_t executorch_rank = 64;

/// Where the parts of a file of ExecuTorch lie: the description from its first byte on, with a header in it, and the segments.
struct ExecutorchExtent {
    std::uint64_t description_bytes = 0;
    std::uint64_t segments_at = 0;
};

[[nodiscard]] inline Result<ExecutorchExtent> read_executorch_header(const Input& input, bool is_program) {
    constexpr std::uint64_t most = std::uint64_t{1} << 31;  // what offsets of a FlatBuffer reach
    constexpr std::uint64_t header_at = 8;
    const std::string& path = input.path();
    const auto start = input.try_text(0, (std::min)(input.bytes(), std::uint64_t{48}));
    if (!start) { return start.error(); }
    const std::string_view magic = is_program ? "eh00" : "FH01";
    if (start->size() < header_at + magic.size()) {
        return malformed(path, start->size(), cut_off, residency::detail::in_bytes(input.bytes()),
                         at_least(header_at + magic.size()));
    }
    ExecutorchExtent extent;
    if (std::string_view{*start}.substr((std::min)(start->size(), std::size_t{header_at})).starts_with(magic)) {
        const std::uint64_t header_bytes = is_program ? 24 : 40;
        if (start->size() < header_at + header_bytes) {
            return malformed(path, header_at, std::string{"its header ends behind the file: "} + cut_off,
                             residency::detail::in_bytes(input.bytes()), at_least(header_at + header_bytes));
        }
        const auto number = [&](std::size_t at) {
            std::uint64_t value = 0;
            std::memcpy(&value, start->data() + at, sizeof value);
            return value;
        };
        std::uint32_t length = 0;
        std::memcpy(&length, start->data() + header_at + 4, sizeof length);
        if (length < header_bytes) {
            return malformed(path, header_at + 4, "its header is too short", residency::detail::in_bytes(length),
                             residency::detail::in_bytes(header_bytes) + " at least");
        }
        // A program says the size of the description; data, where the rest of it begins, and the size of that.
        const auto bytes =
            is_program ? std::optional{number(16)} : residency::detail::checked_add(number(16), number(24));
        extent.segments_at = number(is_program ? 24 : 32);
        if (!bytes || *bytes > most) {
            return malformed(path, header_at, "its header names a description that is too long",
                             bytes ? residency::detail::in_bytes(*bytes) : std::string{"a size beyond 64 bits"},
                             "at most " + residency::detail::in_bytes(most));
        }
        if (*bytes > input.bytes() || extent.segments_at > input.bytes()) {
            return malformed(
                path, header_at, std::string{"its header names parts that are not in the file: "} + cut_off,
                residency::detail::in_bytes(input.bytes()), at_least((std::max)(*bytes, extent.segments_at)));
        }
        extent.description_bytes = *bytes;
        return extent;
    }
    if (!is_program) { return malformed(path, header_at, "the header of ExecuTorch's data is missing", {}, "FH01"); }
    if (input.bytes() > most) {
        return unsupported(
            path, 0, "a program without segments of more than 2 GiB; export it again with ExecuTorch 1.0 or later");
    }
    extent.description_bytes = input.bytes();  // a program without segments
    return extent;
}

/// The layout that a table TensorLayout gives.
[[nodiscard]] inline ExecutorchLayout read_executorch_layout(Flatbuffer& buffer, const Flatbuffer::Table& table) {
    ExecutorchLayout layout;
    const auto number = table.number<std::int8_t>(0);
    const auto type = find_executorch_dtype(number);
    const Flatbuffer::Vector sizes = table.vector(1, 4);
    const Flatbuffer::Vector order = table.vector(2, 1);
    if (buffer.has_failed()) { return layout; }
    if (!type) { buffer.fail(table.place(), std::string{"a tensor of "} + unknown_type, std::to_string(number)); }
    if (sizes.size() > executorch_rank || (order.size() != 0 && order.size() != sizes.size())) {
        buffer.fail(table.place(), "a tensor of " + std::to_string(sizes.size()) + " extents, with an order of " +
                                       std::to_string(order.size()));
    }
    if (buffer.has_failed()) { return layout; }
    layout.dtype = type->name;
    layout.type = type->type;
    for (std::uint64_t i = 0; i < sizes.size(); ++i) {
        const auto extent = sizes.number<std::int32_t>(i);
        if (extent < 0) { buffer.fail(sizes.place(), "a tensor with an extent below zero", std::to_string(extent)); }
        layout.shape.push_back(static_cast<std::uint64_t>((std::max)(extent, 0)));
    }
    if (order.size() == 0) { return layout; }
    // The order goes from the outermost dimension in memory to the innermost.
    layout.strides.assign(layout.shape.size(), 0);
    std::vector<bool> seen(layout.shape.size());
    std::uint64_t stride = 1;
    for (std::uint64_t i = order.size(); i-- > 0;) {
        const auto axis = order.number<std::uint8_t>(i);
        if (axis >= seen.size() || seen[axis]) {
            buffer.fail(order.place(), "the order of a tensor's dimensions names one twice, or one that is not there");
            return layout;
        }
        seen[axis] = true;
        layout.strides[axis] = stride;
        const auto next = residency::detail::checked_multiply(stride, (std::max)(layout.shape[axis], std::uint64_t{1}));
        if (!next) {
            buffer.fail(table.place(), "a tensor whose elements do not fit in 64 bits");
            return layout;
        }
        stride = *next;
    }
    return layout;
}

/// Reads what is in the tables of a file.
class ExecutorchTables {
public:
    ExecutorchTables(const Input& input, const ExecutorchExtent& extent, std::string_view description)
        : file_bytes_{input.bytes()}, segments_at_{extent.segments_at}, buffer_{description, input.path()} {}

    [[nodiscard]] Result<ExecutorchFile> try_read(bool is_program) {
        ExecutorchFile file;
        file.is_program = is_program;
        const Flatbuffer::Table root = buffer_.root();
        const auto version = root.number<std::uint32_t>(0);
        if (!buffer_.has_failed() && version != 0) {
            return unsupported(buffer_.source(), root.place(),
                               "a version of ExecuTorch's files that is not known; export it again with 1.5",
                               std::to_string(version), "0");
        }
        segments_ = root.vector(is_program ? 4 : 1, 4);
        for (std::uint64_t i = 0; i < segments_.size() && !buffer_.has_failed(); ++i) {
            static_cast<void>(segment(i, root.place()));  // also those that nothing here names lie inside the file
        }
        if (is_program) { read_methods(file, root); }
        read_data(file, root.vector(is_program ? 7 : 2, 4), !is_program);
        if (is_program) {
            const std::uint64_t inline_constants = root.vector(2, 4).size();
            const std::uint64_t constants =
                (std::max)(inline_constants, root.table(5).vector(1, 8).size());  // the first stands for none
            file.unnamed_constants = constants == 0 ? 0 : constants - 1;
        }
        if (Status fine = buffer_.status(); !fine) { return fine.error(); }
        return file;
    }

private:
    struct Range {
        std::uint64_t offset = 0, bytes = 0;
    };

    [[nodiscard]] Range segment(std::uint64_t index, std::uint64_t place) {
        if (buffer_.has_failed()) { return {}; }
        if (index >= segments_.size()) {
            buffer_.fail(place, "it names a segment that is not there", std::to_string(index),
                         "one of " + std::to_string(segments_.size()));
            return {};
        }
        const Flatbuffer::Table table = segments_.table(index);
        const auto from = residency::detail::checked_add(segments_at_, table.number<std::uint64_t>(0));
        const auto bytes = table.number<std::uint64_t>(1);
        if (!from || !residency::detail::lies_inside(*from, bytes, file_bytes_)) {
            const auto end = from ? residency::detail::checked_add(*from, bytes) : std::nullopt;
            buffer_.fail(table.place(),
                         "segment " + std::to_string(index) + " does not lie inside the file: " + cut_off,
                         residency::detail::in_bytes(file_bytes_), at_least(end));
            return {};
        }
        return {*from, bytes};
    }

    void read_data(ExecutorchFile& file, const Flatbuffer::Vector& entries, bool has_layouts) {
        std::unordered_set<std::string_view> keys;
        for (std::uint64_t i = 0; i < entries.size() && !buffer_.has_failed(); ++i) {
            const Flatbuffer::Table entry = entries.table(i);
            const std::string_view key = entry.text(0);
            const Range range = segment(entry.number<std::uint32_t>(1), entry.place());
            if (buffer_.has_failed()) { return; }
            if (!is_utf8(key)) { buffer_.fail(entry.place(), "a name that is not UTF-8", shown(key)); }
            if (!keys.insert(key).second) { buffer_.fail(entry.place(), "the name " + shown(key) + " is given twice"); }
            ExecutorchData data{std::string{key}, range.offset, range.bytes};
            const Flatbuffer::Table layout = has_layouts ? entry.table(2) : Flatbuffer::Table{};
            if (layout) { data.layout = read_executorch_layout(buffer_, layout); }
            file.data.push_back(std::move(data));
        }
    }

    void read_methods(ExecutorchFile& file, const Flatbuffer::Table& root) {
        const Flatbuffer::Vector plans = root.vector(1, 4);
        const Flatbuffer::Vector pieces = root.vector(3, 4);
        for (std::uint64_t i = 0; i < plans.size() && !buffer_.has_failed(); ++i) {
            const Flatbuffer::Table plan = plans.table(i);
            ExecutorchMethod method;
            const std::string_view name = plan.text(0);
            if (!is_utf8(name)) { buffer_.fail(plan.place(), "a method's name that is not UTF-8", shown(name)); }
            method.name = name;
            const Flatbuffer::Vector delegates = plan.vector(7, 4);
            for (std::uint64_t j = 0; j < delegates.size() && !buffer_.has_failed(); ++j) {
                const Flatbuffer::Table delegate = delegates.table(j);
                const std::string_view backend = delegate.text(0);
                const Flatbuffer::Table reference = delegate.table(1);
                const auto index = reference.number<std::uint32_t>(1);
                const auto location = reference.number<std::int8_t>(0);
                Range range;
                if (location == 1) {
                    range = segment(index, reference.place());
                } else if (!buffer_.has_failed()) {
                    if (location != 0 || index >= pieces.size()) {
                        buffer_.fail(delegate.place(), "a delegate whose bytes are not there", std::to_string(index));
                        return;
                    }
                    const Flatbuffer::Vector bytes = pieces.table(index).vector(0, 1);
                    range = {bytes.place(), bytes.size()};
                }
                if (!is_utf8(backend)) {
                    buffer_.fail(delegate.place(), "a backend's name that is not UTF-8", shown(backend));
                }
                method.delegates.push_back({std::string{backend}, range.offset, range.bytes});
            }
            read_tensors(file, plan.vector(2, 4));
            file.methods.push_back(std::move(method));
        }
    }

    /// The tensors among the values of a method that are outside of the program.
    void read_tensors(ExecutorchFile& file, const Flatbuffer::Vector& values) {
        constexpr std::uint8_t tensor = 5;
        constexpr std::int8_t external = 1;
        for (std::uint64_t i = 0; i < values.size() && !buffer_.has_failed(); ++i) {
            const Flatbuffer::Table value = values.table(i);
            if (value.number<std::uint8_t>(0) != tensor) { continue; }
            const Flatbuffer::Table more = value.table(1).table(9);
            if (more.number<std::int8_t>(2) != external) { continue; }
            const std::string_view name = more.text(1);
            if (!is_utf8(name)) { buffer_.fail(more.place(), "a tensor's name that is not UTF-8", shown(name)); }
            if (outside_.insert(name).second) { file.outside.emplace_back(name); }
        }
    }

    std::uint64_t file_bytes_, segments_at_;
    std::unordered_set<std::string_view> outside_;
    Flatbuffer buffer_;
    Flatbuffer::Vector segments_;
};

inline constexpr std::string_view executorch_cuda_backend = "CudaBackend";

/// Reads what the CUDA backend writes about a delegate: "ETCUDAFQN3", the key of the library, and a record a constant, little-endian.
class ExecutorchCudaReader {
public:
    ExecutorchCudaReader(std::string_view bytes, std::string source, std::uint64_t base)
        : bytes_{bytes}, source_{std::move(source)}, base_{base} {}

    [[nodiscard]] Result<ExecutorchCudaWeights> try_read() {
        constexpr std::string_view family = "ETCUDAFQN";
        constexpr char version = '3';
        if (!bytes_.starts_with(family) || bytes_.size() == family.size() || bytes_[family.size()] != version) {
            return unsupported(source_, base_,
                               "what the CUDA backend wrote is of another version; export it with executorch 1.5",
                               shown(bytes_.substr(0, family.size() + 1)), shown("ETCUDAFQN3"));
        }
        at_ = family.size() + 1;
        ExecutorchCudaWeights weights;
        std::uint32_t count = 0;
        bool fine = text(weights.library) && number(count);
        for (std::uint32_t i = 0; i < count && fine; ++i) {
            const std::size_t record_at = at_;
            ExecutorchConstant constant;
            std::int32_t dtype = 0, device = 0;
            std::int64_t offset = 0;
            std::uint32_t rank = 0;
            fine = text(constant.name) && text(constant.key) && number(constant.storage_bytes) && number(dtype) &&
                   number(device) && number(offset) && number(rank) && rank <= executorch_rank &&
                   extents(rank, constant.shape) && extents(rank, constant.strides);
            if (!fine) { break; }
            const auto broken = [&](const std::string& what, std::string found = {}) {
                return malformed(source_, base_ + record_at, "constant " + shown(constant.name) + ": " + what,
                                 std::move(found));
            };
            const auto type = find_executorch_dtype(dtype);
            if (!type) { return broken(unknown_type, std::to_string(dtype)); }
            if (device != 0 && device != 1) { return broken("an unknown device", std::to_string(device)); }
            if (offset < 0) { return broken("an offset below zero", std::to_string(offset)); }
            constant.dtype = type->name;
            constant.type = type->type;
            constant.offset_elements = static_cast<std::uint64_t>(offset);
            constant.is_on_cuda = device == 1;
            weights.constants.push_back(std::move(constant));
        }
        if (!fine || at_ != bytes_.size()) {
            return malformed(source_, base_ + at_,
                             fine ? "what the CUDA backend wrote goes on after its last constant"
                                  : "what the CUDA backend wrote is cut off, or not valid");
        }
        return weights;
    }

private:
    template <class Number>
    [[nodiscard]] bool number(Number& out) noexcept {
        if (bytes_.size() - at_ < sizeof out) { return false; }
        std::memcpy(&out, bytes_.data() + at_, sizeof out);
        at_ += sizeof out;
        return true;
    }
    [[nodiscard]] bool text(std::string& out) {
        std::uint32_t count = 0;
        if (!number(count) || count == 0 || bytes_.size() - at_ < count || !is_utf8(bytes_.substr(at_, count))) {
            return false;
        }
        out = bytes_.substr(at_, count);
        at_ += count;
        return true;
    }
    [[nodiscard]] bool extents(std::uint32_t rank, std::vector<std::uint64_t>& out) {
        for (std::uint32_t i = 0; i < rank; ++i) {
            std::int64_t value = 0;
            if (!number(value) || value < 0) { return false; }
            out.push_back(static_cast<std::uint64_t>(value));
        }
        return true;
    }

    std::string_view bytes_;
    std::string source_;
    std::uint64_t base_;
    std::size_t at_ = 0;
};

/// What the CUDA backend wrote about a delegate of that method.
struct ExecutorchDescription {
    std::string method;  ///< its name
    ExecutorchCudaWeights weights;
    bool is_unnamed = false;  ///< of a version before 1.5, with the library's key alone
};

/// Reads them all, each once, also where methods share one.
[[nodiscard]] inline Result<std::vector<ExecutorchDescription>> read_descriptions(const Input& program,
                                                                                  const ExecutorchFile& file) {
    constexpr std::string_view family = "ETCUDAFQN";
    std::vector<ExecutorchDescription> found;
    std::set<std::pair<std::uint64_t, std::uint64_t>> done;
    std::uint64_t read = 0;
    for (const ExecutorchMethod& method : file.methods) {
        for (const ExecutorchDelegate& delegate : method.delegates) {
            if (delegate.backend != executorch_cuda_backend ||
                !done.emplace(delegate.offset_bytes, delegate.bytes).second) {
                continue;
            }
            read = residency::detail::saturating_add(read, delegate.bytes);
            if (read > program.bytes()) {
                return malformed(program.path(), delegate.offset_bytes, "the descriptions of its delegates overlap");
            }
            const auto text = program.try_text(delegate.offset_bytes, delegate.bytes);
            if (!text) { return text.error(); }
            ExecutorchDescription each{method.name, {}, !text->starts_with(family)};
            if (each.is_unnamed) {  // before 1.5: the key of the library, and that of all weights in one piece
                each.weights.library = text->substr(0, text->find('\n'));
            } else {
                auto weights = ExecutorchCudaReader{*text, program.path(), delegate.offset_bytes}.try_read();
                if (!weights) { return weights.error().in("method " + shown(method.name)); }
                each.weights = std::move(*weights);
            }
            found.push_back(std::move(each));
        }
    }
    return found;
}

/// Makes a model of a program and its data.
class ExecutorchModel {
public:
    /// `files`: what the inputs say, one each; `described`: what the program among them says of its delegates.
    [[nodiscard]] Result<ModelFile> try_read(std::span<const Input> inputs, const std::vector<ExecutorchFile>& files,
                                             std::vector<ExecutorchDescription> described) {
        const Input* program = nullptr;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            if (files[i].is_program) {
                if (program != nullptr) {
                    return malformed(inputs[i].path(), 0, "a second program; read one at a time, with its data");
                }
                program = &inputs[i];
                if (files[i].unnamed_constants != 0) {
                    model_.notes.push_back(shown(inputs[i].path()) + " holds " +
                                           std::to_string(files[i].unnamed_constants) +
                                           " constants without names, which are not read");
                }
            }
            model_.files.push_back(inputs[i].source());
        }
        model_.format = "executorch";
        for (std::uint32_t i = 0; i < files.size(); ++i) {
            for (const ExecutorchData& data : files[i].data) {
                const auto [found, is_new] = data_.emplace(data.key, Found{i, &data, std::nullopt});
                if (!is_new) {
                    return malformed(inputs[i].path(), data.offset_bytes,
                                     shown(data.key) + " is in " + shown(inputs[found->second.file].path()) +
                                         " too; give the file that belongs to the program alone");
                }
            }
        }
        for (std::uint32_t i = 0; i < files.size(); ++i) {
            if (!files[i].is_program) { continue; }
            if (Status added = add_delegates(inputs[i], described); !added) { return added.error(); }
            for (const std::string& name : files[i].outside) {
                if (data_.contains(name)) { continue; }
                return malformed(
                    inputs[i].path(), 0,
                    "the bytes of " + shown(name) +
                        " are in no file; give the program's data (.ptd) too, or lay it beside the program");
            }
        }
        pass_over(executorch_program_key, "the program of residency_export");
        for (std::uint32_t i = 0; i < files.size(); ++i) {
            for (const ExecutorchData& data : files[i].data) {
                if (Status added = add_rest(inputs[i], data); !added) { return added.error(); }
            }
        }
        if (inputs.empty()) { return Error{ErrorKind::invalid_argument, "no files are given; give at least one"}; }
        if (Status unique = refuse_duplicates(model_, inputs[0].path()); !unique) { return unique.error(); }
        return std::move(model_);
    }

private:
    struct Found {
        std::uint32_t file;
        const ExecutorchData* data;
        std::optional<std::uint32_t> storage;
        bool is_passed_over = false;
    };

    /// Takes the constants out of the descriptions.
    [[nodiscard]] Status add_delegates(const Input& input, std::span<ExecutorchDescription> described) {
        bool is_any_on_cuda = false;
        for (const ExecutorchDescription& each : described) {
            pass_over(each.weights.library, "a compiled library");
            if (each.is_unnamed) {
                model_.notes.push_back("method " + shown(each.method) +
                                       ": its weights are one piece without names; export it with executorch 1.5");
            }
            for (const ExecutorchConstant& constant : each.weights.constants) {
                is_any_on_cuda = is_any_on_cuda || constant.is_on_cuda;
            }
        }
        for (ExecutorchDescription& each : described) {
            for (ExecutorchConstant& constant : each.weights.constants) {
                Status added = add(input, each.method, std::move(constant), is_any_on_cuda);
                if (!added) { return added; }
            }
        }
        return {};
    }

    void pass_over(const std::string& key, const char* why) {
        const auto found = data_.find(key);
        if (found == data_.end() || std::exchange(found->second.is_passed_over, true)) { return; }
        model_.passed_over.push_back({key, why});
    }

    [[nodiscard]] Status add(const Input& input, const std::string& method, ExecutorchConstant constant,
                             bool is_any_on_cuda) {
        const auto broken = [&](const std::string& what) {
            return malformed(input.path(), 0,
                             "method " + shown(method) + ": constant " + shown(constant.name) + ": " + what);
        };
        const auto found = data_.find(constant.key);
        if (found == data_.end()) {
            return broken("its bytes, " + shown(constant.key) +
                          ", are in no file; give the program's data (.ptd) too, or lay it beside the program");
        }
        if (!constant.is_on_cuda && is_any_on_cuda) {
            pass_over(constant.key, "the program reads it on the processor");
            return {};
        }
        const ExecutorchData& data = *found->second.data;
        if (data.bytes != constant.storage_bytes) {
            return broken("its storage has " + residency::detail::in_bytes(data.bytes) + " where " +
                          residency::detail::in_bytes(constant.storage_bytes) +
                          " are named: the data are those of another export");
        }
        auto& storage = found->second.storage;
        if (!storage) {
            storage = static_cast<std::uint32_t>(model_.storages.size());
            model_.storages.push_back({found->second.file, data.offset_bytes, data.bytes, false});
        }
        const auto offset =
            residency::detail::checked_multiply(constant.offset_elements, constant.type.block_bits() / 8);
        if (!offset) { return broken("its offset does not fit in 64 bits"); }
        ModelFile::WeightEntry weight{constant.name,
                                      constant.dtype,
                                      constant.type,
                                      std::move(constant.shape),
                                      std::move(constant.strides),
                                      *storage,
                                      *offset,
                                      0};
        if (!weight.strides.empty() && is_dense(weight.shape, weight.strides)) { weight.strides.clear(); }
        if (const auto known = names_.find(weight.name); known != names_.end()) {
            const ModelFile::WeightEntry& first = model_.weights[known->second];
            if (first.storage == weight.storage && first.offset_bytes == weight.offset_bytes &&
                first.shape == weight.shape && first.strides == weight.strides && first.type == weight.type) {
                return {};  // of another method
            }
            weight.name = method + "/" + weight.name;
        }
        const std::string name = weight.name;
        if (Status added = append_view(model_, std::move(weight)); !added) { return broken(added.error().message()); }
        names_.emplace(name, model_.weights.size() - 1);
        return {};
    }

    /// What no delegate has described.
    [[nodiscard]] Status add_rest(const Input& input, const ExecutorchData& data) {
        const Found& found = data_.at(data.key);
        if (found.storage || found.is_passed_over) { return {}; }
        const auto storage = static_cast<std::uint32_t>(model_.storages.size());
        model_.storages.push_back({found.file, data.offset_bytes, data.bytes, false});
        ModelFile::WeightEntry weight{data.key, "uint8", dtype::u8, {data.bytes}, {}, storage, 0, 0};
        if (data.layout) {
            weight.dtype = data.layout->dtype;
            weight.type = data.layout->type;
            weight.shape = data.layout->shape;
            weight.strides = data.layout->strides;
        }
        if (Status added = append_view(model_, std::move(weight)); !added) {
            return malformed(input.path(), data.offset_bytes, shown(data.key) + ": " + added.error().message());
        }
        return {};
    }

    ModelFile model_;
    std::unordered_map<std::string, Found> data_;
    std::unordered_map<std::string, std::size_t> names_;
};

}  // namespace detail

RESIDENCY_INLINE const ExecutorchData* ExecutorchFile::find(std::string_view key) const noexcept {
    const auto found =
        std::find_if(data.begin(), data.end(), [&](const ExecutorchData& each) { return each.key == key; });
    return found == data.end() ? nullptr : &*found;
}

RESIDENCY_INLINE Result<ExecutorchFile> try_read_executorch_file(const Input& input) {
    const auto start = input.try_text(0, (std::min)(input.bytes(), std::uint64_t{8}));
    if (!start) { return start.error(); }
    const std::string_view identifier = std::string_view{*start}.substr((std::min)(start->size(), std::size_t{4}));
    const bool is_program = detail::is_executorch_program(*start);
    if (!is_program && !detail::is_executorch_data(*start)) {
        return detail::malformed(input.path(), 4, "neither a program nor data of ExecuTorch", detail::shown(identifier),
                                 "ET12 or FT01");
    }
    if (identifier != "ET12" && identifier != "FT01") {
        return detail::unsupported(input.path(), 4,
                                   "a version of ExecuTorch's files that is not known; export it again with 1.5",
                                   detail::shown(identifier), is_program ? "ET12" : "FT01");
    }
    const auto extent = detail::read_executorch_header(input, is_program);
    if (!extent) { return extent.error(); }
    const auto description = input.try_text(0, extent->description_bytes);
    if (!description) { return description.error(); }
    return detail::ExecutorchTables{input, *extent, *description}.try_read(is_program);
}

RESIDENCY_INLINE Result<ExecutorchCudaWeights> try_read_executorch_cuda(const Input& program,
                                                                        const ExecutorchDelegate& delegate) {
    if (delegate.backend != detail::executorch_cuda_backend) {
        return detail::unsupported(program.path(), delegate.offset_bytes, "a delegate of another backend",
                                   detail::shown(delegate.backend), detail::shown(detail::executorch_cuda_backend));
    }
    const auto text = program.try_text(delegate.offset_bytes, delegate.bytes);
    if (!text) { return text.error(); }
    return detail::ExecutorchCudaReader{*text, program.path(), delegate.offset_bytes}.try_read();
}

RESIDENCY_INLINE Result<ModelFile> try_read_executorch(std::span<const Input> inputs) {
    std::vector<ExecutorchFile> files;
    files.reserve(inputs.size());
    std::vector<detail::ExecutorchDescription> described;
    for (const Input& input : inputs) {
        auto file = try_read_executorch_file(input);
        if (!file) { return file.error(); }
        files.push_back(std::move(*file));
        auto delegates = detail::read_descriptions(input, files.back());
        if (!delegates) { return delegates.error(); }
        if (files.back().is_program) { described = std::move(*delegates); }
    }
    return detail::ExecutorchModel{}.try_read(inputs, files, std::move(described));
}

RESIDENCY_INLINE Result<ModelFile> try_read_executorch(const std::string& path) {
    std::vector<Input> inputs;
    std::vector<ExecutorchFile> files;
    const auto add = [&](Input input, ExecutorchFile file) {
        inputs.push_back(std::move(input));
        files.push_back(std::move(file));
    };
    {
        auto input = Input::try_open(path);
        if (!input) { return input.error(); }
        auto file = try_read_executorch_file(*input);
        if (!file) { return file.error(); }
        add(std::move(*input), std::move(*file));
    }
    auto described = detail::read_descriptions(inputs.front(), files.front());
    if (!described) { return described.error(); }
    std::unordered_set<std::string> wanted{files.front().outside.begin(), files.front().outside.end()};
    for (const auto& each : *described) {
        for (const ExecutorchConstant& constant : each.weights.constants) { wanted.insert(constant.key); }
    }
    for (const ExecutorchData& data : files.front().data) { wanted.erase(data.key); }
    if (!wanted.empty()) {
        const std::string folder = detail::folder_of(path);
        const auto names = detail::try_list_folder(folder.empty() ? "." : folder);
        if (!names) { return names.error(); }
        for (const std::string& name : *names) {
            if (!name.ends_with(".ptd")) { continue; }
            auto beside = Input::try_open(folder + name);
            if (!beside) { return beside.error(); }
            auto file = try_read_executorch_file(*beside);
            if (!file) { return file.error(); }
            if (std::any_of(file->data.begin(), file->data.end(),
                            [&](const ExecutorchData& each) { return wanted.contains(each.key); })) {
                add(std::move(*beside), std::move(*file));
            }
        }
    }
    return detail::ExecutorchModel{}.try_read(inputs, files, std::move(*described));
}

}}}  // namespace residency::RESIDENCY_ABI::format

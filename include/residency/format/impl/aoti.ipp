// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "residency/format/aoti.hpp"
#include "residency/format/folder.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/open.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/torch.hpp"
#include "residency/format/torch_dtype.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/view.hpp"
#include "residency/format/zip.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

[[nodiscard]] inline std::optional<std::uint64_t> aoti_end(std::uint64_t offset, std::uint64_t bytes,
                                                           AotiLayout layout) noexcept {
    constexpr std::uint64_t alignment = 64;
    auto end = residency::detail::checked_add(offset, bytes);
    if (end && layout == AotiLayout::padded) {
        end = residency::detail::checked_add(*end, alignment - 1);
        if (end) { *end &= ~(alignment - 1); }
    }
    return end;
}

[[nodiscard]] inline std::optional<std::uint64_t> aoti_total(std::span<const AotiConstant> constants,
                                                             AotiLayout layout) noexcept {
    std::optional<std::uint64_t> total = 0;
    for (const AotiConstant& constant : constants) {
        if (total) { total = aoti_end(*total, constant.storage_bytes, layout); }
    }
    return total;
}

/// Appends a blob in [begin, begin + bytes) of a file that is in the model already.
[[nodiscard]] inline Status append_aoti_blob(ModelFile& model, std::uint32_t file, std::uint64_t begin,
                                             std::uint64_t bytes, std::span<const AotiConstant> constants,
                                             AotiLayout layout, const std::string& prefix) {
    const std::string& path = model.files[file].path;
    const auto shown_total = [](std::optional<std::uint64_t> total) {
        return total ? residency::detail::in_bytes(*total) : std::string{"more than 64 bits hold"};
    };
    if (layout == AotiLayout::automatic) {
        layout = aoti_total(constants, AotiLayout::dense) == bytes ? AotiLayout::dense : AotiLayout::padded;
    }
    if (const auto total = aoti_total(constants, layout); total != bytes) {
        const bool is_cut = begin == 0 && bytes == model.files[file].bytes && (!total || bytes < *total);
        return malformed(path, begin,
                         std::string{"the weights blob does not have the size of its constants"} +
                             (is_cut ? std::string{": "} + cut_off : std::string{}),
                         residency::detail::in_bytes(bytes),
                         shown_total(aoti_total(constants, AotiLayout::dense)) + ", or " +
                             shown_total(aoti_total(constants, AotiLayout::padded)) + " with padding");
    }
    std::uint64_t offset = 0;
    for (const AotiConstant& constant : constants) {
        const auto type = find_torch_dtype(std::string_view{constant.dtype});
        const std::string what = "constant " + shown(constant.name) + ": ";
        if (!is_utf8(constant.name)) { return malformed(path, begin + offset, what + "its name is not UTF-8"); }
        if (!type) { return malformed(path, begin + offset, what + unknown_type, shown(constant.dtype)); }
        const auto from = residency::detail::checked_multiply(constant.offset_elements, type->type.block_bits() / 8);
        if (!from) { return malformed(path, begin + offset, what + "its offset does not fit in 64 bits"); }
        const auto storage = static_cast<std::uint32_t>(model.storages.size());
        model.storages.push_back({file, begin + offset, constant.storage_bytes, false});
        if (Status added = append_view(model, {prefix + constant.name, std::string{type->name}, type->type,
                                               constant.shape, constant.strides, storage, *from, 0});
            !added) {
            return malformed(path, begin + offset, what + added.error().message());
        }
        offset = *aoti_end(offset, constant.storage_bytes, layout);
    }
    return {};
}

/// Reads the table of constants from the C++ text that AOTInductor generates: statements constants_info_[i].field = value;
class AotiTable {
public:
    /// `text` starts at byte `base` of `source`.
    [[nodiscard]] static Result<std::vector<AotiConstant>> try_read(std::string_view text, const std::string& source,
                                                                    std::uint64_t base) {
        constexpr std::string_view mark = "constants_info_[";
        std::vector<AotiConstant> constants;
        std::vector<bool> folded;
        for (std::size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at)) {
            AotiTable reader{text, at + mark.size()};
            const std::size_t start = at;
            at += mark.size();
            std::uint64_t number = 0;
            std::string_view field;
            if (!reader.number(number) || !reader.skip("].") || !reader.word(field) || !reader.skip(" = ")) {
                continue;
            }
            const auto broken = [&](const std::string& what) {
                return malformed(source, base + start, "the table of constants: " + what);
            };
            if (number == constants.size()) {
                constants.emplace_back();
                folded.push_back(false);
            }
            if (constants.empty() || number != constants.size() - 1) {
                return broken("entry " + std::to_string(number) + " is out of order");
            }
            AotiConstant& constant = constants.back();
            bool fine = true;
            if (field == "name") {
                fine = reader.string(constant.name);
            } else if (field == "original_fqn") {
                std::string full;
                fine = reader.string(full);
                if (fine && !full.empty()) { constant.name = std::move(full); }
            } else if (field == "dtype") {
                fine = reader.dtype(constant.dtype);
            } else if (field == "offset") {
                fine = reader.number(constant.offset_elements);
            } else if (field == "data_size") {
                fine = reader.number(constant.storage_bytes);
            } else if (field == "shape") {
                fine = reader.numbers(constant.shape);
            } else if (field == "stride") {
                fine = reader.numbers(constant.strides);
            } else if (field == "from_folded") {
                folded.back() = reader.skip("true");
            }
            if (!fine) { return broken("the value of " + std::string{field} + " is not valid"); }
        }
        // Folded constants are computed when the model runs: the blob does not have them.
        std::vector<AotiConstant> stored;
        for (std::size_t i = 0; i < constants.size(); ++i) {
            if (!folded[i]) { stored.push_back(std::move(constants[i])); }
        }
        return stored;
    }

private:
    AotiTable(std::string_view text, std::size_t at) noexcept : text_{text}, at_{at} {}

    [[nodiscard]] bool skip(std::string_view what) noexcept {
        if (text_.substr(at_, what.size()) != what) { return false; }
        at_ += what.size();
        return true;
    }
    [[nodiscard]] bool number(std::uint64_t& out) noexcept {
        const char* const end = text_.data() + text_.size();
        const auto [stop, code] = std::from_chars(text_.data() + at_, end, out);
        if (code != std::errc{}) { return false; }
        at_ = static_cast<std::size_t>(stop - text_.data());
        while (at_ < text_.size() && (text_[at_] == 'L' || text_[at_] == 'U')) { ++at_; }
        return true;
    }
    [[nodiscard]] bool word(std::string_view& out) noexcept {
        const std::size_t start = at_;
        while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') ||
                                      (text_[at_] >= '0' && text_[at_] <= '9') || text_[at_] == '_')) {
            ++at_;
        }
        out = text_.substr(start, at_ - start);
        return !out.empty();
    }
    [[nodiscard]] bool string(std::string& out) {
        if (!skip("\"")) { return false; }
        for (; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (c == '"') { return true; }
            if (c == '\n') { return false; }
            if (c == '\\') {
                const char escaped = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
                if (escaped != '"' && escaped != '\\' && escaped != '\'') { return false; }
                ++at_;
            }
            out += text_[at_];
        }
        return false;
    }
    [[nodiscard]] bool numbers(std::vector<std::uint64_t>& out) {
        if (!skip("{")) { return false; }
        if (skip("}")) { return true; }
        for (;;) {
            std::uint64_t value = 0;
            if (!number(value)) { return false; }
            out.push_back(value);
            if (skip("}")) { return true; }
            if (!skip(",")) { return false; }
            while (skip(" ")) {}
        }
    }
    [[nodiscard]] bool dtype(std::string& out) {
        constexpr std::string_view mark = "cached_torch_dtype_";
        const std::size_t end = text_.find(';', at_);
        const std::size_t start = text_.find(mark, at_);
        if (end == std::string_view::npos || start == std::string_view::npos || start > end) { return false; }
        at_ = start + mark.size();
        std::string_view name;
        if (!word(name)) { return false; }
        out = name;
        return true;
    }

    std::string_view text_;
    std::size_t at_;
};

/// A saved tensor in [begin, begin + bytes) of a file.
struct LocatedTensor {
    PickledTensor tensor;
    ZipDirectory::Range data;
};

/// Finds a tensor that torch.save wrote.
[[nodiscard]] inline Result<LocatedTensor> locate_torch_tensor(const Input& input, std::uint64_t begin,
                                                               std::uint64_t bytes) {
    constexpr std::uint64_t longest_pickle = 1 << 16;
    const auto zip = ZipDirectory::try_read(input, begin, bytes);
    if (!zip) { return zip.error(); }
    const auto archive = TorchArchive::try_read(input, *zip, begin, longest_pickle);
    if (!archive) { return archive.error(); }
    auto tensor = TorchPickle::try_read_tensor(archive->pickle(), input.path(), archive->pickle_offset());
    if (!tensor) { return tensor.error(); }
    const auto data = archive->try_locate(tensor->storage);
    if (!data) { return data.error(); }
    return LocatedTensor{std::move(*tensor), *data};
}

/// What a package's records are read from: an archive, or a folder into which one was unpacked, with a file for each.
class AotiRecords {
public:
    struct Record {
        std::uint32_t file = 0;  ///< in model.files
        std::uint64_t offset = 0, bytes = 0;
    };

    AotiRecords(const Input& archive, const ZipDirectory& zip) noexcept : archive_{&archive}, zip_{&zip} {}
    explicit AotiRecords(std::vector<std::string> folders) noexcept : folders_{std::move(folders)} {}

    /// The record of that path in the archive, or of that file name in one of the folders. `look(input, record)` returns a Status.
    template <class Look>
    [[nodiscard]] Result<Record> try_find(ModelFile& model, const std::string& path, const std::string& asked_by,
                                          const Look& look) {
        if (archive_ != nullptr) {
            const auto* entry = zip_->find(path);
            if (entry == nullptr) {
                return malformed(archive_->path(), 0,
                                 "the package has no record " + shown(path) + ", which " + shown(asked_by) + " names");
            }
            const auto range = zip_->try_locate(*archive_, *entry);
            if (!range) { return range.error(); }
            if (model.files.empty()) { model.files.push_back(archive_->source()); }
            const Record record{0, range->offset, range->bytes};
            if (Status looked = look(*archive_, record); !looked) { return looked.error(); }
            return record;
        }
        const std::string name = path.substr(path.rfind('/') + 1);
        for (const std::string& folder : folders_) {
            const std::string file = folder + name;
            if (!Input::exists(file)) { continue; }
            const auto input = Input::try_open(file);
            if (!input) { return input.error(); }
            const Record record{static_cast<std::uint32_t>(model.files.size()), 0, input->bytes()};
            if (Status looked = look(*input, record); !looked) { return looked.error(); }
            model.files.push_back(input->source());
            return record;
        }
        return malformed(asked_by, 0, "names " + shown(name) + ", which is not there");
    }

private:
    const Input* archive_ = nullptr;
    const ZipDirectory* zip_ = nullptr;
    std::vector<std::string> folders_;
};

[[nodiscard]] inline bool is_record_name(std::string_view name) noexcept {
    return !name.empty() && name != ".." && name != "." && name.find('/') == std::string_view::npos &&
           name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

[[nodiscard]] inline bool counts_of(const JsonTree::Value& value, std::vector<std::uint64_t>& out, bool wrapped) {
    if (!value.is_array()) { return false; }
    for (const auto& item : value.children()) {
        const auto inner = wrapped ? item.find("as_int") : std::optional{item};
        const auto number = inner ? inner->number() : std::nullopt;
        if (!number) { return false; }
        out.push_back(*number);
    }
    return true;
}

/// A file's storages by record name, so that weights in one record share them.
using AotiStorages = std::map<std::string, std::pair<std::uint32_t, std::optional<TorchDType>>>;

/// {name: [record, shape, strides, offset in elements]}; the records are tensors that torch.save wrote.
[[nodiscard]] inline Status append_weights_config(ModelFile& model, AotiRecords& records, const JsonTree& config,
                                                  const std::string& source, const std::string& root,
                                                  const std::string& prefix, AotiStorages& storages) {
    if (!config.root().is_object()) {
        return malformed(source, config.root().place(), "weights_config.json is not an object");
    }
    for (const auto& entry : config.root().children()) {
        const auto broken = [&](const std::string& what) {
            return malformed(source, entry.place(), "weight " + shown(entry.key()) + ": " + what);
        };
        const auto fields = entry.is_array() ? entry.children() : std::vector<JsonTree::Value>{};
        const auto record_name = fields.size() == 4 ? fields[0].string() : std::nullopt;
        ModelFile::WeightEntry weight;
        weight.name = prefix + std::string{entry.key()};
        const auto offset = record_name ? fields[3].number() : std::nullopt;
        if (!offset || !is_record_name(*record_name) || !counts_of(fields[1], weight.shape, false) ||
            !counts_of(fields[2], weight.strides, false) || weight.shape.size() != weight.strides.size()) {
            return broken("not an array of a record's name, a shape, strides and an offset");
        }
        const std::string path = root + "data/weights/" + std::string{*record_name};
        auto known = storages.find(path);
        if (known == storages.end()) {
            std::optional<LocatedTensor> located;
            const auto record = records.try_find(
                model, path, source, [&](const Input& input, const AotiRecords::Record& found) -> Status {
                    auto tensor = locate_torch_tensor(input, found.offset, found.bytes);
                    if (!tensor) { return tensor.error().in("weight " + shown(weight.name)); }
                    located = std::move(*tensor);
                    return {};
                });
            if (!record) { return record.error(); }
            known = storages
                        .emplace(path, std::pair{static_cast<std::uint32_t>(model.storages.size()),
                                                 std::optional{located->tensor.dtype}})
                        .first;
            model.storages.push_back({record->file, located->data.offset, located->data.bytes, false});
        }
        if (!known->second.second) { return broken("its record is raw bytes to another config of this package"); }
        const TorchDType& dtype = *known->second.second;
        const auto from = residency::detail::checked_multiply(*offset, dtype.type.block_bits() / 8);
        if (!from) { return broken("its offset does not fit in 64 bits"); }
        weight.dtype = dtype.name;
        weight.type = dtype.type;
        weight.storage = known->second.first;
        weight.offset_bytes = *from;
        if (Status added = append_view(model, std::move(weight)); !added) { return broken(added.error().message()); }
    }
    return {};
}

/// {"config": {name: {path_name, use_pickle, tensor_meta}}} of an exported program; the records are raw bytes.
[[nodiscard]] inline Status append_payload_config(ModelFile& model, AotiRecords& records, const JsonTree& config,
                                                  const std::string& source, const std::string& root,
                                                  const std::string& prefix, AotiStorages& storages) {
    const auto entries = config.root().find("config");
    if (!entries || !entries->is_object()) {
        return malformed(source, config.root().place(), "the weights' config has no object \"config\"");
    }
    for (const auto& entry : entries->children()) {
        const auto broken = [&](const std::string& what) {
            return malformed(source, entry.place(), "weight " + shown(entry.key()) + ": " + what);
        };
        const auto record_name = entry.string("path_name");
        const auto pickled = entry.boolean("use_pickle");
        const auto meta = entry.find("tensor_meta");
        if (!record_name || !is_record_name(*record_name) || !meta || !meta->is_object()) {
            return broken("it lacks a valid path_name or tensor_meta");
        }
        if (pickled.value_or(false)) {
            return unsupported(source, entry.place(),
                               "weight " + shown(entry.key()) + ": a pickled tensor subclass cannot be read");
        }
        ModelFile::WeightEntry weight;
        weight.name = prefix + std::string{entry.key()};
        const auto number = meta->number("dtype");
        const auto dtype = number ? find_torch_dtype(*number) : std::nullopt;
        if (!dtype) { return broken(unknown_type + (number ? ": found " + std::to_string(*number) : std::string{})); }
        const auto sizes = meta->find("sizes");
        const auto strides = meta->find("strides");
        const auto start = meta->find("storage_offset") ? meta->find("storage_offset")->find("as_int") : std::nullopt;
        const auto offset = start ? start->number() : std::nullopt;
        if (!sizes || !strides || !offset || !counts_of(*sizes, weight.shape, true) ||
            !counts_of(*strides, weight.strides, true) || weight.shape.size() != weight.strides.size()) {
            return broken("its sizes, strides or storage_offset are not valid");
        }
        const std::string path = root + "data/weights/" + std::string{*record_name};
        auto known = storages.find(path);
        if (known == storages.end()) {
            const auto record = records.try_find(model, path, source,
                                                 [](const Input&, const AotiRecords::Record&) { return Status{}; });
            if (!record) { return record.error(); }
            known = storages
                        .emplace(path, std::pair{static_cast<std::uint32_t>(model.storages.size()),
                                                 std::optional<TorchDType>{}})
                        .first;
            model.storages.push_back({record->file, record->offset, record->bytes, false});
        }
        if (known->second.second) { return broken("its record is a saved tensor to another config of this package"); }
        const auto from = residency::detail::checked_multiply(*offset, dtype->type.block_bits() / 8);
        if (!from) { return broken("its offset does not fit in 64 bits"); }
        weight.dtype = dtype->name;
        weight.type = dtype->type;
        weight.storage = known->second.first;
        weight.offset_bytes = *from;
        if (Status added = append_view(model, std::move(weight)); !added) { return broken(added.error().message()); }
    }
    return {};
}

/// The package with that directory.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> read_aoti_package(const Input& input, const ZipDirectory& zip) {
    constexpr std::string_view config_tail = "/weights_config.json";
    constexpr std::string_view payload_tail = "_weights_config.json";
    constexpr std::string_view blob_tail = "_weights.blob";
    constexpr std::string_view models = "data/aotinductor/";
    constexpr std::string_view weights = "data/weights/";
    struct Part {
        enum class Kind : std::uint8_t { saved, payload, blob } kind;
        const ZipDirectory::Entry* entry;
        std::string root, model;
    };
    std::vector<Part> parts;
    bool has_library = false;
    for (const auto& entry : zip.entries()) {
        const std::string& name = entry.name;
        const std::size_t in_models = name.find(models);
        const std::size_t in_weights = name.find(weights);
        const bool is_model = in_models == 0 || (in_models != std::string::npos && name[in_models - 1] == '/');
        const bool is_weights = in_weights == 0 || (in_weights != std::string::npos && name[in_weights - 1] == '/');
        if (is_model) {
            const std::string_view rest = std::string_view{name}.substr(in_models + models.size());
            const std::string owner{rest.substr(0, rest.rfind('/') == std::string_view::npos ? 0 : rest.rfind('/'))};
            has_library = has_library || name.ends_with(".so");
            if (name.ends_with(config_tail)) {
                parts.push_back({Part::Kind::saved, &entry, name.substr(0, in_models), owner});
            }
            if (name.ends_with(blob_tail)) {
                parts.push_back({Part::Kind::blob, &entry, name.substr(0, in_models), owner});
            }
        } else if (is_weights && name.ends_with(payload_tail)) {
            const std::string_view file = std::string_view{name}.substr(in_weights + weights.size());
            parts.push_back({Part::Kind::payload, &entry, name.substr(0, in_weights),
                             std::string{file.substr(0, file.size() - payload_tail.size())}});
        }
    }
    if (parts.empty()) {
        return unsupported(input.path(), 0,
                           has_library
                               ? "a package whose weights are inside its shared library; package them on disk "
                                 "(aot_inductor.package_constants_on_disk_format)"
                               : "a ZIP archive that is not a package with weights: unpack it, and give what lies "
                                 "in it",
                           {}, "weights_config.json, a weights blob, or data.pkl of torch.save");
    }
    ModelFile model;
    model.format = "aotinductor";
    model.files.push_back(input.source());
    AotiRecords records{input, zip};
    AotiStorages storages;
    for (const Part& part : parts) {
        const std::string prefix = parts.size() > 1 ? part.model + "/" : std::string{};
        const auto range = zip.try_locate(input, *part.entry);
        if (!range) { return range.error(); }
        Status added;
        if (part.kind == Part::Kind::blob) {
            const std::string code_name =
                part.entry->name.substr(0, part.entry->name.size() - blob_tail.size()) + ".cpp";
            const auto* code = zip.find(code_name);
            if (code == nullptr) {
                return unsupported(input.path(), range->offset,
                                   "a weights blob without the generated code that describes it", {}, shown(code_name));
            }
            const auto code_range = zip.try_locate(input, *code);
            if (!code_range) { return code_range.error(); }
            if (code_range->bytes > JsonTree::most_bytes) {
                return malformed(input.path(), code_range->offset, "the generated code is too long",
                                 residency::detail::in_bytes(code_range->bytes));
            }
            const auto text = input.try_text(code_range->offset, code_range->bytes);
            if (!text) { return text.error(); }
            const auto constants = AotiTable::try_read(*text, input.path(), code_range->offset);
            if (!constants) { return constants.error(); }
            added = append_aoti_blob(model, 0, range->offset, range->bytes, *constants, AotiLayout::automatic, prefix);
        } else {
            const auto config = JsonTree::try_read(input, range->offset, range->bytes);
            if (!config) { return config.error(); }
            added = part.kind == Part::Kind::saved
                        ? append_weights_config(model, records, *config, input.path(), part.root, prefix, storages)
                        : append_payload_config(model, records, *config, input.path(), part.root, prefix, storages);
        }
        if (!added) { return added.error(); }
    }
    if (Status unique = refuse_duplicates(model, input.path()); !unique) { return unique.error(); }
    separate_storages(model, 0);
    return model;
}

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_aoti_blob(const Input& input, std::span<const AotiConstant> constants,
                                                      AotiLayout layout) {
    ModelFile model;
    model.format = "aotinductor";
    model.files.push_back(input.source());
    if (Status added = detail::append_aoti_blob(model, 0, 0, input.bytes(), constants, layout, {}); !added) {
        return added.error();
    }
    if (Status unique = detail::refuse_duplicates(model, input.path()); !unique) { return unique.error(); }
    return model;
}

RESIDENCY_INLINE Result<std::vector<AotiConstant>> try_read_aoti_constants(const Input& input) {
    if (input.bytes() > detail::JsonTree::most_bytes) {
        return detail::malformed(input.path(), 0, "the generated code is too long",
                                 residency::detail::in_bytes(input.bytes()));
    }
    const auto text = input.try_text(0, input.bytes());
    if (!text) { return text.error(); }
    return detail::AotiTable::try_read(*text, input.path(), 0);
}

RESIDENCY_INLINE Result<ModelFile> try_read_aoti_package(const Input& input) {
    const auto zip = detail::ZipDirectory::try_read(input, 0, input.bytes());
    if (!zip) { return zip.error(); }
    return detail::read_aoti_package(input, *zip);
}

RESIDENCY_INLINE Result<ModelFile> try_read_aoti_config(const Input& input) {
    const auto config = detail::JsonTree::try_read(input, 0, input.bytes());
    if (!config) { return config.error(); }
    const std::string folder = detail::folder_of(input.path());
    detail::AotiRecords records{{folder, folder + "../../weights/"}};
    detail::AotiStorages storages;
    ModelFile model;
    model.format = "aotinductor";
    const auto payload = config->root().find("config");
    Status added = payload && payload->is_object()
                       ? detail::append_payload_config(model, records, *config, input.path(), {}, {}, storages)
                       : detail::append_weights_config(model, records, *config, input.path(), {}, {}, storages);
    if (!added) { return added.error(); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_aoti(const std::string& path) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    return path.ends_with(".json") ? try_read_aoti_config(*input) : try_read_aoti_package(*input);
}

RESIDENCY_INLINE Result<ModelFile> try_read_model_or_aoti(const std::string& path, const ReadOptions& options) {
    if (detail::is_folder(path)) { return try_read_model(path, options); }
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    std::string start;
    const auto format = detail::format_of(*input, start);
    if (!format) { return format.error(); }
    switch (*format) {
        case detail::FileFormat::aoti_package:
            return detail::with_key_used(try_read_aoti_package(*input), path, options);
        case detail::FileFormat::aoti_config: return detail::with_key_used(try_read_aoti_config(*input), path, options);
        default: return try_read_model(path, options);
    }
}

}}}  // namespace residency::RESIDENCY_ABI::format

// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "residency/format/other_kinds.hpp"
#include "residency/format/torch.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Whether a part of a file is text: UTF-8 without the control characters that text has not. Its last character may be cut.
[[nodiscard]] inline bool is_text(std::string_view start) noexcept {
    for (const char c : start) {
        const auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && (byte < '\t' || byte > '\r') && byte != 0x1b) || byte == 0x7f) { return false; }
    }
    constexpr std::size_t longest_character = 4;
    for (std::size_t cut = 0; cut < (std::min)(longest_character, start.size()); ++cut) {
        if (is_utf8(start.substr(0, start.size() - cut))) { return true; }
    }
    return false;
}

/// Whether a pickle begins so that is none of PyTorch's, of a protocol that is not text.
[[nodiscard]] inline bool is_plain_pickle(std::string_view start) noexcept {
    constexpr std::string_view first_operations =
        "}](cXKNJMGBCIL\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x95\x96";  // of a value, or of a frame
    return !has_safetensors_header(start) && !is_torch_before_archives(start) && start.size() > 2 &&
           start[0] == '\x80' && start[1] >= 2 && start[1] <= 5 &&
           first_operations.find(start[2]) != std::string_view::npos;
}

/// What a file is in truth, by its first bytes, and what to do; an empty `what`: not known.
struct OtherKind {
    const char* what = "";
    const char* advice = "";
};
inline constexpr OtherKind plain_pickle{
    "a Python pickle that torch.save did not write, of which no tensors can be read",
    "load it in Python, and save the tensors of it with safetensors or torch.save"};
[[nodiscard]] inline OtherKind other_kind_of(std::string_view start) noexcept {
    constexpr const char* fetch = "fetch the file itself: git lfs pull in its repository, or download it again";
    constexpr const char* download = "download the file again, and log in first if its page asks for that";
    constexpr const char* unpack = "unpack it and give a model file in it";
    constexpr const char* convert = "convert it to safetensors or GGUF";
    struct Magic {
        std::string_view bytes;
        OtherKind kind;
        std::size_t at = 0;
    };
    constexpr std::array magics{
        Magic{"version https://git-lfs.github.com/spec/",
              {"a Git LFS pointer and not the file that it stands for", fetch}},
        Magic{"version https://hawser.github.com/spec/",
              {"a Git LFS pointer and not the file that it stands for", fetch}},
        Magic{"# xet version", {"a Xet pointer and not the file that it stands for", "download the file itself"}},
        Magic{"/annex/objects/", {"a git-annex pointer and not the file that it stands for", "git annex get the file"}},
        Magic{{"\x1f\x8b", 2}, {"a gzip archive", unpack}},
        Magic{{"\x28\xb5\x2f\xfd", 4}, {"a zstd archive", unpack}},
        Magic{{"\xfd"
               "7zXZ\0",
               6},
              {"an xz archive", unpack}},
        Magic{"BZh", {"a bzip2 archive", unpack}},
        Magic{{"7z\xbc\xaf\x27\x1c", 6}, {"a 7z archive", unpack}},
        Magic{"Rar!", {"a RAR archive", unpack}},
        Magic{"ustar", {"a tar archive", unpack}, 257},
        Magic{{"\x89HDF\r\n\x1a\n", 8}, {"an HDF5 file, as Keras writes it", convert}},
        Magic{{"\x93NUMPY", 6}, {"a NumPy array", convert}},
        Magic{"TFL3", {"a TensorFlow Lite model", convert}, 4},
        Magic{"lmgg", {"a ggml file from before GGUF", "convert it to GGUF with llama.cpp"}},
        Magic{"fmgg", {"a ggml file from before GGUF", "convert it to GGUF with llama.cpp"}},
        Magic{"tjgg", {"a ggml file from before GGUF", "convert it to GGUF with llama.cpp"}},
        Magic{"(dp0\n", plain_pickle},  // of protocol 0, which is text
        Magic{"(lp0\n", plain_pickle},
        Magic{"%PDF-", {"a PDF document", "give a model file"}},
        Magic{{"\x7f"
               "ELF",
               4},
              {"a program or library", "give a model file"}},
    };
    for (const Magic& magic : magics) {
        if (start.size() >= magic.at && start.substr(magic.at).starts_with(magic.bytes)) { return magic.kind; }
    }
    if (is_plain_pickle(start)) { return plain_pickle; }
    if (start.size() >= 64 && start.find_first_not_of('\0') == std::string_view::npos) {
        return {"zeros where a file begins, as a download leaves them that was cut off", "download the file again"};
    }
    if (!is_text(start)) { return {}; }
    if (start.starts_with("\xef\xbb\xbf")) { start.remove_prefix(3); }
    start.remove_prefix((std::min)(start.find_first_not_of(" \t\r\n"), start.size()));
    const auto begins = [&](std::string_view lower) {
        return start.size() >= lower.size() &&
               std::equal(lower.begin(), lower.end(), start.begin(), [](char a, char b) {
                   return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + ('a' - 'A')) : b);
               });
    };
    for (const std::string_view tag : {"<!doctype html", "<html", "<head", "<body", "<!--"}) {
        if (begins(tag)) { return {"an HTML page", download}; }
    }
    if (begins("<?xml") || begins("<error")) { return {"an XML document, as servers answer with errors", download}; }
    if (start.starts_with('{') || start.starts_with('[')) {
        return {"JSON", "give the file of weights, or name it .json if it is an index or a manifest"};
    }
    return {"text", "give the file of weights"};
}

RESIDENCY_INLINE Status refuse_other_kinds(const Input& input, bool is_json) {
    constexpr std::uint64_t most = 512;
    const std::string& path = input.path();
    if (input.bytes() == 0) { return unsupported(path, 0, "an empty file; download or save it again"); }
    const auto start = input.try_text(0, (std::min)(most, input.bytes()));
    if (!start) { return start.error(); }
    const OtherKind kind = other_kind_of(*start);
    const std::string_view what = kind.what;
    if (what.empty() || (is_json && (what == "JSON" || what == "text"))) { return {}; }
    return unsupported(path, 0, std::string{what} + "; " + kind.advice,
                       shown(std::string_view{*start}.substr(0, (std::min)(start->size(), std::size_t{16}))));
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

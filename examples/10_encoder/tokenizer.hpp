// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace encoder {

/// WordPiece as BERT's uncased models use it: lower case, without accents, punctuation and Chinese characters apart, words in the
/// longest pieces that the vocabulary has.
class Tokenizer {
public:
    static constexpr std::string_view unknown = "[UNK]", first = "[CLS]", last = "[SEP]";

    /// Reads vocab.txt, a token a line. Throws residency::IoError, or FormatError for a vocabulary that lacks what is above.
    [[nodiscard]] static Tokenizer read(const std::string& path);

    /// Ids, with [CLS] before and [SEP] behind; at most `longest` of them. Throws residency::FormatError for text that is not
    /// UTF-8.
    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, std::size_t longest) const;
    [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }

    /// The words of a text, before they are cut into pieces.
    [[nodiscard]] static std::vector<std::string> words(std::string_view text);

private:
    void append_pieces(std::string_view word, std::vector<std::int32_t>& ids) const;

    std::unordered_map<std::string, std::int32_t> ids_;
    std::int32_t unknown_ = 0, first_ = 0, last_ = 0;
};

}  // namespace encoder

// Compares with what the PyPI package `tokenizers` gave: tests/fixtures/tokenizer/README.md.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable_name.h"
#include "tests/fixtures_path.h"
#include "tests/support/smollm2_vocabulary.h"
#include "text/word_splitter.h"
#include "tidemill/tokenizer.h"

namespace tidemill::tokenizer_golden_test {
namespace {

const Tokenizer& SmolLm2() {
  static const Tokenizer tokenizer = CreateTokenizer(testing::ReadSmolLm2Spec(TIDEMILL_FIXTURES)).value();
  return tokenizer;
}

std::vector<nlohmann::json> ReadLines(const std::string& name, size_t min_lines) {
  const std::string path = std::string(TIDEMILL_FIXTURES) + "/tokenizer/" + name;
  std::ifstream file(path);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  if (rows.size() < min_lines) throw std::runtime_error(path + ": missing or cut off");
  return rows;
}

std::string Spell(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += std::string(SmolLm2().TokenName(id)) + " ";
  return out;
}

// The texts of a file whose ids differ from ours; the first few are shown.
size_t CountDifferences(const std::string& name, EncodeOptions options) {
  size_t differences = 0;
  for (const nlohmann::json& row : ReadLines(name, 300)) {
    const auto text = row[0].get<std::string>();
    const auto expected = row[1].get<std::vector<int32_t>>();
    const std::vector<int32_t> ids = SmolLm2().Encode(text, options).value();
    if (ids == expected) continue;
    if (++differences <= 3) {
      ADD_FAILURE() << name << ": " << QuoteName(text) << "\n  expected " << Spell(expected) << "\n  actual   "
                    << Spell(ids);
    }
  }
  return differences;
}

class TokenizerGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, EveryText_SameIdsAsOriginal) {
  EXPECT_EQ(CountDifferences(std::string(GetParam()) + ".jsonl", {}), 0u);
}

INSTANTIATE_TEST_SUITE_P(Categories, TokenizerGolden,
                         ::testing::Values("latin", "cyrillic_greek", "cjk", "right_to_left_indic", "emoji",
                                           "combining_marks", "whitespace", "code", "digits", "contractions",
                                           "special_tokens", "random_unicode", "mixed", "control_characters",
                                           "long_runs"),
                         [](const auto& category) { return std::string(category.param); });

TEST(TokenizerGoldenText, SpecialTokensNotParsed_SameIdsAsOriginal) {
  EXPECT_EQ(CountDifferences("special_tokens_as_text.jsonl", {.parse_special = false}), 0u);
}

TEST(TokenizerGoldenText, EveryText_DecodesToItselfWithoutDroppedBytes) {
  size_t num_texts = 0;
  for (const char* const name :
       {"latin", "cjk", "emoji", "random_unicode", "mixed", "control_characters", "long_runs"}) {
    for (const nlohmann::json& row : ReadLines(std::string(name) + ".jsonl", 300)) {
      auto text = row[0].get<std::string>();
      const std::string decoded = SmolLm2().Decode(row[1].get<std::vector<int32_t>>(), true).value();
      std::erase_if(text, [](char c) {
        const auto dropped = SmolLm2().dropped_bytes();
        return std::find(dropped.begin(), dropped.end(), static_cast<uint8_t>(c)) != dropped.end();
      });
      EXPECT_EQ(decoded, text);
      ++num_texts;
    }
  }
  EXPECT_GE(num_texts, 2100u);
}

TEST(WordSplitterGolden, EveryRule_SameWordsAsOriginal) {
  const std::vector<WordRule> rules = {WordRule::kGpt2, WordRule::kDigitsThenGpt2, WordRule::kLlama3, WordRule::kQwen2};
  for (const nlohmann::json& row : ReadLines("word_lengths.jsonl", 500)) {
    const auto text = row[0].get<std::string>();
    for (size_t i = 0; i < rules.size(); ++i) {
      WordSplitter splitter(rules[i], text);
      std::vector<size_t> lengths;
      for (std::string_view word = splitter.Next(); !word.empty(); word = splitter.Next())
        lengths.push_back(word.size());
      EXPECT_EQ(lengths, row[i + 1].get<std::vector<size_t>>()) << i << ": " << QuoteName(text);
    }
  }
}

}  // namespace
}  // namespace tidemill::tokenizer_golden_test

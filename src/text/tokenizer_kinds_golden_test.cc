// Compares each kind of tokenizer with what the PyPI packages gave: tests/fixtures/tokenizer_kinds/README.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/printable_name.h"
#include "tests/fixtures_path.h"
#include "text/slow_tokenizer.h"
#include "text/tokenizer_json.h"
#include "tidemill/tokenizer.h"

namespace tidemill::tokenizer_kinds_golden_test {
namespace {

const std::string kFolder = std::string(TIDEMILL_FIXTURES) + "/tokenizer_kinds";

// The files whose names begin so, or with none of the two prefixes that are not tokenizer.json.
std::vector<std::string> Names(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".jsonl") continue;
    const bool is_other = name.starts_with("pieces_") || name.starts_with("slow_");
    if (prefix.empty() ? !is_other : name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<nlohmann::json> ReadRows(const std::string& name) {
  std::ifstream lines(kFolder + "/" + name + ".jsonl");
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  if (rows.size() < 100) throw std::runtime_error(name + ": missing or cut off");
  return rows;
}

// Rows behind the first: text, ids and, where there is a third, the text of the ids.
void ExpectRows(const Tokenizer& tokenizer, const std::vector<nlohmann::json>& rows, EncodeOptions options) {
  size_t differences = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto text = rows[i][0].get<std::string>();
    const auto expected = rows[i][1].get<std::vector<int32_t>>();
    const std::vector<int32_t> ids = tokenizer.Encode(text, options).value();
    if (ids != expected && ++differences <= 3) {
      ADD_FAILURE() << QuoteName(text) << "\n  expected " << ::testing::PrintToString(expected) << "\n  actual   "
                    << ::testing::PrintToString(ids);
    }
    if (rows[i].size() < 3) continue;
    EXPECT_EQ(tokenizer.DecodeText(expected, false).value(), rows[i][2].get<std::string>()) << QuoteName(text);
  }
  EXPECT_EQ(differences, 0u);
}

std::string DecodeBase64(const std::string& text) {
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const size_t value = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    if (value == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((num_bits += 6) < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits);
  }
  return bytes;
}

TEST(TokenizerKindsGolden, TokenizerJson_SameIdsAndTextAsTokenizers) {
  const auto names = Names("");
  EXPECT_GE(names.size(), 30u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto rows = ReadRows(name);
    ExpectRows(CreateTokenizer(ReadTokenizerJson(rows[0].dump()).value()).value(), rows, {});
  }
}

TEST(TokenizerKindsGolden, SentencePieceModel_SameIdsAsSentencePiece) {
  const auto names = Names("pieces_");
  EXPECT_GE(names.size(), 4u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto rows = ReadRows(name);
    const std::string model = DecodeBase64(rows[0]["model"].get<std::string>());
    const Tokenizer tokenizer = CreateTokenizer(ReadSlowTokenizer({.sentencepiece = model}).value()).value();
    ExpectRows(tokenizer, rows, {.add_special = false, .parse_special = false});
  }
}

TEST(TokenizerKindsGolden, VocabularyAndMerges_SameIdsAsTransformers) {
  const auto names = Names("slow_");
  EXPECT_GE(names.size(), 4u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto rows = ReadRows(name);
    const auto config = JsonDocument::Parse("tokenizer_config.json", rows[0]["config"].dump());
    const std::string vocab = rows[0]["vocab"].dump(), merges = rows[0]["merges"].get<std::string>();
    const Tokenizer tokenizer =
        CreateTokenizer(
            ReadSlowTokenizer({.vocab_json = vocab, .merges_txt = merges, .tokenizer_config = &*config}).value())
            .value();
    ExpectRows(tokenizer, rows, {});
  }
}

}  // namespace
}  // namespace tidemill::tokenizer_kinds_golden_test

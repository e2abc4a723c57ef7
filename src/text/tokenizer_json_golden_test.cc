// Compares with what the PyPI packages `tokenizers` and `sentencepiece` gave: tests/fixtures/tokenizer_json/README.md.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/printable_name.h"
#include "tests/fixtures_path.h"
#include "text/nfc.h"
#include "text/tokenizer_json.h"
#include "tidemill/tokenizer.h"

namespace tidemill::tokenizer_json_golden_test {
namespace {

std::string ReadFile(const std::string& name) {
  const std::string path = std::string(TIDEMILL_FIXTURES) + "/tokenizer_json/" + name;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (bytes.str().empty()) throw std::runtime_error(path + ": missing or empty");
  return bytes.str();
}

std::vector<nlohmann::json> ReadLines(const std::string& name) {
  std::istringstream lines(ReadFile(name));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  if (rows.size() < 150) throw std::runtime_error(name + ": cut off");
  return rows;
}

std::string Spell(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += QuoteName(tokenizer.TokenName(id)) + " ";
  return out;
}

void ExpectSameIds(const Tokenizer& tokenizer, const std::string& name, EncodeOptions options) {
  const auto texts = ReadLines("texts.jsonl");
  const auto rows = ReadLines(name);
  ASSERT_EQ(texts.size(), rows.size());
  size_t differences = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const auto expected = rows[i].get<std::vector<int32_t>>();
    const std::vector<int32_t> ids = tokenizer.Encode(text, options).value();
    if (ids == expected || ++differences > 3) continue;
    ADD_FAILURE() << QuoteName(text) << "\n  expected " << Spell(tokenizer, expected) << "\n  actual   "
                  << Spell(tokenizer, ids);
  }
  EXPECT_EQ(differences, 0u);
}

Tokenizer ReadTokenizer(const std::string& name) {
  return CreateTokenizer(ReadTokenizerJson(ReadFile(name + ".json")).value()).value();
}

class TokenizerJsonGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerJsonGolden, EveryText_SameIdsAsOriginal) {
  const std::string name = GetParam();
  ExpectSameIds(ReadTokenizer(name), name + ".ids.jsonl", {});
}

INSTANTIATE_TEST_SUITE_P(Shapes, TokenizerJsonGolden,
                         ::testing::Values("gpt2_like", "qwen2_like", "llama3_like", "digits_like", "llama2_like",
                                           "gemma_like"),
                         [](const auto& shape) { return std::string(shape.param); });

TEST(TokenizerJsonGoldenText, ByteLevel_DecodesToTheTextOrItsNfc) {
  for (const char* const name : {"gpt2_like", "qwen2_like", "llama3_like", "digits_like"}) {
    const Tokenizer tokenizer = ReadTokenizer(name);
    for (const nlohmann::json& row : ReadLines("texts.jsonl")) {
      const auto text = row.get<std::string>();
      const auto ids = tokenizer.Encode(text, {.add_special = false}).value();
      // No text here has a special token beside something that it would compose with.
      EXPECT_EQ(tokenizer.Decode(ids, true).value(), std::string_view(name) == "qwen2_like" ? ToNfc(text) : text)
          << name;
    }
  }
}

TEST(TokenizerJsonGoldenText, Shakespeare_SameIdsAndTextsAsOriginal) {
  const Tokenizer tokenizer = ReadTokenizer("shakespeare");
  EXPECT_EQ(tokenizer.vocab_size(), 2048u);
  const auto rows = nlohmann::json::parse(ReadFile("shakespeare.golden.json"));
  ASSERT_GE(rows.size(), 10u);
  for (const nlohmann::json& row : rows) {
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.Encode(row["text"].get<std::string>()).value(), ids) << row["text"];
    EXPECT_EQ(tokenizer.Decode(ids, true).value(), row["decoded"].get<std::string>());
  }
}

TokenizerSpec ReadPieces(const std::string& name) {
  TokenizerSpec spec;
  spec.kind = VocabularyKind::kSentencePiece;
  spec.spelling = TokenSpelling::kPieceSpaces;
  spec.normalizer = PieceSpaces(false);
  for (const nlohmann::json& row : ReadLines(name + ".jsonl")) {
    spec.tokens.push_back(row[0].get<std::string>());
    spec.scores.push_back(row[1].get<float>());
    spec.types.push_back(static_cast<TokenType>(row[2].get<int>()));
  }
  return spec;
}

TEST(SentencePieceGolden, SpaceBeforeTheText_SameIdsAsOriginal) {
  TokenizerSpec spec = ReadPieces("prefix_pieces");
  spec.normalizer = PieceSpaces(true);
  ExpectSameIds(CreateTokenizer(std::move(spec)).value(), "prefix_pieces.ids.jsonl", {.parse_special = false});
}

TEST(SentencePieceGolden, PiecesAcrossSpacesAndUserDefinedOnes_SameIdsAsOriginal) {
  ExpectSameIds(CreateTokenizer(ReadPieces("plain_pieces")).value(), "plain_pieces.ids.jsonl",
                {.parse_special = false});
}

TEST(SentencePieceGolden, EveryText_DecodesToItselfWithSpacesForPieceSpaces) {
  const Tokenizer tokenizer = CreateTokenizer(ReadPieces("plain_pieces")).value();
  for (const nlohmann::json& row : ReadLines("texts.jsonl")) {
    auto text = row.get<std::string>();
    const auto ids = tokenizer.Encode(text).value();
    for (size_t at = text.find("\xE2\x96\x81"); at != std::string::npos; at = text.find("\xE2\x96\x81"))
      text.replace(at, 3, " ");
    EXPECT_EQ(tokenizer.Decode(ids, true).value(), text);
  }
}

}  // namespace
}  // namespace tidemill::tokenizer_json_golden_test

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/small_vocabulary.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"
#include "tidemill/tokenizer.h"

namespace tidemill::stream_decoder_test {
namespace {

const Tokenizer& Small() {
  static const Tokenizer tokenizer = CreateTokenizer(testing::SmallSpec("gpt-2")).value();
  return tokenizer;
}

TEST(StreamDecoder, CharacterInParts_ComesOutWhenWhole) {
  StreamDecoder decoder(Small());
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Push(0x98), "");
  EXPECT_EQ(decoder.Push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.Push('a'), "a");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoder, BytesThatCannotBecomeValid_ReplacedAtOnce) {
  StreamDecoder decoder(Small());
  EXPECT_EQ(decoder.Push(0xFF), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.Push(0xE4), "");
  EXPECT_EQ(decoder.Push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(decoder.Push(0xE0), "");
  EXPECT_EQ(decoder.Push(0x80), "\xEF\xBF\xBD\xEF\xBF\xBD");  // E0 80 begins nothing: two subparts
}

TEST(StreamDecoder, Finish_FlushesTheRestOnce) {
  StreamDecoder decoder(Small());
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push(0x98), "\xEF\xBF\xBD");
}

TEST(StreamDecoder, Pending_GoesOnInAnother) {
  StreamDecoder first(Small());
  EXPECT_EQ(first.Push('a'), "a");
  EXPECT_EQ(first.pending(), "");
  for (const int byte : {0xF0, 0x9F, 0x98}) EXPECT_EQ(first.Push(byte), "");
  EXPECT_EQ(first.pending(), "\xF0\x9F\x98");
  StreamDecoder second(Small(), false, std::string(first.pending()));
  EXPECT_EQ(second.Push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(second.pending(), "");
}

TEST(StreamDecoder, SpecialTokens_SkippedUnlessKept) {
  const int32_t end = *Small().FindToken("<|im_end|>");
  StreamDecoder skipping(Small());
  EXPECT_EQ(skipping.Push(0xC3), "");
  EXPECT_EQ(skipping.Push(end), "");
  EXPECT_EQ(skipping.Push(0xA9), "\xC3\xA9");
  StreamDecoder keeping(Small(), true);
  EXPECT_EQ(keeping.Push(0xC3), "");
  EXPECT_EQ(keeping.Push(end), "\xEF\xBF\xBD<|im_end|>");
}

TEST(StreamDecoder, IdOutOfRange_StandsForNothing) {
  StreamDecoder decoder(Small());
  EXPECT_EQ(decoder.Push(0xC3), "");
  EXPECT_EQ(decoder.Push(-1), "");
  EXPECT_EQ(decoder.Push(1 << 30), "");
  EXPECT_EQ(decoder.Push(0xA9), "\xC3\xA9");
}

TEST(StreamDecoder, RandomTokens_JoinToTheWholeText) {
  std::mt19937 random(9);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids(random() % 40);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % 2 == 0 ? 0x80 + random() % 0x80 : random() % Small().vocab_size());
    }
    for (const bool keep_special : {false, true}) {
      StreamDecoder decoder(Small(), keep_special);
      std::string text;
      for (const int32_t id : ids) {
        text += decoder.Push(id);
        ASSERT_TRUE(IsValidUtf8(text)) << "round " << round;
      }
      text += decoder.Finish();
      ASSERT_EQ(text, ReplaceInvalidUtf8(Small().Decode(ids, keep_special).value())) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace tidemill::stream_decoder_test

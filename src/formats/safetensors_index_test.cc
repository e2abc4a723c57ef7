#include "formats/safetensors_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/safetensors_writer.h"

namespace tidemill::safetensors_index_test {
namespace {

using ::testing::ElementsAre;
using testing::SafetensorsWriter;

constexpr const char* kTwoShards =
    R"({"metadata": {"total_size": 24, "total_parameters": [1, {"x": 2}]},
        "weight_map": {"b": "m-2.safetensors", "a": "m-1.safetensors", "c": "m-2.safetensors"}, "more": {"weight_map": 1}})";

// Shards with one byte for each tensor named.
class Shards {
 public:
  explicit Shards(const std::vector<std::vector<std::string>>& names) {
    for (const auto& shard : names) {
      SafetensorsWriter writer;
      for (const std::string& name : shard) writer.Add(name, "U8", {1}, "x");
      bytes_.push_back(writer.Build());
    }
    for (const std::string& bytes : bytes_) {
      files_.push_back(SafetensorsFile::Parse(std::as_bytes(std::span(bytes))).value());
    }
  }
  std::span<const SafetensorsFile> files() const { return files_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<SafetensorsFile> files_;
};

TEST(SafetensorsIndex, Tensors_AreFoundInTheirShards) {
  const auto index = SafetensorsIndex::Parse(kTwoShards);
  ASSERT_TRUE(index.ok()) << index.error().message();
  EXPECT_THAT(index->shards(), ElementsAre("m-2.safetensors", "m-1.safetensors"));
  EXPECT_EQ(index->total_size(), 24U);
  ASSERT_EQ(index->tensors().size(), 3U);
  EXPECT_EQ(index->Find("a")->shard, 1U);
  EXPECT_EQ(index->Find("b")->shard, 0U);
  EXPECT_EQ(index->Find("c")->shard, 0U);
  EXPECT_EQ(index->Find("d"), nullptr);
  EXPECT_EQ(index->Find(""), nullptr);
}

TEST(SafetensorsIndex, TotalSize_MayBeMissingOrAFloat) {
  EXPECT_EQ(SafetensorsIndex::Parse(R"({"weight_map":{"a":"x.safetensors"}})")->total_size(), std::nullopt);
  EXPECT_EQ(SafetensorsIndex::Parse(R"({"weight_map":{"a":"x.safetensors"},"metadata":{}})")->total_size(),
            std::nullopt);
  EXPECT_EQ(
      SafetensorsIndex::Parse(R"({"weight_map":{"a":"x.safetensors"},"metadata":{"total_size":2.5e9}})")->total_size(),
      2'500'000'000U);
}

TEST(SafetensorsIndex, Shards_MustHoldWhatTheIndexSays) {
  const auto index = SafetensorsIndex::Parse(kTwoShards);
  ASSERT_TRUE(index.ok());
  EXPECT_TRUE(index->CheckShards(Shards({{"b", "c"}, {"a"}}).files()).ok());
  EXPECT_TRUE(index->CheckShards(Shards({{"b", "c", "of_nobody"}, {"a", "of_nobody"}}).files()).ok());
  const auto message = [&](const std::vector<std::vector<std::string>>& names) {
    const auto checked = index->CheckShards(Shards(names).files());
    EXPECT_FALSE(checked.ok());
    return checked.ok() ? "" : checked.error().message();
  };
  EXPECT_EQ(message({{"b"}, {"a"}}),
            "safetensors index: tensor \"c\": expected in \"m-2.safetensors\", found in no shard");
  EXPECT_EQ(message({{"b", "c", "a"}, {"x"}}),
            "safetensors index: tensor \"a\": expected in \"m-1.safetensors\", found in \"m-2.safetensors\"");
  EXPECT_EQ(message({{"b", "c", "a"}, {"a"}}),
            "safetensors index: tensor \"a\": expected in \"m-1.safetensors\" only, found in \"m-2.safetensors\" too");
}

TEST(SafetensorsIndex, WhatIsWrong_IsRefusedWithItsPlace) {
  const auto with_shard = [](const std::string& shard) { return "{\"weight_map\":{\"a\":" + shard + "}}"; };
  const auto with_metadata = [](const std::string& value) {
    return "{\"weight_map\":{\"a\":\"x.safetensors\"},\"metadata\":" + value + "}";
  };
  const std::string path =
      "byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's own folder, found ";
  const std::pair<std::string, std::string> cases[] = {
      {"",
       "byte 0: expected JSON, found a syntax error while parsing value - unexpected end of input; expected '[', '{', "
       "or a "
       "literal"},
      {"[]", "byte 0: index: expected an object, found an array"},
      {"\"x\"", "byte 0: index: expected an object, found \"x\""},
      {"{}", "weight_map: expected an object, found no such key"},
      {"{\"weight_map\":{}}", "weight_map: expected at least one tensor, found none"},
      {"{\"weight_map\":[]}", "byte 14: weight_map: expected an object, found an array"},
      {"{\"weight_map\":null}", "byte 14: weight_map: expected an object, found null"},
      {"{\"weight_map\":{\"a\":\"x.safetensors\"},\"weight_map\":{}}",
       "byte 36: weight_map: expected it once, found it twice"},
      {with_metadata("{},\"metadata\":{}"), "byte 50: metadata: expected it once, found it twice"},
      {with_metadata("1"), "byte 47: metadata: expected an object, found 1"},
      {with_metadata("{\"total_size\":-1}"), "byte 61: total_size: expected a number of bytes, found -1"},
      {with_metadata("{\"total_size\":1.5}"), "byte 61: total_size: expected a number of bytes, found 1.5"},
      {with_metadata("{\"total_size\":\"1\"}"), "byte 61: total_size: expected a number of bytes, found \"1\""},
      {with_metadata("{\"total_size\":1,\"total_size\":1}"), "byte 63: total_size: expected it once, found it twice"},
      {with_shard("1"), "byte 19: weight_map \"a\": expected a string, found 1"},
      {with_shard("{}"), "byte 19: weight_map \"a\": expected a string, found an object"},
      {with_shard("\"\""), path + "\"\""},
      {with_shard("\"/etc/x.safetensors\""), path + "\"/etc/x.safetensors\""},
      {with_shard("\"../x.safetensors\""), path + "\"../x.safetensors\""},
      {with_shard("\"a/x.safetensors\""), path + "\"a/x.safetensors\""},
      {with_shard("\"a\\\\x.safetensors\""), path + "\"a\\x.safetensors\""},
      {with_shard("\"\\u002e\\u002e\\u002fx.safetensors\""), path + "\"../x.safetensors\""},
      {with_shard("\"..\""), path + "\"..\""},
      {with_shard("\".safetensors\""), path + "\".safetensors\""},
      {with_shard("\"x.bin\""), path + "\"x.bin\""},
      {with_shard("\"x\\u0000.safetensors\""), path + "\"x\\x00.safetensors\""},
      {with_shard("\"x\\n.safetensors\""), path + "\"x\\x0a.safetensors\""},
      {"{\"weight_map\":{\"\":\"x.safetensors\"}}",
       "byte 15: weight_map: expected a tensor's name, found an empty one"},
      {"{\"weight_map\":{\"a\\n\":\"x.safetensors\"}}",
       "byte 15: weight_map: expected names in UTF-8 without control characters, found \"a\\x0a\""},
      {"{\"weight_map\":{\"" + std::string(257, 'n') + "\":\"x.safetensors\"}}",
       "byte 15: weight_map: expected names of at most 256 bytes, found 257"},
      {"{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}",
       "byte 35: weight_map: expected each tensor once, found \"a\", which also stands at byte 15"},
  };
  for (const auto& [text, message] : cases) {
    const auto index = SafetensorsIndex::Parse(text);
    ASSERT_FALSE(index.ok()) << text;
    EXPECT_EQ(index.error().message(), "safetensors index: " + message) << text;
  }
}

TEST(SafetensorsIndex, TooManyShards_AreUnsupported) {
  std::string text = "{\"weight_map\":{";
  for (size_t i = 0; i <= kSafetensorsMaxShards; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"" + std::to_string(i) + ".safetensors\"";
  }
  const auto index = SafetensorsIndex::Parse(text + "}}");
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(index.error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(index.error().message().ends_with("weight_map \"10000\": expected at most 10000 shards, found more"));
}

}  // namespace
}  // namespace tidemill::safetensors_index_test

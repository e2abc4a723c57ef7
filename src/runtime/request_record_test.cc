#include "runtime/request_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>

namespace tidemill::request_record_test {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> State() { return std::as_bytes(std::span(std::string_view("the rows of a state"))); }

// Every field is something else than its default.
RequestRecord FullRecord() {
  RequestRecord record;
  record.model = 0x1122334455667788;
  record.vocabulary = 0x99AABBCCDDEEFF00;
  record.numeric_class = "fma+bf16/f32/kv-q8_0";
  record.finish = FinishReason::kLength;
  record.prompt_tokens = 3;
  record.ids = {7, 0, 2147483647, 5, 6};
  record.held_text = "gr\xC3\xBC";
  record.partial_character = "\xF0\x9F";
  record.generation = {.max_new_tokens = 12,
                       .min_new_tokens = 2,
                       .temperature = 0.7f,
                       .top_k = 40,
                       .top_p = 0.9f,
                       .min_p = 0.05f,
                       .repetition_penalty = 1.1f,
                       .presence_penalty = 0.5f,
                       .frequency_penalty = -0.25f,
                       .no_repeat_ngram_size = 3,
                       .logit_bias = {{4, -100.0f}, {5, 1.5f}},
                       .stop = {"gr\xC3\xBC\xC3\x9F", "\n\n"},
                       .ignore_eos = true,
                       .stop_at_repetition = true,
                       .seed = std::numeric_limits<uint64_t>::max(),
                       .logprobs = 20};
  record.state = State();
  return record;
}

RequestRecord RecordWithFileOptions() {
  RequestRecord record = FullRecord();
  record.generation.max_length = 4096;
  record.generation.bad_words_ids = {{1}, {2, 3, 4}};
  record.generation.forced_bos_token_id = 0;
  record.generation.forced_eos_token_id = {8, 9};
  record.generation.suppress_tokens = {5};
  record.generation.begin_suppress_tokens = {6, 7, 8};
  return record;
}

// As few bytes as there can be.
RequestRecord SmallRecord() {
  RequestRecord record;
  record.prompt_tokens = 1;
  record.ids = {3};
  return record;
}

void ExpectSame(const RequestRecord& found, const RequestRecord& expected) {
  EXPECT_EQ(found.model, expected.model);
  EXPECT_EQ(found.vocabulary, expected.vocabulary);
  EXPECT_EQ(found.numeric_class, expected.numeric_class);
  EXPECT_EQ(found.finish, expected.finish);
  EXPECT_EQ(found.prompt_tokens, expected.prompt_tokens);
  EXPECT_EQ(found.ids, expected.ids);
  EXPECT_EQ(found.held_text, expected.held_text);
  EXPECT_EQ(found.partial_character, expected.partial_character);
  const GenerationOptions &a = found.generation, &b = expected.generation;
  EXPECT_EQ(a.max_new_tokens, b.max_new_tokens);
  EXPECT_EQ(a.min_new_tokens, b.min_new_tokens);
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.top_p, b.top_p);
  EXPECT_EQ(a.min_p, b.min_p);
  EXPECT_EQ(a.repetition_penalty, b.repetition_penalty);
  EXPECT_EQ(a.presence_penalty, b.presence_penalty);
  EXPECT_EQ(a.frequency_penalty, b.frequency_penalty);
  EXPECT_EQ(a.no_repeat_ngram_size, b.no_repeat_ngram_size);
  EXPECT_EQ(a.logit_bias, b.logit_bias);
  EXPECT_EQ(a.max_length, b.max_length);
  EXPECT_EQ(a.bad_words_ids, b.bad_words_ids);
  EXPECT_EQ(a.forced_bos_token_id, b.forced_bos_token_id);
  EXPECT_EQ(a.forced_eos_token_id, b.forced_eos_token_id);
  EXPECT_EQ(a.suppress_tokens, b.suppress_tokens);
  EXPECT_EQ(a.begin_suppress_tokens, b.begin_suppress_tokens);
  EXPECT_EQ(a.stop, b.stop);
  EXPECT_EQ(a.ignore_eos, b.ignore_eos);
  EXPECT_EQ(a.stop_at_repetition, b.stop_at_repetition);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_TRUE(std::equal(found.state.begin(), found.state.end(), expected.state.begin(), expected.state.end()));
}

TEST(RequestRecord, Bytes_GiveEveryFieldBack) {
  for (const RequestRecord& record : {FullRecord(), SmallRecord(), RecordWithFileOptions()}) {
    const std::vector<std::byte> bytes = EncodeRequest(record);
    const Result<RequestRecord> found = DecodeRequest(bytes);
    ASSERT_TRUE(found.ok()) << found.error().message();
    ExpectSame(*found, record);
    EXPECT_EQ(EncodeRequest(*found), bytes);
  }
}

ErrorCode CodeOf(std::span<const std::byte> bytes) {
  const Result<RequestRecord> found = DecodeRequest(bytes);
  if (found.ok()) return ErrorCode::kInternal;
  EXPECT_EQ(found.error().message().find('\n'), std::string::npos);
  return found.error().code();
}

// Files are kept: a record that is written otherwise needs another version. Another implementation of the layout made the numbers.
TEST(RequestRecord, Layout_IsThatOfTheVersion) {
  const std::vector<std::byte> bytes = EncodeRequest(FullRecord());
  EXPECT_EQ(kPlainRequestRecordVersion, 2U);
  EXPECT_EQ(std::to_integer<int>(bytes[8]), 2);
  EXPECT_EQ(bytes.size(), 245U);
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + 24, sizeof(checksum));
  EXPECT_EQ(checksum, 0xD08894910FCBDC3AU);
  // Version 3 has more before the state.
  EXPECT_EQ(kRequestRecordVersion, 3U);
  const std::vector<std::byte> more = EncodeRequest(RecordWithFileOptions());
  EXPECT_EQ(std::to_integer<int>(more[8]), 3);
  EXPECT_EQ(more.size(), bytes.size() + 4 + (4 + 8 + 16) + 4 + 12 + 8 + 16);
}

// It would be another spelling of version 2.
TEST(RequestRecord, Version3WithoutItsOptions_IsRefused) {
  std::vector<std::byte> bytes = EncodeRequest(SmallRecord());
  bytes[8] = std::byte{3};
  const int32_t none = -1;
  std::vector<std::byte> empty(4 + 4 + 4 + 4 + 4 + 4);
  std::memcpy(empty.data() + 8, &none, sizeof none);
  bytes.insert(bytes.end(), empty.begin(), empty.end());
  SealRequest(bytes);
  EXPECT_EQ(CodeOf(bytes), ErrorCode::kCorruptFile);
  EXPECT_THAT(DecodeRequest(bytes).error().message(), HasSubstr("expected some that version 2 lacks"));
}

TEST(RequestRecord, EveryTruncation_IsRefused) {
  for (const RequestRecord& record : {FullRecord(), SmallRecord()}) {
    const std::vector<std::byte> bytes = EncodeRequest(record);
    for (size_t size = 0; size < bytes.size(); ++size) {
      std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(CodeOf(cut), ErrorCode::kCorruptFile) << size;
      // With a size and a checksum that fit: a shorter state is for the state to refuse, everything before is not.
      if (size < kRequestRecordHeaderBytes || size >= bytes.size() - record.state.size()) continue;
      SealRequest(cut);
      EXPECT_EQ(CodeOf(cut), ErrorCode::kCorruptFile) << size << ", sealed";
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_EQ(CodeOf(longer), ErrorCode::kCorruptFile);
  }
}

TEST(RequestRecord, EveryFlippedBit_IsRefused) {
  std::vector<std::byte> bytes = EncodeRequest(FullRecord());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const bool is_version = bit / 8 >= 8 && bit / 8 < 16 && bit != 64;  // which makes 3 of 2
    EXPECT_EQ(CodeOf(bytes), is_version ? ErrorCode::kFailedPrecondition : ErrorCode::kCorruptFile) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  EXPECT_TRUE(DecodeRequest(bytes).ok());
}

TEST(RequestRecord, AnotherVersion_IsNamed) {
  std::vector<std::byte> bytes = EncodeRequest(FullRecord());
  bytes[8] = std::byte{7};
  const Result<RequestRecord> found = DecodeRequest(bytes);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(found.error().message(),
            "byte 8: version: expected 2 or 3, found 7; go on with the version of tidemill that saved it");
}

// What a writer of ours never writes, under a checksum that fits.
TEST(RequestRecord, ForgedFields_AreRefusedByName) {
  struct Forgery {
    const char* field;
    std::function<void(RequestRecord&)> change;
  };
  const Forgery forgeries[] = {
      {"prompt tokens", [](RequestRecord& r) { r.prompt_tokens = 0; }},
      {"prompt tokens", [](RequestRecord& r) { r.prompt_tokens = r.ids.size() + 1; }},
      {"prompt tokens", [](RequestRecord& r) { r.ids.clear(); }},
      {"finish", [](RequestRecord& r) { r.finish = static_cast<FinishReason>(5); }},
      {"held text", [](RequestRecord& r) { r.held_text = "\xC3"; }},
      {"--max-new-tokens", [](RequestRecord& r) { r.generation.max_new_tokens = -1; }},
      {"--min-new-tokens", [](RequestRecord& r) { r.generation.min_new_tokens = 13; }},
      {"--temperature", [](RequestRecord& r) { r.generation.temperature = std::numeric_limits<float>::quiet_NaN(); }},
      {"--top-p", [](RequestRecord& r) { r.generation.top_p = 0; }},
      {"--logit-bias",
       [](RequestRecord& r) {
         r.generation.logit_bias = {{-1, 0.0f}};
       }},
      {"--logit-bias", [](RequestRecord& r) { r.generation.logit_bias.resize(1025); }},
      {"--stop", [](RequestRecord& r) { r.generation.stop = {""}; }},
      {"--stop", [](RequestRecord& r) { r.generation.stop = {"\xFF"}; }},
      {"stops", [](RequestRecord& r) { r.generation.stop = {std::string(257, 'a')}; }},
      {"stops", [](RequestRecord& r) { r.generation.stop.assign(17, "a"); }},
      {"--logprobs", [](RequestRecord& r) { r.generation.logprobs = 21; }},
      {"max_length", [](RequestRecord& r) { r.generation.max_length = -1; }},
      {"bad_words_ids", [](RequestRecord& r) { r.generation.bad_words_ids = {{}}; }},
      {"suppress_tokens", [](RequestRecord& r) { r.generation.suppress_tokens = {-1}; }},
  };
  for (const Forgery& forgery : forgeries) {
    RequestRecord record = FullRecord();
    forgery.change(record);
    const Result<RequestRecord> found = DecodeRequest(EncodeRequest(record));
    ASSERT_FALSE(found.ok()) << forgery.field;
    EXPECT_EQ(found.error().code(), ErrorCode::kCorruptFile) << forgery.field;
    EXPECT_THAT(found.error().message(), HasSubstr(forgery.field));
  }
}

// Counts that promise more than there is: refused before anything of that size is asked for.
TEST(RequestRecord, AbsurdCounts_TakeNoMemory) {
  RequestRecord record = SmallRecord();
  record.generation.suppress_tokens = {5};
  const std::vector<std::byte> bytes = EncodeRequest(record);
  const size_t behind_header = kRequestRecordHeaderBytes;
  const size_t tokens = behind_header + 8 + 8 + 4 + 4 + 8;  // model, vocabulary, numeric class, finish, prompt tokens
  for (const uint64_t count : {uint64_t{2}, uint64_t{1} << 40, uint64_t{1} << 62, ~uint64_t{0}}) {
    std::vector<std::byte> forged = bytes;
    std::memcpy(forged.data() + tokens, &count, sizeof(count));
    SealRequest(forged);
    EXPECT_EQ(CodeOf(forged), ErrorCode::kCorruptFile) << count;
  }
  // Every u32 that a text, a bias or a stop may be counted by.
  for (size_t at = behind_header; at + 4 <= bytes.size(); ++at) {
    std::vector<std::byte> forged = bytes;
    const uint32_t count = 0xFFFFFFFF;
    std::memcpy(forged.data() + at, &count, sizeof(count));
    SealRequest(forged);
    const Result<RequestRecord> found = DecodeRequest(forged);  // some are numbers that may be anything
    if (found.ok()) {
      EXPECT_EQ(EncodeRequest(*found), forged) << at;
    }
  }
}

}  // namespace
}  // namespace tidemill::request_record_test

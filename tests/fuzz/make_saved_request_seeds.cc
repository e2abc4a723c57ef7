// Writes the seed corpus of fuzz_saved_request: make_saved_request_seeds [--check] FOLDER.
#include <string>

#include "runtime/request_record.h"
#include "tests/fuzz/seed_files.h"

namespace tidemill::testing {
namespace {

std::string Bytes(const RequestRecord& record) {
  const std::vector<std::byte> bytes = EncodeRequest(record);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

RequestRecord Small() {
  RequestRecord record;
  record.prompt_tokens = 1;
  record.ids = {3};
  return record;
}

RequestRecord Full() {
  RequestRecord record;
  record.model = 1;
  record.vocabulary = 2;
  record.numeric_class = "fma/kv-f16";
  record.finish = FinishReason::kRepetition;
  record.prompt_tokens = 2;
  record.ids = {5, 6, 7, 8};
  record.held_text = "gr\xC3\xBC";
  record.partial_character = "\xF0\x9F";
  record.generation = {.max_new_tokens = 2,
                       .min_new_tokens = 1,
                       .temperature = 0.7f,
                       .top_k = 40,
                       .top_p = 0.9f,
                       .min_p = 0.05f,
                       .repetition_penalty = 1.1f,
                       .presence_penalty = 0.5f,
                       .frequency_penalty = 0.25f,
                       .no_repeat_ngram_size = 3,
                       .logit_bias = {{4, -100.0f}, {5, 1.5f}},
                       .stop = {"gr\xC3\xBC\xC3\x9F", "\n\n"},
                       .ignore_eos = true,
                       .stop_at_repetition = true,
                       .seed = 9,
                       .logprobs = 2};
  record.state = std::as_bytes(std::span(std::string_view("state")));
  return record;
}

Seeds AllSeeds() {
  std::string later = Bytes(Small());
  later[8] = 4;
  const std::string full = Bytes(Full());
  RequestRecord of_files = Small();
  of_files.generation.max_length = 64;
  of_files.generation.bad_words_ids = {{1}, {2, 3}};
  of_files.generation.forced_bos_token_id = 4;
  of_files.generation.forced_eos_token_id = {5};
  of_files.generation.suppress_tokens = {6};
  of_files.generation.begin_suppress_tokens = {7};
  return {{"small", Bytes(Small())},
          {"full", full},
          {"file_options", Bytes(of_files)},
          {"later_version", later},
          {"truncated", full.substr(0, full.size() / 2)}};
}

}  // namespace
}  // namespace tidemill::testing

int main(int argc, char** argv) {
  return tidemill::testing::WriteOrCheckSeeds(argc, argv, tidemill::testing::AllSeeds());
}

// A finished request, as plain data and as bytes: all that it needs to continue elsewhere.
//
// Bytes (little-endian; a text is u32 bytes, u8[bytes]; each number has exactly one valid spelling):
//   magic u8[8] "TMILLREQ"; version u64; size u64, of all bytes; checksum u64 (base/checksum.h), of all that follows;
//   model u64; vocabulary u64; numeric class text;
//   finish u32, a FinishReason; prompt tokens u64; tokens u64; ids i32[tokens]; held text; partial text;
//   max_new_tokens i32, 0 for none; min_new_tokens i32; temperature f32; top_k i32; top_p f32; min_p f32; repetition_penalty f32;
//   presence_penalty f32; frequency_penalty f32; no_repeat_ngram_size i32; biases u32, (id i32, bias f32)[biases];
//   stops u32, text[stops]; ignore_eos u32, 0 or 1; stop_at_repetition u32, 0 or 1; seed u64;
//   logprobs i32;
//   version 3 alone, where one of these is set: max_length i32, 0 for none; words u32, (ids)[words]; forced_bos_token_id i32, -1 for none;
//   forced_eos_token_id ids; suppress_tokens ids; begin_suppress_tokens ids            ids = u32 count, i32[count]
//   state u8[rest], a SequenceState::Checkpoint
// The rest follows: penalties from the ids, random numbers from seed and position, rope settings and weights from the model id.
#ifndef TIDEMILL_RUNTIME_REQUEST_RECORD_H_
#define TIDEMILL_RUNTIME_REQUEST_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tidemill/generation.h"
#include "tidemill/result.h"

namespace tidemill {

struct RequestRecord {
  // Whose it is.
  uint64_t model = 0;         // LanguageModel::id: settings, rope among them, and weights
  uint64_t vocabulary = 0;    // hash of the tokens
  std::string numeric_class;  // Engine::numeric_class, kMaxClassBytes at most

  // Its progress. An answer's last token was sampled and not yet run, so it is not in the state.
  FinishReason finish = FinishReason::kCancelled;
  uint64_t prompt_tokens = 0;  // 1..ids.size(): the first ones; the others are the answer
  std::vector<int32_t> ids;
  std::string held_text;  // of the answer, withheld: the beginning of a stop text, fewer than kMaxHeldBytes, UTF-8
  std::string partial_character;  // StreamDecoder::pending

  GenerationOptions generation;      // Validate accepts them for some vocabulary
  std::span<const std::byte> state;  // borrows: an unchecked checkpoint

  static constexpr size_t kMaxClassBytes = 256;
  static constexpr size_t kMaxHeldBytes = 256;
};

inline constexpr uint64_t kRequestRecordVersion = 3, kPlainRequestRecordVersion = 2;
inline constexpr size_t kRequestRecordHeaderBytes = 32;  // before what the checksum is of

// Throws std::bad_alloc. DecodeRequest and EncodeRequest are inverse.
std::vector<std::byte> EncodeRequest(const RequestRecord& record);
// Writes the size and the checksum of bytes that begin with a header.
void SealRequest(std::span<std::byte> bytes);

// `state` borrows `bytes`. kCorruptFile: invalid bytes; kFailedPrecondition: another version. Memory is proportional to `bytes` and
// allocated after the sizes were checked; throws std::bad_alloc.
Result<RequestRecord> DecodeRequest(std::span<const std::byte> bytes);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_REQUEST_RECORD_H_

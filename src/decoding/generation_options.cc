// Validate of tidemill/generation.h.
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "tidemill/generation.h"

namespace tidemill {
namespace {

constexpr size_t kMaxLogitBiases = 1024;
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxIds = 65536, kMaxBadWords = 4096, kMaxBadWordIds = 256;
constexpr size_t kMaxStopBytes = 256;
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

// Shortest digits that read back as the same number, with a point in every locale; "nan", "inf".
template <typename Number>
std::string Spell(Number value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  return end.ec == std::errc() ? std::string(digits, end.ptr) : std::string("?");
}

Error Refuse(std::string_view flag, std::string_view expected, std::string_view found) {
  return Error(ErrorCode::kInvalidArgument, "generation options: " + std::string(flag) + ": expected " +
                                                std::string(expected) + ", found " + std::string(found));
}

// NaN is in no range. `note` says what to do; empty if the range says it all.
template <typename Number>
Result<void> InRange(std::string_view flag, Number value, Number low, Number high, std::string_view note = "") {
  if (value >= low && value <= high) return {};
  std::string expected = "a number in " + Spell(low) + ".." + Spell(high);
  if (!note.empty()) expected += " (" + std::string(note) + ")";
  return Refuse(flag, expected, Spell(value));
}

// Length of the UTF-8 character at the start of `text`, 0 if there is none (Unicode 15, table 3-7).
size_t Utf8CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool beyond = first == 0xF4 && second > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

Result<void> ValidateLogitBias(const GenerationOptions& options, size_t vocab_size) {
  if (options.logit_bias.size() > kMaxLogitBiases) {
    return Refuse("--logit-bias", "at most " + Spell(kMaxLogitBiases) + " entries", Spell(options.logit_bias.size()));
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0 || static_cast<size_t>(id) >= vocab_size) {
      return Refuse("--logit-bias", "a token id below the number of tokens " + Spell(vocab_size), Spell(id));
    }
    if (bias == -std::numeric_limits<float>::infinity()) continue;  // never
    TIDEMILL_TRY_VOID(InRange("--logit-bias", bias, -100.0f, 100.0f, "the bias of token " + Spell(id)));
  }
  return {};
}

Result<void> ValidateIds(std::string_view name, std::span<const int32_t> ids, size_t vocab_size) {
  if (ids.size() > kMaxIds) return Refuse(name, "at most " + Spell(kMaxIds) + " ids", Spell(ids.size()));
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<size_t>(id) < vocab_size) continue;
    return Refuse(name, "a token id below the number of tokens " + Spell(vocab_size), Spell(id));
  }
  return {};
}

Result<void> ValidateFileOptions(const GenerationOptions& options, size_t vocab_size) {
  if (options.max_length) TIDEMILL_TRY_VOID(InRange("max_length", *options.max_length, 1, kMaxInt));
  if (options.bad_words_ids.size() > kMaxBadWords) {
    return Refuse("bad_words_ids", "at most " + Spell(kMaxBadWords) + " lists", Spell(options.bad_words_ids.size()));
  }
  for (const std::vector<int32_t>& word : options.bad_words_ids) {
    if (word.empty() || word.size() > kMaxBadWordIds)
      return Refuse("bad_words_ids", "lists of 1.." + Spell(kMaxBadWordIds) + " ids", Spell(word.size()) + " ids");
    TIDEMILL_TRY_VOID(ValidateIds("bad_words_ids", std::span(word).last(1), vocab_size));
  }
  const std::optional<int32_t>& bos = options.forced_bos_token_id;
  if (bos) TIDEMILL_TRY_VOID(ValidateIds("forced_bos_token_id", std::span(&*bos, 1), vocab_size));
  TIDEMILL_TRY_VOID(ValidateIds("forced_eos_token_id", options.forced_eos_token_id, vocab_size));
  TIDEMILL_TRY_VOID(ValidateIds("suppress_tokens", options.suppress_tokens, vocab_size));
  return ValidateIds("begin_suppress_tokens", options.begin_suppress_tokens, vocab_size);
}

// Valid UTF-8, so that a text cut where a stop string begins ends on a whole character.
Result<void> ValidateStop(const GenerationOptions& options) {
  if (options.stop.size() > kMaxStops) {
    return Refuse("--stop", "at most " + Spell(kMaxStops) + " strings", Spell(options.stop.size()));
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return Refuse("--stop", "strings of 1.." + Spell(kMaxStopBytes) + " bytes", Spell(stop.size()) + " bytes");
    }
    for (size_t at = 0; at < stop.size();) {
      const size_t bytes = Utf8CharacterBytes(std::string_view(stop).substr(at));
      if (bytes == 0) return Refuse("--stop", "valid UTF-8", "an invalid byte at offset " + Spell(at));
      at += bytes;
    }
  }
  return {};
}

}  // namespace

Result<void> Validate(const GenerationOptions& options, size_t vocab_size) {
  if (options.max_new_tokens) {
    TIDEMILL_TRY_VOID(InRange("--max-new-tokens", *options.max_new_tokens, 1, kMaxInt));
  }
  TIDEMILL_TRY_VOID(InRange("--min-new-tokens", options.min_new_tokens, 0, options.max_new_tokens.value_or(kMaxInt),
                            options.max_new_tokens ? "at most --max-new-tokens" : ""));
  TIDEMILL_TRY_VOID(InRange("--temperature", options.temperature, 0.0f, 100.0f, "0 is greedy"));
  TIDEMILL_TRY_VOID(InRange("--top-k", options.top_k, 0, kMaxInt, "0 is off"));
  if (!(options.top_p > 0.0f && options.top_p <= 1.0f)) {
    return Refuse("--top-p", "a number above 0, at most 1 (1 is off)", Spell(options.top_p));
  }
  TIDEMILL_TRY_VOID(InRange("--min-p", options.min_p, 0.0f, 1.0f, "0 is off"));
  TIDEMILL_TRY_VOID(InRange("--repetition-penalty", options.repetition_penalty, 0.01f, 100.0f, "1 is off"));
  TIDEMILL_TRY_VOID(InRange("--presence-penalty", options.presence_penalty, -2.0f, 2.0f));
  TIDEMILL_TRY_VOID(InRange("--frequency-penalty", options.frequency_penalty, -2.0f, 2.0f));
  TIDEMILL_TRY_VOID(InRange("--no-repeat-ngram-size", options.no_repeat_ngram_size, 0, 1024, "0 is off"));
  TIDEMILL_TRY_VOID(ValidateLogitBias(options, vocab_size));
  TIDEMILL_TRY_VOID(ValidateFileOptions(options, vocab_size));
  TIDEMILL_TRY_VOID(ValidateStop(options));
  return InRange("--logprobs", options.logprobs, -1, 20, "-1 is off");
}

}  // namespace tidemill

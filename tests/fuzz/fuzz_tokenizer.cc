// The tokenizer over arbitrary bytes. What they mean depends on how they begin:
//   "GGUF"   a GGUF file: its vocabulary is read, made into a tokenizer and used
//   "{"      a tokenizer.json, which is read, made into a tokenizer and used
//   "SPEC"   lines: "T<type 1-6><token>", "M<merge>", "P<pre-tokenizer>", "B<id>", "E<id>" (begin, end), "S" (SentencePiece,
//            before it counts; "S+" with a space before the text), "N" (NFC), "+" (all 256 bytes); after an empty line a text
//   "REGEX"  a line with an expression, then a text that it splits, and in which its matches are replaced
//   "PIECES" a SentencePiece model, which is read, made into a tokenizer and used
//   "MERGES" a vocab.json up to the first zero byte, then a merges.txt: the same
//   others   one byte of options, two of caller ranges, then a text for a small vocabulary that has all bytes: it must come
//            back, and no special token may touch a caller's byte
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "tests/support/small_vocabulary.h"
#include "text/gguf_tokenizer.h"
#include "text/slow_tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"
#include "tidemill/tokenizer.h"

namespace tidemill {
namespace {

// A wrong answer is a finding, as a crash is.
void Require(bool condition) {
  if (!condition) std::abort();
}

void RequireCleanError(const Error& error) {
  Require(error.message().size() < 2000);
  Require(std::none_of(error.message().begin(), error.message().end(),
                       [](unsigned char c) { return c < 0x20 || c == 0x7F; }));
}

// What Decode and StreamDecoder say about any ids must agree.
void RequireSameStream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool keep_special) {
  StreamDecoder decoder(tokenizer, keep_special);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  text += decoder.Finish();
  Require(IsValidUtf8(text));
  Require(text == ReplaceInvalidUtf8(tokenizer.Decode(ids, keep_special).value()));
}

void UseAnyTokenizer(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse_special : {false, true}) {
    const auto encoded = tokenizer.Encode(text, {.parse_special = parse_special});
    if (!encoded.ok())
      return RequireCleanError(encoded.error());  // an expression that takes too long, a text that grows
    const std::vector<int32_t>& ids = *encoded;
    // A normaliser may make 32 bytes of one; a file may put as many tokens around a text as it has room for.
    Require(ids.size() <= 33 * text.size() + 8192);
    for (const int32_t id : ids) Require(id >= 0 && static_cast<size_t>(id) < tokenizer.vocab_size());
    RequireSameStream(tokenizer, ids, parse_special);
    Require(tokenizer.Decode(ids, true).value().ends_with(tokenizer.DecodeText(ids, true).value()));
  }
}

void UseAnySpec(Result<TokenizerSpec> spec, std::string_view text) {
  if (!spec.ok()) return RequireCleanError(spec.error());
  const auto tokenizer = CreateTokenizer(std::move(*spec));
  if (!tokenizer.ok()) return RequireCleanError(tokenizer.error());
  UseAnyTokenizer(*tokenizer, text);
}

void FuzzGguf(std::string_view bytes) {
  const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  if (!file.ok()) return;
  UseAnySpec(ReadTokenizerSpec(*file), bytes);
}

void FuzzJson(std::string_view bytes) { UseAnySpec(ReadTokenizerJson(bytes), bytes); }

void FuzzPieces(std::string_view bytes) { UseAnySpec(ReadSlowTokenizer({.sentencepiece = bytes}), bytes); }

void FuzzMerges(std::string_view bytes) {
  const size_t end = std::min(bytes.find('\0'), bytes.size());
  const std::string_view merges = bytes.substr(std::min(end + 1, bytes.size()));
  UseAnySpec(ReadSlowTokenizer({.vocab_json = bytes.substr(0, end), .merges_txt = merges}), bytes);
}

std::string_view TakeLine(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

// The words, joined, are the text.
void FuzzRegex(std::string_view rest) {
  const std::string expression(TakeLine(rest));
  auto pre_tokenizer = PreTokenizer::Create({PreTokenizerStep::Split(expression)});
  if (!pre_tokenizer.ok()) return RequireCleanError(pre_tokenizer.error());
  Words words;
  RegexBudget budget(0);
  if (const auto done = pre_tokenizer->Split(rest, true, budget, words); done.ok()) {
    size_t end = 0;
    for (const ByteRange& word : words.list) {
      Require(word.begin == end && word.begin < word.end);
      end = word.end;
    }
    Require(end == rest.size());
  } else {
    RequireCleanError(done.error());
  }
  auto normalizer = Normalizer::Create({{.kind = NormalizerKind::kReplace, .pattern = expression, .content = "xy"}});
  if (!normalizer.ok()) return RequireCleanError(normalizer.error());
  const auto text = normalizer->Normalize(rest, 4 * rest.size() + 16, words.regex, budget);
  if (!text.ok()) RequireCleanError(text.error());
}

int32_t ReadInt(std::string_view digits) {
  int32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::string SpellByteToken(int byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  const auto digit = [&](int value) { return std::string(1, kHex[static_cast<size_t>(value)]); };
  return "<0x" + digit(byte / 16) + digit(byte % 16) + ">";
}

void FuzzSpec(std::string_view rest) {
  TokenizerSpec spec;
  spec.pre_tokenizer = FindPreTokenizer("gpt-2")->steps;
  for (std::string_view line = TakeLine(rest); !line.empty(); line = TakeLine(rest)) {
    const std::string_view value = line.substr(1);
    switch (line[0]) {
      case 'T':
        if (value.empty()) break;
        spec.types.push_back(static_cast<TokenType>(value[0] - '0'));
        spec.tokens.emplace_back(value.substr(1));
        break;
      case 'M': spec.merges.emplace_back(value); break;
      case 'P':
        if (auto named = FindPreTokenizer(value)) spec.pre_tokenizer = std::move(named->steps);
        spec.ignore_merges = value == "llama-bpe";
        break;
      case 'S':
        spec.kind = VocabularyKind::kSentencePiece;
        spec.spelling = TokenSpelling::kPieceSpaces;
        spec.pre_tokenizer.clear();
        spec.normalizer = PieceSpaces(value == "+");
        break;
      case 'N': spec.normalizer = {{.kind = NormalizerKind::kNfc}}; break;
      case 'B':
        spec.bos_id = ReadInt(value);
        spec.add_bos = true;
        break;
      case 'E':
        spec.eos_id = ReadInt(value);
        spec.add_eos = true;
        break;
      case '+':
        for (int byte = 0; byte < 256; ++byte) {
          const char c = static_cast<char>(byte);
          const bool is_byte_level = spec.kind == VocabularyKind::kByteLevel;
          spec.tokens.push_back(is_byte_level ? SpellBytes({&c, 1}) : SpellByteToken(byte));
          spec.types.push_back(is_byte_level ? TokenType::kNormal : TokenType::kByte);
        }
        break;
      default: break;
    }
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id)
    spec.scores.push_back(static_cast<float>(id % 7));  // equal ones too
  const auto tokenizer = CreateTokenizer(std::move(spec));
  if (!tokenizer.ok()) return RequireCleanError(tokenizer.error());
  UseAnyTokenizer(*tokenizer, rest);
}

void FuzzText(std::string_view bytes) {
  static const Tokenizer tokenizers[] = {
      CreateTokenizer(testing::SmallSpec("gpt-2")).value(), CreateTokenizer(testing::SmallSpec("smollm")).value(),
      CreateTokenizer(testing::SmallSpec("llama-bpe")).value(), CreateTokenizer(testing::SmallSpec("qwen2")).value()};
  if (bytes.size() < 3) return;
  const auto options = static_cast<uint8_t>(bytes[0]);
  const auto gap = static_cast<uint8_t>(bytes[1]);
  const auto length = static_cast<uint8_t>(bytes[2]);
  const Tokenizer& tokenizer = tokenizers[options & 3];
  PromptText prompt{.text = std::string(bytes.substr(3))};
  std::vector<bool> is_callers(prompt.text.size(), false);
  if (gap > 0) {
    for (size_t begin = gap; begin + length <= prompt.text.size(); begin += size_t{gap} + length) {
      prompt.caller.push_back({begin, begin + length});
      for (size_t i = begin; i < begin + length; ++i) is_callers[i] = true;
    }
  }
  const bool parse_special = (options & 4) != 0;
  const std::vector<int32_t> ids = tokenizer.Encode(prompt, {.parse_special = parse_special}).value();
  Require(tokenizer.Decode(ids, true).value() == prompt.text);
  size_t position = 0;
  for (const int32_t id : ids) {
    const size_t end = position + tokenizer.TokenBytes(id).size();
    for (size_t i = position; i < end && tokenizer.IsSpecial(id); ++i) Require(parse_special && !is_callers[i]);
    position = end;
  }
  RequireSameStream(tokenizer, ids, (options & 8) != 0);
  // Any bytes are ids too, so that decoding meets characters cut everywhere.
  RequireSameStream(tokenizer, std::vector<int32_t>(ids.rbegin(), ids.rend()), (options & 8) != 0);
}

}  // namespace
}  // namespace tidemill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with("GGUF")) {
    tidemill::FuzzGguf(bytes);
  } else if (bytes.starts_with("{")) {
    tidemill::FuzzJson(bytes);
  } else if (bytes.starts_with("REGEX")) {
    tidemill::FuzzRegex(bytes.substr(5));
  } else if (bytes.starts_with("PIECES")) {
    tidemill::FuzzPieces(bytes.substr(6));
  } else if (bytes.starts_with("MERGES")) {
    tidemill::FuzzMerges(bytes.substr(6));
  } else if (bytes.starts_with("SPEC")) {
    tidemill::FuzzSpec(bytes.substr(4));
  } else {
    tidemill::FuzzText(bytes);
  }
  return 0;
}

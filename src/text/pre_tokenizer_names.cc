// What the names of tokenizer.ggml.pre mean: the expressions that the models' own tokenizer.json hold, or, where llama.cpp splits in another
// way, what it does, since the files' ids are meant so.
#include <array>
#include <utility>

#include "text/piece_symbols.h"
#include "text/pre_tokenizer.h"

namespace tidemill {
namespace {

// The steps, by kind of model.
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kLines = R"([^\n]+|[\n]+)";
constexpr std::string_view kCjk = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Characters that normalisation would change are escaped.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepSeekPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekCjk = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kImageTokens = R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)";

enum class Model : uint8_t {
  kBytes,             // merges alone
  kWholeWords,        // words that are tokens become them without merging
  kWholeWordsAndBos,  // and a text begins with the beginning-of-sequence token
  kBytesAndBos,
  kCharacters,  // not byte level
};

struct Named {
  std::string_view names;  // between spaces
  Model model;
  std::array<std::string_view, 6> expressions;  // the rest is empty
};

const std::array<Named, 25>& Table() {
  static const std::string_view gpt2 = ExpressionOf(WordRule::kGpt2);
  static const std::string_view llama3 = ExpressionOf(WordRule::kLlama3);
  static const std::string_view qwen2 = ExpressionOf(WordRule::kQwen2);
  using enum Model;
  static const std::array<Named, 25> table = {{
      {"default", kBytes, {kPunctuation, gpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum "
       "modern-bert exaone4 mpt olmo jais trillion granite-docling",
       kBytes,
       {gpt2}},
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", kWholeWordsAndBos, {llama3}},
      {"dbrx smaug-bpe chatglm-bpe", kBytes, {llama3}},
      {"glm4 glm5", kWholeWords, {llama3}},
      {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2", kBytes, {qwen2}},
      {"qwen35", kBytes, {kQwen35}},
      {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", kBytes, {kDigit, gpt2}},
      {"deepseek-llm",
       kBytes,
       {R"([\r\n])", kDeepSeekLetters, kDeepSeekPunctuation, R"(\s+$)", kDeepSeekCjk, R"(\p{N}+)"}},
      {"deepseek-coder", kBytes, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, kDigit}},
      {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", kBytes, {kThreeDigits, kCjk, kDeepSeekV3}},
      {"falcon", kBytes, {kFalconPunctuation, gpt2, "[0-9][0-9][0-9]"}},
      {"tekken", kWholeWordsAndBos, {kTekken}},
      {"gpt-4o llama4 kanana2 talkie minimax-m2", kBytes, {kGpt4o}},
      {"tiny_aya cohere2moe", kBytes, {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o}},
      {"bloom poro-chat gpt3-finnish", kBytes, {kBloom}},
      {"viking", kBytes, {kBloom, kDigit}},
      {"bailingmoe bailingmoe2 llada-moe", kBytes, {kBailing}},
      {"seed-coder", kBytes, {kSeedCoder}},
      {"minicpm5", kWholeWords, {kThreeDigits, kMiniCpm5}},
      {"exaone-moe", kBytes, {kExaoneMoe}},
      {"superbpe", kBytes, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
      {"chameleon",
       kBytesAndBos,
       {"<sentinel:[0-9]+>", kImageTokens, R"(([\t\n]|    |  ))", kDigit, R"([\p{P}!-/:-@\[-`{-~])", gpt2}},
      {"laguna", kBytes, {kLines, qwen2}},
      {"gemma4 granite-embed-multi-311m sarvam-moe", kCharacters, {kLines}},
  }};
  return table;
}

}  // namespace

std::optional<NamedPreTokenizer> FindPreTokenizer(std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return std::nullopt;
  for (const Named& named : Table()) {
    const std::string padded = " " + std::string(named.names) + " ";
    if (padded.find(" " + std::string(name) + " ") == std::string::npos) continue;
    NamedPreTokenizer found;
    found.is_byte_level = named.model != Model::kCharacters;
    found.ignore_merges = named.model == Model::kWholeWords || named.model == Model::kWholeWordsAndBos;
    found.adds_bos = named.model == Model::kWholeWordsAndBos || named.model == Model::kBytesAndBos;
    if (!found.is_byte_level) {
      PreTokenizerStep spaces;
      spaces.kind = PreTokenizerKind::kMetaspace;
      spaces.replacement = kPieceSpaceUtf8;
      spaces.split = false;
      found.steps.push_back(std::move(spaces));
    }
    for (const std::string_view expression : named.expressions) {
      if (!expression.empty()) found.steps.push_back(PreTokenizerStep::Split(std::string(expression)));
    }
    return found;
  }
  return std::nullopt;
}

std::string KnownPreTokenizers() {
  std::string names;
  for (const Named& named : Table()) {
    for (const char c : named.names) names += c == ' ' ? std::string(", ") : std::string(1, c);
    names += ", ";
  }
  names.resize(names.size() - 2);
  return names;
}

}  // namespace tidemill

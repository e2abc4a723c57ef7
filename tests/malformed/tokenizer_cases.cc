// tokenizer.json files that are not well formed, contradict themselves, ask for what there is not, or mean harm.
#include <string>

#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {
namespace {

constexpr const char* kModel = R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},)";
constexpr const char* kBytes =
    R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"})";

// A byte-level tokenizer with another part, whose comma stands in front; with another model.
std::string With(const std::string& part) { return std::string("{") + kModel + kBytes + part + "}"; }
std::string WithModel(const std::string& model) { return "{\"model\":" + model + "," + kBytes + "}"; }

// With steps before ByteLevel; with one that splits at an expression.
std::string Splitting(const std::string& steps) {
  return std::string("{") + kModel +
         R"("decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + steps +
         R"(,{"type":"ByteLevel","use_regex":false}]}})";
}
std::string Expression(const std::string& expression) {
  return Splitting(R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":")" + expression + "\"}}");
}

}  // namespace

std::vector<MalformedCase> TokenizerCases() {
  const auto row = [](const char* name, Recipe recipe, ErrorCode code, const std::string& message) {
    return MalformedRow{name, std::move(recipe), code, message, Question::kText};
  };
  const std::vector<MalformedRow> rows = {
      row("no JSON", R"(<!DOCTYPE html><html>)", kCorrupt,
          "tokenizer.json: expected JSON, found a web page, as a failed download leaves it; download the file again"),
      row("cut", R"({"model":{"vocab":{"a":0)", kCorrupt,
          "tokenizer.json: read tokenizer.json: byte 24: expected JSON, found a syntax error while parsing object - "
          "unexpected end of input; expected '}'"),
      row("nested too deep", "{\"a\":" + std::string(70, '[') + std::string(70, ']') + "}", kUnsupported,
          "tokenizer.json: read tokenizer.json: byte 68: expected at most 64 levels of nesting, found more"),
      row("no model",
          R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}})", kCorrupt,
          "tokenizer.json: read tokenizer.json: model: expected an object, found none"),
      row("model of another type", WithModel(R"({"type":"Phonemes","vocab":{},"merges":[]})"), kUnsupported,
          "tokenizer.json: read tokenizer.json: model: type \"Phonemes\": expected BPE, Unigram, WordPiece or "
          "WordLevel"),
      row("vocabulary twice", R"({"model":{"vocab":{"a":0},"vocab":{"b":0},"merges":[]}})", kCorrupt,
          "tokenizer.json: read tokenizer.json: key \"vocab\": expected it once, found it twice"),
      row("vocabulary without ids", WithModel(R"({"type":"BPE","vocab":{"a":"zero"},"merges":[]})"), kCorrupt,
          "tokenizer.json: read tokenizer.json: model.vocab: token \"a\": expected an id, found another value"),
      row("vocabulary as a list", WithModel(R"({"type":"BPE","vocab":["a","b"],"merges":[]})"), kCorrupt,
          "tokenizer.json: read tokenizer.json: model.vocab: entry 0: expected a token and its score"),
      row("two tokens of one id", WithModel(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), kCorrupt,
          "tokenizer.json: read tokenizer.json: token \"b\": id 0: expected one token, found also \"a\""),
      row("id far beyond the others", WithModel(R"({"type":"BPE","vocab":{"a":0,"b":4000000000},"merges":[]})"),
          kUnsupported,
          "tokenizer.json: read tokenizer.json: token \"b\": expected an id below 65538, as many as there are tokens "
          "and 65536 gaps, found 4000000000"),
      row("no merges", WithModel(R"({"type":"BPE","vocab":{"a":0}})"), kCorrupt,
          "tokenizer.json: read tokenizer.json: model.merges: expected a list, found none"),
      row("merge of one part", WithModel(R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})"), kCorrupt,
          "tokenizer.json: read tokenizer.json: model.merges: merge 0: expected two strings"),
      row("merge of tokens that are not there", WithModel(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})"),
          kCorrupt,
          "tokenizer.json: load tokenizer: merge 0 \"a b\": expected \"ab\" among the tokens that are not control "
          "tokens, found none"),
      row("added token without text", With(R"(,"added_tokens":[{"id":3,"content":""}])"), kCorrupt,
          "tokenizer.json: read tokenizer.json: added_tokens: entry 0: expected some content, found none"),
      row("added token of 2000 bytes",
          With(R"(,"added_tokens":[{"id":3,"special":true,"content":")" + std::string(2000, 'x') + "\"}]"),
          kUnsupported,
          "tokenizer.json: load tokenizer: token 3 "
          "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": expected at most "
          "1024 bytes in a control or user-defined token, found 2000"),
      row("added token beside another of its id", With(R"(,"added_tokens":[{"id":2,"content":"x"}])"), kCorrupt,
          "tokenizer.json: read tokenizer.json: token \"x\": id 2: expected one token, found also \"ab\""),
      row("flag as a string", With(R"(,"added_tokens":[{"id":3,"content":"x","lstrip":"yes"}])"), kCorrupt,
          "tokenizer.json: read tokenizer.json: added token \"x\": lstrip: expected true or false, found another "
          "value"),
      row("no splitting step",
          R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"decoder":{"type":"ByteLevel"}})",
          kUnsupported, "tokenizer.json: read tokenizer.json: pre_tokenizer: expected ByteLevel once, found none"),
      row("unknown splitting step", Splitting(R"({"type":"Shuffle"})"), kUnsupported,
          "tokenizer.json: read tokenizer.json: pre_tokenizer: expected BertPreTokenizer, ByteLevel, "
          "CharDelimiterSplit, Digits, Metaspace, Punctuation, Split, Whitespace or WhitespaceSplit, found "
          "\"Shuffle\""),
      row("unknown behavior", Splitting(R"({"type":"Split","behavior":"Doubled","pattern":{"String":"a"}})"), kCorrupt,
          "tokenizer.json: read tokenizer.json: pre_tokenizer: Split: behavior: expected Removed, Isolated, "
          "MergedWithPrevious, MergedWithNext or Contiguous, found \"Doubled\""),
      row("split at nothing", Splitting(R"({"type":"Split","behavior":"Isolated","pattern":{"String":""}})"),
          kUnsupported,
          "tokenizer.json: load tokenizer: pre_tokenizer: Split: expected some text to split at, found none"),
      row("expression that does not end", Expression(R"((a|b)"), kCorrupt,
          "tokenizer.json: load tokenizer: regular expression \"(a|b\": byte 4: '(' without ')'"),
      row("expression of deep groups", Expression(std::string(200, '(') + std::string(200, ')')), kUnsupported,
          "tokenizer.json: load tokenizer: regular expression "
          "\"((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((...\": byte 100: not read "
          "here: groups nested deeper than 100"),
      row("expression of 20000 bytes", Expression(std::string(20000, 'a')), kUnsupported,
          "tokenizer.json: load tokenizer: regular expression "
          "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\": expected at most "
          "16384 bytes, found 20000"),
      row("expression that repeats itself too often", Expression(R"(((a{1,65535}){1,65535}){1,65535})"), kCorrupt,
          "tokenizer.json: load tokenizer: regular expression \"((a{1,65535}){1,65535}){1,65535}\": regular expression "
          "is too large"),
      row("expression with an unknown property", Expression(R"(\\p{Klingon}+)"), kCorrupt,
          "tokenizer.json: load tokenizer: regular expression \"\\p{Klingon}+\": unknown property after \\P or \\p"),
      row("expression with an intersection of classes", Expression(R"([\\p{L}&&[a-z]]+)"), kUnsupported,
          "tokenizer.json: load tokenizer: regular expression \"[\\p{L}&&[a-z]]+\": byte 8: not read here: && before "
          "anything but [^"),
      row("expression with a verb of PCRE2", Expression(R"((*NO_JIT)a)"), kUnsupported,
          "tokenizer.json: load tokenizer: regular expression \"(*NO_JIT)a\": byte 0: not read here: (*"),
      row("unknown normalizer", With(R"(,"normalizer":{"type":"NFKC"})"), kUnsupported,
          "tokenizer.json: read tokenizer.json: normalizer: expected NFC, NFD, Lowercase, StripAccents, Strip, "
          "Replace, Prepend, BertNormalizer or Precompiled, found \"NFKC\""),
      row("normalizer that replaces nothing",
          With(R"(,"normalizer":{"type":"Replace","pattern":{"String":""},"content":"x"})"), kUnsupported,
          "tokenizer.json: load tokenizer: normalizer: Replace: expected a pattern, found an empty one"),
      row("character map that is no base64",
          With(R"(,"normalizer":{"type":"Precompiled","precompiled_charsmap":"***"})"), kCorrupt,
          "tokenizer.json: read tokenizer.json: normalizer: Precompiled: precompiled_charsmap: expected base64, found "
          "\"***\""),
      row("character map shorter than its trie",
          With(R"(,"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="})"), kCorrupt,
          "tokenizer.json: load tokenizer: character map: expected the size of its trie, whole numbers of 4 bytes "
          "within 4, found 4294967295"),
      row("template without the text",
          With(R"(,"post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})"), kUnsupported,
          "tokenizer.json: read tokenizer.json: post_processor: TemplateProcessing: single: expected the text once, "
          "and tokens around it"),
      row("template with an unknown token",
          With(
              R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{}})"),
          kCorrupt,
          "tokenizer.json: read tokenizer.json: post_processor: TemplateProcessing: special token \"<s>\": ids: "
          "expected a list, found none"),
      row("template with an id beyond the vocabulary",
          With(
              R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[99]}}})"),
          kCorrupt, "tokenizer.json: load tokenizer: beginning-of-sequence token: expected an id below 3, found 99"),
      row("decoder of speech",
          R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"CTC"}})",
          kUnsupported, "tokenizer.json: read tokenizer.json: decoder: expected ByteLevel, found \"CTC\""),
      row("Unigram with an object for a vocabulary", R"({"model":{"type":"Unigram","vocab":{"a":0}}})", kCorrupt,
          "tokenizer.json: read tokenizer.json: model.vocab: expected a list of tokens and scores, found none"),
      row("Unigram with a score as a string", R"({"model":{"type":"Unigram","vocab":[["a","high"]]}})", kCorrupt,
          "tokenizer.json: read tokenizer.json: model.vocab: entry 0: expected a token and its score"),
      row("Unigram with the unknown beyond the vocabulary",
          R"({"model":{"type":"Unigram","unk_id":7,"vocab":[["a",-1]]}})", kCorrupt,
          "tokenizer.json: load tokenizer: unknown token: expected an id below 1, found 7"),
      row("Unigram with a token twice", R"({"model":{"type":"Unigram","vocab":[["a",-1],["a",-2]]}})", kCorrupt,
          "tokenizer.json: load tokenizer: token 1 \"a\": expected spellings that differ, found the same in token 0"),
      row("Unigram with a token of 600 bytes",
          R"({"model":{"type":"Unigram","vocab":[["a",-1],[")" + std::string(600, 'b') + "\",-2]]}}", kUnsupported,
          "tokenizer.json: load tokenizer: token 1 "
          "\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb...\": expected at most "
          "512 bytes, found 600"),
      row("WordPiece whose decoder has another prefix",
          R"({"model":{"type":"WordPiece","vocab":{"[UNK]":0,"a":1}},"decoder":{"type":"WordPiece","prefix":"@@"}})",
          kUnsupported,
          "tokenizer.json: read tokenizer.json: decoder: WordPiece: prefix: expected the model's \"##\", found \"@@\""),
      row("bytes in a vocabulary of words",
          R"({"model":{"type":"WordLevel","vocab":{"a":0}},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})",
          kUnsupported,
          "tokenizer.json: read tokenizer.json: pre_tokenizer: expected ByteLevel with BPE over bytes only, found "
          "\"ByteLevel\""),
  };
  return CasesOf(rows, "tokenizer.json", {{"config.json", "{}"}}, "");
}

}  // namespace tidemill::testing

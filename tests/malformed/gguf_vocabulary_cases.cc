// GGUF: the tokenizer's arrays, which must fit each other, and the chat template.
#include "tests/malformed/gguf_recipes.h"
#include "tests/malformed/malformed_tables.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::testing {
namespace {

constexpr int kTokens = 264;  // three control tokens, the bytes, five merges

// What a file says of its tokenizer; a case changes one thing.
struct Vocabulary {
  TinyVocabulary entries = MakeTinyVocabulary(kTokens);
  std::string model = "gpt2", pre = "smollm", chat_template = {};
  std::pair<const char*, double> sampling = {"general.sampling.temp", 0};
  bool has_merges = true;
  int64_t bos = 1;
  uint64_t rows = kTokens;  // of the embedding

  std::string Build() const {
    GgufWriter w;
    w.SetString("general.architecture", "llama").Set<uint32_t>("llama.embedding_length", 8);
    w.Set<uint32_t>("llama.block_count", 1).Set<uint32_t>("llama.context_length", 64);
    w.Set<uint32_t>("llama.attention.head_count", 2);
    w.SetString("tokenizer.ggml.model", model).SetString("tokenizer.ggml.pre", pre);
    w.SetStrings("tokenizer.ggml.tokens", entries.tokens);
    w.SetArray<int32_t>("tokenizer.ggml.token_type", entries.token_types);
    if (has_merges) w.SetStrings("tokenizer.ggml.merges", entries.merges);
    w.Set<int64_t>("tokenizer.ggml.bos_token_id", bos);
    w.Set<double>(sampling.first, sampling.second);
    if (!chat_template.empty()) w.SetString("tokenizer.chat_template", chat_template);
    return w.AddTensor("token_embd.weight", DType::kF32, {8, rows}, std::string(rows * 32, '\0')).Build();
  }
};
template <typename Change>
Recipe Changed(Change change) {
  return [=] {
    Vocabulary vocabulary;
    change(vocabulary);
    return vocabulary.Build();
  };
}
MalformedRow Row(const char* name, Recipe recipe, ErrorCode code, const std::string& message) {
  return {name, std::move(recipe), code, message, Question::kLoad};
}

std::vector<MalformedRow> Rows() {
  using V = Vocabulary;
  return {
      Row(
          "no tokenizer",
          [] {
            GgufWriter w;
            w.SetString("general.architecture", "llama").Set<uint32_t>("llama.embedding_length", 8);
            w.Set<uint32_t>("llama.block_count", 1)
                .Set<uint32_t>("llama.context_length", 64)
                .Set<uint32_t>("llama.attention.head_count", 2);
            return w.AddTensor("token_embd.weight", DType::kF32, {8, 4}, std::string(128, '\0')).Build();
          },
          kNotFound, "read tokenizer: GGUF metadata key \"tokenizer.ggml.model\": expected in the file, found none"),
      Row("unknown tokenizer", Changed([](V& v) { v.model = "rwkv"; }), kUnsupported,
          "read tokenizer: tokenizer.ggml.model \"rwkv\": expected \"gpt2\" (byte-level BPE), \"llama\" "
          "(SentencePiece BPE), \"gemma4\", \"t5\" (Unigram) or \"bert\" (WordPiece)"),
      Row("unknown words", Changed([](V& v) { v.pre = "pre-of-tomorrow"; }), kUnsupported,
          "read tokenizer: tokenizer.ggml.pre \"pre-of-tomorrow\": expected a name of docs/models.md, such as gpt-2, "
          "llama-bpe or qwen2"),
      Row("fewer types than tokens", Changed([](V& v) { v.entries.token_types.pop_back(); }), kCorrupt,
          "read tokenizer: tokenizer.ggml.token_type: expected one value for each of the 264 tokens, found 263"),
      Row("more types than tokens", Changed([](V& v) { v.entries.token_types.push_back(1); }), kCorrupt,
          "read tokenizer: tokenizer.ggml.token_type: expected one value for each of the 264 tokens, found 265"),
      Row("type 0", Changed([](V& v) { v.entries.token_types[5] = 0; }), kCorrupt,
          "read tokenizer: tokenizer.ggml.token_type: token 5 \"\xC4\x82\": expected a type from 1 to 6, found 0"),
      Row("type 7", Changed([](V& v) { v.entries.token_types[5] = 7; }), kCorrupt,
          "read tokenizer: tokenizer.ggml.token_type: token 5 \"\xC4\x82\": expected a type from 1 to 6, found 7"),
      Row("type -2147483648", Changed([](V& v) { v.entries.token_types[5] = std::numeric_limits<int32_t>::min(); }),
          kCorrupt,
          "read tokenizer: tokenizer.ggml.token_type: token 5 \"\xC4\x82\": expected a type from 1 to 6, found "
          "-2147483648"),
      Row("one spelling twice", Changed([](V& v) { v.entries.tokens[10] = v.entries.tokens[9]; }), kCorrupt,
          "load tokenizer: token 10 \"\xC4\x86\": expected spellings that differ, found the same in token 9"),
      Row("no merges", Changed([](V& v) { v.has_merges = false; }), kNotFound,
          "read tokenizer: GGUF metadata key \"tokenizer.ggml.merges\": expected in the file, found none"),
      Row("merge of three", Changed([](V& v) { v.entries.merges[0] = "a b c"; }), kCorrupt,
          "load tokenizer: merge 0 \"a b c\": expected two tokens with one space between them"),
      Row("merge of one", Changed([](V& v) { v.entries.merges[0] = "ab"; }), kCorrupt,
          "load tokenizer: merge 0 \"ab\": expected two tokens with one space between them"),
      Row("empty merge", Changed([](V& v) { v.entries.merges[0] = ""; }), kCorrupt,
          "load tokenizer: merge 0 \"\": expected two tokens with one space between them"),
      Row("merge of a token that is not there", Changed([](V& v) { v.entries.merges[1] = "qq qq"; }), kCorrupt,
          "load tokenizer: merge 1 \"qq qq\": expected \"qq\" among the tokens that are not control tokens, found "
          "none"),
      Row("merge into a token that is not there", Changed([](V& v) { v.entries.merges.push_back("q q"); }), kCorrupt,
          "load tokenizer: merge 5 \"q q\": expected \"qq\" among the tokens that are not control tokens, found none"),
      Row("merge into a control token", Changed([](V& v) {
            v.entries.tokens[1] = "qz";
            v.entries.merges.push_back("q z");
          }),
          kCorrupt,
          "load tokenizer: merge 5 \"q z\": expected \"qz\" among the tokens that are not control tokens, found none"),
      Row("characters without scores", Changed([](V& v) { v.model = "llama"; }), kNotFound,
          "read tokenizer: GGUF metadata key \"tokenizer.ggml.scores\": expected in the file, found none"),
      Row("no tokens", Changed([](V& v) { v.entries.tokens.clear(); }), kCorrupt,
          "read tokenizer: tokenizer.ggml.tokens: expected 1 to 2^31 - 1 tokens, found 0"),
      Row("first token beyond the tokens", Changed([](V& v) {
            v.bos = kTokens;
            v.rows = kTokens + 8;
          }),
          kCorrupt,
          "read tokenizer: GGUF metadata key \"tokenizer.ggml.bos_token_id\": byte 4188: value: expected an integer "
          "from 0 to 263, found 264"),
      Row("first token of 2^32 + 1", Changed([](V& v) { v.bos = (int64_t{1} << 32) + 1; }), kCorrupt,
          "GGUF metadata key \"tokenizer.ggml.bos_token_id\": byte 4188: value: expected an integer from 0 to 263, "
          "found 4294967297"),
      Row("fewer rows than tokens", Changed([](V& v) { v.rows = kTokens - 1; }), kCorrupt,
          "tokenizer: expected at most 263 tokens, the rows of \"token_embd.weight\", found 264"),
      Row("temperature of -1", Changed([](V& v) {
            v.sampling = {"general.sampling.temp", -1};
          }),
          kCorrupt, "metadata: \"general.sampling.temp\": expected a number from 0 to 100, found -1"),
      Row("temperature of 1e300", Changed([](V& v) {
            v.sampling = {"general.sampling.temp", 1e300};
          }),
          kCorrupt, "metadata: \"general.sampling.temp\": expected a number from 0 to 100, found 1e+300"),
      Row("top_p of 7", Changed([](V& v) {
            v.sampling = {"general.sampling.top_p", 7};
          }),
          kCorrupt, "metadata: \"general.sampling.top_p\": expected a number above 0, at most 1, found 7"),
      Row("top_p of 0", Changed([](V& v) {
            v.sampling = {"general.sampling.top_p", 0};
          }),
          kCorrupt, "metadata: \"general.sampling.top_p\": expected a number above 0, at most 1, found 0"),
      Row("temperature of 1e9", Changed([](V& v) {
            v.sampling = {"general.sampling.temp", 1e9};
          }),
          kCorrupt, "metadata: \"general.sampling.temp\": expected a number from 0 to 100, found 1e+09"),
      Row("min_p of 2", Changed([](V& v) {
            v.sampling = {"general.sampling.min_p", 2};
          }),
          kCorrupt, "metadata: \"general.sampling.min_p\": expected a number from 0 to 1, found 2"),
  };
}

}  // namespace

std::vector<MalformedCase> GgufVocabularyCases() { return CasesOf(Rows(), "model.gguf", {}, "model.gguf"); }

}  // namespace tidemill::testing

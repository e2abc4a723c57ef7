// model.safetensors.index.json, and what stands in one folder.
#include "tests/malformed/malformed_tables.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kConfig =
    R"({"model_type":"llama","vocab_size":16,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,)"
    R"("max_position_embeddings":64})";

std::string Shard(const std::vector<std::string>& names) {
  SafetensorsWriter w;
  for (const std::string& name : names) w.Add(name, "U8", {1}, "x");
  return w.Build();
}
std::string Map(const std::string& map) { return "{\"weight_map\":" + map + "}"; }
std::string WithShard(const std::string& shard) { return Map("{\"a\":" + shard + "}"); }
std::string WithMetadata(const std::string& metadata) {
  return "{\"weight_map\":{\"a\":\"m-1.safetensors\"},\"metadata\":" + metadata + "}";
}

std::vector<MalformedRow> Rows() {
  return {
      {"empty index", "", kCorrupt, "open {path}/model.safetensors.index.json: the file is empty"},
      {"index cut", "{\"weight_map\":{\"a\":", kCorrupt,
       "safetensors index: byte 19: expected JSON, found a syntax error while parsing value - unexpected end of input; "
       "expected '[', '{', or a literal"},
      {"index is an array", "[]", kCorrupt, "safetensors index: byte 0: index: expected an object, found an array"},
      {"index is a string", "\"x\"", kCorrupt, "safetensors index: byte 0: index: expected an object, found \"x\""},
      {"no map", "{}", kCorrupt, "safetensors index: weight_map: expected an object, found no such key"},
      {"empty map", Map("{}"), kCorrupt, "safetensors index: weight_map: expected at least one tensor, found none"},
      {"map is an array", Map("[]"), kCorrupt,
       "safetensors index: byte 14: weight_map: expected an object, found an array"},
      {"map is null", Map("null"), kCorrupt, "safetensors index: byte 14: weight_map: expected an object, found null"},
      {"map twice", "{\"weight_map\":{\"a\":\"m-1.safetensors\"},\"weight_map\":{}}", kCorrupt,
       "safetensors index: byte 38: weight_map: expected it once, found it twice"},
      {"metadata twice", WithMetadata("{},\"metadata\":{}"), kCorrupt,
       "safetensors index: byte 52: metadata: expected it once, found it twice"},
      {"metadata is a number", WithMetadata("1"), kCorrupt,
       "safetensors index: byte 49: metadata: expected an object, found 1"},
      {"negative size", WithMetadata("{\"total_size\":-1}"), kCorrupt,
       "safetensors index: byte 63: total_size: expected a number of bytes, found -1"},
      {"size with a fraction", WithMetadata("{\"total_size\":1.5}"), kCorrupt,
       "safetensors index: byte 63: total_size: expected a number of bytes, found 1.5"},
      {"size as a string", WithMetadata("{\"total_size\":\"1\"}"), kCorrupt,
       "safetensors index: byte 63: total_size: expected a number of bytes, found \"1\""},
      {"size twice", WithMetadata("{\"total_size\":1,\"total_size\":1}"), kCorrupt,
       "safetensors index: byte 65: total_size: expected it once, found it twice"},
      {"shard is a number", WithShard("1"), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected a string, found 1"},
      {"shard is an object", WithShard("{}"), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected a string, found an object"},
      {"shard is null", WithShard("null"), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected a string, found null"},
      {"shard without a name", WithShard("\"\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"\""},
      {"shard by its whole path", WithShard("\"/etc/x.safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"/etc/x.safetensors\""},
      {"shard above the folder", WithShard("\"../x.safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"../x.safetensors\""},
      {"shard in a folder", WithShard("\"a/x.safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"a/x.safetensors\""},
      {"shard behind a backslash", WithShard("\"..\\\\x.safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"..\\x.safetensors\""},
      {"shard above the folder, escaped", WithShard("\"\\u002e\\u002e\\u002fx.safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"../x.safetensors\""},
      {"shard is the folder above", WithShard("\"..\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"..\""},
      {"shard is hidden", WithShard("\".safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \".safetensors\""},
      {"shard is a pickle", WithShard("\"pytorch_model.bin\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"pytorch_model.bin\""},
      {"shard is the index itself", WithShard("\"model.safetensors.index.json\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"model.safetensors.index.json\""},
      {"NUL in a shard's name", WithShard("\"x\\u0000.safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"x\\x00.safetensors\""},
      {"newline in a shard's name", WithShard("\"x\\n.safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"x\\x0a.safetensors\""},
      {"shard's name of 256 bytes", WithShard("\"" + std::string(244, 's') + ".safetensors\""), kCorrupt,
       "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's "
       "own folder, found \"ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss...\""},
      {"tensor without a name", Map("{\"\":\"m-1.safetensors\"}"), kCorrupt,
       "safetensors index: byte 15: weight_map: expected a tensor's name, found an empty one"},
      {"newline in a tensor's name", Map("{\"a\\n\":\"m-1.safetensors\"}"), kCorrupt,
       "safetensors index: byte 15: weight_map: expected names in UTF-8 without control characters, found \"a\\x0a\""},
      {"tensor's name of 257 bytes", Map("{\"" + std::string(257, 'n') + "\":\"m-1.safetensors\"}"), kUnsupported,
       "safetensors index: byte 15: weight_map: expected names of at most 256 bytes, found 257"},
      {"tensor twice", Map("{\"a\":\"m-1.safetensors\",\"a\":\"m-2.safetensors\"}"), kCorrupt,
       "safetensors index: byte 37: weight_map: expected each tensor once, found \"a\", which also stands at byte 15"},
      {"tensor twice, once escaped", Map("{\"a\":\"m-1.safetensors\",\"\\u0061\":\"m-2.safetensors\"}"), kCorrupt,
       "safetensors index: byte 37: weight_map: expected each tensor once, found \"a\", which also stands at byte 15"},
      {"10001 shards",
       [] {
         std::string map = "{";
         for (int i = 0; i <= 10'000; ++i)
           map += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"" + std::to_string(i) + ".safetensors\"";
         return Map(map + "}");
       },
       kUnsupported, "safetensors index: byte 257803: weight_map \"10000\": expected at most 10000 shards, found more"},
      {"more than 100 MB", Recipe("{").Stretched(100'000'001), kUnsupported,
       "safetensors index: expected at most 100000000 bytes, found 100000001"},
      {"shard that is not there", WithShard("\"m-3.safetensors\""), kNotFound,
       "shard \"m-3.safetensors\": open {path}/m-3.safetensors: No such file or directory"},
      {"tensor that is in no shard", Map("{\"a\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"}"), kCorrupt,
       "safetensors index: tensor \"c\": expected in \"m-2.safetensors\", found in no shard"},
      {"tensor in another shard", Map("{\"a\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\"}"), kCorrupt,
       "safetensors index: tensor \"a\": expected in \"m-2.safetensors\", found in \"m-1.safetensors\""},
      {"tensor in two shards",
       Map("{\"a\":\"m-1.safetensors\",\"again\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}"), kCorrupt,
       "safetensors index: tensor \"again\": expected in \"m-1.safetensors\" only, found in \"m-2.safetensors\" too"},
      {"shard that is cut short", WithShard("\"cut.safetensors\""), kCorrupt,
       "shard \"cut.safetensors\": safetensors tensor \"again\": byte 61: data_offsets: expected a range of the 1 "
       "bytes of data, found [1, 2]; the file is truncated or damaged"},
      {"shard that is a GGUF file", WithShard("\"gguf.safetensors\""), kUnsupported,
       "shard \"gguf.safetensors\": safetensors header: byte 0: expected a safetensors file, found a GGUF file; name "
       "it "
       "alone"},
  };
}

}  // namespace

std::vector<MalformedCase> IndexCases() {
  const std::string whole = Shard({"a", "again"});
  return CasesOf(Rows(), kIndexName,
                 {{"config.json", kConfig},
                  {"m-1.safetensors", whole},
                  {"m-2.safetensors", Shard({"b", "again"})},
                  {"cut.safetensors", whole.substr(0, whole.size() - 1)},
                  {"gguf.safetensors", "GGUF" + std::string(60, '\0')}},
                 "");
}

std::vector<MalformedCase> FolderCases() {
  const std::string weights = Shard({"a"});
  return {
      {"nothing",
       {{"README.md", "a model"}},
       "",
       kNotFound,
       "open {path}: expected model.safetensors, model.safetensors.index.json or a .gguf file, found none"},
      {"pickle alone",
       {{"config.json", kConfig}, {"pytorch_model.bin", "PK\x03\x04"}},
       "",
       kUnsupported,
       "open {path}: expected model.safetensors, model.safetensors.index.json or a .gguf file, found "
       "\"pytorch_model.bin\"; convert the model to safetensors"},
      {"pickle under the name of a GGUF file",
       {{"model.gguf", "\x80\x02}q\0"s + std::string(60, 'z')}},
       "",
       kUnsupported,
       "GGUF header: byte 0: magic: expected \"GGUF\", found \"\\x80\\x02}q\", a Python pickle; convert the model to "
       "GGUF"},
      {"adapter",
       {{"adapter_config.json", "{}"}, {"adapter_model.safetensors", weights}},
       "",
       kUnsupported,
       "open {path}: \"adapter_model.safetensors\": expected a model, found a LoRA adapter; merge it into its base "
       "model "
       "and give the result"},
      {"pointer of Git LFS as settings",
       {{"config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n"},
        {"model.safetensors", weights}},
       "",
       kCorrupt,
       "config.json: expected JSON, found a pointer of Git LFS in place of the file; fetch it with git lfs pull"},
      {"pointer of Git LFS as an index",
       {{"config.json", kConfig}, {kIndexName, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n"}},
       "",
       kCorrupt,
       "model.safetensors.index.json: expected JSON, found a pointer of Git LFS in place of the file; fetch it with "
       "git "
       "lfs pull"},
      {"web page as a tokenizer",
       {{"config.json", kConfig}, {"model.safetensors", weights}, {"tokenizer.json", "<html>Sign in</html>"}},
       "",
       kCorrupt,
       "tokenizer.json: expected JSON, found a web page, as a failed download leaves it; download the file again"},
      {"weights without settings",
       {{"model.safetensors", weights}},
       "",
       kNotFound,
       "open {path}: expected config.json beside the weights, found none"},
      {"weights in two formats",
       {{"config.json", kConfig}, {"model.safetensors", weights}, {"model.gguf", "GGUF"}},
       "",
       kUnsupported,
       "open {path}: expected one model, found \"model.safetensors\" and \"model.gguf\"; name the file, or move one "
       "away"},
      {"two GGUF models",
       {{"a.gguf", "GGUF"}, {"b.gguf", "GGUF"}},
       "",
       kUnsupported,
       "open {path}: expected one model, found \"a.gguf\" and \"b.gguf\"; name the file"},
      {"one shard alone",
       {{"config.json", kConfig}, {"model-00001-of-00002.safetensors", weights}},
       "model-00001-of-00002.safetensors",
       kUnsupported,
       "open {path}: expected a whole model, found part 1 of 2; name the folder instead"},
      {"GGUF under the name of safetensors",
       {{"config.json", kConfig}, {"model.safetensors", "GGUF\3\0\0\0"s}},
       "",
       kCorrupt,
       "GGUF header: byte 8: tensor count: expected 8 bytes, found 0; the file is truncated or damaged"},
      {"tokenizer's settings cut",
       {{"config.json", kConfig}, {"model.safetensors", weights}, {"tokenizer_config.json", "{"}},
       "",
       kCorrupt,
       "tokenizer_config.json: byte 1: expected JSON, found a syntax error while parsing object key - unexpected end "
       "of input; expected string literal"},
      {"no tokenizer",
       {{"config.json", kConfig}, {"model.safetensors", weights}},
       "",
       kNotFound,
       "tokenizer.json: not in the folder; text needs it (transformers' save_pretrained of a fast tokenizer writes "
       "it), or "
       "tokenizer.model, or vocab.json and merges.txt",
       Question::kLoad},
  };
}

}  // namespace tidemill::testing

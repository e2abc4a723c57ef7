// Whatever is wrong with a file, a flag or a text: one line on stderr that says so, the right exit code, nothing on stdout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "formats/gguf.h"
#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/fixtures_path.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::bad_input_test {
namespace {

using ::testing::HasSubstr;

void ExpectError(const ProcessResult& result, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_FALSE(result.was_killed_by_signal);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.starts_with("tidemill: ")) << result.err;
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
  EXPECT_LE(result.err.size(), 400U);
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
}

// Every command that opens a model refuses it.
void ExpectUnusableModel(const std::string& path, const std::vector<std::string>& parts) {
  ExpectError(RunTidemill({"inspect", path}), 1, parts);
  ExpectError(RunTidemill({"run", path, "-p", "a"}), 1, parts);
}

TEST(BadModel, MissingFile_IsNamed) {
  const std::string path = TestFolder() + "/missing.gguf";
  ExpectUnusableModel(path, {path});
  ExpectError(RunTidemill({"tokenize", path, "a"}), 1, {path});
  ExpectError(RunTidemill({"bench", path}), 1, {path});
  ExpectError(RunTidemill({"chat", path}), 1, {path});
}

TEST(BadModel, FolderInsteadOfFile_IsNamed) { ExpectUnusableModel(TestFolder(), {TestFolder()}); }

TEST(BadModel, TruncatedFile_IsRefused) {
  const std::string whole = BuildTinyLlama({});
  for (const size_t size : {size_t{0}, size_t{3}, size_t{20}, size_t{1000}, whole.size() / 2, whole.size() - 1}) {
    ExpectUnusableModel(WriteFile("truncated.gguf", whole.substr(0, size)), {"truncated.gguf"});
  }
}

TEST(BadModel, ForeignFile_IsRefused) {
  ExpectUnusableModel(
      WriteFile("picture.gguf", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) + std::string(5000, 'x')),
      {"picture.gguf"});
  ExpectUnusableModel(WriteFile("text.gguf", "hello\n"), {"text.gguf"});
}

TEST(BadModel, UnknownArchitecture_IsNamed) {
  std::string bytes = BuildTinyLlama({});
  const size_t offset = ValueOffset(bytes, "general.architecture") + 8;
  bytes.replace(offset, 5, "llamb");
  ExpectUnusableModel(WriteFile("architecture.gguf", bytes), {"architecture.gguf", "llamb"});
}

TEST(BadModel, UnknownTensorType_IsNamed) {
  std::string bytes = BuildTinyLlama({});
  Patch<uint32_t>(bytes, TensorTypeOffset(bytes, "blk.0.attn_q.weight", 2), 200);
  ExpectUnusableModel(WriteFile("type.gguf", bytes), {"type.gguf", "blk.0.attn_q.weight", "200"});
}

TEST(BadModel, ShapeThatContradictsTheSettings_IsNamed) {
  std::string bytes = BuildTinyLlama({});
  Patch<uint32_t>(bytes, ValueOffset(bytes, "llama.feed_forward_length"), 223);
  ExpectError(RunTidemill({"run", WriteFile("shape.gguf", bytes), "-p", "a"}), 1, {"shape.gguf", "ffn_"});
}

TEST(BadModel, NanWeights_EndTheRunWithoutAToken) {
  std::string bytes = BuildTinyLlama({});
  PoisonTensor(bytes, "output_norm.weight");
  const std::string path = WriteFile("nan.gguf", bytes);
  ExpectError(RunTidemill({"run", path, "--raw", "-p", "a b c", "-n", "5"}), 1, {});
  ExpectError(RunTidemill({"run", path, "--raw", "-p", "a b c", "-n", "5", "--json"}), 1, {});
  const std::string ids = WriteFile("ids.json", "[5, 6, 7]");
  ExpectError(RunTidemill({"logits", path, "--ids", ids, "--out", TestFolder() + "/nan.safetensors"}), 1,
              {"logits", "NaN"});
  EXPECT_FALSE(std::filesystem::exists(TestFolder() + "/nan.safetensors"));
}

TEST(BadModel, ControlBytesInAName_DoNotReachTheTerminal) {
  ExpectError(RunTidemill({"inspect", TestFolder() + "/a\x1b[31m\nb"}), 1, {"a\\x1b[31m\\x0ab"});
  ExpectError(RunTidemill({"inspect", TestFolder() + "/" + std::string(3000, 'n')}), 1, {"..."});
}

TEST(BadPrompt, LongerThanTheContext_NamesBothNumbers) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "q ";
  ExpectError(RunTidemill({"run", CountingModelFile(), "--raw", "-p", text}), 1, {"256"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "--raw", "-p", "a b c d e f g h", "-c", "4"}), 1, {"4"});
}

TEST(BadPrompt, InvalidUtf8_NamesTheOffset) {
  ExpectError(RunTidemill({"run", CountingModelFile(), "-p", "ab\xff"}), 2, {"0xff at offset 2"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "ab\xc3\x28"}), 2, {"0xc3 at offset 2"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "--system", "\xff"}), 2, {"--system", "offset 0"});
  const std::string file = WriteFile("latin1.txt", "gr\xfc\xdf dich");
  ExpectError(RunTidemill({"run", CountingModelFile(), "-f", file}), 2, {file, "0xfc at offset 2"});
  ExpectError(RunTidemill({"tokenize", CountingModelFile(), "-f", file}), 2, {file, "offset 2"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "-"}, {.input = "\xed\xa0\x80"}), 2,
              {"standard input", "offset 0"});
}

TEST(BadPrompt, TwoTexts_AreRefused) {
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "-p", "b"}), 2, {"\"a\"", "\"b\"", "leave one out"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "-p", "b", "-f", "c"}), 2, {"\"b\"", "\"c\""});
  ExpectError(RunTidemill({"run", CountingModelFile(), "-", "-f", "c"}), 2, {"\"-\"", "\"c\""});
}

TEST(BadPrompt, MissingOnATerminal_NamesChat) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  const ProcessResult result = RunTidemill({"run", CountingModelFile()}, {.terminal = true});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("tidemill chat"));
}

TEST(BadPrompt, FileThatIsNotThere_IsNamed) {
  ExpectError(RunTidemill({"run", CountingModelFile(), "-f", "/nowhere/p.txt"}), 1,
              {"read the prompt: /nowhere/p.txt"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "-f", TestFolder()}), 2, {"found a folder"});
  ExpectError(RunTidemill({"perplexity", CountingModelFile(), "-f", "/nowhere/t.txt"}), 1,
              {"/nowhere/t.txt", "check the path"});
}

TEST(BadPrompt, TextOfOneToken_HasNoPerplexity) {
  ExpectError(RunTidemill({"perplexity", CountingModelFile()}, {.input = "a"}), 2,
              {"expected at least 2 tokens, found 1; give a longer one"});
  ExpectError(RunTidemill({"perplexity", CountingModelFile(), "-c", "3"}, {.input = "a"}), 2,
              {"--context 3: expected 4 to", "leave the flag out"});
}

TEST(BadPrompt, ArgumentsThatLookLikeFlags_AreExplained) {
  const std::string& model = CountingModelFile();
  ExpectError(RunTidemill({"run", model, "-hello"}), 2, {"\"-hello\": no such flag", "after -p"});
  ExpectError(RunTidemill({"run", model, "-xyz"}), 2, {"\"-xyz\"", "after -p"});
  for (const std::vector<std::string>& prompt :
       std::vector<std::vector<std::string>>{{"-p", "-hello"}, {"--", "-hello"}})
    EXPECT_EQ(RunTidemill({"run", model, "-n", "1", prompt[0], prompt[1]}).exit_code, 0) << prompt[0];
  ExpectError(RunTidemill({"run", model, "--raw", "--prompt=", "-n", "3"}), 2, {"the prompt is empty"});
  ExpectError(RunTidemill({"run", model, "a", "--temp", "abc"}), 2,
              {"--temperature: expected a number, found \"abc\""});
}

TEST(BadFlag, Threads_AreOneTo256) {
  for (const std::string threads : {"0", "-1", "abc", "", "1.5", "257", "1000000"}) {
    ExpectError(RunTidemill({"run", CountingModelFile(), "a", "--threads", threads}), 2,
                {"--threads: expected a whole number from 1 to 256", "found \"" + threads + "\""});
  }
}

TEST(BadFlag, UnknownFlagOrCommand_SuggestsTheNearest) {
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "--temprature", "1"}), 2,
              {"--temprature", "did you mean --temperature?"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "-np", "4"}), 2, {"\"-np\"", "give --max-batch"});
  ExpectError(RunTidemill({"chat", CountingModelFile(), "-np", "4"}), 2,
              {"\"-np\"", "tidemill chat --help lists them"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "--ctx-size=8"}), 2, {"\"--ctx-size\"", "give --context"});
  ExpectError(RunTidemill({"inspekt", CountingModelFile()}), 2, {"inspekt", "did you mean inspect?"});
  ExpectError(RunTidemill({"--verbose"}), 2, {"--verbose", "tidemill --help"});
  EXPECT_EQ(RunTidemill({}).exit_code, 2);
}

TEST(BadFlag, RangesOfTheLibrary_ComeBeforeTheModelIsLoaded) {
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--top-p", "1.5"}), 2, {"--top-p"});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--temp", "-1"}), 2, {"--temperature"});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "-n", "0"}), 2, {"--max-new-tokens"});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "-n", "8000000000000"}), 2,
              {"--max-new-tokens: expected a whole number of at most 2147483647, found \"8000000000000\""});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--logit-bias", "5"}), 2, {"--logit-bias: expected ID=BIAS"});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--logprobs", "3"}), 2, {"--json"});
  ExpectError(RunTidemill({"chat", "/nowhere.gguf", "--logprobs", "3"}), 2, {"run --json"});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--kv-dtype", "q4_0"}), 2, {"--kv-dtype", "q8_0"});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--kv-policy", "none"}), 2, {"--kv-policy", "geometric"});
  ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--kv-increment", "0"}), 2, {"--kv-increment"});
  ExpectError(RunTidemill({"run", TinyLlamaFile(), "a", "--kv-increment", "1000000"}), 2,
              {"--kv-increment 1000000", "context"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "-c", "1000"}), 2,
              {"1000", "256 tokens; choose at most that"});
}

TEST(BadFlag, RopeScaling_IsRefusedBeforeTheModelIsLoaded) {
  for (const std::string text : {"longrope=4", "yarn", "yarn=1", "linear=1025", "yarn=nan"}) {
    ExpectError(RunTidemill({"run", "/nowhere.gguf", "a", "--rope-scaling", text}), 2,
                {"--rope-scaling: expected linear=FACTOR or yarn=FACTOR with a factor above 1 and at most 1024",
                 "found \"" + text + "\""});
  }
}

TEST(BadFlag, ContextPastTheModels_NamesWhatWouldDo) {
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "-c", "257"}), 2,
              {"--context 257", "256 tokens; choose at most that", "--rope-scaling yarn=2"});
  ExpectError(RunTidemill({"run", CountingModelFile(), "a", "-c", "641", "--rope-scaling", "linear=2.5"}), 2,
              {"--context 641: expected at most 640, what --rope-scaling linear=2.5 makes of the model's 256 tokens"});
}

// A model of 128 learned positions.
std::string OptFolder() {
  const std::string folder = TestFolder() + "/opt";
  std::filesystem::copy(std::string(TIDEMILL_FIXTURES) + "/families/opt", folder,
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  WriteFile(
      "opt/tokenizer.json",
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"post_processor":null,"decoder":{"type":"ByteLevel"},)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"d":3},"merges":[]}})");
  return folder;
}

TEST(BadModel, LearnedPositions_HaveNoRopeScaling) {
  const std::string folder = OptFolder();
  EXPECT_EQ(RunTidemill({"run", folder, "--raw", "a", "-n", "1"}).exit_code, 0);
  ExpectError(RunTidemill({"run", folder, "--raw", "a", "-n", "1", "--rope-scaling", "yarn=4"}), 1,
              {"--rope-scaling yarn=4: expected a model with rotary positions, found opt", "its 128 positions"});
  ExpectError(RunTidemill({"run", folder, "--raw", "a", "-c", "129"}), 2, {"128 tokens; choose at most that"});
}

TEST(BadFlag, BlocksWiderThanAHead_AreRefusedWithWhatWorks) {
  for (const char* command : {"run", "perplexity"}) {
    ExpectError(RunTidemill({command, TinyLlamaFile(), "--kv-dtype", "q8_0"}, {.input = "hello"}), 1,
                {"--kv-dtype q8_0", "head_dim", "multiple of 32, found 16; choose f16, bf16 or f32"});
  }
}

TEST(BadFlag, RemovedFlags_SayWhatToDoWithoutThem) {
  for (const char* value : {"exact", "padded", "fast"}) {
    ExpectError(RunTidemill({"run", "no.gguf", "-p", "a", "--attention-backend", value}), 2,
                {"--attention-backend: expected no such flag, which was removed",
                 "attention always reads the rows that are there; leave it out"});
  }
  ExpectError(RunTidemill({"run", "no.gguf", "-p", "a", "--attention-backend"}), 2,
              {"--attention-backend: expected no"});
}

TEST(BadFlag, OldNames_NameTheNewOnes) {
  for (const char* command : {"run", "chat", "plan", "bench"}) {
    ExpectError(RunTidemill({command, "no.gguf", "--kv-period", "64", "--kv-period=32"}), 2,
                {"--kv-period: expected no such flag, which was removed: give --kv-increment"});
  }
}

TEST(BadIds, NotJsonOrNotIds_AreRefused) {
  const std::string out = TestFolder() + "/bad_ids.safetensors";
  for (const std::string json : {"[1, 2", "{}", "[]", "[-1]", "[1.5]", "[\"a\"]"}) {
    ExpectError(RunTidemill({"logits", CountingModelFile(), "--ids", WriteFile("bad.json", json), "--out", out}), 2,
                {"bad.json"});
  }
  ExpectError(RunTidemill({"logits", CountingModelFile(), "--ids", WriteFile("bad.json", "[997]"), "--out", out}), 2,
              {"997"});
  ExpectError(RunTidemill({"logits", CountingModelFile(), "--ids", "/nowhere.json", "--out", out}), 1,
              {"/nowhere.json"});
  ExpectError(RunTidemill({"detokenize", CountingModelFile(), "12", "x"}), 2, {"\"x\""});
  ExpectError(RunTidemill({"detokenize", CountingModelFile(), "997"}), 2, {"997"});
  ExpectError(RunTidemill({"detokenize", CountingModelFile()}, {.input = "[1, 2]"}), 2, {"standard input", "\"[1,\""});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(BadIds, MissingOnATerminal_AreAskedFor) {
  if (const std::string why = WhyNoTerminal(); !why.empty()) GTEST_SKIP() << why;
  const ProcessResult none = RunTidemill({"detokenize", CountingModelFile()}, {.terminal = true});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("ids: expected at least one"));
}

TEST(BadChat, ModelWithoutTemplate_IsUnsupported) {
  const std::string path = WriteFile("no_template.gguf", BuildTinyLlama({.chat_template = ""}));
  ExpectError(RunTidemill({"chat", path}), 1, {"chat template", "run --raw"});
  ExpectError(RunTidemill({"run", path, "--chat", "a"}), 1, {"chat template"});
  ExpectError(RunTidemill({"tokenize", path, "--chat", WriteFile("m.json", "[]")}), 1, {"chat template"});
  ExpectError(RunTidemill({"run", path, "--system", "s", "a"}), 2, {"--system"});
  EXPECT_EQ(RunTidemill({"run", path, "-p", "a", "-n", "3"}).exit_code, 0);
}

TEST(BadChat, TemplateThatFails_IsTheFilesFault) {
  const auto run = [](const std::string& source) {
    const std::string path = WriteFile("bad_template.gguf", BuildTinyLlama({.chat_template = source}));
    return RunTidemill({"run", path, "--chat", "a"});
  };
  for (const std::string source :
       {"{% for i in range(9000) %}{% set x = range(0, 200000, 2) | list %}{% endfor %}", "{{ 'a' | nonsense }}",
        "{% set ns = namespace(t='aaaa') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "{{ messages[0].content.a.b }}"}) {
    ExpectError(run(source), 1, {"chat template", "line 1"});
  }
  ExpectError(run("{{ raise_exception('no roles') }}"), 2, {"no roles"});
}

TEST(BadChat, TemplateThatCannotBeUsed_IsAnErrorWhereAChatIsAskedFor) {
  const std::string trouble = "metadata: \"tokenizer.chat_template\": parse chat template: line 1, column ";
  const std::pair<std::string, std::string> templates[] = {
      {"{% for message in messages %}", "30: a block is not closed: expected \"{% endfor %}\""},
      {"{{ ''.__class__.__mro__ ", "1: an expression is not closed: expected \"}}\""},
      {"{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}", "67: nested deeper than 64 levels"}};
  for (const auto& [source, what] : templates) {
    const std::string path = WriteFile("no_use.gguf", BuildTinyLlama({.chat_template = source}));
    ExpectError(RunTidemill({"chat", path}), 1, {path + ": " + trouble + what, "run --raw"});
    ExpectError(RunTidemill({"run", path, "a"}), 1, {trouble + what, "run --raw"});
    ExpectError(RunTidemill({"tokenize", path, "--chat", WriteFile("m.json", "[]")}), 1, {trouble + what});
    EXPECT_EQ(RunTidemill({"run", path, "--raw", "-p", "a", "-n", "3"}).exit_code, 0);
    EXPECT_EQ(RunTidemill({"tokenize", path, "a"}).exit_code, 0);
  }
}

TEST(BadChat, ScriptWithAMistake_EndsWithIt) {
  ExpectError(RunTidemill({"chat", CountingModelFile()}, {.input = "/system a\xFF\n"}), 2, {"/system: expected UTF-8"});
  ExpectError(RunTidemill({"chat", CountingModelFile()}, {.input = "/nonsense\n"}), 2, {"/nonsense"});
  ExpectError(RunTidemill({"chat", CountingModelFile()}, {.input = "/load /nowhere.json\n"}), 1, {"/nowhere.json"});
  ExpectError(RunTidemill({"chat", CountingModelFile()}, {.input = "a\xff\n"}), 2, {"offset 1"});
}

TEST(BadBench, WithoutAModelOrWithChild_SaysWhatToUse) {
  ExpectError(RunTidemill({"bench"}), 2, {"MODEL"});
  for (const std::vector<std::string>& child :
       {std::vector<std::string>{"--child"}, {"--child="}, {"--child", "1", "--child", "2"}}) {
    std::vector<std::string> all = {"bench", "no.gguf"};
    all.insert(all.end(), child.begin(), child.end());
    ExpectError(RunTidemill(all), 2, {"--child: expected no such flag, which was removed", "run bench_child"});
  }
}

}  // namespace
}  // namespace tidemill::testing::bad_input_test

// tidemill bench --child: measurements for a program that compares engines. It writes settings as JSON objects to standard
// input, each on a line or more of its own, and reads one line of standard output for each, until it ends the input.
//
// What is loaded and filled stays for the next settings: the model while `model` is the same; the engine while kv_type is, too, and neither
// threads nor batches exceed what it was made for; the caches of the last test while it is asked for again, with any threads and repeats,
// or a decode at a greater depth. Nothing runs in between.
#ifndef TIDEMILL_CLI_BENCH_CHILD_H_
#define TIDEMILL_CLI_BENCH_CHILD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct ChildSettings {
  std::string engine = "tidemill";  // echoed
  bool info = false;                // only what the build and the machine are
  std::string model;
  size_t threads = 0;                               // 0: all
  std::vector<size_t> prompt_tokens, depth, batch;  // one test per entry
  size_t gen_tokens = 64;
  std::pair<size_t, size_t> batch_prompt = {64, 64};  // lowest and highest prompt length of batched sequences
  size_t repeats = 3;
  uint64_t seed = 0;
  bool flash_attn = false;  // echoed: other engines can switch it
  std::string kv_type = "f16";
  bool read_rate = false;  // of a decode test also what a plain loop reads right behind it, and the bytes of a step
};

// Where a text of JSON is, line by line: inside of an object or behind it. Cost: linear.
class JsonBrackets {
 public:
  void Add(std::string_view line);
  // What comes next belongs to it. False, too, where brackets or quotes are wrong, which the parser says.
  bool open() const { return depth_ > 0 && !in_text_; }

 private:
  int64_t depth_ = 0;
  bool in_text_ = false;  // a line that ends in it is wrong
};

// Unknown members are other engines' and are ignored. kInvalidArgument names a member that is wrong; kUnsupported: `text`,
// since the tests draw their tokens themselves.
Result<ChildSettings> ParseChildSettings(std::string_view json);

// Prompt lengths of `batch` sequences, spread evenly over the range and shuffled by the seed.
std::vector<size_t> BatchPrompts(const ChildSettings& settings, size_t batch);

// `isa`: a name of --isa; empty: the default.
Result<void> RunBenchChild(CommandContext& context, const std::string& isa);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_BENCH_CHILD_H_

// Measurements for a program that compares engines (tools/compare_peers.py). It writes settings as JSON objects to standard input, each
// on a line or more of its own, and reads one line of standard output for each, until it ends the input. README.md has the members.
//
// What is loaded and filled stays for the next settings. The model stays while `model` is the same. The engine stays while kv_type is the
// same, too, and neither threads nor batches exceed what it was made for. The caches of the last test stay for the same test, with any
// threads and repeats, and for a decode at a greater depth. Nothing runs in between.
#ifndef TIDEMILL_BENCHMARKS_CHILD_BENCH_CHILD_H_
#define TIDEMILL_BENCHMARKS_CHILD_BENCH_CHILD_H_

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemill/result.h"

namespace tidemill::child {

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
  bool shared = false;      // batch: sequences of one length share their rows
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

// Answers each of `in`, flushed. `isa`: a name of tidemill's --isa; empty: the default.
Result<void> AnswerAll(std::istream& in, std::ostream& out, const std::string& isa);

}  // namespace tidemill::child

#endif  // TIDEMILL_BENCHMARKS_CHILD_BENCH_CHILD_H_

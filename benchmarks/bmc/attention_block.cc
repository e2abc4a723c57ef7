// The attention block of one layer under every policy of cache growth (state/kv_growth.h): the sweep behind docs/kv-cache.md.
//
//   bmc_attention_block --journal bmc.jsonl                      what is claimed first, then the paper's figures, then the rest
//   bmc_attention_block --journal bmc.jsonl --ci                 a subset for two minutes
//   bmc_attention_block --journal bmc.jsonl --drafts             26 rows a step, of which 4 and 8 stay
//   bmc_attention_block --journal bmc.jsonl --latency            and the time of single tokens
//   bmc_attention_block --journal bmc.jsonl --long               heads of 16, up to 16384 tokens
//   bmc_attention_block --journal bmc.jsonl --repeats 3 --tokens 2048 --batch 8     what is claimed alone, in three turns
//   bmc_attention_block --check-sampling --repeats 3 --shape opt-2.7b    sampled totals beside those of full runs
//
// How long all of it will take is printed first, and how much of it --minutes have room for; what does not fit any more is left for the same
// command another time. A cell is one line of JSON, and one that is in the journal already is skipped. Each run is a process of its own,
// since a policy leaves the allocator in another state than it found it; policies of a group take turns, in random order, --repeats times,
// and the run with the median total is the one that is written. benchmarks/bmc/plot.py makes tables and figures of a journal.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/available_memory.h"
#include "benchmarks/bmc/block_runner.h"
#include "benchmarks/bmc/cell.h"
#include "benchmarks/bmc/cell_record.h"
#include "benchmarks/bmc/estimate.h"
#include "benchmarks/bmc/grid.h"
#include "benchmarks/bmc/stopwatch.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::bmc {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  GridOptions grid;
  std::string journal;
  size_t repeats = 1, samples = 32;
  double minutes = 60;
  bool check_sampling = false, list = false, estimate = false;
};

// The record of one run, made in a child process; {"error": ...} where it failed.
Json RunInChild(const Cell& cell, size_t samples, bool points) {
  int ends[2];
  if (pipe(ends) != 0) return {{"error", "no pipe"}};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    if (cell.pages == "small") prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    const Result<std::vector<Sample>> run = RunCell(cell, samples);
    const std::string text = (run.ok() ? RecordOf(*run, points) : Json{{"error", run.error().message()}}).dump();
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = write(ends[1], text.data() + at, text.size() - at);
      if (written <= 0) _exit(1);
      at += static_cast<size_t>(written);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; child > 0 && (got = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
  Json record = Json::parse(text, nullptr, false);
  if (record.is_discarded()) return {{"error", "the run ended with status " + std::to_string(status)}};
  return record;
}

double Available() { return static_cast<double>(AvailableMemory().value_or(0)); }

std::set<std::string> KeysIn(const std::string& journal) {
  std::set<std::string> keys;
  std::ifstream file(journal);
  for (std::string line; std::getline(file, line);) {
    const Json record =
        Json::parse(line, nullptr, false);  // a line that was cut off is measured again, as is what was refused
    if (record.is_object() && record.contains("key") && record.contains("seconds"))
      keys.insert(record["key"].get<std::string>());
  }
  return keys;
}

bool EndsWithinALine(const std::string& journal) {
  std::ifstream file(journal, std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

void SortByTotal(std::vector<Json>& runs) {
  std::sort(runs.begin(), runs.end(),
            [](const Json& a, const Json& b) { return a["seconds"]["total"] < b["seconds"]["total"]; });
}

const Json& MedianOf(std::vector<Json>& runs) {
  SortByTotal(runs);
  return runs[runs.size() / 2];
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

template <typename T>
void Shuffle(std::vector<T>& list, testing::Random& random) {
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random.Below(i)]);
}

class Sweep {
 public:
  explicit Sweep(const Options& options) : options_(options) {}

  int Run(const std::vector<Group>& groups) {
    const std::set<std::string> done = KeysIn(options_.journal);
    std::ofstream out(options_.journal, std::ios::app);
    if (!out) {
      std::fprintf(stderr, "write journal %s: cannot be opened; name a file in a folder that is there\n",
                   options_.journal.c_str());
      return 2;
    }
    if (EndsWithinALine(options_.journal)) out << "\n";
    std::vector<Group> todo;
    std::vector<double> estimates;
    for (const Group& group : groups) {
      Group cells;
      for (const Cell& cell : group) {
        if (done.count(KeyOf(cell)) == 0) cells.push_back(cell);
      }
      if (cells.empty()) continue;
      estimates.push_back(EstimatedSecondsOf(cells));
      todo.push_back(std::move(cells));
    }
    SayEstimates(todo, estimates);
    if (options_.estimate) return 0;
    out << Json{{"machine", MachineRecord()}, {"repeats", options_.repeats}}.dump() << "\n" << std::flush;
    size_t left = 0;
    double spent = 0;
    Stopwatch watch;
    for (size_t i = 0; i < todo.size(); ++i) {
      if (spent != 0 && spent + estimates[i] > options_.minutes * 60) {  // the first one fits whatever it takes
        left += todo[i].size();
        continue;
      }
      Measure(todo[i], out);
      spent += watch.Lap();
    }
    if (left != 0)
      std::fprintf(stderr, "%zu cells are left, for which %.0f minutes had no room: run the same command again\n", left,
                   options_.minutes);
    return failed_ ? 1 : 0;
  }

  // Of each cell the median over repeats of sampled runs over the full one among them.
  int CheckSampling(const std::vector<Group>& groups) {
    constexpr size_t kSampledBeside = 3;
    double worst = 0;
    for (const Group& group : groups) {
      for (const Cell& cell : group) {
        const size_t samples = SamplesOf(cell) != 0 ? SamplesOf(cell) : options_.samples;
        double all_full = 0, all_sampled = 0, faults = 0, sampled_faults = 0;
        std::vector<double> off;  // by repeat
        for (size_t repeat = 0; repeat < options_.repeats; ++repeat) {
          // What the memory gives changes within a second, and a sampled run is over in a part of a full one: as many of them stand before
          // it as after it, and their mean counts.
          double full = 0, sampled = 0;
          for (size_t i = 0; i < 2 * kSampledBeside + 1; ++i) {
            const bool is_full = i == kSampledBeside;
            const Json run = RunInChild(cell, is_full ? 0 : samples, false);
            if (run.contains("error")) {
              std::fprintf(stderr, "%s: %s\n", cell.Key().c_str(), run["error"].get<std::string>().c_str());
              return 2;
            }
            const double total = run["seconds"]["total"];
            if (is_full) {
              full = total;
              faults = run["minor_faults"];
            } else {
              sampled += total / (2 * kSampledBeside);
              sampled_faults = run["minor_faults"];
            }
          }
          off.push_back(sampled / full - 1);
          all_full += full / static_cast<double>(options_.repeats);
          all_sampled += sampled / static_cast<double>(options_.repeats);
        }
        worst = std::max(worst, std::abs(MedianOf(off)));
        std::printf("%+6.1f %%  means: full %.4f s, %zu samples %.4f s; page faults %.0f, sampled %.0f  %s\n",
                    100 * MedianOf(off), all_full, samples, all_sampled, faults, sampled_faults, cell.Key().c_str());
        std::fflush(stdout);
      }
    }
    std::printf("the worst deviation is %.1f %%, at most 5 %% is wanted\n", 100 * worst);
    return worst <= 0.05 ? 0 : 1;
  }

 private:
  // All repeats of a group: at the rates of a short cell, which is run where none like it was.
  double EstimatedSecondsOf(const Group& group) {
    double seconds = 0;
    for (const Cell& cell : group) {
      if (cell.NeededBytes() > 0.8 * Available()) continue;
      const Cell like = ShortCell(cell);
      const auto [found, is_new] = rates_.try_emplace(like.Key());
      if (is_new) {
        std::vector<Json> runs;  // the fastest: one that a neighbour stopped would leave the whole sweep without time
        for (size_t i = 0; i < 3; ++i) {
          Json run = RunInChild(like, 0, false);
          if (!run.contains("error")) runs.push_back(std::move(run));
        }
        if (!runs.empty()) {
          SortByTotal(runs);
          const Json& took = runs.front()["seconds"];
          found->second = RatesOf(like, {.allocate = took["allocate"],
                                         .copy = took["copy"],
                                         .update = took["update"],
                                         .attention = took["attention"],
                                         .create = took["create"],
                                         .creations = 0});
        }
      }
      seconds += static_cast<double>(options_.repeats) * EstimatedSeconds(WorkOf(cell, SamplesOf(cell)), found->second);
    }
    return seconds;
  }

  void SayEstimates(const std::vector<Group>& todo, const std::vector<double>& estimates) const {
    double all = 0, fitting = 0;
    size_t cells = 0, fitting_cells = 0;
    for (size_t i = 0; i < todo.size(); ++i) {
      all += estimates[i];
      cells += todo[i].size();
      if (fitting != 0 && fitting + estimates[i] > options_.minutes * 60) continue;
      fitting += estimates[i];
      fitting_cells += todo[i].size();
    }
    std::fprintf(
        stderr,
        "%zu cells are left to measure, about %.1f minutes; --minutes %.4g has room for %zu of them, %.1f minutes\n",
        cells, all / 60, options_.minutes, fitting_cells, fitting / 60);
    for (size_t i = 0; i < todo.size() && options_.estimate; ++i) {
      std::fprintf(stderr, "%8.1f minutes  %zu cells like %s\n", estimates[i] / 60, todo[i].size(),
                   todo[i].front().Key().c_str());
    }
  }

  std::string KeyOf(const Cell& cell) const { return cell.Key() + (options_.grid.latency ? "/latency" : ""); }

  void Measure(const Group& group, std::ofstream& out) {
    std::vector<std::vector<Json>> runs(group.size());
    std::vector<std::string> refused(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      const double needed = group[i].NeededBytes(), available = Available();
      if (needed > 0.8 * available) {
        refused[i] = "needs " + std::to_string(static_cast<size_t>(needed / 1e6)) + " MB, of " +
                     std::to_string(static_cast<size_t>(available / 1e6)) + " MB four fifths may be used";
      }
    }
    std::vector<size_t> order(group.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t repeat = 0; repeat < options_.repeats; ++repeat) {
      Shuffle(order, random_);
      for (const size_t i : order) {
        if (!refused[i].empty()) continue;
        Json run = RunInChild(group[i], SamplesOf(group[i]), options_.grid.latency);
        if (run.contains("error")) {
          refused[i] = run["error"].get<std::string>();
          failed_ = true;
        } else {
          runs[i].push_back(std::move(run));
        }
      }
    }
    for (size_t i = 0; i < group.size(); ++i) {
      Json record = DescriptionOf(group[i]);
      record["key"] = KeyOf(group[i]);
      record["sampled"] = SamplesOf(group[i]) != 0;
      record["samples"] = SamplesOf(group[i]);  // 0: every step
      if (refused[i].empty()) {
        Json totals = Json::array();
        for (const Json& run : runs[i]) totals.push_back(run["seconds"]["total"]);
        record.update(MedianOf(runs[i]));
        record["totals"] = totals;
      } else {
        record["refused"] = refused[i];
      }
      out << record.dump() << "\n" << std::flush;
      std::fprintf(stderr, "%s: %s\n", KeyOf(group[i]).c_str(),
                   refused[i].empty() ? record["seconds"].dump().c_str() : refused[i].c_str());
    }
  }

  const Options& options_;
  testing::Random random_{1};
  std::map<std::string, CellRates> rates_;  // by the key of the short cell
  bool failed_ = false;                     // some run did, for another reason than want of memory foreseen
};

int Main(int argc, char** argv) {
  Options options;
  GridOptions& grid = options.grid;
  CLI::App app("The attention block of one layer under every policy of cache growth");
  app.add_option("--journal", options.journal, "file of JSON lines to append to");
  app.add_option("--shape", grid.shapes, "opt-2.7b, opt-6.7b, opt-13b, llama-3-8b, llama-2-7b, heads-of-16")
      ->delimiter(',');
  app.add_option("--tokens", grid.tokens, "N")->delimiter(',')->check(CLI::Range(2, 1 << 20));
  app.add_option("--batch", grid.batches, "B")->delimiter(',')->check(CLI::Range(1, 4096));
  app.add_option("--backend", grid.backends, "padded, strided, exact, engine")->delimiter(',');
  app.add_option("--policy", grid.policies,
                 "iterative, 'iterative, pool', upfront, bmc, geometric, reserve, paged; repeatable")
      ->allow_extra_args(false);
  app.add_option("--kv-dtype", grid.kv_dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--pages", grid.pages,
                 "small: of 4 KiB; large: asked for, in blocks of the allocator: without reserve and engine")
      ->check(CLI::IsMember({"default", "small", "large"}));
  app.add_option("--threads", grid.threads)->check(CLI::Range(1, 256));
  app.add_option("--draft", grid.draft, "rows of a step")->check(CLI::Range(1, 512));
  app.add_option("--accept", grid.accept, "of them, as many stay on average");
  app.add_option("--repeats", options.repeats)->check(CLI::Range(1, 99));
  app.add_option("--minutes", options.minutes,
                 "what is not likely to end within them is left out, but for the first group");
  app.add_flag("--drafts", grid.drafts, "26 rows a step and 4096 tokens: Tables I and VIII");
  app.add_flag("--latency", grid.latency, "and the time of single tokens: Fig. 16");
  app.add_flag("--long", grid.long_contexts, "heads of 16 and up to 16384 tokens: Table X");
  app.add_flag("--ci", grid.ci, "a subset for two minutes");
  app.add_flag("--check-sampling", options.check_sampling);
  app.add_option("--samples", options.samples,
                 "of cells that are checked and would be measured in full, 32 unless told; the least used is 4")
      ->check(CLI::PositiveNumber);
  app.add_flag("--list", options.list, "print the cells and stop");
  app.add_flag("--estimate", options.estimate, "print how long each group is likely to take and stop");
  CLI11_PARSE(app, argc, argv);

  // oneDNN's threads are OpenMP's, which reads its number when the program is loaded.
  const std::string threads = std::to_string(grid.threads);
  const char* set = std::getenv("OMP_NUM_THREADS");
  if (set == nullptr || threads != set) {
    setenv("OMP_NUM_THREADS", threads.c_str(), 1);
    execv("/proc/self/exe", argv);
    std::fprintf(stderr, "set OMP_NUM_THREADS: the program could not be started again; set it to %s yourself\n",
                 threads.c_str());
    return 2;
  }
  if (options.check_sampling) {
    if (grid.tokens.empty()) grid.tokens = {512, 1024};
    if (grid.batches.empty()) grid.batches = {8};
  }
  const Result<std::vector<Group>> groups = MakeGrid(grid);
  if (!groups.ok()) {
    std::fprintf(stderr, "%s\n", groups.error().message().c_str());
    return 2;
  }
  if (options.list) {
    for (const Group& group : *groups) {
      for (const Cell& cell : group) std::printf("%s\n", cell.Key().c_str());
    }
    return 0;
  }
  if (options.check_sampling) return Sweep(options).CheckSampling(*groups);
  if (options.journal.empty()) {
    std::fprintf(stderr, "--journal: expected the name of a file\n");
    return 2;
  }
  return Sweep(options).Run(*groups);
}

}  // namespace
}  // namespace tidemill::bmc

int main(int argc, char** argv) { return tidemill::bmc::Main(argc, argv); }

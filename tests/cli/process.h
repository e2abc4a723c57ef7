// Runs the program as its users do: arguments, streams, signals, exit code.
#ifndef TIDEMILL_TESTS_CLI_PROCESS_H_
#define TIDEMILL_TESTS_CLI_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill::testing {

struct ProcessOptions {
  std::string input = {};          // of standard input, then its end
  bool nonblocking_input = false;  // standard input is a pipe that somebody made non-blocking
  std::string stdout_file = {};    // standard output is this file; empty: a pipe
  bool closed_reader = false;      // nobody reads standard output
  bool closed_stdout = false;      // there is no standard output
  bool small_pipe = false;         // standard output is a pipe that is full after a page
  uint64_t address_bytes = 0;      // that it may have at most, mapped or reserved; 0: no limit
  uint64_t file_bytes = 0;         // that a file it writes may have; 0: no limit
  bool terminal = false;           // standard input and stderr are a terminal; Process::Type types on it
};

struct ProcessResult {
  int exit_code = -1;  // 128 + signal for one that died of it
  bool was_killed_by_signal = false;
  std::string out, err;  // err: also what a terminal shows
  double cpu_seconds = 0;
  long peak_rss_kib = 0;
};

// What the programs that are run keep of their machine is in an empty folder of the test's own, not the caller's. So it is from the
// beginning, and again for a test that had another folder.
void UseOwnCache();

// A running `tidemill`. Every wait gives up after a minute, kills it and fails the test.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Until standard output (the terminal) holds `count` bytes (`text`), or the process has ended.
  void ReadOut(size_t count);
  // The same while standard input stays open behind what it was given.
  void ReadOutBeforeEnd(size_t count);
  void ReadTerminal(const std::string& text);
  // Hands over all the input, which fits into a pipe, and reads nothing.
  void WriteInput();
  // Reads nothing: until `enough`.
  void WaitUntil(const std::function<bool()>& enough);
  // Reads nothing: until the pipe of standard output is full. Needs small_pipe.
  void WaitUntilPipeIsFull();
  // Reads nothing: until the process has ended. Wait says how.
  void WaitForEnd();
  void CloseReader();
  void Type(const std::string& keys);
  void Signal(int number);
  ProcessResult Wait();

 private:
  // Moves bytes until `enough` of them or both streams have ended.
  template <typename Enough>
  void Pump(const Enough& enough);
  void CloseInput();

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  // our ends; of a terminal in_ == err_
  bool is_terminal_ = false, holds_input_ = false;
  std::string input_;
  size_t terminal_read_ = 0;  // of result_.err, by ReadTerminal
  ProcessResult result_;
};

// Empty, or why this machine gives no terminal to a test that needs one: a root without /dev/pts.
std::string WhyNoTerminal();

// Empty, or why a test that measures this machine cannot run here.
inline std::string WhyNoMeasurement() {
  return std::string_view(TIDEMILL_EMULATOR).empty() ? "" : "an emulator takes more than a minute to measure a machine";
}

ProcessResult RunTidemill(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_CLI_PROCESS_H_

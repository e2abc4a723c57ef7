#include "tests/cli/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "tests/cli/model_files.h"

namespace tidemill::testing {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    TIDEMILL_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    read_end = ends[0];
    write_end = ends[1];
  }
  int read_end, write_end;
};

void CloseIfOpen(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// Negative where the system gives none; errno says why.
int TryToOpenTerminal(std::string* child_name) {
  const int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[128];
  if (fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0 && ptsname_r(fd, name, sizeof name) == 0) {
    *child_name = name;
    return fd;
  }
  const int why = errno;
  if (fd >= 0) close(fd);
  errno = why;
  return -1;
}

int OpenTerminal(std::string* child_name) {
  const int fd = TryToOpenTerminal(child_name);
  TIDEMILL_CHECK(fd >= 0);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 80;
  TIDEMILL_CHECK(ioctl(fd, TIOCSWINSZ, &size) == 0);
  return fd;
}

struct OwnCache : ::testing::Environment {
  void SetUp() override { UseOwnCache(); }
};
const ::testing::Environment* const kOwnCache = ::testing::AddGlobalTestEnvironment(new OwnCache);  // which it deletes

std::vector<std::string> CommandLine(const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  const std::string emulator = TIDEMILL_EMULATOR;  // of a cross-built program
  if (!emulator.empty()) all.push_back(emulator);
  all.push_back(TIDEMILL_BINARY);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

}  // namespace

void UseOwnCache() { setenv("XDG_CACHE_HOME", (TestFolder() + "/no_cache").c_str(), 1); }

Process::Process(const std::vector<std::string>& arguments, const ProcessOptions& options)
    : is_terminal_(options.terminal), input_(options.input) {
  std::signal(SIGPIPE, SIG_IGN);  // the program may end before it has read its input
  std::vector<std::string> words = CommandLine(arguments);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  Pipe in, out, err;
  std::string terminal;
  if (options.terminal) {
    CloseIfOpen(in.write_end);
    CloseIfOpen(err.read_end);
    err_ = OpenTerminal(&terminal);
  } else {
    in_ = in.write_end;
    err_ = err.read_end;
    fcntl(in_, F_SETFL, O_NONBLOCK);
  }
  if (options.nonblocking_input) fcntl(in.read_end, F_SETFL, O_NONBLOCK);
  out_ = out.read_end;
  if (options.small_pipe) TIDEMILL_CHECK(fcntl(out_, F_SETPIPE_SZ, 8192) == 8192);
  pid_ = fork();
  TIDEMILL_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    std::signal(SIGPIPE, SIG_DFL);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    int child_in = in.read_end, child_err = err.write_end, child_out = out.write_end;
    if (options.terminal) {
      setsid();
      child_in = child_err = open(terminal.c_str(), O_RDWR);
      ioctl(child_in, TIOCSCTTY, 0);
    }
    if (!options.stdout_file.empty()) child_out = open(options.stdout_file.c_str(), O_WRONLY | O_CREAT, 0666);
    dup2(child_in, 0);
    dup2(child_out, 1);
    dup2(child_err, 2);
    if (options.closed_stdout) close(1);
    if (options.address_bytes != 0) {
      const rlimit limit{.rlim_cur = options.address_bytes, .rlim_max = options.address_bytes};
      setrlimit(RLIMIT_AS, &limit);
    }
    if (options.file_bytes != 0) {
      const rlimit limit{.rlim_cur = options.file_bytes, .rlim_max = options.file_bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    execvp(argv[0], argv.data());
    _exit(126);
  }
  for (int fd : {in.read_end, out.write_end, err.write_end}) close(fd);
  if (options.closed_reader) CloseIfOpen(out_);
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
}

void Process::CloseInput() {
  if (!is_terminal_) CloseIfOpen(in_);
}

template <typename Enough>
void Process::Pump(const Enough& enough) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!enough() && (out_ >= 0 || err_ >= 0)) {
    if (in_ >= 0 && input_.empty() && !holds_input_) CloseInput();
    pollfd waiting[3] = {{.fd = out_, .events = POLLIN, .revents = 0},
                         {.fd = err_, .events = POLLIN, .revents = 0},
                         {.fd = input_.empty() ? -1 : in_, .events = POLLOUT, .revents = 0}};
    poll(waiting, 3, 1000);
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "no end after a minute; stdout: " << result_.out << " stderr: " << result_.err;
      kill(pid_, SIGKILL);
      CloseIfOpen(out_);
      CloseIfOpen(err_);
      return;
    }
    char bytes[65536];
    for (int i = 0; i < 2; ++i) {
      if (waiting[i].revents == 0) continue;
      int& fd = i == 0 ? out_ : err_;
      const ssize_t got = read(fd, bytes, sizeof bytes);
      if (got > 0) (i == 0 ? result_.out : result_.err).append(bytes, static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) CloseIfOpen(fd);  // EIO: the terminal's other side was closed
    }
    if (in_ >= 0 && waiting[2].revents != 0) {
      const ssize_t written = write(in_, input_.data(), input_.size());
      if (written > 0) input_.erase(0, static_cast<size_t>(written));
      if (written < 0 && errno != EAGAIN && errno != EINTR) CloseInput();
    }
  }
}

void Process::ReadOut(size_t count) {
  Pump([&] { return result_.out.size() >= count || out_ < 0; });
}

void Process::ReadOutBeforeEnd(size_t count) {
  holds_input_ = true;
  ReadOut(count);
  holds_input_ = false;
}

void Process::ReadTerminal(const std::string& text) {
  size_t found = std::string::npos;
  Pump([&] {
    found = result_.err.find(text, terminal_read_);
    return found != std::string::npos || err_ < 0;
  });
  EXPECT_NE(found, std::string::npos) << "the terminal never showed " << text << "; it shows " << result_.err;
  if (found != std::string::npos) terminal_read_ = found + text.size();
}

void Process::WaitUntil(const std::function<bool()>& enough) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!enough()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "no end after a minute";
      kill(pid_, SIGKILL);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Process::WriteInput() {
  TIDEMILL_CHECK(write(in_, input_.data(), input_.size()) == static_cast<ssize_t>(input_.size()));
  input_.clear();
  CloseInput();
}

void Process::WaitUntilPipeIsFull() {
  constexpr auto kStill = std::chrono::milliseconds(200);
  int unread_before = 0;
  auto since = std::chrono::steady_clock::now();
  WaitUntil([&] {
    int unread = 0;
    TIDEMILL_CHECK(ioctl(out_, FIONREAD, &unread) == 0);
    const auto now = std::chrono::steady_clock::now();
    if (unread != std::exchange(unread_before, unread)) since = now;
    return unread > 4000 && now - since > kStill;
  });
}

void Process::WaitForEnd() {
  WaitUntil([&] {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  });
}

void Process::CloseReader() { CloseIfOpen(out_); }

void Process::Type(const std::string& keys) {
  TIDEMILL_CHECK(write(err_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void Process::Signal(int number) { kill(pid_, number); }

ProcessResult Process::Wait() {
  Pump([] { return false; });
  CloseIfOpen(in_);
  int status = 0;
  rusage usage{};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  result_.was_killed_by_signal = WIFSIGNALED(status);
  result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  result_.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  result_.peak_rss_kib = usage.ru_maxrss;
  return result_;
}

std::string WhyNoTerminal() {
  std::string name;
  int fd = TryToOpenTerminal(&name);
  int child = fd < 0 ? -1 : open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const std::string why =
      child < 0 ? std::string("needs a terminal, and this machine gives none: ") + std::strerror(errno) : "";
  CloseIfOpen(child);
  CloseIfOpen(fd);
  return why;
}

ProcessResult RunTidemill(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  return Process(arguments, options).Wait();
}

}  // namespace tidemill::testing

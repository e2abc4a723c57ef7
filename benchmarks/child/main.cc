// bench_child [--isa LEVEL] < settings
#include <iostream>
#include <new>
#include <string>
#include <string_view>

#include "benchmarks/child/bench_child.h"
#include "cli/errors.h"

int main(int argc, char** argv) {
  using tidemill::cli::ExitCodeFor;
  const auto fail = [](const tidemill::Error& error) {
    std::cerr << "bench_child: " << tidemill::cli::Printable(error.message()) << "\n";
    return ExitCodeFor(error.code());
  };
  const bool has_isa = argc == 3 && std::string_view(argv[1]) == "--isa";
  if (argc != 1 && !has_isa) {
    return fail({tidemill::ErrorCode::kInvalidArgument,
                 "read the command line: expected nothing or --isa LEVEL; the settings come on standard input"});
  }
  try {
    const auto answered = tidemill::child::AnswerAll(std::cin, std::cout, has_isa ? argv[2] : "");
    return answered.ok() ? 0 : fail(answered.error());
  } catch (const std::bad_alloc&) {
    return fail({tidemill::ErrorCode::kOutOfMemory, "measure: memory: expected more than there is"});
  }
}

// The main function of a program that writes a seed corpus: PROGRAM FOLDER writes, PROGRAM --check FOLDER compares and says what
// differs.
#ifndef TIDEMILL_TESTS_FUZZ_SEED_FILES_H_
#define TIDEMILL_TESTS_FUZZ_SEED_FILES_H_

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace tidemill::testing {

using Seeds = std::map<std::string, std::string>;  // file name -> bytes

inline int WriteOrCheckSeeds(int argc, char** argv, const Seeds& seeds) {
  const bool check = argc == 3 && std::string(argv[1]) == "--check";
  if (argc != 2 && !check) {
    std::fprintf(stderr, "usage: %s [--check] FOLDER\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[argc - 1];
  int differing = 0;
  for (const auto& [name, bytes] : seeds) {
    const std::string path = folder + "/" + name;
    if (check) {
      std::ifstream file(path, std::ios::binary);
      const std::string found((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (found != bytes) {
        std::fprintf(stderr, "%s differs from what %s writes\n", path.c_str(), argv[0]);
        ++differing;
      }
    } else if (!(std::ofstream(path, std::ios::binary) << bytes)) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 1;
    }
  }
  return differing == 0 ? 0 : 1;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_FUZZ_SEED_FILES_H_

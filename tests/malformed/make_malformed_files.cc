// make_malformed_files FOLDER: writes every malformed file of the tables to FOLDER/GROUP/CASE/, and FOLDER/expected.tsv with a line for
// each: what to ask (inspect, load or render), what to open, and the error line. `tidemill inspect PATH` prints it behind "tidemill: "; what
// is to be loaded, `tidemill run PATH -p a`; what is to be rendered, `tidemill tokenize MODEL --chat MESSAGES --chat-template PATH`.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/malformed/malformed_case.h"

int main(int argc, char** argv) {
  using namespace tidemill::testing;  // NOLINT(google-build-using-namespace): a program of one function
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  std::ofstream list(folder + "/expected.tsv");
  size_t count = 0;
  for (const MalformedGroup& group : MalformedGroups()) {
    for (const MalformedCase& c : group.make()) {
      const std::string own = folder + "/" + group.name + "/" + FolderName(c.name);
      std::filesystem::create_directories(own);
      const std::string path = WriteFiles(c, own);
      list << (c.question == Question::kInspect ? "inspect"
               : c.question == Question::kLoad  ? "load"
               : c.question == Question::kText  ? "text"
                                                : "render")
           << '\t' << path << '\t' << ExpectedLine(c, path) << '\n';
      ++count;
    }
  }
  list.close();
  if (!list.good()) {
    std::fprintf(stderr, "%s: cannot write %s/expected.tsv\n", argv[0], folder.c_str());
    return 1;
  }
  std::printf("%zu malformed files in %s\n", count, folder.c_str());
  return 0;
}

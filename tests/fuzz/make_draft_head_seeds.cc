// Writes the seed corpus of fuzz_draft_head: make_draft_head_seeds [--check] FOLDER.
#include <string>

#include "tests/fuzz/seed_files.h"
#include "tests/fuzz/tiny_draft_heads.h"

int main(int argc, char** argv) {
  using namespace tidemill::testing;  // NOLINT: a program of one function
  const TinyCheckpoint eagle = TinyEagle(), eagle3 = TinyEagle3();
  return WriteOrCheckSeeds(argc, argv,
                           {{"eagle", eagle.Input()},
                            {"eagle3", eagle3.Input()},
                            {"pard", TinyPard().Input()},
                            {"model", TinyModel(1).Input()},
                            {"refused_marks", TinyEagle3(false).Input()},
                            {"refused_settings", TinyCheckpoint{eagle3.config, eagle.tensors}.Input()},
                            {"refused_mask", TinyModel(1, R"(,"pard_token":16)").Input()},
                            {"no_tensors", TinyCheckpoint{eagle.config, ""}.Input()}});
}

// What tests/fixtures/eagle has of one draft head.
#ifndef TIDEMILL_TESTS_SUPPORT_EAGLE_GOLDEN_H_
#define TIDEMILL_TESTS_SUPPORT_EAGLE_GOLDEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fixtures_path.h"
#include "tests/support/golden_file.h"

namespace tidemill::testing {

// Tensors: "features" of a prompt, or "step2.node_logits".
class EagleGolden : public GoldenFile {
 public:
  // f32 against f32 in another order of sums, as of families; ranks of drafted ids are further apart.
  static constexpr double kTolerance = 1e-4;

  static std::string Folder(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/eagle/" + name; }

  // "eagle1" or "eagle3".
  explicit EagleGolden(const std::string& name) : GoldenFile(Folder(name)) {}

  size_t num_steps(size_t prompt) const { return json().at("prompts")[prompt].at("steps").size(); }
  std::vector<int32_t> Parents() const { return json().at("parents"); }
  std::vector<int32_t> Nodes(size_t prompt, size_t step, const char* what) const {
    return json().at("prompts")[prompt].at("steps")[step].at(what);
  }
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_EAGLE_GOLDEN_H_

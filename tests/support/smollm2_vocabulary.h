// The tokenizer of SmolLM2 from tests/fixtures/tokenizer/smollm2_vocabulary.txt (its README says how the file is laid out).
#ifndef TIDEMILL_TESTS_SUPPORT_SMOLLM2_VOCABULARY_H_
#define TIDEMILL_TESTS_SUPPORT_SMOLLM2_VOCABULARY_H_

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "text/tokenizer_spec.h"

namespace tidemill::testing {

// `fixtures`: the folder tests/fixtures. Throws when the file is missing or has another shape, so that no test passes without.
inline TokenizerSpec ReadSmolLm2Spec(const std::string& fixtures) {
  const std::string path = fixtures + "/tokenizer/smollm2_vocabulary.txt";
  std::ifstream file(path);
  size_t num_special = 0;
  size_t num_bytes = 0;
  size_t num_merges = 0;
  std::string line;
  file >> num_special >> num_bytes >> num_merges;
  std::getline(file, line);
  TokenizerSpec spec;
  for (size_t i = 0; i < num_special + num_bytes + num_merges && std::getline(file, line); ++i) {
    spec.types.push_back(i < num_special ? TokenType::kControl : TokenType::kNormal);
    std::string token = line;
    if (i >= num_special + num_bytes) {
      std::erase(token, ' ');
      spec.merges.push_back(std::move(line));
    }
    spec.tokens.push_back(std::move(token));
  }
  if (spec.tokens.size() != 49152) throw std::runtime_error(path + ": missing or damaged");
  spec.pre_tokenizer = FindPreTokenizer("smollm").value().steps;
  spec.bos_id = 1;
  spec.eos_id = 2;
  return spec;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SMOLLM2_VOCABULARY_H_

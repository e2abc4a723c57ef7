// encode_speed MODEL FILE BYTES...: prints, for each number of bytes, the seconds of the fastest of five encodings of so much text, which is the
// file's, again and again. One thread.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tidemill/model.h"

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "encode_speed MODEL FILE BYTES...\n"), 2;
  const auto model = tidemill::LoadText(argv[1]);
  if (!model.ok()) return std::fprintf(stderr, "%s\n", model.error().message().c_str()), 1;
  std::ifstream file(argv[2], std::ios::binary);
  const std::string once{std::istreambuf_iterator<char>(file), {}};
  if (once.empty()) return std::fprintf(stderr, "%s: empty or missing\n", argv[2]), 1;
  for (int i = 3; i < argc; ++i) {
    const std::string_view digits = argv[i];
    size_t bytes = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
    if (bytes == 0) return std::fprintf(stderr, "%s: expected a number of bytes\n", argv[i]), 2;
    std::string text;
    while (text.size() < bytes) text += once;
    text.resize(bytes);
    double best = 1e9;
    size_t tokens = 0;
    for (int run = 0; run < 5; ++run) {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = model->tokenizer.Encode(text);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (!ids.ok()) return std::fprintf(stderr, "%s\n", ids.error().message().c_str()), 1;
      tokens = ids->size();
      if (took.count() < best) best = took.count();
    }
    std::printf("%zu %zu %.6f\n", bytes, tokens, best);
  }
  return 0;
}

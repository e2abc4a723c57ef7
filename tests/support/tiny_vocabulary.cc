#include "tests/support/tiny_vocabulary.h"

#include <unordered_set>

#include "base/check.h"

namespace tidemill::testing {
namespace {

constexpr const char* kWords[] = {
    " the",   " of",   " and",   " a",    " to",    " in",   " is",   " you",   " that",     " it",   " he",
    " was",   " for",  " on",    " are",  " as",    " with", " his",  " they",  " I",        " at",   " be",
    " this",  " have", " from",  " or",   " one",   " had",  " by",   " word",  " but",      " not",  " what",
    " all",   " were", " we",    " when", " your",  " can",  " said", " there", " use",      " an",   " each",
    " which", " she",  " do",    " how",  " their", " if",   " will", " up",    " tide",     " mill", " water",
    " gate",  "hello", " world", "ing",   "tion",   "er",    "ed",    "user",   "assistant", "system"};

// Code points 0-255 that GPT-2 keeps as they are; the others move to 256 and up, in order.
bool KeepsItself(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

std::string Letter(int i) { return std::string(1, static_cast<char>('a' + i)); }

class Builder {
 public:
  explicit Builder(size_t size) : size_(size) {}

  bool full() const { return vocabulary_.tokens.size() >= size_; }

  void Add(const std::string& token, int32_t type) {
    if (full() || !known_.insert(token).second) return;
    vocabulary_.tokens.push_back(token);
    vocabulary_.token_types.push_back(type);
  }

  void Merge(const std::string& left, const std::string& right) {
    if (full() || known_.contains(left + right)) return;
    Add(left + right, 1);
    vocabulary_.merges.push_back(left + " " + right);
  }

  TinyVocabulary Take() { return std::move(vocabulary_); }

 private:
  size_t size_;
  TinyVocabulary vocabulary_;
  std::unordered_set<std::string> known_;
};

}  // namespace

std::string ByteAlphabet(int byte) {
  int code = byte;
  if (!KeepsItself(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += KeepsItself(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

TinyVocabulary MakeTinyVocabulary(int size) {
  TIDEMILL_CHECK(size > 0);
  Builder builder(static_cast<size_t>(size));
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) builder.Add(special, 3);
  for (int byte = 0; byte < 256; ++byte) builder.Add(ByteAlphabet(byte), 1);
  for (const char* word : kWords) {
    std::string left;
    for (const char* c = word; *c != '\0'; ++c) {
      const std::string right = ByteAlphabet(*c);
      if (!left.empty()) builder.Merge(left, right);
      left += right;
    }
  }
  for (int i = 0; i < 26 * 26; ++i) builder.Merge(Letter(i / 26), Letter(i % 26));
  for (int i = 0; i < 26 * 26 * 26; ++i) builder.Merge(Letter(i / 676) + Letter(i / 26 % 26), Letter(i % 26));
  for (int i = 0; i < 26 * 26 * 26 * 26 && !builder.full(); ++i) {
    builder.Merge(Letter(i / 17576) + Letter(i / 676 % 26), Letter(i / 26 % 26) + Letter(i % 26));
  }
  TIDEMILL_CHECK(builder.full());
  return builder.Take();
}

}  // namespace tidemill::testing

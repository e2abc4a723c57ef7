#include "text/jinja_text.h"

#include <gtest/gtest.h>

#include <string>

#include "text/jinja_unicode.h"

namespace tidemill::jinja::jinja_text_test {
namespace {

class JinjaText : public testing::Test {
 protected:
  // "ab[cd]e": what is in brackets is the caller's.
  const Str& Text(std::string_view marked) {
    TextBuilder builder(heap_);
    bool caller = false;
    for (const char c : marked) {
      if (c == '[' || c == ']') {
        caller = c == '[';
      } else {
        builder.Append(std::string_view(&c, 1), caller);
      }
    }
    return *builder.Finish();
  }
  static std::string Marked(const Str& text) {
    std::string out;
    ForEachRun(text, [&out](std::string_view piece, bool caller, size_t) {
      out += caller ? "[" + std::string(piece) + "]" : std::string(piece);
    });
    return out;
  }

  Heap heap_{size_t{1} << 20, 1'000'000};
};

TEST_F(JinjaText, Builder_JoinsRangesThatTouch) {
  const Str& text = Text("a[b][c]d");
  EXPECT_EQ(Marked(text), "a[bc]d");
  ASSERT_EQ(text.caller.size(), 1u);
  EXPECT_EQ(text.caller[0], (ByteRange{1, 3}));
}

TEST_F(JinjaText, Slice_KeepsTheRangesWithinIt) {
  const Str& text = Text("ab[cd]ef[gh]ij");
  EXPECT_EQ(Marked(*SliceStr(heap_, text, 0, 10)), "ab[cd]ef[gh]ij");
  EXPECT_EQ(Marked(*SliceStr(heap_, text, 3, 7)), "[d]ef[g]");
  EXPECT_EQ(Marked(*SliceStr(heap_, text, 4, 6)), "ef");
  EXPECT_EQ(Marked(*SliceStr(heap_, text, 4, 4)), "");
  EXPECT_EQ(Marked(*SliceStr(heap_, text, 8, 99)), "ij");
  EXPECT_EQ(Marked(*SliceStr(heap_, text, 9, 3)), "");
}

TEST_F(JinjaText, IsCallerByte_AgreesWithTheRanges) {
  const Str& text = Text("a[b]c[d]");
  std::string flags;
  for (size_t i = 0; i < text.bytes.size(); ++i) flags += IsCallerByte(text, i) ? '1' : '0';
  EXPECT_EQ(flags, "0101");
}

TEST_F(JinjaText, Find_AgreesWithTheLibraryForShortAndLongNeedles) {
  const std::string unit = "abcabcabcabcabcabcabcabdabcabcabcabcabcabcabcabd";
  const std::string text = unit + unit + unit;
  for (const std::string& needle :
       {std::string(), std::string("a"), std::string("abd"), std::string("bca"), unit.substr(0, 24), "x" + unit,
        unit + unit.substr(0, 24), unit + unit, unit + unit + "x", std::string(70, 'z')}) {
    for (size_t from = 0; from <= text.size(); ++from) {
      EXPECT_EQ(FindText(heap_, text, needle, from), text.find(needle, from)) << needle << " from " << from;
    }
    for (size_t to = 0; to <= text.size(); ++to) {
      EXPECT_EQ(FindTextBackwards(heap_, text, needle, to), text.substr(0, to).rfind(needle)) << needle << " to " << to;
    }
  }
}

TEST_F(JinjaText, CharactersAndOffsets_AgreeAtEveryLength) {
  std::string text;
  std::vector<size_t> offsets = {0};
  for (const char* c : {"a", "é", "日", "🦙", "b", "c", "d",  "e",  "f",    "g", "h",
                        "i", "é", "é",  "é",    "é", "é", "日", "日", "🦙", "z"}) {
    text += c;
    offsets.push_back(text.size());
    EXPECT_EQ(CountChars(text), offsets.size() - 1);
    for (size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(ByteOffset(text, i), offsets[i]) << text << " " << i;
    EXPECT_EQ(ByteOffset(text, 100), text.size());
  }
}

TEST_F(JinjaText, Strip_KnowsUnicodeWhiteSpaceAndCharacterSets) {
  const std::string text = "\u00a0\t x \u3000\u2028";
  const ByteRange kept = StripRange(text, true, true);
  EXPECT_EQ(text.substr(kept.begin, kept.end - kept.begin), "x");
  EXPECT_EQ(StripRange("日本日", "日", true, false), (ByteRange{3, 9}));
  EXPECT_EQ(StripRange("   ", true, true).begin, StripRange("   ", true, true).end);
}

TEST_F(JinjaText, CaseChange_KeepsProvenanceWhenLengthsChange) {
  TextBuilder out(heap_);
  AppendChangedCase(out, *NewStr(heap_, "ß", true), CaseChange::kUpper);
  AppendChangedCase(out, *NewStr(heap_, "ß", false), CaseChange::kUpper);
  EXPECT_EQ(Marked(*out.Finish()), "[SS]SS");
}

TEST_F(JinjaText, ForMessage_IsOnePrintableLine) {
  EXPECT_EQ(ForMessage("a\nb\x1b[31m\u202e"), "a\\nb\\u001b[31m\\u202e");
  EXPECT_EQ(ForMessage("aaaaaaaaaa", 4), "aaaa...");
}

TEST(JinjaHeap, Limits_Throw) {
  Heap heap(1000, 10);
  heap.Work(10);
  EXPECT_THROW(heap.Work(1), TemplateError);
  EXPECT_THROW(heap.NewArray<int64_t>(SIZE_MAX / 2), TemplateError);
  EXPECT_EQ(heap.CopyText("abc"), "abc");
  EXPECT_THROW(heap.CopyText(std::string(1000, 'a')), TemplateError);
}

}  // namespace
}  // namespace tidemill::jinja::jinja_text_test

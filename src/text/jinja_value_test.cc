#include "text/jinja_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tidemill::jinja::jinja_value_test {
namespace {

class JinjaValue : public testing::Test {
 protected:
  Value Text(std::string_view text) { return Value::Of(NewStr(heap_, text, false)); }
  Value List(const std::vector<Value>& items) { return NewSequence(heap_, Sequence::Form::kList, items); }

  Heap heap_{size_t{8} << 20, 10'000'000};
};

TEST_F(JinjaValue, FloatRepr_IsPythons) {
  EXPECT_EQ(FloatRepr(1.0), "1.0");
  EXPECT_EQ(FloatRepr(-0.0), "-0.0");
  EXPECT_EQ(FloatRepr(0.1), "0.1");
  EXPECT_EQ(FloatRepr(0.0001), "0.0001");
  EXPECT_EQ(FloatRepr(0.00001), "1e-05");
  EXPECT_EQ(FloatRepr(1e15), "1000000000000000.0");
  EXPECT_EQ(FloatRepr(1e16), "1e+16");
  EXPECT_EQ(FloatRepr(1.5e300), "1.5e+300");
  EXPECT_EQ(FloatRepr(5e-324), "5e-324");
  EXPECT_EQ(FloatRepr(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FloatRepr(std::nan("")), "nan");
}

TEST_F(JinjaValue, Equality_CrossesNumericTypesOnly) {
  EXPECT_TRUE(Equals(heap_, Value::Int(1), Value::Float(1.0)));
  EXPECT_TRUE(Equals(heap_, Value::Int(1), Value::Bool(true)));
  EXPECT_FALSE(Equals(heap_, Value::Int(1), Text("1")));
  EXPECT_FALSE(Equals(heap_, Value::Int((int64_t{1} << 53) + 1), Value::Float(0x1p53)));
  EXPECT_FALSE(Equals(heap_, Value::Int(INT64_MAX), Value::Float(0x1p63)));
  EXPECT_FALSE(Equals(heap_, Value::Float(std::nan("")), Value::Float(std::nan(""))));
  EXPECT_TRUE(Equals(heap_, List({Value::Int(1), Text("a")}), List({Value::Float(1), Text("a")})));
  const std::vector<Value> items = {Value::Int(1)};
  EXPECT_FALSE(Equals(heap_, List(items), NewSequence(heap_, Sequence::Form::kTuple, items)));
}

TEST_F(JinjaValue, Mapping_KeepsFirstPlaceAndLastValue) {
  std::vector<Mapping::Entry> entries;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 100; ++i) entries.push_back({Text("key" + std::to_string(i)), Value::Int(i + 1000 * round)});
  }
  const Value value = NewMapping(heap_, entries);
  ASSERT_EQ(value.mapping->entries.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(value.mapping->entries[i].key.text(), "key" + std::to_string(i));
    EXPECT_EQ(FindKey(heap_, *value.mapping, "key" + std::to_string(i))->integer, static_cast<int64_t>(i) + 1000);
  }
  EXPECT_EQ(FindKey(heap_, *value.mapping, "nope"), nullptr);
  const std::vector<Mapping::Entry> same = {
      {Value::Int(1), Text("a")}, {Value::Float(1.0), Text("b")}, {Value::Bool(true), Text("c")}};
  EXPECT_EQ(NewMapping(heap_, same).mapping->entries.size(), 1u);
  const std::vector<Mapping::Entry> unhashable = {{List({}), Value::Int(1)}};
  EXPECT_THROW(NewMapping(heap_, unhashable), TemplateError);
}

TEST_F(JinjaValue, NestingPastTheBound_IsRefused) {
  Value value = List({});
  for (int depth = 2; depth <= kMaxValueDepth; ++depth) value = List({value});
  EXPECT_THROW(List({value}), TemplateError);
  EXPECT_EQ(ToText(heap_, value)->bytes.size(), 2u * kMaxValueDepth);
}

TEST_F(JinjaValue, Iterate_CutsStringsIntoCharacters) {
  const std::span<const Value> chars = Iterate(heap_, Text("aé日🦙"));
  ASSERT_EQ(chars.size(), 4u);
  EXPECT_EQ(chars[3].text(), "🦙");
  EXPECT_EQ(Length(heap_, Text("aé日🦙")), 4u);
  EXPECT_THROW(Iterate(heap_, Value::Int(5)), TemplateError);
}

TEST_F(JinjaValue, Repr_QuotesAndEscapesAsPythonDoes) {
  EXPECT_EQ(ToText(heap_, List({Text("it's"), Text("q\"'"), Text("\n\\\x7f\u200b"), Value::None(), Value::Bool(true)}))
                ->bytes,
            "[\"it's\", 'q\"\\'', '\\n\\\\\\x7f\\u200b', None, True]");
  EXPECT_EQ(ToText(heap_, NewUndefined(heap_, "x"))->bytes, "");
}

}  // namespace
}  // namespace tidemill::jinja::jinja_value_test

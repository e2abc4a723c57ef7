#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tidemill::json_test {
namespace {

TEST(Json, Braces_AreObjectsOfPairsAndArraysOfTheRest) {
  const Json json = {{"name", "x"}, {"shape", {2, 3}}, {"none", nullptr}, {"nested", {{"a", true}, {"b", {1}}}}};
  EXPECT_EQ(json.dump(), R"({"name":"x","shape":[2,3],"none":null,"nested":{"a":true,"b":[1]}})");
  EXPECT_EQ(Json::array({1, "a", {{"k", 2}}}).dump(), R"([1,"a",{"k":2}])");
  EXPECT_EQ(Json::array().dump(), "[]");
  EXPECT_EQ(Json::object().dump(), "{}");
  EXPECT_EQ(Json().dump(), "null");
  EXPECT_EQ(Json(std::vector<int>{1, 2}).dump(), "[1,2]");
  EXPECT_EQ(Json(std::array<std::array<double, 1>, 2>{{{0.5}, {1}}}).dump(), "[[0.5],[1.0]]");
}

TEST(Json, Members_KeepTheirOrderAndStandOnce) {
  Json json;
  json["z"] = 1;
  json["a"]["b"] = 2U;
  json["z"] = "again";
  json["list"].push_back({{"k", 1}});
  json["list"].push_back(nullptr);
  json.update({{"a", 3}, {"new", false}});
  EXPECT_EQ(json.dump(), R"({"z":"again","a":3,"list":[{"k":1},null],"new":false})");
  const Json copy = json;
  json["z"] = Json();
  EXPECT_EQ(copy.dump(), R"({"z":"again","a":3,"list":[{"k":1},null],"new":false})");
}

TEST(Json, Indent_OneElementALine) {
  const Json json = {{"a", {1, 2}}, {"none", Json::array()}, {"empty", Json::object()}, {"b", {{"c", 1}}}};
  EXPECT_EQ(json.dump(1),
            "{\n \"a\": [\n  1,\n  2\n ],\n \"none\": [],\n \"empty\": {},\n \"b\": {\n  \"c\": 1\n }\n}");
}

// Byte for byte what the library writes that reads it.
TEST(Json, ScalarsAndTexts_AsTheLibraryWritesThem) {
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  for (const double value : {0.0,
                             -0.0,
                             1.0,
                             -2.5,
                             0.1,
                             1e-4,
                             0.00012345,
                             1e-5,
                             1.5e-7,
                             123456789.125,
                             1e14,
                             999999999999999.0,
                             1e15,
                             1.5e300,
                             5e-324,
                             1.0 / 3,
                             2.0 / 3,
                             1.7976931348623157e308,
                             0.30000000000000004,
                             std::nan(""),
                             std::numeric_limits<double>::infinity()})
    EXPECT_EQ(Json(value).dump(), nlohmann::json(value).dump());
  EXPECT_EQ(Json(0.1f).dump(), nlohmann::json(0.1f).dump());
  EXPECT_EQ(Json(std::numeric_limits<int64_t>::min()).dump(), "-9223372036854775808");
  EXPECT_EQ(Json(std::numeric_limits<uint64_t>::max()).dump(), "18446744073709551615");
  std::string controls;
  for (char c = 0; c < 0x20; ++c) controls += c;
  for (const std::string& text :
       {std::string(), controls, std::string("\"\\/\x7F"), std::string("caf\xC3\xA9 \xE2\x96\x81 \xF0\x9F\x8C\x8A"),
        std::string("\x80|\xC3|\xC0\x80|\xE2\x96|\xE0\x80\x80|\xED\xA0\x80|\xF0\x9F\x8C|\xF0\x80|\xF4\x90\x80\x80|\xF5|"
                    "\xFF|\xE2\x96\xE2\x96\x81"),
        std::string("cut \xF0\x9F\x8C")})
    EXPECT_EQ(Json(text).dump(), nlohmann::json(text).dump(-1, ' ', false, kReplace));
  EXPECT_EQ((Json{{"\n", 1}}.dump()), "{\"\\n\":1}");
}

TEST(Json, OfADocument_IsWhatWasRead) {
  const std::string text =
      R"({"z":[1,-2,3.5,"a\u00e4",true,null,{},[[]]],"a":{"b":{"c":18446744073709551615}},"":1e300,"wide":18446744073709551616})";
  const auto document = JsonDocument::Parse("x", text);
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(Json(*document).dump(), nlohmann::ordered_json::parse(text).dump());
}

}  // namespace
}  // namespace tidemill::json_test

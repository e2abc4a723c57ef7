#include "tidemill/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace tidemill::result_test {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return Error(ErrorCode::kInvalidArgument, "halve: expected an even number");
  return x / 2;
}

Result<int> Quarter(int x) {
  TIDEMILL_TRY(half, Half(x));
  return Half(half);
}

Result<void> CheckEven(int x) {
  TIDEMILL_TRY_VOID(Half(x));
  return {};
}

TEST(Result, Try_PassesValuesAndErrorsOn) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(CheckEven(2).ok());
  EXPECT_FALSE(CheckEven(3).ok());
}

TEST(Result, WithContext_PutsTheCallersPartInFront) {
  EXPECT_EQ(Half(1).WithContext("load x.gguf").error().message(), "load x.gguf: halve: expected an even number");
  EXPECT_EQ(Half(2).WithContext("unused").value(), 1);
}

TEST(Result, MoveOnlyValue_Moves) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  EXPECT_EQ(*std::move(result).value(), 3);
}

TEST(Result, WrongAccess_StopsTheProcess) {
  const Result<int> error = Half(1);
  EXPECT_DEATH((void)error.value(), "");
}

TEST(ErrorCode, EveryCode_HasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    names.insert(ErrorCodeName(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(ErrorCode::kInternal) + 1);
  EXPECT_FALSE(names.contains("Unknown"));
}

}  // namespace
}  // namespace tidemill::result_test

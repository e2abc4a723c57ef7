#include "planner/machine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/aligned_buffer.h"
#include "kernels/matmul.h"
#include "planner/machine_measurement.h"

namespace tidemill {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

// A folder that is gone when the test ends.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tidemill_profile_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

MachineProfile Sample() {
  MachineProfile profile;
  profile.date = "2026-01-02";
  profile.source = "a test";
  profile.cpu = "a \"CPU\" of 3 \xC2\xB5m";
  profile.isa = Isa::kAvx512Vnni;
  profile.threads = 3;
  profile.one = {.read = 1e10 / 3, .int8 = 2e11, .bfloat16 = 0, .f32 = 1e11};
  profile.all = {.read = 3e10, .int8 = 6e11, .bfloat16 = 0.1e12, .f32 = 3e11};
  profile.copy = 1e10 / 7;
  profile.touch = 1e-10 / 3;
  for (size_t i = 0; i < kProfileRows.size(); ++i) {
    profile.attention[i] = 1e-7 * static_cast<double>(i + 1) / 3;
    profile.product[i] = 1e-3 * static_cast<double>(i + 1) / 7;
  }
  return profile;
}

void ExpectSame(const MachineRates& a, const MachineRates& b) {
  EXPECT_EQ(a.read, b.read);
  EXPECT_EQ(a.int8, b.int8);
  EXPECT_EQ(a.bfloat16, b.bfloat16);
  EXPECT_EQ(a.f32, b.f32);
}

void ExpectSame(const MachineProfile& a, const MachineProfile& b) {
  EXPECT_EQ(a.date, b.date);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.cpu, b.cpu);
  EXPECT_EQ(a.isa, b.isa);
  EXPECT_EQ(a.threads, b.threads);
  ExpectSame(a.one, b.one);
  ExpectSame(a.all, b.all);
  EXPECT_EQ(a.copy, b.copy);
  EXPECT_EQ(a.touch, b.touch);
  EXPECT_EQ(a.attention, b.attention);
  EXPECT_EQ(a.product, b.product);
}

void ExpectError(const Result<MachineProfile>& result, ErrorCode code, const std::string& part) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(ErrorCodeName(result.error().code()), ErrorCodeName(code)) << result.error().message();
  EXPECT_THAT(result.error().message(), HasSubstr(part));
  EXPECT_EQ(result.error().message().find('\n'), std::string::npos);
}

TEST(MachineProfile, Text_IsReadAsItWasWritten) {
  const auto read = ParseProfile("x", ProfileText(Sample()));
  ASSERT_TRUE(read.ok()) << read.error().message();
  ExpectSame(*read, Sample());
}

TEST(MachineProfile, BytesThatAreNotText_StillGiveAFile) {
  MachineProfile profile = Sample();
  profile.cpu = "\xFF CPU";
  const auto read = ParseProfile("x", ProfileText(profile));
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->cpu, "\xEF\xBF\xBD CPU");
}

TEST(MachineProfile, AnotherVersion_IsUnsupported) {
  ordered_json json = ordered_json::parse(ProfileText(Sample()));
  json["version"] = 2;
  json.erase("copy_bytes_per_s");  // the version comes first: another one may have other members
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kUnsupported, "x: \"version\": expected 1, found 2");
}

TEST(MachineProfile, CutAnywhere_IsRefused) {
  const std::string text = ProfileText(Sample());
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    ASSERT_FALSE(ParseProfile("x", std::string_view(text).substr(0, size)).ok()) << size;
  }
}

TEST(MachineProfile, EveryMember_IsNeededAndChecked) {
  const ordered_json good = ordered_json::parse(ProfileText(Sample()));
  for (const auto& [key, value] : good.items()) {
    ordered_json json = good;
    json.erase(key);
    ASSERT_FALSE(ParseProfile("x", json.dump()).ok()) << key;
    for (const char* wrong :
         {"null", "{}", "[]", "\"\\u0000\"", "-1", "1e300", "[1, 2, 3, 4, 5]", "[0, 0, 0, 0, 0, 0]"}) {
      if (std::string(wrong) == "\"\\u0000\"" && value.is_string() && key != "isa") continue;  // a text like others
      json[key] = ordered_json::parse(wrong);
      ASSERT_FALSE(ParseProfile("x", json.dump()).ok()) << key << " " << wrong;
    }
    if (!value.is_object()) continue;
    for (const auto& [rate, unused] : value.items()) {
      json = good;
      json[key].erase(rate);
      ASSERT_FALSE(ParseProfile("x", json.dump()).ok()) << key << " " << rate;
      for (const char* wrong : {"\"1\"", "-1", "1e19"}) {
        json[key][rate] = ordered_json::parse(wrong);
        ASSERT_FALSE(ParseProfile("x", json.dump()).ok()) << key << " " << rate << " " << wrong;
      }
    }
  }
  ordered_json json = good;
  json["cpu"] = std::string(201, 'x');
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, "\"cpu\"");
  json = good;
  json["isa"] = "avx1024";
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, "\"isa\": expected a level of --isa");
}

TEST(ProfileFile, Saved_IsLoadedAndReplaced) {
  const Folder folder;
  const std::string path = folder / "a/b/machine.json";
  ExpectError(LoadProfile(path), ErrorCode::kNotFound, path);
  ASSERT_TRUE(SaveProfile(Sample(), path).ok());
  const auto first = LoadProfile(path);
  ASSERT_TRUE(first.ok()) << first.error().message();
  ExpectSame(*first, Sample());
  MachineProfile other = Sample();
  other.threads = 7;
  ASSERT_TRUE(SaveProfile(other, path).ok());
  EXPECT_EQ(LoadProfile(path)->threads, 7U);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "a/b")) files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 1U);
}

TEST(ProfileFile, WhatIsNoProfile_IsRefused) {
  const Folder folder;
  ExpectError(LoadProfile(folder / "."), ErrorCode::kIoError, "expected a regular file");
  const std::string path = folder / "machine.json";
  std::ofstream(path) << std::string(70'000, ' ');
  ExpectError(LoadProfile(path), ErrorCode::kUnsupported, "expected at most 65536 bytes");
  std::ofstream(path) << "no JSON";
  ExpectError(LoadProfile(path), ErrorCode::kCorruptFile, "read the machine's profile: " + path);
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectError(LoadProfile(pipe), ErrorCode::kIoError, "expected a regular file");
}

TEST(ProfileFile, FolderThatCannotBe_IsAnError) {
  const Folder folder;
  std::ofstream(folder / "file") << "x";
  const auto saved = SaveProfile(Sample(), folder / "file/machine.json");
  ASSERT_FALSE(saved.ok());
  EXPECT_THAT(saved.error().message(), HasSubstr("keep the machine's profile: "));
}

TEST(BuiltInProfiles, All_CanBeRead) {
  ASSERT_FALSE(BuiltInProfiles().empty());
  for (const std::string_view text : BuiltInProfiles()) {
    const auto profile = ParseProfile("built-in", text);
    EXPECT_TRUE(profile.ok()) << profile.error().message();
  }
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16}) {
    for (const size_t threads : {1, 2, 64}) EXPECT_GT(NearestBuiltIn(isa, threads).all.read, 0);
  }
}

TEST(MachineRates, Arithmetic_TakesAsLongAsItsLongestForm) {
  const MachineRates rates{.read = 1, .int8 = 100, .bfloat16 = 50, .f32 = 10};
  EXPECT_DOUBLE_EQ(rates.ArithmeticSeconds({.flops = 10, .int8_ops = 300, .bfloat16_ops = 100}), 3);
  EXPECT_DOUBLE_EQ(rates.ArithmeticSeconds({.flops = 40, .int8_ops = 300, .bfloat16_ops = 100}), 4);
  const MachineRates without{.read = 1, .int8 = 100, .bfloat16 = 0, .f32 = 10};
  EXPECT_DOUBLE_EQ(without.ArithmeticSeconds({.bfloat16_ops = 100}), 10);
}

// Whatever the neighbours do: every number is there, and a file can hold it.
TEST(MeasureMachine, GivesAProfile) {
  const auto threads = ThreadPool::Create(2).value();
  MachineLimits limits;
  for (LimitSet* set : {&limits.one, &limits.all}) {
    for (const Limit limit : kLimits) set->of(limit).first = set->of(limit).second = 50;
  }
  std::vector<double> shown;
  const auto profile = MeasureMachine(DetectIsa(), *threads, limits, [&shown](double part) { shown.push_back(part); });
  ASSERT_TRUE(profile.ok()) << profile.error().message();
  EXPECT_EQ(profile->threads, threads->num_threads());
  EXPECT_EQ(profile->isa, DetectIsa());
  EXPECT_EQ(profile->one.read, 50e9);
  EXPECT_EQ(shown.back(), 1);
  const auto read = ParseProfile("x", ProfileText(*profile));
  ASSERT_TRUE(read.ok()) << read.error().message();
  ExpectSame(*read, *profile);
}

TEST(SampleProduct, IsWhatTheKernelsCostFormulaSays) {
  const AlignedBuffer untouched =
      AlignedBuffer::Create(kSampleWeightRows * RowBytes(DType::kQ8_0, kSampleWeightCols)).value();
  const WeightSource source{.dtype = DType::kQ8_0,
                            .rows = kSampleWeightRows,
                            .cols = kSampleWeightCols,
                            .bytes = {untouched.data(), untouched.size()},
                            .row_stride = 0,
                            .order = {}};
  const Cost cost = MatMulCost(WeightMatrix::Map(source, false), 1, Isa::kBaseline), sample = SampleProduct();
  EXPECT_EQ(sample.int8_ops, cost.int8_ops);
  EXPECT_EQ(sample.flops, cost.flops);
  EXPECT_NEAR(sample.bytes, cost.bytes, 0.01 * cost.bytes);  // without the activations
}

}  // namespace
}  // namespace tidemill

#include "planner/machine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "planner/machine_measurement.h"

namespace tidemill::machine_profile_test {
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
  profile.copy = 1e10 / 7;
  profile.touch = 1e-10 / 3;
  profile.element = 1e-9 / 3;
  double next = 1e-10 / 7;
  for (OperationSeconds* operations : {&profile.one, &profile.all}) {
    const auto fill = [&next](auto& numbers) {
      for (double& number : numbers) number = next *= 1.01;
    };
    operations->loop = next *= 1.01;
    for (ProductSeconds& product : operations->product) fill(product);
    for (auto& groups : operations->attention) {
      for (AttentionSeconds& attention : groups) fill(attention);
    }
  }
  return profile;
}

void ExpectSame(const MachineProfile& a, const MachineProfile& b) {
  EXPECT_EQ(a.date, b.date);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.cpu, b.cpu);
  EXPECT_EQ(a.isa, b.isa);
  EXPECT_EQ(a.threads, b.threads);
  EXPECT_EQ(a.copy, b.copy);
  EXPECT_EQ(a.touch, b.touch);
  EXPECT_EQ(a.element, b.element);
  EXPECT_TRUE(a.one == b.one);
  EXPECT_TRUE(a.all == b.all);
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
  json["version"] = 1;
  json.erase("copy_bytes_per_s");  // the version comes first: another one may have other members
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kUnsupported, "x: \"version\": expected 2, found 1");
}

TEST(MachineProfile, CutAnywhere_IsRefused) {
  const std::string text = ProfileText(Sample());
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    ASSERT_FALSE(ParseProfile("x", std::string_view(text).substr(0, size)).ok()) << size;
  }
}

// Of every member, those of objects in objects, too.
void CollectMembers(const ordered_json& object, const ordered_json::json_pointer& at,
                    std::vector<ordered_json::json_pointer>& members) {
  for (const auto& [key, value] : object.items()) {
    members.push_back(at / key);
    if (value.is_object()) CollectMembers(value, at / key, members);
  }
}

TEST(MachineProfile, EveryMember_IsNeededAndChecked) {
  const ordered_json good = ordered_json::parse(ProfileText(Sample()));
  std::vector<ordered_json::json_pointer> members;
  CollectMembers(good, ordered_json::json_pointer(), members);
  ASSERT_EQ(members.size(), 13U + 2 * (3 + 11 + 6));
  for (const auto& member : members) {
    ordered_json json = good;
    json[member.parent_pointer()].erase(member.back());
    ASSERT_FALSE(ParseProfile("x", json.dump()).ok()) << member;
    for (const char* wrong : {"null", "{}", "[]", "\"\\u0000\"", "-1", "1e300", "[1, 2, 3, 4, 5]",
                              "[0, 0, 0, 0, 0, 0, 0]", "[0, 0, 0, 0]", "[\"1\", 1, 1, 1, 1, 1, 1]"}) {
      const bool text = good[member].is_string() && member.back() != "isa";
      if (std::string(wrong) == "\"\\u0000\"" && text) continue;  // a text like others
      json = good;
      json[member] = ordered_json::parse(wrong);
      ASSERT_FALSE(ParseProfile("x", json.dump()).ok()) << member << " " << wrong;
    }
  }
  ordered_json json = good;
  json["cpu"] = std::string(201, 'x');
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, "\"cpu\"");
  json = good;
  json["isa"] = "avx1024";
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, "\"isa\": expected a level of --isa");
}

TEST(MachineProfile, EveryNumber_IsOfAPossibleSize) {
  const ordered_json good = ordered_json::parse(ProfileText(Sample()));
  for (const char* set : {"one", "all"}) {
    for (const char* kind : {"product_seconds_per_byte", "attention_seconds_per_kv_row"}) {
      for (const auto& [key, numbers] : good[set][kind].items()) {
        for (size_t i = 0; i < numbers.size(); ++i) {
          for (const double wrong : {0.0, -1e-10, 1e-19, 1.1, 1e300}) {
            ordered_json json = good;
            json[set][kind][key][i] = wrong;
            const std::string path = std::string(set) + "." + kind + "." + key;
            ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, path);
          }
        }
      }
    }
  }
  std::string text = good.dump();
  const size_t at = text.find("\"loop_seconds\":") + 15;
  ExpectError(ParseProfile("x", text.substr(0, at) + "NaN" + text.substr(text.find(',', at))), ErrorCode::kCorruptFile,
              "x");
}

TEST(MachineProfile, TypesAndNumbersThatAreTooMany_AreRefused) {
  const ordered_json good = ordered_json::parse(ProfileText(Sample()));
  ordered_json json = good;
  json["all"]["product_seconds_per_byte"]["Q9_9"] = {1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10};
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile,
              "\"all.product_seconds_per_byte\": expected an object of 11 members");
  json = good;
  json["one"]["attention_seconds_per_kv_row"]["512x1"] = {1e-10, 1e-10, 1e-10, 1e-10};
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, "expected an object of 6 members");
  json = good;
  json["one"]["product_seconds_per_byte"]["F32"].push_back(1e-10);
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, "expected 7 positive numbers");
  json["one"]["product_seconds_per_byte"]["F32"] = std::vector<double>(5000, 0.5);
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kCorruptFile, "expected 7 positive numbers");
  json["one"]["product_seconds_per_byte"]["F32"] = std::vector<double>(250'000, 0.5);
  ExpectError(ParseProfile("x", json.dump()), ErrorCode::kUnsupported, "x");
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
    for (const size_t threads : {1, 2, 64}) EXPECT_GT(NearestBuiltIn(isa, threads, "").all.loop, 0);
  }
}

MachineProfile ProfileOf(std::string_view cpu, Isa isa, size_t threads) {
  MachineProfile profile;
  profile.cpu = cpu;
  profile.isa = isa;
  profile.threads = threads;
  return profile;
}

TEST(NearestProfile, LevelThenFamilyThenThreads_Choose) {
  const std::string old = "AMD EPYC, family 25 model 17", young = "AMD EPYC, family 26 model 2";
  const std::string intel = "Intel(R) Xeon(R) Processor, family 6 model 143";
  const std::vector<MachineProfile> profiles = {
      ProfileOf(old, Isa::kAvx512Bf16, 2), ProfileOf(young, Isa::kAvx512Bf16, 2),
      ProfileOf(young, Isa::kAvx512Bf16, 16), ProfileOf(intel, Isa::kAvx512Vnni, 8)};
  struct Case {
    const char* cpu;
    Isa isa;
    size_t threads, nearest;
  };
  for (const Case& c : {
           Case{"AMD EPYC, family 25 model 17", Isa::kAvx512Bf16, 2, 0},
           {"AMD EPYC, family 26 model 2", Isa::kAvx512Bf16, 2, 1},
           {"AMD EPYC, family 26 model 2", Isa::kAvx512Bf16, 1, 1},
           {"AMD EPYC, family 26 model 2", Isa::kAvx512Bf16, 64, 2},
           {"AMD Ryzen 9 9950X 16-Core Processor, family 26 model 68", Isa::kAvx512Bf16, 2, 1},  // any name and model
           {"AMD EPYC, family 25 model 17", Isa::kAvx512Bf16, 64, 0},                            // before threads
           {"AMD EPYC, family 26 model 2", Isa::kAvx512Vnni, 2, 3},                              // after the level
           {"AMD EPYC, family 26 model 2", Isa::kBaseline, 2, 3},
           {"13th Gen Intel(R) Core(TM), family 6 model 183", Isa::kAvx512Bf16, 2, 0},  // none of its level
           {"Intel(R) Xeon(R) Processor, family 26 model 2", Isa::kAvx512Bf16, 2, 0},   // AMD's 26
           // No vendor, no family: level and threads.
           {"", Isa::kAvx512Bf16, 2, 0},
           {"", Isa::kAvx512Bf16, 64, 2},
           {"unknown CPU", Isa::kAvx512Bf16, 16, 2},
           {"AMD EPYC", Isa::kAvx512Bf16, 2, 0},
           {"QEMU Virtual CPU, family 26 model 2", Isa::kAvx512Bf16, 2, 0},
           {"AMD EPYC, family ", Isa::kAvx512Bf16, 2, 0},
           {"AMD EPYC, family x26", Isa::kAvx512Bf16, 2, 0},
           {"AMD EPYC, family 99999999999", Isa::kAvx512Bf16, 2, 0},
       }) {
    const MachineProfile& nearest = NearestProfile(profiles, c.isa, c.threads, c.cpu);
    EXPECT_EQ(&nearest - profiles.data(), static_cast<ptrdiff_t>(c.nearest))
        << c.cpu << ", " << IsaName(c.isa) << ", " << c.threads << " threads";
  }
}

TEST(NearestProfile, ProfilesWithoutAFamily_AreOfNoneAlike) {
  const std::vector<MachineProfile> profiles = {ProfileOf("a CPU", Isa::kAvx2, 2), ProfileOf("", Isa::kAvx2, 4)};
  EXPECT_EQ(NearestProfile(profiles, Isa::kAvx2, 2, "").threads, 2U);
  EXPECT_EQ(NearestProfile(profiles, Isa::kAvx2, 4, "a CPU").threads, 4U);
  EXPECT_EQ(NearestProfile(profiles, Isa::kAvx2, 4, "AMD EPYC, family 26 model 2").threads, 4U);
}

// Of each the name says a family, so that it goes before others of its level.
TEST(BuiltInProfiles, Each_IsChosenForItsFamily) {
  for (const std::string_view text : BuiltInProfiles()) {
    const MachineProfile profile = ParseProfile("built-in", text).value();
    EXPECT_EQ(NearestBuiltIn(profile.isa, profile.threads, profile.cpu).cpu, profile.cpu);
    const std::vector<MachineProfile> two = {ProfileOf("another CPU", profile.isa, profile.threads), profile};
    EXPECT_EQ(NearestProfile(two, profile.isa, profile.threads, profile.cpu).cpu, profile.cpu);
  }
}

// Whatever the neighbours do: every number is there, a file can hold it, and more rows take no less.
TEST(MeasureMachine, GivesAProfile) {
  const auto threads = ThreadPool::Create(2).value();
  std::vector<double> shown;
  const auto profile = MeasureMachine(
      DetectIsa(), *threads, {.bytes = size_t{4} << 20, .progress = [&shown](double part) { shown.push_back(part); }});
  ASSERT_TRUE(profile.ok()) << profile.error().message();
  EXPECT_EQ(profile->threads, threads->num_threads());
  EXPECT_EQ(profile->isa, DetectIsa());
  for (const OperationSeconds* operations : {&profile->one, &profile->all}) {
    for (const ProductSeconds& product : operations->product)
      EXPECT_TRUE(std::is_sorted(product.begin(), product.end()));
  }
  EXPECT_NEAR(shown.back(), 1, 1e-9);
  const auto read = ParseProfile("x", ProfileText(*profile));
  ASSERT_TRUE(read.ok()) << read.error().message();
  ExpectSame(*read, *profile);
}

}  // namespace
}  // namespace tidemill::machine_profile_test

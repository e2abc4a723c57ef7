// What a header may cost before a weight is read: memory below 4 x the header + 16 MiB, allocations and time linear in its entries.
// header_cost_at_the_limit_test reads a million tensors, too.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/json_document.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/safetensors_index.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/cpu_seconds.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing::header_cost_test {
namespace {

constexpr size_t kEntries = TIDEMILL_FULL_SPEED ? 131'073 : 16'385;  // one more than a vector that doubles has room for

struct Header {
  std::string bytes;
  size_t size;  // of the header alone
};
struct Shape {
  const char* name;
  Header (*make)(size_t entries);
  std::string (*read)(const std::string& bytes);  // the error line, or nothing
};

template <typename T>
std::string LineOf(const Result<T>& result) {
  return result.ok() ? "" : result.error().message();
}
std::string ReadGguf(const std::string& bytes) { return LineOf(GgufFile::Parse(std::as_bytes(std::span(bytes)))); }
std::string ReadSafetensors(const std::string& bytes) {
  return LineOf(SafetensorsFile::Parse(std::as_bytes(std::span(bytes))));
}

// 0 .. entries - 1 in an order that no sort finds half done.
uint64_t Shuffled(size_t i, size_t entries) { return i * 7919 % entries; }

Header Safetensors(size_t entries, const std::string& prefix) {
  std::string header = "{";
  for (size_t i = 0; i < entries; ++i) {
    header += (i == 0 ? "\"" : ",\"") + prefix + std::to_string(Shuffled(i, entries)) +
              R"(":{"dtype":"U8","shape":[],"data_offsets":[)" + std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  header += "}";
  return {SafetensorsBytes(header, std::string(entries, 'd')), header.size() + 8};
}
Header ShortSafetensors(size_t entries) { return Safetensors(entries, ""); }
Header LongSafetensors(size_t entries) { return Safetensors(entries, std::string(240, 'n')); }

Header GgufTensors(size_t entries) {
  std::string bytes = "GGUF" + LittleEndian<uint32_t>(3) + LittleEndian<uint64_t>(entries) + LittleEndian<uint64_t>(0);
  for (size_t i = 0; i < entries; ++i) {
    const std::string name = std::to_string(Shuffled(i, entries));
    bytes += LittleEndian<uint64_t>(name.size()) + name + LittleEndian<uint32_t>(1) + LittleEndian<uint64_t>(1);
    bytes += LittleEndian<uint32_t>(0) + LittleEndian<uint64_t>(i * kGgufDefaultAlignment);
  }
  const size_t size = bytes.size();
  bytes.resize((size / kGgufDefaultAlignment + 1 + entries) * kGgufDefaultAlignment);
  return {std::move(bytes), size};
}
Header GgufKeys(size_t entries) {
  GgufWriter w;
  const size_t keys = std::min<size_t>(entries, kGgufMaxKeys);
  for (size_t i = 0; i < keys; ++i) w.Set<uint8_t>(std::to_string(Shuffled(i, keys)), 1);
  std::string bytes = w.Build();
  const size_t size = bytes.size();
  return {std::move(bytes), size};
}
Header Index(size_t entries) {
  std::string text = "{\"weight_map\":{";
  for (size_t i = 0; i < entries; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(Shuffled(i, entries)) + R"(":"m.safetensors")";
  }
  text += "}}";
  const size_t size = text.size();
  return {std::move(text), size};
}
Header Config(size_t entries) {
  std::string text = "{\"a\":[1";
  for (size_t i = 1; i < entries; ++i) text += ",1";
  text += "]}";
  const size_t size = text.size();
  return {std::move(text), size};
}

constexpr Shape kShapes[] = {
    {"Safetensors", ShortSafetensors, ReadSafetensors},
    {"SafetensorsWithLongNames", LongSafetensors, ReadSafetensors},
    {"GgufTensors", GgufTensors, ReadGguf},
    {"GgufKeys", GgufKeys, ReadGguf},
    {"Index", Index, [](const std::string& bytes) { return LineOf(SafetensorsIndex::Parse(bytes)); }},
    {"Config", Config, [](const std::string& bytes) { return LineOf(JsonDocument::Parse("config.json", bytes)); }},
};

double SecondsToRead(const Shape& shape, const Header& header) {
  const double begin = CpuSeconds();
  EXPECT_EQ(shape.read(header.bytes), "");
  return CpuSeconds() - begin;
}

class HeaderCost : public ::testing::TestWithParam<size_t> {
 protected:
  const Shape& shape() const { return kShapes[GetParam()]; }
};

TEST_P(HeaderCost, Memory_IsBelowFourTimesTheHeader) {
  const Header header = shape().make(kEntries);
  const HeapWatch heap;
  ASSERT_EQ(shape().read(header.bytes), "");
  const uint64_t peak = heap.PeakBytes();
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_LE(peak, 4 * header.size + (16 << 20)) << kEntries << " entries, a header of " << header.size;
}

TEST_P(HeaderCost, Allocations_AreLinear) {
  const auto allocations = [&](size_t entries) {
    const Header header = shape().make(entries);
    const size_t before = NumAllocations();
    EXPECT_EQ(shape().read(header.bytes), "");
    return NumAllocations() - before;
  };
  EXPECT_LE(allocations(20'000), 2 * allocations(10'000) + 64);
}

TEST_P(HeaderCost, Time_IsLinear) {
  if (!TIDEMILL_FULL_SPEED) return;
  // Four times the entries in at most eight times the time, which quadratic work would take sixteen times of.
  const Header small = shape().make(20'000), large = shape().make(80'000);
  double best = 1e9;
  for (int i = 0; i < 5 && best > 8; ++i) {
    const double once = SecondsToRead(shape(), small);
    best = std::min(best, SecondsToRead(shape(), large) / once);
  }
  EXPECT_LE(best, 8);
}

INSTANTIATE_TEST_SUITE_P(Headers, HeaderCost, ::testing::Range(size_t{0}, std::size(kShapes)),
                         [](const auto& index) { return std::string(kShapes[index.param].name); });

#if TIDEMILL_AT_THE_LIMIT
TEST(HeaderCostAtTheLimit, AMillionTensorsAndAHundredThousandKeys_TakeTheirTime) {
  const struct {
    const Shape& shape;
    size_t entries;
    double max_seconds;
  } limits[] = {
      {kShapes[0], kSafetensorsMaxTensors, 5}, {kShapes[2], kGgufMaxTensors, 5}, {kShapes[3], kGgufMaxKeys, 0.2}};
  for (const auto& limit : limits) {
    const Header header = limit.shape.make(limit.entries);
    const HeapWatch heap;
    const double seconds = SecondsToRead(limit.shape, header);
    EXPECT_LE(seconds, limit.max_seconds) << limit.shape.name;
    EXPECT_LE(heap.PeakBytes(), 4 * header.size + (16 << 20)) << limit.shape.name;
    std::printf("%s: %zu entries, header %zu bytes: %.3f s, %zu bytes of heap\n", limit.shape.name, limit.entries,
                header.size, seconds, heap.PeakBytes());
  }
}

TEST(HeaderCostAtTheLimit, OneTensorMore_IsRefused) {
  EXPECT_TRUE(ReadSafetensors(ShortSafetensors(kSafetensorsMaxTensors + 1).bytes)
                  .ends_with("tensors: expected at most 1000000, found more"));
  EXPECT_EQ(ReadGguf(GgufTensors(kGgufMaxTensors + 1).bytes),
            "GGUF header: byte 8: tensor count: expected at most 1000000, found 1000001");
}
#endif

}  // namespace
}  // namespace tidemill::testing::header_cost_test

// KV layers of segments, as the contract tests see them: with the segment at hand alone, which never ends.
#ifndef TIDEMILL_TESTS_SUPPORT_SEGMENT_UNDER_TEST_H_
#define TIDEMILL_TESTS_SUPPORT_SEGMENT_UNDER_TEST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "state/segment_kv_layer.h"
#include "tests/support/kv_under_test.h"

namespace tidemill::testing {

class SegmentUnderTest : public KvUnderTest {
 public:
  SegmentUnderTest(const KvLayerShape& shape, DType dtype, const KvGrowth& growth, bool ahead,
                   const SegmentShape& segments)
      : KvUnderTest(shape, dtype, growth, ahead), segments_(segments) {}

  bool is_plain() const override { return false; }
  Pointer Of(const KvLayerShape& shape, DType dtype) const override { return With(shape, dtype, segments_); }
  std::string name() const override {
    return "Segment" + std::to_string(segments_.segment_tokens) + "Memory" +
           std::string(InfoOf(segments_.memory.dtype).name) + KvUnderTest::name();
  }
  std::unique_ptr<LayerState> Make(const SequenceOptions& options) const override {
    return std::make_unique<SegmentKvLayer>(shape(), OptionsOf(options), segments_);
  }
  std::vector<std::pair<std::string, Pointer>> Strangers() const override {
    auto strangers = KvUnderTest::Strangers();
    const auto add = [&](const std::string& what, auto change) {
      SegmentShape segments = segments_;
      change(segments);
      strangers.emplace_back(what, With(shape(), dtype(), segments));
    };
    add("hidden", [](SegmentShape& s) { ++s.memory.hidden; });
    add("key_dim", [](SegmentShape& s) { ++s.memory.key_dim; });
    add("nu", [](SegmentShape& s) { ++s.memory.nu; });
    add("correction", [](SegmentShape& s) { s.memory.correction = !s.memory.correction; });
    add("type of the memory",
        [](SegmentShape& s) { s.memory.dtype = s.memory.dtype == DType::kF32 ? DType::kBF16 : DType::kF32; });
    add("segment_tokens", [](SegmentShape& s) { ++s.segment_tokens; });
    add("memory_rows", [](SegmentShape& s) { ++s.memory_rows; });
    strangers.emplace_back("no segments", std::make_shared<KvUnderTest>(shape(), dtype(), growth(), ahead()));
    return strangers;
  }

 private:
  Pointer With(const KvLayerShape& shape, DType dtype, const SegmentShape& segments) const {
    return std::make_shared<SegmentUnderTest>(shape, dtype, growth(), ahead(), segments);
  }

  SegmentShape segments_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SEGMENT_UNDER_TEST_H_

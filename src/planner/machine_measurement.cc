#include "planner/machine_measurement.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "kernels/execution_context.h"
#include "planner/min_seconds.h"
#include "planner/operation_measurement.h"

namespace tidemill {
namespace {

constexpr size_t kCopyPiece = size_t{256} << 10;  // the rows of one head: what a cache copies at once
constexpr size_t kPageBytes = 4096;               // the smallest page

Result<void> MeasureMemory(std::span<const std::byte> from, MachineProfile& profile) {
  BufferArena arena(from.size());  // as states are allocated: large pages where the system gives them
  TIDEMILL_TRY(to, arena.Allocate(from.size()));
  std::memset(to.data(), 1, to.size());
  const double copy = MinSeconds([&] {
    for (size_t at = 0; at + kCopyPiece <= from.size(); at += kCopyPiece)
      std::memcpy(to.data() + at, from.data() + at, kCopyPiece);
  });
  profile.copy = static_cast<double>(from.size() / kCopyPiece * kCopyPiece) / copy;

  std::optional<Error> failed;
  const double touch = MinSeconds([&] {
    BufferArena fresh_arena(from.size());
    auto fresh = fresh_arena.Allocate(from.size());
    if (!fresh.ok()) {
      failed = std::move(fresh).error();
      return;
    }
    volatile std::byte* bytes = fresh->data();
    for (size_t at = 0; at < from.size(); at += kPageBytes) bytes[at] = std::byte{1};
  });
  if (failed) return *failed;
  profile.touch = touch / static_cast<double>(from.size());
  return {};
}

}  // namespace

Result<MachineProfile> MeasureMachine(Isa isa, ThreadPool& threads, const MeasureOptions& options) {
  TIDEMILL_CHECK(options.bytes >= MeasureOptions::kFewestBytes);
  MachineProfile profile;
  profile.isa = isa;
  profile.threads = threads.num_threads();
  constexpr double kParts = kNumDTypes + kAttentionDims.size() * kAttentionGroups.size() / 3.0 + 1;
  double done = 0;
  const auto show = [&](double parts) {
    done += parts;
    if (options.progress) options.progress(std::min(1.0, done / kParts));
  };
  BufferArena arena;
  TIDEMILL_TRY(sample, arena.Allocate(options.bytes));
  std::memset(sample.data(), kSampleByte, sample.size());
  TIDEMILL_TRY_VOID(MeasureMemory({sample.data(), sample.size()}, profile));
  TIDEMILL_TRY(alone, ThreadPool::Create(1));
  TIDEMILL_TRY(one, ExecutionContext::Create(isa, alone.get(), OperationScratchBytes()));
  TIDEMILL_TRY(all, ExecutionContext::Create(isa, &threads, OperationScratchBytes()));
  OperationMeasurement measurement(one, all, {sample.data(), sample.size()});
  TIDEMILL_TRY(element, measurement.Element());
  profile.element = element;
  TIDEMILL_TRY_VOID(measurement.Loops(element, profile.one.loop, profile.all.loop));
  show(1);
  for (size_t type = 0; type < static_cast<size_t>(kNumDTypes); ++type) {
    TIDEMILL_TRY_VOID(
        measurement.Products(static_cast<DType>(type), profile.one.product[type], profile.all.product[type]));
    show(1);
  }
  for (size_t dim = 0; dim < kAttentionDims.size(); ++dim) {
    for (size_t group = 0; group < kAttentionGroups.size(); ++group) {
      measurement.Attention(dim, group, profile.one.attention[dim][group], profile.all.attention[dim][group]);
      show(1 / 3.0);
    }
  }
  if (threads.num_threads() == 1) profile.all = profile.one;  // two measurements of the same
  return profile;
}

}  // namespace tidemill

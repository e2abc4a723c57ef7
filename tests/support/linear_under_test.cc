#include "tests/support/linear_under_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/delta_inputs.h"
#include "kernels/execution_context.h"

namespace tidemill::testing {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  uint64_t x = (hash ^ value) * 0xBF58476D1CE4E5B9ULL + 0x9E3779B97F4A7C15ULL;
  x ^= x >> 31;
  return x * 0x94D049BB133111EBULL;
}

uint64_t WordOf(std::span<const std::byte> row) {
  uint64_t word = 0;
  std::memcpy(&word, row.data(), sizeof(word));
  return word;
}

size_t ElementBytes(const DeltaShape& shape) { return shape.form.dtype == DType::kF32 ? 4 : 2; }
size_t EntryBytes(const DeltaShape& s) {
  return s.value_heads * (s.padded_value_dim() * ElementBytes(s) + sizeof(float)) +
         s.key_heads * s.key_dim * ElementBytes(s);
}
size_t InputBytes(const LinearShape& s) { return s.channels * sizeof(float); }
size_t StateBytesOf(const LinearShape& s) { return s.delta.state_floats() * sizeof(float); }
// Inputs of the convolution in a checkpoint.
size_t InputsFrom(const LinearShape& s, size_t length, size_t earliest) {
  return s.conv_width == 1 ? length : earliest - std::min(earliest, s.conv_width - 1);
}

// Memory of rows that is used again, so that a cell allocates nothing once another had as many rows, or if it has few.
class CellMemory {
 public:
  std::vector<float> q, k, v, beta, g, x, y;
  std::vector<const float*> inputs;
  size_t rows = 0;

  void Fill(const LinearShape& shape, std::span<const std::byte> bytes) {
    const DeltaShape& d = shape.delta;
    rows = bytes.size() / kLinearRowBytes;
    for (auto* each : {&q, &k, &v, &beta, &g, &x, &y}) {
      each->clear();
      each->reserve(kFewestElements);
    }
    inputs.reserve(kFewestElements);
    for (size_t at = 0; at < bytes.size(); at += kLinearRowBytes) AddRow(shape, WordOf(bytes.subspan(at)));
    y.assign(rows * d.value_heads * d.value_dim, 0);
    inputs.assign(rows * shape.conv_width, nullptr);
  }

  // After ConvInputs.
  void Convolve(const LinearShape& shape) {
    const size_t width = shape.delta.value_heads * shape.delta.value_dim;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t tap = 0; tap < shape.conv_width; ++tap) {
        const float* const input = inputs[row * shape.conv_width + tap];
        if (input == nullptr) continue;
        const float weight = static_cast<float>(tap + 1) / 4;
        for (size_t i = 0; i < width; ++i) {
          const float product = weight * input[i % shape.channels];
          v[row * width + i] += product;
        }
      }
    }
  }

  void SetRows(const LinearShape& shape, DeltaTask* task) {
    const DeltaShape& d = shape.delta;
    const size_t keys = d.key_heads * d.key_dim, values = d.value_heads * d.value_dim;
    task->q = {q.data(), rows, keys};
    task->k = {k.data(), rows, keys};
    task->v = {v.data(), rows, values};
    task->beta = {beta.data(), rows, d.value_heads};
    task->g = {g.data(), rows, d.value_heads};
    task->y = {y.data(), rows, values};
  }

  ConstMatrix<float> X(const LinearShape& shape) const { return {x.data(), rows, shape.channels}; }

 private:
  static constexpr size_t kFewestElements = 4096;

  void AddRow(const LinearShape& shape, uint64_t word) {
    const DeltaShape& d = shape.delta;
    const bool unseen = word == ~uint64_t{0};
    const auto add = [&](std::vector<float>& to, float value) {
      to.push_back(unseen ? std::numeric_limits<float>::quiet_NaN() : value);
    };
    const auto uniform = [&] {  // in [-1, 1)
      word = Mix(word, 7);
      return static_cast<float>(static_cast<int64_t>(word >> 40) - (int64_t{1} << 23)) * 0x1p-23F;
    };
    for (size_t head = 0; head < d.key_heads; ++head) {
      const size_t first = k.size();
      float squares = 0;
      for (size_t i = 0; i < d.key_dim; ++i) {
        add(q, uniform());
        add(k, uniform());
        squares += k.back() * k.back();
      }
      for (size_t i = first; i < k.size(); ++i) k[i] /= std::sqrt(squares + 1e-6F);
    }
    for (size_t i = 0; i < d.value_heads * d.value_dim; ++i) add(v, uniform());
    for (size_t head = 0; head < d.value_heads; ++head) {
      add(beta, (1 + uniform()) / 2);
      const float decay = uniform();
      add(g, decay < -0.9F ? kMinDecay : decay < -0.8F ? 0 : -std::fabs(decay) / 4);
    }
    for (size_t i = 0; i < shape.channels; ++i) add(x, uniform());
  }
};

struct Runner {
  std::unique_ptr<ThreadPool> threads = std::move(ThreadPool::Create(1)).value();
  ExecutionContext context = ExecutionContext::Create(LinearIsa(), threads.get(), DeltaScratchBytes()).value();
  std::vector<CellMemory> memory{1};
  std::vector<DeltaTask> tasks;
  std::vector<std::byte> unseen = UncommittedRow(4096 * kLinearRowBytes);

  static Runner& Get() {
    static Runner runner;
    return runner;
  }
};

}  // namespace

Isa LinearIsa() {
  static const Isa isa = DetectIsa();  // slow where a processor is virtual
  return isa;
}

void RunLinearCell(std::span<const LinearCellRows> sequences) {
  Runner& runner = Runner::Get();
  if (runner.memory.size() < sequences.size()) runner.memory.resize(sequences.size());
  runner.tasks.clear();
  const LinearShape shape = sequences[0].layer->shape();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const LinearCellRows& s = sequences[i];
    CellMemory& memory = runner.memory[i];
    memory.Fill(shape, s.rows);
    s.layer->ConvInputs(s.slot, memory.X(shape), s.parents, memory.inputs);
    memory.Convolve(shape);
    DeltaTask task = s.layer->Task(s.slot, memory.rows);
    memory.SetRows(shape, &task);
    task.parents = s.parents;
    runner.tasks.push_back(task);
  }
  DeltaRule(runner.context, shape.delta, runner.tasks);
  for (size_t i = 0; i < sequences.size(); ++i)
    sequences[i].layer->EndRows(sequences[i].slot, runner.memory[i].X(shape));
}

// --- What a layer must make of rows ---

// The first rows of a sequence, by what its last row has left.
struct LinearPrefixes::Node {
  size_t length = 0;
  size_t parent = 0;               // number
  std::vector<std::byte> u, k, g;  // of all heads
  std::vector<float> x;
  std::vector<float> state;  // where a boundary stands behind the last row
};

struct LinearPrefixes::Nodes {
  std::vector<Node> all;
  std::unordered_map<uint64_t, size_t> of_rows;  // by their hash
};

LinearPrefixes::LinearPrefixes(const LinearShape& shape) : shape_(shape), nodes_(new Nodes) {}
LinearPrefixes::~LinearPrefixes() = default;

const LinearPrefixes::Node& LinearPrefixes::NodeOf(std::span<const std::byte> rows) {
  constexpr size_t kManyNodes = 20000;
  const size_t length = rows.size() / kLinearRowBytes;
  if (nodes_->all.size() + length > kManyNodes) *nodes_ = {};
  if (nodes_->all.empty()) nodes_->all.emplace_back();  // of no rows
  std::vector<uint64_t> hashes = {1};
  for (size_t i = 0; i < length; ++i)
    hashes.push_back(Mix(hashes.back(), WordOf(rows.subspan(i * kLinearRowBytes)) + 1));
  size_t known = length, node = 0;
  for (; known != 0; --known) {
    const auto found = nodes_->of_rows.find(hashes[known]);
    if (found == nodes_->of_rows.end()) continue;
    node = found->second;
    break;
  }
  for (; known < length; ++known) {
    Node next;
    next.length = known + 1;
    next.parent = node;
    nodes_->all.push_back(std::move(next));
    Make(&nodes_->all.back(), &nodes_->all[node], rows.subspan(known * kLinearRowBytes, kLinearRowBytes));
    node = nodes_->all.size() - 1;
    nodes_->of_rows[hashes[known + 1]] = node;
  }
  return nodes_->all[node];
}

void LinearPrefixes::Make(Node* node, const Node* parent, std::span<const std::byte> row) {
  Runner& runner = Runner::Get();
  const DeltaShape& d = shape_.delta;
  const size_t boundary = d.form.Boundary(parent->length), num = parent->length - boundary, capacity = num + 1;
  const size_t u_bytes = d.padded_value_dim() * ElementBytes(d), k_bytes = d.key_dim * ElementBytes(d);
  std::vector<std::byte> u(d.value_heads * capacity * u_bytes), k(d.key_heads * capacity * k_bytes);
  std::vector<float> g(d.value_heads * capacity);
  const Node* at = parent;
  for (size_t i = num; i-- > 0; at = &nodes_->all[at->parent]) {
    for (size_t h = 0; h < d.value_heads; ++h) {
      std::memcpy(u.data() + (h * capacity + i) * u_bytes, at->u.data() + h * u_bytes, u_bytes);
      std::memcpy(&g[h * capacity + i], at->g.data() + h * sizeof(float), sizeof(float));
    }
    for (size_t h = 0; h < d.key_heads; ++h)
      std::memcpy(k.data() + (h * capacity + i) * k_bytes, at->k.data() + h * k_bytes, k_bytes);
  }
  CellMemory& memory = runner.memory[0];
  memory.Fill(shape_, row);
  node->x = memory.x;
  const Node* before = node;
  for (size_t tap = shape_.conv_width; tap-- > 0 && before->length != 0; before = &nodes_->all[before->parent])
    memory.inputs[tap] = before->x.data();
  memory.Convolve(shape_);
  DeltaTask task{.state = boundary == 0 ? nullptr : at->state.data(),
                 .base = boundary,
                 .fold_to = boundary,
                 .entries = {.u = u.data(), .k = k.data(), .g = g.data(), .capacity = capacity, .first = 0},
                 .num_entries = num,
                 .place = num};
  memory.SetRows(shape_, &task);
  DeltaRule(runner.context, d, {&task, 1});
  for (size_t h = 0; h < d.value_heads; ++h) {
    const std::byte* const last = u.data() + (h * capacity + num) * u_bytes;
    node->u.insert(node->u.end(), last, last + u_bytes);
    const auto decay = std::as_bytes(std::span(&g[h * capacity + num], 1));
    node->g.insert(node->g.end(), decay.begin(), decay.end());
  }
  for (size_t h = 0; h < d.key_heads; ++h) {
    const std::byte* const last = k.data() + (h * capacity + num) * k_bytes;
    node->k.insert(node->k.end(), last, last + k_bytes);
  }
  if (d.form.Boundary(node->length) != node->length) return;
  node->state.resize(d.state_floats());
  const DeltaTask fold{.state = task.state,
                       .folded = node->state.data(),
                       .base = boundary,
                       .fold_to = node->length,
                       .entries = task.entries,
                       .num_entries = num + 1};
  for (size_t h = 0; h < d.value_heads; ++h) FoldDelta(LinearIsa(), d, fold, h, runner.context.scratch(0));
}

std::vector<std::byte> LinearPrefixes::LastEntry(std::span<const std::byte> rows) {
  const Node& node = NodeOf(rows);
  std::vector<std::byte> out = node.u;
  out.insert(out.end(), node.g.begin(), node.g.end());
  out.insert(out.end(), node.k.begin(), node.k.end());
  return out;
}

std::vector<std::byte> LinearPrefixes::Checkpoint(std::span<const std::byte> rows, size_t earliest) {
  const Node* node = &NodeOf(rows);
  std::vector<std::byte> out;
  if (node->length == 0) return out;
  const size_t length = node->length, boundary = shape_.delta.form.Boundary(earliest);
  const size_t first_input = InputsFrom(shape_, length, earliest);
  std::vector<const Node*> path(length + 1);  // by length
  for (size_t i = length + 1; i-- > 0; node = &nodes_->all[node->parent]) path[i] = node;
  const auto append = [&out](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  if (boundary != 0) append(path[boundary]->state);
  for (size_t i = boundary; i < length; ++i) {
    append(path[i + 1]->u);
    append(path[i + 1]->g);
    append(path[i + 1]->k);
  }
  for (size_t i = first_input; i < length; ++i) append(path[i + 1]->x);
  return out;
}

// --- The layer ---

std::string LinearUnderTest::name() const {
  const DeltaShape& d = shape_.delta;
  const auto pair = [](size_t a, size_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  return "Linear" + pair(d.key_heads, d.value_heads) + "Dim" + pair(d.key_dim, d.value_dim) + (d.tiled ? "Tiled" : "") +
         "Conv" + std::to_string(shape_.conv_width) + "Start" + std::to_string(d.form.start) + "Period" +
         std::to_string(d.form.period) + (d.form.dtype == DType::kF32 ? "F32" : "BF16");
}

std::unique_ptr<LayerState> LinearUnderTest::Make(const SequenceOptions& options) const {
  return std::make_unique<LinearLayer>(
      shape_, LinearOptions{.isa = LinearIsa(), .rollback_rows = 2 * options.draft_rows, .ledger = options.ledger});
}

std::vector<std::pair<std::string, LayerUnderTest::Pointer>> LinearUnderTest::Strangers() const {
  std::vector<std::pair<std::string, Pointer>> strangers;
  const auto add = [&](const std::string& what, auto change) {
    LinearShape shape = shape_;
    change(shape);
    strangers.emplace_back(what, std::make_shared<LinearUnderTest>(shape));
  };
  add("key_heads", [](LinearShape& s) { s.delta.key_heads = 3 - s.delta.key_heads, s.delta.value_heads *= 2; });
  add("value_heads", [](LinearShape& s) { s.delta.value_heads += s.delta.key_heads; });
  add("key_dim", [](LinearShape& s) { ++s.delta.key_dim; });
  add("value_dim", [](LinearShape& s) { ++s.delta.value_dim; });  // the same bytes
  add("tiled", [](LinearShape& s) { s.delta.tiled = !s.delta.tiled; });
  add("start", [](LinearShape& s) { ++s.delta.form.start; });
  add("period", [](LinearShape& s) { ++s.delta.form.period; });
  add("dtype",
      [](LinearShape& s) { s.delta.form.dtype = s.delta.form.dtype == DType::kF32 ? DType::kBF16 : DType::kF32; });
  add("channels", [](LinearShape& s) { ++s.channels; });
  add("conv_width", [](LinearShape& s) { ++s.conv_width; });
  return strangers;
}

uint64_t LinearUnderTest::MadeBytes(size_t earliest) const {
  return shape_.delta.form.Boundary(earliest) == 0 ? 0 : StateBytesOf(shape_);
}

uint64_t LinearUnderTest::CommittedBytes(size_t length, size_t earliest) const {
  return MadeBytes(earliest) + EntryBytes(shape_.delta) * (length - shape_.delta.form.Boundary(earliest)) +
         InputBytes(shape_) * (length - InputsFrom(shape_, length, earliest));
}

// The state as of the last rollback, what stands behind it, and the row's own inputs.
uint64_t LinearUnderTest::ReadBytes(const LayerState&, size_t length, size_t draft_rows) const {
  const size_t floor = length - std::min(length, 2 * draft_rows);
  return MadeBytes(floor) + EntryBytes(shape_.delta) * (length - shape_.delta.form.Boundary(floor)) +
         InputBytes(shape_) * std::min(length, shape_.conv_width - 1);
}

void LinearUnderTest::Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const {
  layer.Settle();
  RunLinearCell({.layer = static_cast<LinearLayer*>(&layer), .slot = step_row, .rows = row});
}

void LinearUnderTest::WritePath(LayerState& layer, std::span<const uint32_t> slots,
                                std::span<const std::byte> rows) const {
  layer.Settle();
  auto& linear = static_cast<LinearLayer&>(layer);
  if (slots.empty()) return;
  if (slots.back() + 1 == slots.size()) {  // a chain, now and then in several cells
    const uint64_t dice = Mix(WordOf(rows), slots.size());
    const size_t most = dice % 4 == 0 ? 1 + dice / 4 % slots.size() : slots.size();
    for (size_t slot = 0; slot < slots.size();) {
      const size_t num = std::min(most, slots.size() - slot);
      RunLinearCell(
          {.layer = &linear, .slot = slot, .rows = rows.subspan(slot * kLinearRowBytes, num * kLinearRowBytes)});
      slot += num;
    }
    return;
  }
  std::vector<std::byte> tree(size_t{slots.back() + 1} * kLinearRowBytes, std::byte{0xFF});
  std::vector<int32_t> parents(size_t{slots.back()} + 1, -1);
  for (size_t i = 0; i < slots.size(); ++i) {
    std::memcpy(tree.data() + slots[i] * kLinearRowBytes, rows.data() + i * kLinearRowBytes, kLinearRowBytes);
    if (i != 0) parents[slots[i]] = static_cast<int32_t>(slots[i - 1]);
  }
  RunLinearCell({.layer = &linear, .rows = tree, .parents = parents});
}

void LinearUnderTest::Touch(LayerState& layer, size_t step_rows) const {
  const std::vector<std::byte>& unseen = Runner::Get().unseen;
  layer.Settle();
  TIDEMILL_CHECK(step_rows * kLinearRowBytes <= unseen.size());
  if (step_rows == 0) return;
  RunLinearCell(
      {.layer = static_cast<LinearLayer*>(&layer), .rows = std::span(unseen).first(step_rows * kLinearRowBytes)});
}

std::string LinearUnderTest::Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                                        size_t needed) const {
  layer.Settle();
  auto& linear = static_cast<LinearLayer&>(layer);
  if (step_rows == 0) {
    std::vector<std::byte> found;
    linear.AppendTo(&found, needed);
    const std::vector<std::byte> expected = prefixes_->Checkpoint(rows, needed);
    if (found == expected) return {};
    if (found.size() != expected.size()) {
      return "expected " + std::to_string(expected.size()) + " bytes, found " + std::to_string(found.size());
    }
    const auto at = std::mismatch(found.begin(), found.end(), expected.begin()).first - found.begin();
    return "from position " + std::to_string(needed) + ": byte " + std::to_string(at) + " of " +
           std::to_string(found.size()) + " differs; state " + std::to_string(MadeBytes(needed)) + ", entries of " +
           std::to_string(EntryBytes(shape_.delta)) + ", inputs of " + std::to_string(InputBytes(shape_));
  }
  const DeltaShape& d = shape_.delta;
  const DeltaTask task = linear.Task(step_rows, 0);
  const DeltaEntries& e = task.entries;
  const size_t row = (e.first + task.num_entries - 1) % e.capacity;
  std::vector<std::byte> found;
  const auto append = [&](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    found.insert(found.end(), from, from + bytes);
  };
  const size_t u_bytes = d.padded_value_dim() * ElementBytes(d), k_bytes = d.key_dim * ElementBytes(d);
  for (size_t h = 0; h < d.value_heads; ++h) append(e.u + (h * e.capacity + row) * u_bytes, u_bytes);
  for (size_t h = 0; h < d.value_heads; ++h) append(&e.g[h * e.capacity + row], sizeof(float));
  for (size_t h = 0; h < d.key_heads; ++h) append(e.k + (h * e.capacity + row) * k_bytes, k_bytes);
  return found == prefixes_->LastEntry(rows) ? "" : "the last row's entry is another one";
}

}  // namespace tidemill::testing

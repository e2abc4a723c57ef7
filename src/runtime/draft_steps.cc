#include "runtime/draft_steps.h"

#include <exception>

#include "base/seconds_of.h"

namespace tidemill {
namespace {

// Calls a task's drafter: without memory it alone fails.
template <typename Work>
void Try(DraftTask& task, const Work& work) {
  if (task.failed) return;
  try {
    work();
  } catch (const std::exception&) {
    task.failed = true;
    task.draft_tokens = {};
  }
}

}  // namespace

DraftTree StepDrafter::Propose(size_t num_draft_tokens) {
  const DraftForward on = forward();
  StepSequence step;
  Begin(num_draft_tokens);
  while (Next(on.executor->max_rows(), &step) == DraftNext::kStep) {
    const auto choose = [this](size_t, size_t row, std::span<float> logits) { Choose(row, logits); };
    TappedOrder order(on.features, on.num_layers);
    if (!on.executor->Run({&step, 1}, choose, on.interrupt, order)) break;
    Ran(0);
  }
  return End();
}

DraftSteps::DraftSteps(size_t max_tasks) {
  active_.reserve(max_tasks);
  step_.reserve(max_tasks);
  stepping_.reserve(max_tasks);
  sink_ = [this](size_t sequence, size_t row, std::span<float> logits) {
    DraftTask& task = *stepping_[sequence];
    Try(task, [&] { task.steps->Choose(row, logits); });
  };
}

void DraftSteps::Make(std::span<DraftTask> tasks) {
  active_.clear();
  for (DraftTask& task : tasks) {
    StepDrafter* const steps = task.steps;
    task.seconds = SecondsOf([&] {
      Try(task, [&] {
        if (steps == nullptr) {
          task.draft_tokens = task.drafter->Propose(task.num_draft_tokens);
        } else {
          steps->Begin(task.num_draft_tokens);
        }
      });
    });
    if (steps != nullptr && !task.failed) active_.push_back(&task);
  }
  bool goes_on = true;
  while (goes_on && !active_.empty()) {
    const double seconds = SecondsOf([&] { goes_on = Step(); });
    double rows = 0;
    for (const StepSequence& sequence : step_) rows += static_cast<double>(sequence.tokens.size());
    for (size_t i = 0; i < step_.size(); ++i)
      stepping_[i]->seconds += seconds * static_cast<double>(step_[i].tokens.size()) / rows;
  }
  for (DraftTask* task : active_)  // that were interrupted
    Try(*task, [&] { task->draft_tokens = task->steps->End(); });
}

bool DraftSteps::Step() {
  step_.clear();
  stepping_.clear();
  DraftForward on;
  size_t rows = 0, kept = 0;
  for (DraftTask* task : active_) {
    StepDrafter& drafter = *task->steps;
    if (step_.empty()) on = drafter.forward();
    DraftNext next = DraftNext::kWait;
    if (on.IsSame(drafter.forward()) && rows != on.executor->max_rows()) {
      StepSequence step;
      next = DraftNext::kDone;  // where it fails
      Try(*task, [&] { next = drafter.Next(on.executor->max_rows() - rows, &step); });
      if (next == DraftNext::kStep) {
        step_.push_back(step);
        stepping_.push_back(task);
        rows += step.tokens.size();
      }
    }
    if (next != DraftNext::kDone) {
      active_[kept++] = task;
    } else {
      Try(*task, [&] { task->draft_tokens = drafter.End(); });
    }
  }
  active_.resize(kept);
  if (step_.empty()) return true;
  ++num_steps_;
  TappedOrder order(on.features, on.num_layers);
  if (!on.executor->Run(step_, sink_, on.interrupt, order)) return false;
  size_t first = 0;
  for (size_t i = 0; i < step_.size(); first += step_[i++].tokens.size())
    Try(*stepping_[i], [&] { stepping_[i]->steps->Ran(first); });
  std::erase_if(active_, [](const DraftTask* task) { return task->failed; });
  return true;
}

}  // namespace tidemill

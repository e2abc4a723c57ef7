#include "base/page_committer.h"

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "base/out_of_memory.h"

namespace tidemill {

Result<std::unique_ptr<PageCommitter>> PageCommitter::Create(AdviseCall advise) {
  try {
    std::unique_ptr<PageCommitter> committer(new PageCommitter(advise));
    try {
      committer->thread_ = std::thread([c = committer.get()] { c->Main(); });
    } catch (const std::system_error&) {  // no more threads: Start does the work
    }
    return committer;
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("start thread");
  }
}

PageCommitter::~PageCommitter() {
  {
    const std::lock_guard lock(mutex_);
    TIDEMILL_CHECK(first_ == nullptr);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> PageCommitter::Commit(const Work& work) const {
  for (size_t part = 0; part < work.parts; ++part)
    TIDEMILL_TRY_VOID(work.memory->Commit(part * work.stride + work.begin, work.end - work.begin, advise_));
  return {};
}

void PageCommitter::Start(Job& job, const Work& work) {
  std::unique_lock lock(mutex_);
  TIDEMILL_CHECK(job.stage_ == Job::Stage::kIdle);
  job.work_ = work;
  job.stage_ = Job::Stage::kQueued;
  job.part_ = 0;
  if (!job.counts_ && work.used >= ReservedMemory::kLargePage && large_parts_ + work.parts <= kMaxLargeParts) {
    large_parts_ += work.parts;
    job.counts_ = true;
  }
  job.next_ = nullptr;
  (first_ == nullptr ? first_ : last_->next_) = &job;
  last_ = &job;
  if (thread_.joinable()) {
    lock.unlock();
    wake_.notify_one();
  } else {
    while (job.stage_ == Job::Stage::kQueued) RunPart(job, lock);
  }
}

bool PageCommitter::Finish(Job& job) {
  std::unique_lock lock(mutex_);
  TIDEMILL_CHECK(job.stage_ != Job::Stage::kIdle);
  progress_.wait(lock, [&job] { return job.stage_ != Job::Stage::kQueued; });
  const bool done = job.stage_ == Job::Stage::kDone;
  job.stage_ = Job::Stage::kIdle;
  return done;
}

void PageCommitter::Cancel(Job& job) {
  std::unique_lock lock(mutex_);
  job.cancelled_ = true;
  progress_.wait(lock, [&job] { return !job.running_; });
  if (job.stage_ == Job::Stage::kQueued) Remove(job);
  job.stage_ = Job::Stage::kIdle;
  job.cancelled_ = false;
}

void PageCommitter::Forget(Job& job) {
  Cancel(job);
  const std::lock_guard lock(mutex_);
  if (job.counts_) large_parts_ -= job.work_.parts;
  job.counts_ = false;
  job.large_ = 0;
}

void PageCommitter::Remove(Job& job) {
  Job* before = nullptr;
  for (Job* other = first_; other != &job; other = other->next_) before = other;
  (before == nullptr ? first_ : before->next_) = job.next_;
  if (last_ == &job) last_ = before;
}

void PageCommitter::RunPart(Job& job, std::unique_lock<std::mutex>& lock) {
  const Work work = job.work_;
  const size_t part = job.part_++, large = std::min(job.large_, work.used);
  const bool may_be_large = job.counts_;
  bool there = true;
  job.running_ = true;
  lock.unlock();
  if (part < work.parts) {
    const size_t offset = part * work.stride;
    there = work.memory->Commit(offset + work.begin, work.end - work.begin, advise_).ok();
    if (may_be_large) work.memory->MakeLarge(offset, large, work.used, advise_);
  }
  lock.lock();
  job.running_ = false;
  if (!there || job.cancelled_ || part + 1 >= work.parts) {
    Remove(job);
    const bool done = there && part + 1 >= work.parts;
    job.stage_ = done ? Job::Stage::kDone : Job::Stage::kFailed;
    if (done) job.large_ = work.used;
  }
  progress_.notify_all();
}

void PageCommitter::Main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return first_ != nullptr || stop_; });
    if (first_ == nullptr) return;
    RunPart(*first_, lock);
  }
}

}  // namespace tidemill

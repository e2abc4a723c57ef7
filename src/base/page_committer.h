// A thread that commits pages of reserved memory ahead of their use, so that who uses them does not wait for them.
//
// A job is the same range of bytes in each part of a ReservedMemory: [begin, end) of every `stride` bytes. It stands in the memory of who
// asks for it: nothing is allocated.
#ifndef TIDEMILL_BASE_PAGE_COMMITTER_H_
#define TIDEMILL_BASE_PAGE_COMMITTER_H_

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>

#include "base/reserved_memory.h"
#include "tidemill/result.h"

namespace tidemill {

class PageCommitter {
 public:
  // Parts of memories that have large pages, all together. Each costs two of the process's mappings at most, of which Linux gives it
  // 65,530; a part has 2 MiB at least, so that this is met beyond 32 GiB only.
  static constexpr size_t kMaxLargeParts = size_t{1} << 14;

  struct Work {
    ReservedMemory* memory = nullptr;
    size_t parts = 0, stride = 0;  // bytes from one part to the next
    size_t begin = 0, end = 0;     // of each part: to be committed
    size_t used = 0;               // bytes at the front of each part that are in use: may be in large pages
  };

  class Job {
   public:
    Job() = default;
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

   private:
    friend class PageCommitter;
    enum class Stage { kIdle, kQueued, kDone, kFailed };

    Work work_;
    Stage stage_ = Stage::kIdle;
    size_t part_ = 0;       // the next one
    bool running_ = false;  // in one, without the lock
    bool cancelled_ = false;
    Job* next_ = nullptr;  // in the queue
    size_t large_ = 0;     // bytes at the front of each part for which large pages were asked
    bool counts_ = false;  // of kMaxLargeParts
  };

  // Where the system gives no thread, Start does the work itself.
  static Result<std::unique_ptr<PageCommitter>> Create(AdviseCall advise = &SystemAdvise);
  PageCommitter(const PageCommitter&) = delete;
  PageCommitter& operator=(const PageCommitter&) = delete;
  ~PageCommitter();  // no job may be under way

  // Commits here and now. kOutOfMemory: some of it may be committed.
  Result<void> Commit(const Work& work) const;

  // From any thread, one at a time for each job; the memory stays where it is until Finish or Cancel.

  // Precondition: the job is new, or was finished or cancelled.
  void Start(Job& job, const Work& work);
  // Waits for the job. False: there were no pages, as far as that can be known; some of it may be committed.
  bool Finish(Job& job);
  // As if it had never been started, though some of it may be committed. Waits for one part at most.
  void Cancel(Job& job);
  // Before the memory goes: cancels, and the job counts no large pages any more.
  void Forget(Job& job);

 private:
  explicit PageCommitter(AdviseCall advise) : advise_(advise) {}
  void Main();
  // These hold the lock, RunPart but for the work itself.
  void RunPart(Job& job, std::unique_lock<std::mutex>& lock);  // of a queued job, which may be cancelled meanwhile
  void Remove(Job& job);                                       // from the queue, once its part has ended

  const AdviseCall advise_;
  std::mutex mutex_;  // guards what follows, and all jobs
  std::condition_variable wake_, progress_;
  Job* first_ = nullptr;
  Job* last_ = nullptr;
  size_t large_parts_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_PAGE_COMMITTER_H_

#include "sim-driver/api/timeline.h"

#include <algorithm>
#include <chrono>

#include "sim-driver/engine/driver_thread.h"

namespace tally::sim_driver {
namespace {

constexpr int kMaxConcurrentCopies = 4;
// A host function may wait for another thread of the program, so a second one must be able to run.
constexpr int kMaxConcurrentHostFunctions = 4;
// A watched word can be changed by a store of the program that nobody tells us about.
constexpr auto kShortestPoll = std::chrono::microseconds(20);
constexpr auto kLongestPoll = std::chrono::milliseconds(1);

// While this thread starts a kernel under the mutex: where its end is noted.
thread_local std::vector<TaskPtr>* ended_in_start = nullptr;

bool IsSkipped(const Task& task) {
  return !task.runs_after_fault && task.fault && task.fault->error.load(std::memory_order_acquire) != 0;
}

// What takes time on a device, and may therefore be early or late.
bool IsDrawn(TaskKind kind) { return kind == TaskKind::kCopy || kind == TaskKind::kKernel || kind == TaskKind::kHost; }

}  // namespace

uint64_t MonotonicNs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

Timeline& Timeline::Get() {
  static Timeline& timeline = *new Timeline();
  return timeline;
}

Timeline::Timeline()
    : copies_("sim-copy", kMaxConcurrentCopies), host_functions_("sim-host", kMaxConcurrentHostFunctions) {}

bool Timeline::Open(uint64_t shuffle_seed) {
  const auto lock = Lock();
  if (!has_poll_thread_) {
    auto poller = StartDriverThread("sim-poll", [this] { PollLoop(); });
    if (!poller) return false;
    poller->detach();
    has_poll_thread_ = true;
  }
  if (shuffle_seed != 0 && !shuffle_) {
    auto shuffler = StartDriverThread("sim-shuffle", [this] { ShuffleLoop(); });
    if (!shuffler) return false;
    shuffler->detach();
    shuffle_.emplace(shuffle_seed);
  }
  return copies_.Open() && host_functions_.Open();
}

void Timeline::SubmitLocked(const TaskPtr& task, std::span<const TaskPtr> after) {
  task->num_unmet = 0;
  for (const TaskPtr& before : after) {
    if (!before || before->is_done.load(std::memory_order_acquire)) continue;
    before->successors.push_back(task);
    ++task->num_unmet;
  }
  if (task->num_unmet != 0) return;
  std::vector<TaskPtr> finished;
  StartLocked(task, finished);
  FinishLocked(finished);
}

// Now, or when it is drawn. Short tasks are done on the spot and appended to `finished`.
void Timeline::StartLocked(TaskPtr task, std::vector<TaskPtr>& finished) {
  if (!shuffle_ || !IsDrawn(task->kind)) return StartAtOnceLocked(std::move(task), finished);
  shuffle_->Add(std::move(task), MonotonicNs());
  shuffle_wanted_.notify_one();
}

void Timeline::StartAtOnceLocked(TaskPtr task, std::vector<TaskPtr>& finished) {
  WorkerPool* pool = nullptr;
  switch (task->kind) {
    case TaskKind::kInline:
      if (!IsSkipped(*task)) task->body(task);
      [[fallthrough]];
    case TaskKind::kMarker:
      finished.push_back(std::move(task));
      return;
    case TaskKind::kPoll:
      if (IsSkipped(*task) || task->is_satisfied()) {
        finished.push_back(std::move(task));
        return;
      }
      polled_.push_back(std::move(task));
      poll_wanted_.notify_one();
      return;
    case TaskKind::kCopy:
      pool = &copies_;
      break;
    case TaskKind::kKernel: {
      if (IsSkipped(*task)) {
        finished.push_back(std::move(task));
        return;
      }
      // A launch that is refused on the spot ends inside its own start.
      std::vector<TaskPtr>* const outer = std::exchange(ended_in_start, &finished);
      task->body(task);
      ended_in_start = outer;
      return;
    }
    case TaskKind::kHost:
      pool = &host_functions_;
      break;
  }
  const int priority = task->priority;
  pool->Enqueue(priority, [this, task = std::move(task)] { Run(task); });
}

// Marks all of `finished` done and starts what waited for them, without recursion.
void Timeline::FinishLocked(std::vector<TaskPtr>& finished) {
  if (finished.empty()) return;
  while (!finished.empty()) {
    const TaskPtr task = std::move(finished.back());
    finished.pop_back();
    task->finished_ns.store(MonotonicNs(), std::memory_order_relaxed);
    task->is_done.store(true, std::memory_order_release);
    task->body = nullptr;
    task->is_satisfied = nullptr;
    if (shuffle_ && IsDrawn(task->kind)) {
      shuffle_->OnEnd(MonotonicNs());
      shuffle_wanted_.notify_one();
    }
    for (TaskPtr& successor : std::exchange(task->successors, {})) {
      if (--successor->num_unmet == 0) StartLocked(std::move(successor), finished);
    }
  }
  if (num_waiting_ > 0) done_.notify_all();
}

void Timeline::Run(const TaskPtr& task) {
  if (!IsSkipped(*task)) task->body(task);
  task->body = nullptr;  // outside the lock: may free large buffers
  const auto lock = Lock();
  std::vector<TaskPtr> finished{task};
  FinishLocked(finished);
  if (!polled_.empty()) poll_wanted_.notify_one();
}

void Timeline::Finish(const TaskPtr& task) {
  if (ended_in_start != nullptr) {
    ended_in_start->push_back(task);
    return;
  }
  const auto lock = Lock();
  std::vector<TaskPtr> finished{task};
  FinishLocked(finished);
  if (!polled_.empty()) poll_wanted_.notify_one();
}

void Timeline::Wait(const TaskPtr& task) { WaitAll(std::span(&task, 1)); }

void Timeline::WaitAll(std::span<const TaskPtr> tasks) {
  const auto all_done = [tasks] {
    return std::all_of(tasks.begin(), tasks.end(),
                       [](const TaskPtr& task) { return !task || task->is_done.load(std::memory_order_acquire); });
  };
  if (all_done()) return;
  auto lock = Lock();
  ++num_waiting_;
  done_.wait(lock, all_done);
  --num_waiting_;
}

void Timeline::Poke() {
  const auto lock = Lock();
  if (!polled_.empty()) poll_wanted_.notify_one();
}

void Timeline::ShuffleLoop() {
  auto lock = Lock();
  while (true) {
    uint64_t wake_ns = Shuffle::kNever;
    const uint64_t now_ns = MonotonicNs();
    TaskPtr task = shuffle_->Next(now_ns, &wake_ns);
    if (task) {
      std::vector<TaskPtr> finished;
      StartAtOnceLocked(std::move(task), finished);
      FinishLocked(finished);
    } else if (wake_ns == Shuffle::kNever) {
      shuffle_wanted_.wait(lock);
    } else {
      shuffle_wanted_.wait_for(lock, std::chrono::nanoseconds(wake_ns - now_ns));
    }
  }
}

void Timeline::PollLoop() {
  auto lock = Lock();
  std::chrono::nanoseconds pause = kShortestPoll;
  while (true) {
    if (polled_.empty()) {
      poll_wanted_.wait(lock, [this] { return !polled_.empty(); });
      pause = kShortestPoll;
    }
    std::vector<TaskPtr> finished;
    std::erase_if(polled_, [&finished](const TaskPtr& task) {
      if (!IsSkipped(*task) && !task->is_satisfied()) return false;
      finished.push_back(task);
      return true;
    });
    if (!finished.empty()) {
      FinishLocked(finished);
      pause = kShortestPoll;
      continue;
    }
    poll_wanted_.wait_for(lock, pause);
    pause = std::min<std::chrono::nanoseconds>(pause * 2, kLongestPoll);
  }
}

}  // namespace tally::sim_driver

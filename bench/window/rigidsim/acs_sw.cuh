// ACS-SW as its paper publishes it (sections III-D, IV-B): the program puts annotated launches into a queue; a window
// thread moves them into a window of fixed size and checks each against all that are in it; each of a fixed number of
// scheduler threads owns a stream that holds one kernel at a time, takes a ready launch under the window's lock,
// launches it, waits for its stream and takes it out of the window. One thing is not as published: the paper's check
// finds no read after write, and this one does, for otherwise results are wrong.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "bench/window/rigidsim/modes.cuh"

namespace rigidsim {

struct AcsOptions {
  int window = 32, streams = 8;
  bool queries = false;  // cudaStreamQuery in a loop instead of cudaStreamSynchronize, which may sleep
};

class AcsSoftwareMode : public Mode {
 public:
  explicit AcsSoftwareMode(const AcsOptions& options)
      : options_(options), window_(static_cast<size_t>(options.window)) {
    threads_.emplace_back([this] { FillWindow(); });
    for (int i = 0; i < options.streams; ++i) threads_.emplace_back([this] { Schedule(); });
  }
  ~AcsSoftwareMode() override {
    stops_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  void Issue(const StepList& list) override {
    for (const Launch& launch : list) Push({&launch, &launch.declared, nullptr, nullptr, 0});
  }
  void ReadNear(const Array<int>& chunks, size_t slot) override {
    int* const to = slots_.Pinned(chunks, slot);
    copies_[slot] = {};
    copies_[slot].Reads(chunks);
    copies_[slot].Writes(Array<int>{to, chunks.rows, chunks.columns});
    near_behind_[slot] = num_issued_ + 1;
    Push({nullptr, &copies_[slot], chunks.pointer, to, BytesOf(chunks)});
  }
  const std::vector<int>& AwaitNear(size_t slot) override {
    // Launches finish out of order: the copy is complete when nothing as old as it is left.
    Until([&] { return oldest_pending_.load(std::memory_order_acquire) >= near_behind_[slot]; });
    return slots_.Words(slot);
  }
  void Finish() override {
    Until([&] { return oldest_pending_.load(std::memory_order_acquire) >= num_issued_; });
  }

 private:
  enum class State { kFree, kPending, kReady, kExecuting };
  struct Item {  // a launch, or a copy of `bytes`
    const Launch* launch;
    const Declared* declared;
    const int* from;
    int* to;
    size_t bytes;
  };
  struct Slot {
    State state = State::kFree;
    Item item{};
    uint64_t number = 0;  // in program order
    std::vector<size_t> upstream;
  };

  template <class Condition>
  static void Until(Condition condition) {
    for (int i = 0; !condition(); ++i) {
      if (i % 64 == 63) std::this_thread::yield();
    }
  }

  void Push(const Item& item) {
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    queue_.push_back(item);
    ++num_issued_;
  }

  void FillWindow() {
    while (!stops_) {
      if (!MoveOne()) std::this_thread::yield();
    }
  }
  // From the queue into the window, if there is one and there is room.
  bool MoveOne() {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t free = 0;
    while (free < window_.size() && window_[free].state != State::kFree) ++free;
    if (free == window_.size()) return false;
    Slot& slot = window_[free];
    {
      const std::lock_guard<std::mutex> queue_lock(queue_mutex_);
      if (queue_.empty()) return false;
      slot.item = queue_.front();
      queue_.pop_front();
    }
    slot.upstream.clear();
    for (size_t i = 0; i < window_.size(); ++i) {
      if (window_[i].state != State::kFree && HazardsBetween(*window_[i].item.declared, *slot.item.declared).Any()) {
        slot.upstream.push_back(i);
      }
    }
    slot.number = num_moved_++;
    slot.state = slot.upstream.empty() ? State::kReady : State::kPending;
    return true;
  }

  void Schedule() {
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    while (!stops_) {
      const size_t taken = TakeReady();
      if (taken == window_.size()) {
        std::this_thread::yield();
        continue;
      }
      const Item& item = window_[taken].item;
      if (item.launch != nullptr) {
        IssueTo(stream, *item.launch);
      } else {
        CHECK_CUDA(cudaMemcpyAsync(item.to, item.from, item.bytes, cudaMemcpyDeviceToHost, stream));
      }
      Wait(stream);
      Complete(taken);
    }
    cudaStreamDestroy(stream);
  }
  // The oldest ready one, or the window's size.
  size_t TakeReady() {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t taken = window_.size();
    for (size_t i = 0; i < window_.size(); ++i) {
      if (window_[i].state != State::kReady) continue;
      if (taken == window_.size() || window_[i].number < window_[taken].number) taken = i;
    }
    if (taken < window_.size()) window_[taken].state = State::kExecuting;
    return taken;
  }
  void Wait(cudaStream_t stream) const {
    if (!options_.queries) return CHECK_CUDA(cudaStreamSynchronize(stream));
    cudaError_t answer;
    while ((answer = cudaStreamQuery(stream)) == cudaErrorNotReady) std::this_thread::yield();
    CHECK_CUDA(answer);
  }
  void Complete(size_t done) {
    const std::lock_guard<std::mutex> lock(mutex_);
    window_[done].state = State::kFree;
    uint64_t oldest = num_moved_;
    for (Slot& slot : window_) {
      if (slot.state == State::kFree) continue;
      oldest = std::min(oldest, slot.number);
      const auto found = std::find(slot.upstream.begin(), slot.upstream.end(), done);
      if (found != slot.upstream.end()) slot.upstream.erase(found);
      if (slot.state == State::kPending && slot.upstream.empty()) slot.state = State::kReady;
    }
    oldest_pending_.store(oldest, std::memory_order_release);
  }

  const AcsOptions options_;
  // What the program itself touches.
  uint64_t num_issued_ = 0;
  uint64_t near_behind_[kSlots] = {};
  Declared copies_[kSlots];
  NearSlots slots_;
  std::mutex queue_mutex_;
  std::deque<Item> queue_;
  std::mutex mutex_;  // of the window; taken before the queue's
  std::vector<Slot> window_;
  uint64_t num_moved_ = 0;
  std::atomic<uint64_t> oldest_pending_{0};
  std::atomic<bool> stops_{false};
  std::vector<std::thread> threads_;
};

}  // namespace rigidsim

#include "server/executor/session/host_call_words.h"

#include <algorithm>

namespace tally::server {

CUresult HostCallWords::Acquire(HostCallWord* word) {
  if (!free_.empty()) {
    word->word = free_.back();
    free_.pop_back();
    word->num_calls = word->word->load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
  }
  if (num_used_ == kWordsPerPage) {
    if (driver_.cuMemHostAlloc == nullptr || driver_.cuMemFreeHost == nullptr ||
        driver_.cuStreamWaitValue32_v2 == nullptr) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (pages_.size() >= kMaxPages) return CUDA_ERROR_OUT_OF_MEMORY;
    void* page = nullptr;
    if (const CUresult r = driver_.cuMemHostAlloc(&page, kWordsPerPage * sizeof(uint32_t),
                                                  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
        r != CUDA_SUCCESS) {
      return r;
    }
    static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
    auto* words = static_cast<std::atomic<uint32_t>*>(page);
    for (uint32_t i = 0; i < kWordsPerPage; ++i) words[i].store(0, std::memory_order_relaxed);
    pages_.push_back(words);
    num_used_ = 0;
  }
  *word = {pages_.back() + num_used_++, 0};
  return CUDA_SUCCESS;
}

void HostCallWords::Release(const HostCallWord& word) {
  if (word.word != nullptr && word.word->load(std::memory_order_acquire) == word.num_calls) free_.push_back(word.word);
}

void HostCallWords::FreeAll() {
  for (std::atomic<uint32_t>* page : pages_) driver_.cuMemFreeHost(page);
  pages_.clear();
  free_.clear();
  num_used_ = kWordsPerPage;
}

}  // namespace tally::server

#include "server/executor/session/pending_output.h"

#include <utility>

namespace tally::server {

void PendingOutput::Append(std::string text) {
  if (text.empty()) return;
  if (!account_.Take(Held::kOutputBytes, text.size())) {
    return Refuse("[tally: more device output was dropped, because it was not fetched]\n");
  }
  const std::lock_guard lock(mutex_);
  text_ += text;
  is_empty_.store(false, std::memory_order_release);
}

void PendingOutput::Refuse(const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  refusal_ = sentence;
  is_empty_.store(false, std::memory_order_release);
}

std::string PendingOutput::Take(size_t max_bytes) {
  const std::lock_guard lock(mutex_);
  std::string result = text_.substr(0, max_bytes);
  text_.erase(0, result.size());
  if (text_.empty()) text_.shrink_to_fit();
  account_.Return(Held::kOutputBytes, result.size());
  if (text_.empty() && result.size() + refusal_.size() <= max_bytes) result += std::exchange(refusal_, {});
  is_empty_.store(text_.empty() && refusal_.empty(), std::memory_order_release);
  return result;
}

}  // namespace tally::server

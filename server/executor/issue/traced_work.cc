#include "server/executor/issue/traced_work.h"

#include <cstring>

#include "server/executor/driver/driver_table.h"

namespace tally::server {
namespace {

// Less is what asking takes.
constexpr std::chrono::nanoseconds kShortestWait = std::chrono::microseconds(5);

void WriteName(const char* text, TraceName* name) {
  const size_t length = ::strnlen(text, name->size() - 1);
  std::memcpy(name->data(), text, length);
  (*name)[length] = '\0';
}

void WriteKernelName(const DriverTable& driver, const Kernel& kernel, TraceName* name) {
  const char* text = nullptr;
  if (kernel.function != nullptr) {
    if (driver.cuFuncGetName != nullptr) driver.cuFuncGetName(&text, kernel.function);
  } else if (driver.cuKernelGetName != nullptr) {
    driver.cuKernelGetName(&text, kernel.kernel);
  }
  WriteName(text != nullptr ? text : "a kernel", name);
}

}  // namespace

void TracedWork::Begin() {
  asked_ = clock_.Now();
  HighPriorityWatch* const watch = owner_.admission.watch();
  was_closed_ =
      watch != nullptr && !owner_.is_high_priority.load(std::memory_order_relaxed) && watch->IsClosed(stream_.device);
}

void TracedWork::NoteAdmitted(bool may_go, bool may_have_waited) {
  const TimePoint now = may_have_waited ? clock_.Now() : asked_;
  if (now - asked_ >= kShortestWait) {
    ring_->AddWait(stream_.real, asked_, now,
                   was_closed_ ? control::TraceReason::kHighPriority : control::TraceReason::kPolicy);
  }
  if (!may_go) {
    ring_ = nullptr;
    return;
  }
  ring_->Begin(stream_.real, asked_, [this](TraceName* name) {
    if (what_.kernel != nullptr) return WriteKernelName(owner_.driver, *what_.kernel, name);
    WriteName(what_.name, name);
  });
}

}  // namespace tally::server

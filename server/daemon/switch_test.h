// Runs tally-switch-test (server/executor/process/switch_test.cc) once, beside the daemon: how long it takes on this
// machine to switch from best-effort to high-priority work.
//
// Lives on the daemon's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "proto/control/switch_figures.h"

namespace tally::server {

class SwitchTest {
 public:
  // `done` is called once, on the loop: with nothing if the test could not be made (then the log says why). Null if
  // there is no such program. The loop must outlive this; after its end `done` is not called any more.
  static std::unique_ptr<SwitchTest> Start(EventLoop& loop, const std::string& program,
                                           std::function<void(std::optional<control::SwitchFigures>)> done);
  // Ends it if it has not ended.
  ~SwitchTest();
  SwitchTest(const SwitchTest&) = delete;
  SwitchTest& operator=(const SwitchTest&) = delete;
  bool has_ended() const { return pid_ == 0; }

 private:
  SwitchTest(EventLoop& loop, std::function<void(std::optional<control::SwitchFigures>)> done)
      : loop_(loop), done_(std::move(done)) {}
  void OnOutput();

  EventLoop& loop_;
  std::function<void(std::optional<control::SwitchFigures>)> done_;
  pid_t pid_ = 0;  // 0: has ended
  UniqueFd output_;
  std::string text_;
};

}  // namespace tally::server

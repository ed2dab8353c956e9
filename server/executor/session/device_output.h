// Which session gets what the kernels of a context print.
//
// A context has one buffer for device printf, whoever's kernel prints, and nothing in it says whose. So text is handed
// out while one session alone has code that may print. While several have, it is refused: each of them gets a sentence
// instead, never another program's text. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "server/executor/driver/printf_capture.h"

namespace tally::server {

class PendingOutput;

class DeviceOutput {
 public:
  // Null: device printf goes where the process's stdout goes.
  explicit DeviceOutput(std::unique_ptr<PrintfCapture> capture) : capture_(std::move(capture)) {}

  // The session has code that may print, until it leaves. `has_left`: its program is gone, and it is about to leave.
  // Who comes after such a session waits a little for that: programs that follow one another are not several.
  void Join(PendingOutput& session, std::function<bool()> has_left);
  // All its work is done.
  void Leave(PendingOutput& session);
  // Some work of a session that joined is done: what was printed by now goes to whom it belongs.
  void Collect();

 private:
  void CollectLocked();

  const std::unique_ptr<PrintfCapture> capture_;
  std::mutex mutex_;
  std::condition_variable left_;
  std::map<PendingOutput*, std::function<bool()>> sessions_;  // with their has_left
};

}  // namespace tally::server

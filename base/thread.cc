#include "base/thread.h"

#include <pthread.h>

#include <exception>
#include <utility>

namespace tally {

Result<std::thread> StartThread(const std::string& name, std::function<void()> run) {
  try {
    std::thread thread(std::move(run));  // allow: what it throws is caught here
    ::pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
    return thread;
  } catch (const std::exception& refusal) {
    return Error(StatusCode::kResourceExhausted, "no thread '" + name + "': " + refusal.what());
  }
}

}  // namespace tally

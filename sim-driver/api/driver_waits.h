// Calls that wait as those of NVIDIA's driver do: for the whole context, with a lock that its launches need
// (docs/driver-waits.md). Only where TALLY_SIM_WAITS asks for it, so that a test finds who waits for whom.
//
//   0, or not given   such calls wait for the context where CUDA says so, and hold up nobody else
//   1                 they wait for the calling thread's context, and its launches for them
//   2                 likewise for all contexts of the process, as with peer access between them
#pragma once

#include <shared_mutex>

namespace tally::sim_driver {

class Context;

// What frees memory: it waits in any case.
void AwaitContext(Context& context);
// What loads and unloads code: it waits only if asked for.
void AwaitContextIfAsked(Context& context);

// While a launch is issued: waits until no such call holds up the context.
class LaunchTurn {
 public:
  explicit LaunchTurn(const Context& context);

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace tally::sim_driver

// One lane: a thread that serves the driver calls of one client thread, in order.
//
// Owned by its session. The thread runs from Start until the session's `stopping` flag is set (then Wake) or the client
// writes nonsense (then `on_nonsense` is called, once, on the lane's thread).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "server/executor/channel/lane_region.h"
#include "server/executor/channel/reply_writer.h"
#include "server/executor/channel/request_reader.h"
#include "server/executor/session/served_lane.h"
#include "server/executor/session/session_state.h"
#include "server/executor/session/turn_order.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {

// What the lanes of a session share beside its state.
struct LaneSurroundings {
  SessionState& state;
  TurnOrder& turns;
  shm::SessionHeader& header;
  const std::atomic<bool>& stopping;
  std::function<void(const std::string& reason)> on_nonsense;
};

class Lane {
 public:
  Lane(LaneSurroundings& surroundings, uint32_t index, LaneRegion region);
  // Destroys what the lane has in the driver: a context of the executor must be current. The thread must be joined.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // kResourceExhausted: no thread can be started; the lane is of no use then.
  Status Start();
  // After `stopping` was set: ends every wait that is not the driver's.
  void Wake();
  void Join();
  int fd() const { return region_.fd(); }

 private:
  void Run();
  // False: the session is over for this lane.
  bool Serve(const Request& request);
  bool ServeAwaitCallback(const Request& request);
  CUresult CarryOut(const Request& request, WireWriter& out);
  bool Answer(const Request& request, CUresult result);
  void CountFailure(const Request& request, CUresult result);
  bool Nonsense(const std::string& reason);
  // What the order of turns answered; false ends the lane.
  bool MayGoOn(TurnOrder::Outcome outcome);
  // Nothing to do: until there is, or the session ends.
  void AwaitRequest();

  LaneSurroundings& surroundings_;
  const uint32_t index_;
  LaneRegion region_;
  RequestReader reader_;
  ReplyWriter writer_;
  ServedLane served_;
  WireWriter reply_;
  std::shared_ptr<CallbackQueue::Entry> running_callback_;
  bool is_urgent_ = false;
  std::thread thread_;
};

}  // namespace tally::server

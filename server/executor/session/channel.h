// One channel: a thread that serves the driver calls of one client thread, in order.
//
// Owned by its session. The thread runs from Start until the session's `stopping` flag is set (then Wake) or the client
// writes nonsense (then `on_nonsense` is called, once, on the channel's thread).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "server/executor/channel/channel_region.h"
#include "server/executor/channel/reply_writer.h"
#include "server/executor/channel/request_reader.h"
#include "server/executor/session/sequencer.h"
#include "server/executor/session/served_channel.h"
#include "server/executor/session/session_state.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {

// What the channels of a session share beside its state.
struct ChannelSurroundings {
  SessionState& state;
  Sequencer& sequencer;
  shm::SessionHeader& header;
  const std::atomic<bool>& stopping;
  std::function<void(const std::string& reason)> on_nonsense;
};

class Channel {
 public:
  Channel(ChannelSurroundings& surroundings, uint32_t index, ChannelRegion region);
  // Destroys what the channel has in the driver: a context of the executor must be current. The thread must be joined.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // kResourceExhausted: no thread can be started; the channel is of no use then.
  Status Start();
  // After `stopping` was set: ends every wait that is not the driver's.
  void Wake();
  void Join();
  int fd() const { return region_.fd(); }

 private:
  void Run();
  // False: the session is over for this channel.
  bool Serve(const Request& request);
  bool ServeAwaitCallback(const Request& request);
  CUresult CarryOut(const Request& request, WireWriter& out);
  bool Answer(const Request& request, CUresult result);
  void CountFailure(const Request& request, CUresult result);
  // Told to the program at its next call that waits.
  void NoteAsyncFailure(CUresult result);
  // If what was held was refused while the request was carried out.
  void ReportLateFailure();
  void IssueHeldWhileIdle();
  bool Nonsense(const std::string& reason);
  // What the sequencer answered; false ends the channel.
  bool MayGoOn(Sequencer::Outcome outcome);
  // Nothing to do: until there is, or the session ends.
  void AwaitRequest();
  // As RequestReader::OnSilence: whether what the program has put on the GPU has ended.
  std::chrono::nanoseconds LookAtWork(std::chrono::nanoseconds silent_for);

  ChannelSurroundings& surroundings_;
  const uint32_t index_;
  ChannelRegion region_;
  RequestReader reader_;
  ReplyWriter writer_;
  ServedChannel served_;
  WireWriter reply_;
  std::shared_ptr<CallbackQueue::Entry> running_callback_;
  const RequestReader::OnSilence on_silence_ = [this](std::chrono::nanoseconds for_so_long) {
    return LookAtWork(for_so_long);
  };
  bool is_urgent_ = false;
  std::thread thread_;
};

}  // namespace tally::server

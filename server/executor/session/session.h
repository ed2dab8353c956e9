// One client's connection: the socket it asks for memory and channels on, its channels, its state.
//
//   Connecting --kAttach--> Active --hang-up, nonsense or Evict--> Draining --all work ended--> Releasing
//   Releasing --all destroyed--> Closed
//
// A session's socket thread drives these; it ends with the session. Thread-safe methods say so.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "proto/control/executor_choices.h"
#include "proto/control/window_figures.h"
#include "server/executor/session/channel.h"
#include "server/executor/session/executor_core.h"
#include "server/executor/session/sequencer.h"
#include "server/executor/session/session_snapshot.h"
#include "server/executor/session/session_state.h"

namespace tally::server {

class Session {
 public:
  enum class State { kConnecting, kActive, kDraining, kReleasing, kClosed };
  using OnEnd = std::function<void(const SessionEnd& end)>;

  // Creates the session region. `on_end` is called on the session's thread, last of all.
  static Result<std::unique_ptr<Session>> Create(ExecutorCore& core, UniqueFd socket, SessionIdentity identity,
                                                 OnEnd on_end);
  // The session must be closed, or never started.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // kResourceExhausted: no thread can be started; Refuse is all that may be asked then.
  Status Start();
  // Instead of Start: tells the client, if it asks soon, that there is no room for it. Waits for that.
  void Refuse();
  // Ends the session soon. Thread-safe; returns at once; the first reason counts.
  void Evict(const std::string& reason);
  // Every call of the client fails with it from now on. Thread-safe.
  void SetStickyError(CUresult error);
  void SetPriority(const control::ShareChange& change);  // thread-safe
  // As SloWatch's. Thread-safe.
  void OnTuning(const scheduler::Tuning& tuning) {
    if (state_.slo != nullptr) state_.slo->OnTuning(tuning);
  }
  // Ends the session if its client has left a host function unrun for longer than it may. Thread-safe.
  void RequireHostFunctions(TimePoint now);
  SessionSnapshot Snapshot() const;  // thread-safe
  // As last published; thread-safe.
  std::vector<control::WindowShapeFigures> WindowShapes() const { return state_.window_shapes.Last(); }
  std::vector<GraphRow> Graphs() const { return state_.graphs.launches.rows.Last(); }
  // Waits for the session's thread.
  void Join();

 private:
  Session(ExecutorCore& core, UniqueFd socket, SessionIdentity identity, OnEnd on_end, UniqueFd region_fd,
          MappedRegion region, const std::shared_ptr<TenantPage>& tenant_page);

  void Run();
  void ServeSocket();
  Status Reply(const shm::SessionRequest& request, CUresult result, uint64_t value0 = 0, uint64_t value1 = 0,
               int fd = -1);
  Status ServeRequest(const shm::SessionRequest& request, const std::vector<UniqueFd>& fds);
  uint64_t WhatIsWanted() const;
  Status OpenArrivals(const shm::SessionRequest& request);
  Status OpenChannel(const shm::SessionRequest& request);
  // For so many bytes of host memory: makes the device's context current.
  CUresult PrepareHostMemory(uint64_t size_bytes, uint64_t ordinal);
  Status AllocateHost(const shm::SessionRequest& request);
  Status RegisterHost(const shm::SessionRequest& request, int fd);
  void End();
  void CountBusyTime(control::SessionFigures& figures) const;

  ExecutorCore& core_;
  UniqueFd socket_;
  const OnEnd on_end_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  UniqueFd region_fd_;
  MappedRegion region_;  // a SessionHeader
  std::shared_ptr<CallbackQueue> callbacks_;
  SessionState state_;
  Sequencer sequencer_;
  std::atomic<bool> stopping_{false};
  ChannelSurroundings surroundings_;
  std::vector<std::unique_ptr<Channel>> channels_;  // of the socket thread
  std::atomic<uint32_t> num_channels_{0};
  std::atomic<State> phase_{State::kConnecting};

  mutable std::mutex mutex_;
  SessionIdentity identity_;  // guarded by mutex_ (its priority class changes)
  std::string evict_reason_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace tally::server

// The control desk of a daemon: carries each question to the daemon's loop and its answer back.
#pragma once

#include <chrono>
#include <mutex>

#include "base/event_loop.h"
#include "server/daemon/client_listener.h"
#include "server/daemon/control_desk.h"
#include "server/daemon/trace_turns.h"

namespace tally::server {

class LoopDesk final : public ControlDesk {
 public:
  // All must outlive the desk; `loop` must run while questions are asked.
  LoopDesk(EventLoop& loop, ExecutorPool& pool, const ClientListener& listener, GrantDesk& grants, DaemonFacts facts);

  Result<Overview> GetOverview() override;
  Status SetPriority(uint64_t session_id, const control::ShareChange& change) override;
  Result<Listed<KernelRow>> GetKernels() override;
  Result<Listed<control::WindowShapeFigures>> GetWindowShapes() override;
  Result<Listed<control::GraphFigures>> GetGraphs() override;
  Result<std::string> DrawGraph(uint64_t session_id, uint32_t number) override;
  Result<Recording> Trace(std::chrono::nanoseconds duration, std::optional<uint32_t> uid) override;
  Status SetTurnaroundThreshold(std::chrono::nanoseconds threshold) override;
  Result<GrantRow> CreateGrant(const GrantSpec& spec) override;
  Status LabelGrant(const std::string& tenant, const GrantLabels& labels) override;
  Status RevokeGrant(const std::string& tenant) override;
  Result<std::vector<GrantRow>> GetGrants() override;
  DaemonFacts facts() const override;
  void SetForcedSwitch(const std::optional<control::SwitchFigures>& figures);

 private:
  // `ask`, which is called on the loop, gives its answer to what it is called with, then or later. kUnavailable: the
  // loop has ended.
  template <typename Answer, typename F>
  Answer Ask(F ask, std::chrono::nanoseconds longer = {});

  Overview Collect() const;                                              // on the loop
  std::vector<KernelRow> CollectKernels() const;                         // on the loop
  std::vector<control::WindowShapeFigures> CollectWindowShapes() const;  // likewise
  std::vector<control::GraphFigures> CollectGraphs() const;              // likewise
  Recording CollectTraces() const;                                       // likewise

  EventLoop& loop_;
  ExecutorPool& pool_;
  const ClientListener& listener_;
  GrantDesk& grants_;
  TraceTurns trace_turns_;
  mutable std::mutex facts_mutex_;
  DaemonFacts facts_;  // guarded by facts_mutex_
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tally::server

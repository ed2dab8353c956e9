// A session as its launches know it: how they pass the gate, which forms they may take, where they are counted.
#pragma once

#include <atomic>
#include <memory>

#include "server/executor/dispatch/dispatch_gate.h"
#include "server/executor/dispatch/figure_counters.h"

namespace tally::server {

class CoverageMeter;
class VariantRegistry;
struct DriverTable;
struct WorkerOwner;

// References into a session and its executor, which outlive it.
struct LaunchOwner {
  const DriverTable& driver;
  DispatchGate& gate;
  GateTenant& gate_tenant;
  VariantRegistry* const variants;  // null: every kernel runs as it is
  const bool& keeps_kernels;        // this session's do
  const std::atomic<bool>& is_high_priority;
  const std::shared_ptr<WorkerOwner>& worker_owner;
  CoverageMeter& coverage;
  FigureCounters& counters;
};

}  // namespace tally::server

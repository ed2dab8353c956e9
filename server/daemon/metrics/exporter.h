// The Prometheus endpoint: http://ADDRESS/metrics. Figures are collected from the executors when somebody scrapes. Also
// / for people who look there, and /healthz for whoever restarts services.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "server/daemon/control_desk.h"

namespace tally::server {

class MetricsExporter {
 public:
  // Listens at "HOST:PORT". `desk` must outlive the exporter.
  static Result<std::unique_ptr<MetricsExporter>> Start(const std::string& address, ControlDesk& desk);
  virtual ~MetricsExporter() = default;
};

}  // namespace tally::server

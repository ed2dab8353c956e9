// An overview as Prometheus families, in the order and with the texts of metrics_list.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "server/daemon/control_desk.h"

namespace tally::server {

std::vector<prometheus::MetricFamily> MakeFamilies(const Overview& overview, const DaemonFacts& facts);

}  // namespace tally::server

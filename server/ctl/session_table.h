// The table that `tallyctl ps` prints. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "proto/control/control.pb.h"
#include "server/ctl/gpu_readings.h"

namespace tally::cli {

// As many columns as fit into `width`, those that people look for before the others.
std::string SessionTable(const control::v1::ListSessionsResponse& sessions, const std::vector<GpuReading>& gpus,
                         size_t width);

}  // namespace tally::cli

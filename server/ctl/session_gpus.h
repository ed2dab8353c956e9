// On which GPUs a session has had work. Pure.
#pragma once

#include <string>
#include <vector>

#include "proto/control/control.pb.h"
#include "server/ctl/gpu_readings.h"

namespace tally::cli {

// "0", "0,3"; "-": on none. Numbers are NVML's, as nvidia-smi has them; without NVML, tallyd's.
std::string GpusOf(const control::v1::Session& session, const std::vector<GpuReading>& gpus);

}  // namespace tally::cli

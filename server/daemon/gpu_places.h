// The GPUs of all executors, each with one place however an executor counts them: one that started after a GPU was lost
// counts those behind it differently.
//
// Lives on the daemon's loop.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "proto/control/executor_link_abi.h"

namespace tally::server {

class GpuPlaces {
 public:
  GpuPlaces() = default;
  explicit GpuPlaces(std::vector<std::string> names) : names_(std::move(names)) {}

  // Of an executor's ordinals. GPUs that are new get the next places, as long as there are any; then they share the
  // last one.
  std::vector<size_t> PlacesOf(const control::LinkGpus& gpus);
  // By place, as nvidia-smi writes them: "GPU-5c21ed00-...". "GPU 3": the driver does not say.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// Figures by an executor's ordinals as figures by place. What it has no place for stays where it is.
control::SessionFigures ByPlaces(const control::SessionFigures& figures, const std::vector<size_t>& places);

}  // namespace tally::server

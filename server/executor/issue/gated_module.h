// A PTX text of ours, loaded with a gate in each of its kernels: markers (gated_queue.h), fills and copies.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class GatedModule {
 public:
  struct Kernel {
    CUfunction function = nullptr;
    uint32_t hidden_offset = 0;  // of the gate's parameters
  };

  // `driver` outlives it. The context must be current at the end.
  explicit GatedModule(const DriverTable& driver) : driver_(driver) {}
  ~GatedModule();
  GatedModule(const GatedModule&) = delete;
  GatedModule& operator=(const GatedModule&) = delete;

  // Once, with the context current. `text` runs from compute capability 7.5 on; one that cannot be gated is a bug.
  CUresult Load(std::string_view text);
  // Empty: there is none, as Load failed.
  Kernel Find(const std::string& name) const;

 private:
  const DriverTable& driver_;
  CUmodule module_ = nullptr;
  std::map<std::string, Kernel> kernels_;
};

}  // namespace tally::server

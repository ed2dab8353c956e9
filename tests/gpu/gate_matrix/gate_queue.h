// A queue of gated launches that can be stopped and resumed: the host's side of proto/device/gate_abi.h in its
// simplest form, for tests of the gate alone. (The product's own queue is the executor's.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/device/gate_abi.h"
#include "tests/gpu/gate_matrix/cuda_driver.h"

namespace tally::gate_matrix {

// All that a launch is made of, besides the gate's parameters.
struct Launch {
  CUfunction function = nullptr;
  CUlaunchConfig config = {};  // without stream and attributes
  std::vector<CUlaunchAttribute> attributes;
  std::vector<std::string> parameters;  // the bytes of each
  bool uses_parameter_buffer = false;   // CU_LAUNCH_PARAM_BUFFER_POINTER instead of kernelParams
  uint32_t cluster_blocks = 0;          // 0: no clusters
  uint32_t num_units() const;           // blocks, or clusters: what the gate counts
};
// With parameters for the gate if there are any (an ungated function takes none).
void Submit(const Launch& launch, CUstream stream, const device::GateParameters* gate);
device::GateParameters GateParametersFor(const Launch& launch, CUdeviceptr record, uint32_t base, uint32_t chunk);

class GateQueue {
 public:
  // Launches go to `stream`; stops and looks at the record to `control`. One record, for this queue's life.
  GateQueue(CUstream stream, CUstream control);

  // Only while nothing is under way: forgets all launches, numbers the next one's blocks from `first` on.
  void Reset(uint32_t first);
  void Add(Launch launch, uint32_t chunk);
  // Returns at once. What has not begun will not; what is added from now on does not begin either.
  void Stop();
  // Waits until the stream is idle; ends the program if that takes more than ten seconds.
  void Settle();
  // After Stop and Settle: lets blocks run again, and returns whether there are any that have not.
  bool Reopen();
  // Launches again all that is not complete, in order.
  void Relaunch();

  // As of the last Settle.
  struct Progress {
    uint32_t done = 0;  // blocks that ran, of `total`
    uint32_t total = 0;
    bool is_inside = false;  // some launch ran in part
  };
  Progress progress() const;

  const device::GateRecord& record() const { return *seen_; }
  CUdeviceptr record_address() const { return record_; }

 private:
  struct Logged {
    Launch launch;
    uint32_t base = 0;
    uint32_t units = 0;
    uint32_t chunk = 0;
  };
  void Write(const device::GateRecord& record);

  CUstream stream_, control_;
  CUdeviceptr record_ = 0;
  device::GateRecord* seen_ = nullptr;  // pinned: the record as last read
  uint32_t* stop_value_ = nullptr;      // pinned
  uint32_t epoch_ = 0;
  uint32_t first_ = 0;
  uint32_t total_ = 0;  // number of the next launch's first block
  bool is_stopped_ = false;
  std::vector<Logged> log_;
};

}  // namespace tally::gate_matrix

// A launch record, validated: kernel, configuration, attributes and parameters as the driver takes them. Shared by
// launches and by kernel nodes of graphs.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <vector>

#include "proto/device/gate_abi.h"
#include "proto/shm/records_launch_abi.h"
#include "server/executor/session/client_names.h"
#include "server/executor/session/served_request.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {

// Whether the driver's meaning of the attribute is known, and thus what in its value has to be checked or translated.
bool IsKnownAttribute(CUlaunchAttributeID id);

class LaunchParameters {
 public:
  // Reads Launch + attributes + parameters, which must be the rest of the record. The parameters stay where they are:
  // in the lane's private copy of the record.
  CUresult Read(ServedRequest& served, ClientNames& names, WireReader& in);
  // Takes only the attributes that a ClusterQuery carries.
  CUresult ReadQuery(ServedRequest& served, ClientNames& names, WireReader& in, shm::ClusterQuery* query);

  const shm::Launch& launch() const { return launch_; }
  Kernel& kernel() const { return *kernel_; }
  // One of the two is null, as cuLaunchKernel wants it.
  void** parameters() { return is_extra() ? nullptr : pointers_.data(); }
  void** extra() { return is_extra() ? extra_ : nullptr; }
  // The parameters as one block: for a kernel with a layout as large as it takes, at least.
  std::span<const std::byte> parameter_block() const { return block_; }
  CUlaunchConfig Config(CUstream stream);
  std::span<CUlaunchAttribute> attributes() { return attributes_; }

 private:
  bool is_extra() const { return (launch_.flags & shm::kLaunchExtra) != 0; }
  CUresult ReadAttributes(ServedRequest& served, ClientNames& names, WireReader& in);

  shm::Launch launch_{};
  Kernel* kernel_ = nullptr;
  std::vector<CUlaunchAttribute> attributes_;
  std::vector<void*> pointers_;
  std::span<const std::byte> block_;
  size_t extra_bytes_ = 0;
  void* extra_[5] = {};
  device::GateParameters no_gate_{};  // what a kernel with a gate gets: it is not used
  std::vector<std::byte> with_gate_;  // the block with room for that behind it
};

}  // namespace tally::server

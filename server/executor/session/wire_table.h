// The generated calls, by op - kFirstWireOp. Defined in proto/driver/generated/server_wire.cc.
#pragma once

#include <cuda.h>

#include <array>

#include "proto/driver/generated/wire_ops.h"

namespace tally::server {

class ClientNames;
class ServedRequest;
class WireReader;
class WireWriter;

struct WireEntry {
  const char* name;  // of the driver function
  CUresult (*serve)(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out);
};
extern const std::array<WireEntry, kNumWireOps> kWireTable;

}  // namespace tally::server

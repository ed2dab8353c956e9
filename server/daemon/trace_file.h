// Reads what an executor has written of a recording (proto/control/trace_abi.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/control/trace_abi.h"

namespace tally::server {

struct TraceContents {
  control::TraceFileHeader header{};
  std::vector<control::TraceEvent> events;  // their names and kinds are such as there are
  std::vector<std::string> names;
};

// kUnavailable: the executor has not recorded; kInvalidArgument: what it wrote makes no sense. The executor may still
// be writing: everything is copied before it is looked at.
Result<TraceContents> ReadTraceFile(int file);

}  // namespace tally::server

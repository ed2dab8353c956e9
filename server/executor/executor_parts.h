// Makes what an executor is made of, from the ground up.
#pragma once

#include "base/status.h"
#include "server/executor/session/executor_core.h"

namespace tally::server {

struct ExecutorConfig;

// Opens and initialises the driver. kUnavailable: no usable driver; the message says what was tried.
Result<ExecutorParts> MakeExecutorParts(const ExecutorConfig& config);

}  // namespace tally::server

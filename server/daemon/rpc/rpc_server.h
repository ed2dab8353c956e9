// Serves proto/control/control.proto on a UNIX socket. The only place of tallyd that knows gRPC.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "server/daemon/control_desk.h"

namespace tally::server {

class RpcServer {
 public:
  // Listens at `socket_path` (replaced if stale); whoever may open the file may call. `desk` must outlive the server.
  static Result<std::unique_ptr<RpcServer>> Start(const std::string& socket_path, ControlDesk& desk);
  // Waits for calls that are being answered, at most a second.
  virtual ~RpcServer() = default;
};

}  // namespace tally::server

// Serves the view of a user's own sessions on RUNTIME_DIR/view.sock (view_service.h). Who asks says the kernel.
//
// gRPC does not tell a service the credentials of a peer. So the connections are accepted here, noted with their user,
// and then handed to gRPC, which names each after its descriptor. A number that is used again is noted anew before gRPC
// has it; a call of the connection that had it before gets no answer any more.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "server/daemon/control_desk.h"

namespace tally::server {

class ViewServer {
 public:
  // Open at one time, so that nobody takes all of tallyd's descriptors.
  static constexpr size_t kMostConnections = 256;
  static constexpr size_t kMostConnectionsPerUser = 16;

  // Everybody who gets to `socket_path` may open it. `desk` outlives the server. `shows_totals`: of all, to everybody.
  static Result<std::unique_ptr<ViewServer>> Start(const std::string& socket_path, ControlDesk& desk,
                                                   bool shows_totals);
  virtual ~ViewServer() = default;
};

}  // namespace tally::server

// What makes, changes and revokes grants: book, sockets and sessions in step, all of a change or nothing.
//
// Grants come from the configuration, which alone changes its own, and from tallyctl. Those of tallyctl last until they
// are revoked or the runtime directory goes, which is when the machine starts. Lives on the daemon's loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/daemon/client_listener.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/grant_book.h"
#include "server/daemon/runtime_dir.h"

namespace tally::server {

// A grant as operators see it.
struct GrantRow {
  Grant grant;
  std::string socket;
  size_t num_sessions = 0;
};

// Who a tenant is to people. Empty: not known.
struct GrantLabels {
  std::string label_namespace;
  std::string pod;
  std::string container;
};

class GrantDesk {
 public:
  // All must outlive the desk.
  GrantDesk(RuntimeDir& runtime_dir, GrantBook& book, ClientListener& listener, ExecutorPool& pool);

  // Once, before clients come: grants of an earlier tallyd, those of the configuration, and a socket for each.
  Status Start(const std::vector<GrantSpec>& of_file);
  // The configuration was read again: what it has not any more is revoked, and what has changed holds for programs that
  // connect from then on.
  void Reconfigure(const std::vector<GrantSpec>& of_file);

  Result<GrantRow> Create(const GrantSpec& spec);
  // Nothing but labels changes, at once and for programs that run, too.
  Status Label(const std::string& tenant, const GrantLabels& labels);
  // Its programs end with CUDA_ERROR_CONTEXT_IS_DESTROYED or CUDA_ERROR_DEVICE_UNAVAILABLE; who connects gets a
  // sentence until the socket is gone.
  Status Revoke(const std::string& tenant);
  std::vector<GrantRow> Rows() const;  // by number

 private:
  // Into the book only.
  void Reconcile(const std::vector<GrantSpec>& of_file);
  Status Open(const Grant& grant);
  void Close(const Grant& grant);
  GrantRow RowOf(const Grant& grant) const;

  // One that this desk may change; else kNotFound or kFailedPrecondition, a sentence.
  Result<Grant> FindOwn(const std::string& tenant) const;

  RuntimeDir& runtime_dir_;
  GrantBook& book_;
  ClientListener& listener_;
  ExecutorPool& pool_;
};

}  // namespace tally::server

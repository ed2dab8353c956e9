// Answers Trace: has executors record, and tells of it in pieces.
#pragma once

#include <grpcpp/support/sync_stream.h>
#include <sys/types.h>

#include <optional>

#include "proto/control/control.pb.h"
#include "server/daemon/control_desk.h"

namespace tally::server {

// `viewer`: only what MaySee of that user's; none: everything.
grpc::Status StreamTrace(ControlDesk& desk, const control::v1::TraceRequest& request, std::optional<uid_t> viewer,
                         grpc::ServerWriter<control::v1::TraceChunk>& writer);

// Whether a session is this user's own, or of a grant that is his. What came by another grant is its tenant's: root of
// some container, as a rule, and not the machine's.
inline bool MaySee(uid_t viewer, const SessionRow& row) {
  const control::SessionIdentity& identity = row.record.identity;
  if (identity.grant_id != 0 && identity.owner_uid == viewer) return true;
  return identity.uid == viewer && (viewer != 0 || identity.grant_id == 0);
}

}  // namespace tally::server

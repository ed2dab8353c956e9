// A launch record, checked: from bytes of the client to a pending launch. Shared by launches and by kernel nodes of
// graphs.
#pragma once

#include <cuda.h>

#include "proto/shm/records_abi.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/session/client_names.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {

// Whether the driver's meaning of the attribute is known, and thus what in its value has to be checked or translated.
bool IsKnownAttribute(CUlaunchAttributeID id);

// Reads Launch + attributes + parameters + declared boxes, which must be the rest of the record. What `launch` has of
// memory it keeps; after an error its content means nothing. Of a node of a graph nobody asks for the boxes.
CUresult ReadLaunch(ServedRequest& served, ClientNames& names, WireReader& in, shm::Launch* record,
                    PendingLaunch* launch);
// Takes only the attributes that a ClusterQuery carries.
CUresult ReadClusterQuery(ServedRequest& served, ClientNames& names, WireReader& in, shm::ClusterQuery* query,
                          PendingLaunch* launch);

// What a launch has of its session and stream, which is ordered but not sealed.
void MakeReady(SessionState& session, Stream& stream, PendingLaunch& launch);
// Makes it ready and puts it on the stream.
CUresult PutLaunch(SessionState& session, Stream& stream, PendingLaunch& launch);

}  // namespace tally::server

// Translates between control.proto and the control desk; decides nothing.
#pragma once

#include "proto/control/control.grpc.pb.h"
#include "server/daemon/control_desk.h"

namespace tally::server {

class ControlService final : public control::v1::Control::Service {
 public:
  explicit ControlService(ControlDesk& desk) : desk_(desk) {}

  grpc::Status ListSessions(grpc::ServerContext*, const control::v1::ListSessionsRequest*,
                            control::v1::ListSessionsResponse* response) override;
  grpc::Status ListExecutors(grpc::ServerContext*, const control::v1::ListExecutorsRequest*,
                             control::v1::ListExecutorsResponse* response) override;
  grpc::Status SetPriority(grpc::ServerContext*, const control::v1::SetPriorityRequest* request,
                           control::v1::SetPriorityResponse*) override;
  grpc::Status ListKernels(grpc::ServerContext*, const control::v1::ListKernelsRequest*,
                           control::v1::ListKernelsResponse* response) override;
  grpc::Status ListWindowShapes(grpc::ServerContext*, const control::v1::ListWindowShapesRequest*,
                                control::v1::ListWindowShapesResponse* response) override;
  grpc::Status ListGraphs(grpc::ServerContext*, const control::v1::ListGraphsRequest*,
                          control::v1::ListGraphsResponse* response) override;
  grpc::Status DrawGraph(grpc::ServerContext*, const control::v1::DrawGraphRequest* request,
                         control::v1::DrawGraphResponse* response) override;
  grpc::Status Trace(grpc::ServerContext*, const control::v1::TraceRequest* request,
                     grpc::ServerWriter<control::v1::TraceChunk>* writer) override;
  grpc::Status GetTotals(grpc::ServerContext*, const control::v1::GetTotalsRequest*,
                         control::v1::GetTotalsResponse* response) override;
  grpc::Status SetTurnaround(grpc::ServerContext*, const control::v1::SetTurnaroundRequest* request,
                             control::v1::SetTurnaroundResponse*) override;
  grpc::Status CreateGrant(grpc::ServerContext* context, const control::v1::CreateGrantRequest* request,
                           control::v1::CreateGrantResponse* response) override;
  grpc::Status ListGrants(grpc::ServerContext* context, const control::v1::ListGrantsRequest* request,
                          control::v1::ListGrantsResponse* response) override;
  grpc::Status LabelGrant(grpc::ServerContext* context, const control::v1::LabelGrantRequest* request,
                          control::v1::LabelGrantResponse* response) override;
  grpc::Status RevokeGrant(grpc::ServerContext* context, const control::v1::RevokeGrantRequest* request,
                           control::v1::RevokeGrantResponse* response) override;
  grpc::Status Version(grpc::ServerContext*, const control::v1::VersionRequest*,
                       control::v1::VersionResponse* response) override;

 private:
  ControlDesk& desk_;
};

}  // namespace tally::server

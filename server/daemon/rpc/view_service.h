// What a user may ask of tallyd without being its administrator: his own sessions and those of grants that are his,
// sums of all where tallyd tells them, and nothing that changes anything.
//
// Only what is overridden here is answered; everything else of control.proto is UNIMPLEMENTED.
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <optional>
#include <set>

#include "proto/control/control.grpc.pb.h"
#include "server/daemon/control_desk.h"

namespace tally::server {

class ViewService final : public control::v1::Control::Service {
 public:
  // Who asks; none: not known any more, and sees nothing. From any thread.
  using FindViewer = std::function<std::optional<uid_t>(const grpc::ServerContext&)>;

  // `desk` outlives this.
  ViewService(ControlDesk& desk, bool shows_totals, FindViewer find_viewer)
      : desk_(desk), shows_totals_(shows_totals), find_viewer_(std::move(find_viewer)) {}

  grpc::Status ListSessions(grpc::ServerContext* context, const control::v1::ListSessionsRequest*,
                            control::v1::ListSessionsResponse* response) override;
  // Those that have sessions of this user's, and so many of them.
  grpc::Status ListExecutors(grpc::ServerContext* context, const control::v1::ListExecutorsRequest*,
                             control::v1::ListExecutorsResponse* response) override;
  grpc::Status ListWindowShapes(grpc::ServerContext* context, const control::v1::ListWindowShapesRequest*,
                                control::v1::ListWindowShapesResponse* response) override;
  grpc::Status ListGraphs(grpc::ServerContext* context, const control::v1::ListGraphsRequest*,
                          control::v1::ListGraphsResponse* response) override;
  grpc::Status DrawGraph(grpc::ServerContext* context, const control::v1::DrawGraphRequest* request,
                         control::v1::DrawGraphResponse* response) override;
  // One of a user at a time, until he has read it: what was recorded is in memory until then.
  grpc::Status Trace(grpc::ServerContext* context, const control::v1::TraceRequest* request,
                     grpc::ServerWriter<control::v1::TraceChunk>* writer) override;
  grpc::Status GetTotals(grpc::ServerContext* context, const control::v1::GetTotalsRequest*,
                         control::v1::GetTotalsResponse* response) override;
  grpc::Status Version(grpc::ServerContext* context, const control::v1::VersionRequest*,
                       control::v1::VersionResponse* response) override;

 private:
  class TraceTurn;

  // What whoever asks may know of.
  struct Own {
    std::set<uint64_t> sessions;
    std::set<pid_t> executors;  // of these; others may have some there, too
    uint32_t NumExecutorsIn(const std::set<pid_t>& some) const;
  };
  // None: `refusal` says why.
  std::optional<Own> OwnOf(grpc::ServerContext& context, grpc::Status* refusal);

  ControlDesk& desk_;
  const bool shows_totals_;
  const FindViewer find_viewer_;
  std::mutex mutex_;
  std::set<uid_t> tracing_;  // guarded by mutex_
};

}  // namespace tally::server

#include "server/daemon/rpc/view_service.h"

#include <algorithm>
#include <set>

#include "server/daemon/rpc/session_message.h"
#include "server/daemon/rpc/trace_stream.h"

namespace tally::server {
namespace {

namespace v1 = control::v1;

grpc::Status Nobody() { return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "tallyd does not know who asks"); }

}  // namespace

grpc::Status ViewService::ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest*,
                                       v1::ListSessionsResponse* response) {
  const auto viewer = find_viewer_(*context);
  if (!viewer) return Nobody();
  const auto overview = desk_.GetOverview();
  if (!overview) return ToGrpc(overview.error());
  for (const SessionRow& row : overview->sessions) {
    if (MaySee(*viewer, row)) Fill(row, overview->gpus, response->add_sessions());
  }
  return grpc::Status::OK;
}

grpc::Status ViewService::ListExecutors(grpc::ServerContext* context, const v1::ListExecutorsRequest*,
                                        v1::ListExecutorsResponse* response) {
  const auto viewer = find_viewer_(*context);
  if (!viewer) return Nobody();
  const auto overview = desk_.GetOverview();
  if (!overview) return ToGrpc(overview.error());
  for (ExecutorRow row : overview->executors) {
    row.num_sessions = static_cast<size_t>(std::ranges::count_if(overview->sessions, [&](const SessionRow& session) {
      return session.executor_pid == row.pid && MaySee(*viewer, session);
    }));
    if (row.num_sessions != 0) Fill(row, response->add_executors());
  }
  return grpc::Status::OK;
}

grpc::Status ViewService::ListWindowShapes(grpc::ServerContext* context, const v1::ListWindowShapesRequest*,
                                           v1::ListWindowShapesResponse* response) {
  grpc::Status refusal;
  const auto own = OwnOf(*context, &refusal);
  if (!own) return refusal;
  const auto shapes = desk_.GetWindowShapes();
  if (!shapes) return ToGrpc(shapes.error());
  for (const control::WindowShapeFigures& figures : shapes->rows) {
    if (own->sessions.contains(figures.session_id)) Fill(figures, response->add_shapes());
  }
  response->set_late_executors(own->NumExecutorsIn(shapes->late));
  return grpc::Status::OK;
}

uint32_t ViewService::Own::NumExecutorsIn(const std::set<pid_t>& some) const {
  return static_cast<uint32_t>(std::ranges::count_if(some, [&](pid_t pid) { return executors.contains(pid); }));
}

std::optional<ViewService::Own> ViewService::OwnOf(grpc::ServerContext& context, grpc::Status* refusal) {
  const auto viewer = find_viewer_(context);
  if (!viewer) {
    *refusal = Nobody();
    return std::nullopt;
  }
  const auto overview = desk_.GetOverview();
  if (!overview) {
    *refusal = ToGrpc(overview.error());
    return std::nullopt;
  }
  Own own;
  for (const SessionRow& row : overview->sessions) {
    if (!MaySee(*viewer, row)) continue;
    own.sessions.insert(row.record.identity.session_id);
    own.executors.insert(row.executor_pid);
  }
  return own;
}

grpc::Status ViewService::ListGraphs(grpc::ServerContext* context, const v1::ListGraphsRequest*,
                                     v1::ListGraphsResponse* response) {
  grpc::Status refusal;
  const auto own = OwnOf(*context, &refusal);
  if (!own) return refusal;
  const auto graphs = desk_.GetGraphs();
  if (!graphs) return ToGrpc(graphs.error());
  for (const control::GraphFigures& figures : graphs->rows) {
    if (own->sessions.contains(figures.session_id)) Fill(figures, response->add_graphs());
  }
  response->set_late_executors(own->NumExecutorsIn(graphs->late));
  return grpc::Status::OK;
}

grpc::Status ViewService::DrawGraph(grpc::ServerContext* context, const v1::DrawGraphRequest* request,
                                    v1::DrawGraphResponse* response) {
  grpc::Status refusal;
  const auto own = OwnOf(*context, &refusal);
  if (!own) return refusal;
  // Of others' nobody learns whether they are there.
  if (!own->sessions.contains(request->session_id())) return NoSuchGraph();
  return server::DrawGraph(desk_, *request, response);
}

// Of a user; ends with it.
class ViewService::TraceTurn {
 public:
  TraceTurn(ViewService& service, uid_t viewer) : service_(service), viewer_(viewer) {
    const std::lock_guard lock(service_.mutex_);
    is_granted_ = service_.tracing_.insert(viewer).second;
  }
  ~TraceTurn() {
    const std::lock_guard lock(service_.mutex_);
    if (is_granted_) service_.tracing_.erase(viewer_);
  }
  TraceTurn(const TraceTurn&) = delete;
  TraceTurn& operator=(const TraceTurn&) = delete;
  bool is_granted() const { return is_granted_; }

 private:
  ViewService& service_;
  const uid_t viewer_;
  bool is_granted_ = false;
};

grpc::Status ViewService::Trace(grpc::ServerContext* context, const v1::TraceRequest* request,
                                grpc::ServerWriter<v1::TraceChunk>* writer) {
  const auto viewer = find_viewer_(*context);
  if (!viewer) return Nobody();
  const TraceTurn turn(*this, *viewer);
  if (!turn.is_granted()) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        "another trace of yours has not been read to its end: try again then");
  }
  return StreamTrace(desk_, *request, viewer, *writer);
}

grpc::Status ViewService::GetTotals(grpc::ServerContext* context, const v1::GetTotalsRequest*,
                                    v1::GetTotalsResponse* response) {
  if (!find_viewer_(*context)) return Nobody();
  if (!shows_totals_) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                        "tallyd tells its administrator alone what all have together (show_totals)");
  }
  const auto overview = desk_.GetOverview();
  if (!overview) return ToGrpc(overview.error());
  Fill(*overview, response);
  return grpc::Status::OK;
}

grpc::Status ViewService::Version(grpc::ServerContext*, const v1::VersionRequest*, v1::VersionResponse* response) {
  Fill(desk_.facts(), response);
  response->set_sees_own_only(true);
  return grpc::Status::OK;
}

}  // namespace tally::server

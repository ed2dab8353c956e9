// What the services of tallyd say of sessions, their windows and executors, and of tallyd itself.
#pragma once

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>
#include <vector>

#include "proto/control/control.pb.h"
#include "server/daemon/control_desk.h"

namespace tally::server {

grpc::Status ToGrpc(const Status& status);
control::v1::PriorityClass ToProto(shm::PriorityClass priority_class);
// `gpus`: as Overview has them.
void Fill(const SessionRow& row, const std::vector<std::string>& gpus, control::v1::Session* session);
void Fill(const ExecutorRow& row, control::v1::Executor* executor);
void Fill(const control::WindowShapeFigures& figures, control::v1::WindowShape* shape);
void Fill(const control::GraphFigures& figures, control::v1::Graph* graph);
// Of DrawGraph, also where the graph is another user's.
grpc::Status NoSuchGraph();
grpc::Status DrawGraph(ControlDesk& desk, const control::v1::DrawGraphRequest& request,
                       control::v1::DrawGraphResponse* response);
// Of all tenants together.
void Fill(const Overview& overview, control::v1::GetTotalsResponse* totals);
// What everybody may know.
void Fill(const DaemonFacts& facts, control::v1::VersionResponse* response);

}  // namespace tally::server

// What ListSessions says of a session: every figure under its own name, as another reader of the message sees it.
#include "server/daemon/rpc/control_service.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "proto/control/preemptibility.h"
#include "proto/control/session_fields.h"

namespace tally::server {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

// Shows one session.
class OneSessionDesk final : public ControlDesk {
 public:
  Result<Overview> GetOverview() override {
    Overview overview;
    overview.sessions = {session};
    overview.gpus = gpus;
    return overview;
  }
  Status SetPriority(uint64_t, const control::ShareChange&) override { return OkStatus(); }
  Result<Listed<KernelRow>> GetKernels() override { return Listed<KernelRow>{}; }
  Result<Listed<control::WindowShapeFigures>> GetWindowShapes() override {
    return Listed<control::WindowShapeFigures>{};
  }
  Result<Listed<control::GraphFigures>> GetGraphs() override { return Listed<control::GraphFigures>{}; }
  Result<std::string> DrawGraph(uint64_t, uint32_t) override { return std::string(); }
  Result<Recording> Trace(std::chrono::nanoseconds, std::optional<uint32_t>) override { return Recording{}; }
  Status SetTurnaroundThreshold(std::chrono::nanoseconds) override { return OkStatus(); }
  Result<GrantRow> CreateGrant(const GrantSpec& spec) override { return GrantRow{{7, spec, false}, "/s/grants/x", 0}; }
  Status LabelGrant(const std::string& tenant, const GrantLabels& labels) override {
    return Status(StatusCode::kNotFound,
                  tenant + "=" + labels.label_namespace + "/" + labels.pod + "/" + labels.container);
  }
  Status RevokeGrant(const std::string& tenant) override { return Status(StatusCode::kNotFound, tenant); }
  Result<std::vector<GrantRow>> GetGrants() override { return grants; }
  DaemonFacts facts() const override { return {"/s", "sim", {}, {}, {}}; }

  SessionRow session;
  std::vector<std::string> gpus;
  std::vector<GrantRow> grants;
};

class ControlServiceTest : public ::testing::Test {
 protected:
  v1::Session Session() {
    v1::ListSessionsResponse response;
    EXPECT_TRUE(service_.ListSessions(nullptr, nullptr, &response).ok());
    return response.sessions(0);
  }
  // By protobuf's own printer, which writes numbers of 64 bits as text.
  static Json Printed(const v1::Session& session) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    options.always_print_primitive_fields = true;
    std::string text;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(session, &text, options).ok());
    return Json::parse(text);
  }

  OneSessionDesk desk_;
  ControlService service_{desk_};
};

TEST_F(ControlServiceTest, SaysOnWhichGpuInWhichClassASessionHadWork) {
  desk_.gpus = {"GPU-a", "GPU-b", "GPU-c"};
  auto busy_ns = desk_.session.record.figures.entries("busy_ns");
  busy_ns[control::GpuEntry(2, true)] = 30;
  busy_ns[control::GpuEntry(2, false)] = 40;
  busy_ns[control::GpuEntry(0, true)] = 10;
  busy_ns[control::GpuEntry(3, true)] = 70;  // a place that no executor has named
  const v1::Session session = Session();
  ASSERT_EQ(session.busy_size(), 3);
  EXPECT_EQ(session.busy(0).gpu(), "GPU-a");
  EXPECT_EQ(session.busy(0).busy_ns(), 10u);
  EXPECT_EQ(session.busy(1).gpu(), "GPU-c");
  EXPECT_EQ(session.busy(1).place(), 2u);
  EXPECT_EQ(session.busy(1).priority_class(), v1::PRIORITY_CLASS_BEST_EFFORT);
  EXPECT_EQ(session.busy(1).busy_ns(), 40u);
  EXPECT_EQ(session.busy(2).priority_class(), v1::PRIORITY_CLASS_HIGH);
  EXPECT_EQ(session.busy(2).busy_ns(), 30u);
}

TEST_F(ControlServiceTest, EveryFigureArrivesUnderItsName) {
  control::SessionFigures& figures = desk_.session.record.figures;
  std::iota(std::begin(figures.values), std::end(figures.values), 1000);
  const Json row = Printed(Session());
  for (const control::Figure figure : control::kAllFigures) {
    const std::string name = figure.row().name;
    if (figure.row().entries == control::FigureEntries::kByPreemptibility) continue;
    const auto entries = figures.entries(figure);
    const uint64_t value = std::accumulate(entries.begin(), entries.end(), uint64_t{0});
    const Json& places = row.contains(name) ? row : row.at("figures");
    ASSERT_TRUE(places.contains(name)) << name;
    if (figure.row().one == 1) {
      EXPECT_EQ(places.at(name), std::to_string(value)) << name;
    } else {
      EXPECT_EQ(places.at(name), static_cast<double>(value) / static_cast<double>(figure.row().one)) << name;
    }
  }
  const auto classes = figures.entries("window_classes");
  EXPECT_EQ(row.at("figures").at("window_classes.C0"), std::to_string(classes[0]));
  EXPECT_EQ(row.at("figures").at("window_classes.none"), std::to_string(classes[control::kWindowClassNone]));
  ASSERT_EQ(row.at("coverage").size(), control::kNumPreemptibilities);
  for (size_t i = 0; i < control::kNumPreemptibilities; ++i) {
    const Json& covered = row.at("coverage").at(i);
    EXPECT_EQ(covered.at("gpu_time_ns"), std::to_string(figures.entries("preemptibility_ns")[i]));
    EXPECT_EQ(covered.at("by"), control::NameOf(static_cast<control::Preemptibility>(i)).by);
    EXPECT_EQ(covered.at("reason"), control::NameOf(static_cast<control::Preemptibility>(i)).reason);
  }
}

TEST_F(ControlServiceTest, FiguresTouchNothingElse) {
  control::SessionIdentity& identity = desk_.session.record.identity;
  identity.session_id = 1;
  identity.uid = 2;
  identity.pid = 3;
  identity.weight = 4;
  identity.level = 5;
  identity.turnaround_ns = 6;
  identity.window = 1;
  desk_.session.age = std::chrono::nanoseconds(7);
  desk_.session.executor_pid = 8;
  std::ranges::fill(desk_.session.record.figures.values, 1000);
  const v1::Session session = Session();
  EXPECT_EQ(session.id(), 1u);
  EXPECT_EQ(session.uid(), 2u);
  EXPECT_EQ(session.pid(), 3);
  EXPECT_EQ(session.weight(), 4u);
  EXPECT_EQ(session.level(), 5u);
  EXPECT_EQ(session.turnaround_ns(), 6u);
  EXPECT_EQ(session.window(), "shadow");
  EXPECT_EQ(session.age_ns(), 7u);
  EXPECT_EQ(session.executor_pid(), 8);
  EXPECT_FALSE(session.is_stale());
}

// tallyctl has the same limits; others that speak to this socket may not.
TEST_F(ControlServiceTest, AShareThatIsNoneIsRefused) {
  const auto asked = [this](std::optional<uint32_t> level, std::optional<uint32_t> weight) {
    v1::SetPriorityRequest request;
    if (level) request.set_level(*level);
    if (weight) request.set_weight(*weight);
    v1::SetPriorityResponse response;
    return service_.SetPriority(nullptr, &request, &response).error_message();
  };
  EXPECT_EQ(asked(7, {}), "");
  EXPECT_EQ(asked(8, {}), "level must be from 0 to 7");
  EXPECT_EQ(asked({}, 1), "");
  EXPECT_EQ(asked({}, 10'000), "");
  for (const uint32_t weight : {0, 10'001}) EXPECT_EQ(asked({}, weight), "weight must be from 1 to 10000");
  EXPECT_EQ(asked({}, {}), "nothing to change: give a priority_class, a weight or a level");
}

TEST_F(ControlServiceTest, LabelsArriveEachInItsPlace) {
  v1::LabelGrantRequest request;
  request.set_tenant("a");
  request.set_namespace_("ns");
  request.set_pod("p");
  request.set_container("c");
  v1::LabelGrantResponse response;
  const grpc::Status status = service_.LabelGrant(nullptr, &request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "a=ns/p/c");
}

TEST_F(ControlServiceTest, AGrantComesBackAsItWasAskedFor) {
  v1::CreateGrantRequest request;
  v1::Grant& grant = *request.mutable_grant();
  grant.set_tenant("team-a");
  grant.set_priority_class(v1::PRIORITY_CLASS_HIGH);
  grant.set_weight(200);
  grant.set_level(3);
  grant.set_device_memory_bytes(1 << 20);
  grant.set_share(0.5);
  grant.add_gpus("GPU-1");
  grant.set_domain_policy(v1::DOMAIN_POLICY_NAMESPACE);
  grant.set_namespace_("blue");
  grant.set_pod("p");
  grant.set_container("c");
  v1::CreateGrantResponse response;
  ASSERT_TRUE(service_.CreateGrant(nullptr, &request, &response).ok());
  EXPECT_EQ(response.grant().id(), 7u);
  EXPECT_EQ(response.grant().socket(), "/s/grants/x");
  grant.set_id(7);
  grant.set_socket("/s/grants/x");
  EXPECT_EQ(response.grant().SerializeAsString(), grant.SerializeAsString());
}

TEST_F(ControlServiceTest, WhatIsNotSaidOfAGrantIsItsDefault) {
  v1::CreateGrantRequest request;
  request.mutable_grant()->set_tenant("a");
  v1::CreateGrantResponse response;
  ASSERT_TRUE(service_.CreateGrant(nullptr, &request, &response).ok());
  EXPECT_EQ(response.grant().priority_class(), v1::PRIORITY_CLASS_BEST_EFFORT);
  EXPECT_EQ(response.grant().weight(), scheduler::kDefaultWeight);
  EXPECT_EQ(response.grant().share(), 1);
  EXPECT_EQ(response.grant().domain_policy(), v1::DOMAIN_POLICY_TENANT);
  request.mutable_grant()->set_domain_policy(static_cast<v1::DomainPolicy>(99));
  EXPECT_EQ(service_.CreateGrant(nullptr, &request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// A field that no row has any more, or that was misspelt, would always be 0.
TEST_F(ControlServiceTest, EveryFieldIsARowsOrTheIdentitys) {
  using google::protobuf::FieldDescriptor;
  const std::set<std::string> of_identity = {"id", "age_ns", "turnaround_ns", "grant_id", "device_memory_limit_bytes"};
  std::set<std::string> rows;
  for (const control::FigureRow& row : control::kSessionFigures) {
    rows.insert(row.name);
    const FieldDescriptor* field = control::FieldOf(row.name);
    if (field == nullptr) {
      EXPECT_EQ(row.one, 1u) << row.name << ": in the map it is a whole number";
      continue;
    }
    EXPECT_EQ(field->cpp_type(), row.one == 1 ? FieldDescriptor::CPPTYPE_UINT64 : FieldDescriptor::CPPTYPE_DOUBLE)
        << row.name;
    EXPECT_FALSE(of_identity.contains(row.name)) << row.name;
  }
  const auto* message = v1::Session::descriptor();
  for (int i = 0; i < message->field_count(); ++i) {
    const bool is_figure = message->field(i)->cpp_type() == FieldDescriptor::CPPTYPE_UINT64 ||
                           message->field(i)->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
    if (!is_figure || of_identity.contains(message->field(i)->name())) continue;
    EXPECT_TRUE(rows.contains(message->field(i)->name())) << message->field(i)->name();
  }
}

// What a row needs that is added tomorrow.
TEST_F(ControlServiceTest, AFigureWithoutAFieldTravelsInTheMap) {
  v1::Session session;
  control::SetFigure("frobnications", 77, 1, &session);
  control::SetFigure("yields", 78, 1, &session);
  EXPECT_EQ(session.yields(), 78u);
  EXPECT_EQ(session.figures().size(), 1u);
  EXPECT_EQ(session.figures().at("frobnications"), 77u);
}

}  // namespace
}  // namespace tally::server

// grant create, list and revoke: tenants with a socket of their own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "proto/control/amounts.h"
#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

const char* PolicyWordOf(v1::DomainPolicy policy) {
  if (policy == v1::DOMAIN_POLICY_NAMESPACE) return "namespace";
  return policy == v1::DOMAIN_POLICY_SHARED ? "shared" : "tenant";
}

Json GrantJson(const v1::Grant& grant) {
  return {{"id", grant.id()},
          {"tenant", grant.tenant()},
          {"class", NameOf(grant.priority_class())},
          {"weight", grant.weight()},
          {"level", grant.level()},
          {"device_memory_bytes", grant.device_memory_bytes()},
          {"share", grant.share()},
          {"gpus", grant.gpus()},
          {"domain", PolicyWordOf(grant.domain_policy())},
          {"namespace", grant.namespace_()},
          {"pod", grant.pod()},
          {"container", grant.container()},
          {"socket", grant.socket()},
          {"sessions", grant.num_sessions()},
          {"is_of_file", grant.is_of_file()},
          {"owner_uid", grant.has_owner_uid() ? Json(grant.owner_uid()) : Json()}};
}

std::string LabelsOf(const v1::Grant& grant) {
  std::string labels = grant.namespace_();
  for (const std::string& label : {grant.pod(), grant.container()}) {
    if (label.empty()) continue;
    labels += (labels.empty() ? "" : "/") + label;
  }
  return labels.empty() ? "-" : labels;
}

int ListGrants(const Invocation& invocation) {
  v1::ListGrantsResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListGrants(&context, {}, &response); }))
    return 1;
  if (invocation.as_json) {
    Json rows = Json::array();
    for (const v1::Grant& grant : response.grants()) rows.push_back(GrantJson(grant));
    fmt::print("{}\n", rows.dump(2));
    return 0;
  }
  Table table({"TENANT", "CLASS", "WEIGHT", "LEVEL", "MEMORY", "SHARE", "DOMAIN", "LABELS", "SESSIONS", "MADE BY"});
  for (const v1::Grant& grant : response.grants()) {
    table.AddRow({grant.tenant(), NameOf(grant.priority_class()), fmt::format("{}", grant.weight()),
                  fmt::format("{}", grant.level()),
                  grant.device_memory_bytes() == 0 ? "-" : FormatBytes(grant.device_memory_bytes()),
                  grant.share() < 1 ? fmt::format("{:g}%", grant.share() * 100) : "-",
                  PolicyWordOf(grant.domain_policy()), LabelsOf(grant), fmt::format("{}", grant.num_sessions()),
                  grant.is_of_file() ? "file" : "tallyctl"});
  }
  fmt::print("{}", table.ToString());
  if (response.grants().empty()) fmt::print("no grants: every program is its user ('tallyctl grant create')\n");
  return 0;
}

int CreateGrant(const v1::Grant& grant, const Invocation& invocation) {
  v1::CreateGrantRequest request;
  *request.mutable_grant() = grant;
  v1::CreateGrantResponse response;
  if (!Call(invocation.socket,
            [&](auto& stub, auto& context) { return stub.CreateGrant(&context, request, &response); }))
    return 1;
  if (invocation.as_json) {
    fmt::print("{}\n", GrantJson(response.grant()).dump(2));
  } else {
    fmt::print("{}\n", response.grant().socket());
  }
  return 0;
}

int RevokeGrant(const std::string& tenant, const Invocation& invocation) {
  v1::RevokeGrantRequest request;
  request.set_tenant(tenant);
  v1::RevokeGrantResponse response;
  return Call(invocation.socket,
              [&](auto& stub, auto& context) { return stub.RevokeGrant(&context, request, &response); })
             ? 0
             : 1;
}

// What is typed, until the request is made of it.
struct GrantWish {
  std::string tenant, priority = "best-effort", memory, share, domain = "tenant", label_namespace, pod, container;
  uint32_t weight = 0, level = 0;
  std::optional<uint32_t> owner_uid;
  std::vector<std::string> gpus;
};

// Empty: it is one; else what is wrong.
std::string CheckShare(const std::string& text) {
  return control::ParseShare(text) ? "" : fmt::format("'{}' is no share: say a part of GPU time like 30%", text);
}

std::string CheckMemory(const std::string& text) {
  return control::ParseBytes(text) ? "" : fmt::format("'{}' is no amount of memory: say a size like 8G", text);
}

v1::Grant GrantOf(const GrantWish& wish) {
  v1::Grant grant;
  grant.set_tenant(wish.tenant);
  grant.set_priority_class(wish.priority == "high" ? v1::PRIORITY_CLASS_HIGH : v1::PRIORITY_CLASS_BEST_EFFORT);
  grant.set_weight(wish.weight);
  grant.set_level(wish.level);
  // They were checked.
  if (!wish.memory.empty()) grant.set_device_memory_bytes(control::ParseBytes(wish.memory).value_or(0));
  if (!wish.share.empty()) grant.set_share(control::ParseShare(wish.share).value_or(0));
  for (const std::string& gpu : wish.gpus) grant.add_gpus(gpu);
  grant.set_domain_policy(wish.domain == "namespace" ? v1::DOMAIN_POLICY_NAMESPACE
                          : wish.domain == "shared"  ? v1::DOMAIN_POLICY_SHARED
                                                     : v1::DOMAIN_POLICY_TENANT);
  grant.set_namespace_(wish.label_namespace);
  grant.set_pod(wish.pod);
  grant.set_container(wish.container);
  if (wish.owner_uid) grant.set_owner_uid(*wish.owner_uid);
  return grant;
}

void DeclareGrantCreate(CLI::App& app, GrantWish& wish) {
  app.add_option("TENANT", wish.tenant, "its name: 1 to 63 letters, digits, '-', '_' and '.'")
      ->type_name("TENANT")
      ->required();
  app.add_option(
         "--priority", wish.priority,
         "the class that its programs get, and the highest that they may ask for: high or best-effort (default)")
      ->type_name("high|best-effort")
      ->check(CLI::IsMember({"high", "best-effort"}));
  app.add_option("--weight", wish.weight, "its part among best-effort ones, 1 to 10000 (default 100)")
      ->type_name("WEIGHT")
      ->check(CLI::Range(1, 10000));
  app.add_option("--level", wish.level, "its rank among high-priority ones, 0 (default) to 7")
      ->type_name("LEVEL")
      ->check(CLI::Range(0, 7));
  app.add_option("--memory", wish.memory, "device memory that its programs together may hold on each GPU, e.g. 8G")
      ->type_name("SIZE")
      ->check(CheckMemory);
  app.add_option("--share", wish.share, "cap on its time on each GPU, e.g. 30%; best-effort only")
      ->type_name("PERCENT")
      ->check(CheckShare);
  app.add_option("--gpu", wish.gpus,
                 "a GPU that it may use, in the order in which programs see them (may be repeated; default: all)")
      ->type_name("UUID|NUMBER");
  app.add_option("--domain", wish.domain,
                 "who shares its CUDA contexts and their faults: tenant (default: nobody), namespace, shared")
      ->type_name("tenant|namespace|shared")
      ->check(CLI::IsMember({"tenant", "namespace", "shared"}));
  app.add_option("--owner", wish.owner_uid, "a user who may see its sessions without being the administrator")
      ->type_name("UID");
  app.add_option("--namespace", wish.label_namespace, "label, for metrics and lists")->type_name("NAME");
  app.add_option("--pod", wish.pod, "label")->type_name("NAME");
  app.add_option("--container", wish.container, "label")->type_name("NAME");
}

}  // namespace

Action DeclareGrant(CLI::App& app) {
  const auto wish = std::make_shared<GrantWish>();
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* create = app.add_subcommand("create", "make a tenant; prints the socket by which its programs come");
  DeclareGrantCreate(*create, *wish);
  CLI::App* list = app.add_subcommand("list", "list the grants");
  CLI::App* revoke = app.add_subcommand("revoke", "end a tenant's programs and remove its socket");
  revoke->add_option("TENANT", wish->tenant, "as in 'tallyctl grant list'")->type_name("TENANT")->required();
  return [wish, create, list](const Invocation& invocation) {
    if (create->parsed()) return CreateGrant(GrantOf(*wish), invocation);
    return list->parsed() ? ListGrants(invocation) : RevokeGrant(wish->tenant, invocation);
  };
}

}  // namespace tally::cli

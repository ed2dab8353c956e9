#include "server/daemon/grant.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/printable.h"
#include "proto/control/executor_link_abi.h"
#include "proto/control/socket_paths.h"
#include "server/daemon/config.h"

namespace tally::server {
namespace {

using Json = nlohmann::json;

// What Linux gives a UNIX socket.
constexpr size_t kMaxSocketPath = 107;

bool IsLetterOrDigit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
}

// Also names a directory: neither "..", nor one that is hidden, nor a path.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTenantLetters && IsLetterOrDigit(name.front()) &&
         std::ranges::all_of(name, [](char letter) {
           return IsLetterOrDigit(letter) || letter == '-' || letter == '_' || letter == '.';
         });
}

// What is wrong may be long, and may hold anything.
std::string Shown(std::string_view text) { return Printable(text.substr(0, 80)); }

Status Invalid(const std::string& sentence) { return Status(StatusCode::kInvalidArgument, sentence); }

Status CheckLabel(const GrantSpec& spec, const char* name, const std::string& value) {
  if (value.size() > kMaxLabelLetters || !std::ranges::all_of(value, IsPrintable)) {
    return Invalid(fmt::format("grant '{}': {} '{}' must be at most {} printable characters of ASCII", spec.tenant,
                               name, Shown(value), kMaxLabelLetters));
  }
  return OkStatus();
}

Status CheckGpus(const GrantSpec& spec) {
  if (spec.gpus.size() > control::kMaxGrantedGpus) {
    return Invalid(
        fmt::format("grant '{}': {} GPUs: {} may be", spec.tenant, spec.gpus.size(), control::kMaxGrantedGpus));
  }
  std::set<std::string_view> names;
  for (const std::string& gpu : spec.gpus) {
    if (!control::IsNameOfGpu(gpu)) {
      return Invalid(fmt::format("grant '{}': '{}' names no GPU: say a UUID as 'nvidia-smi -L' does, or a number",
                                 spec.tenant, Shown(gpu)));
    }
    if (!names.insert(gpu).second) return Invalid(fmt::format("grant '{}': GPU '{}' is there twice", spec.tenant, gpu));
  }
  return OkStatus();
}

std::string Dump(const Json& value) { return Shown(value.dump(-1, ' ', true, Json::error_handler_t::replace)); }

// Reads a member if it is there; says what it must be if it is something else.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}

  void Read(const char* key, std::string& into) {
    if (const Json* value = Take(key)) {
      value->is_string() ? void(into = value->get<std::string>()) : Wrong(key, "a string", *value);
    }
  }
  template <typename Number>
  void Read(const char* key, Number& into) requires std::is_unsigned_v<Number> {
    if (const Json* value = Take(key)) {
      const bool fits = value->is_number_unsigned() && value->get<uint64_t>() <= std::numeric_limits<Number>::max();
      fits ? void(into = value->get<Number>()) : Wrong(key, "a whole number that is not negative", *value);
    }
  }
  template <typename Number>
  void Read(const char* key, std::optional<Number>& into) {
    if (!object_.contains(key)) return known_.emplace_back(key), void();
    Read(key, into.emplace());
  }
  void Read(const char* key, double& into) {
    if (const Json* value = Take(key)) {
      value->is_number() ? void(into = value->get<double>()) : Wrong(key, "a number", *value);
    }
  }
  void Read(const char* key, std::vector<std::string>& into) {
    const Json* value = Take(key);
    if (value == nullptr) return;
    const bool are_strings =
        value->is_array() && std::all_of(value->begin(), value->end(), [](auto& each) { return each.is_string(); });
    are_strings ? void(into = value->get<std::vector<std::string>>()) : Wrong(key, "a list of strings", *value);
  }
  template <typename Value>
  void Read(const char* key, Result<Value> (*parse)(const std::string&), Value& into) {
    std::string text;
    Read(key, text);
    if (text.empty()) return;
    const auto parsed = parse(text);
    if (parsed) into = *parsed;
    if (!parsed && status_.ok()) status_ = parsed.error().With(key);
  }

  Status Finish() const {
    if (!status_.ok() || num_taken_ == object_.size()) return status_;
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::find(known_, key) == known_.end()) {
        return Invalid(fmt::format("a grant has no '{}' (known: {})", Shown(key), fmt::join(known_, ", ")));
      }
    }
    return status_;
  }

 private:
  const Json* Take(const char* key) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) return nullptr;
    ++num_taken_;
    return &*found;
  }
  void Wrong(const char* key, const char* expected, const Json& value) {
    if (status_.ok()) status_ = Invalid(fmt::format("a grant's '{}' must be {}, not {}", key, expected, Dump(value)));
  }

  const Json& object_;
  std::vector<std::string> known_;
  size_t num_taken_ = 0;
  Status status_;
};

}  // namespace

std::string GrantSpec::DomainOwner() const {
  switch (domain_policy) {
    case DomainPolicy::kTenant:
      break;
    case DomainPolicy::kNamespace:
      return "namespace/" + label_namespace;
    case DomainPolicy::kShared:
      return "shared/all";
  }
  return tenant;
}

Status CheckGrant(const GrantSpec& spec) {
  if (!IsPlainName(spec.tenant)) {
    return Invalid(
        fmt::format("grant '{}': a name is 1 to {} letters, digits, '-', '_' and '.', and begins with a "
                    "letter or a digit",
                    Shown(spec.tenant), kMaxTenantLetters));
  }
  if (spec.weight < 1 || spec.weight > scheduler::kMaxWeight || spec.level >= scheduler::kNumLevels) {
    return Invalid(fmt::format("grant '{}': weight {}, level {}: a weight is from 1 to {}, a level from 0 to {}",
                               spec.tenant, spec.weight, spec.level, scheduler::kMaxWeight, scheduler::kNumLevels - 1));
  }
  TALLY_RETURN_IF_ERROR(CheckLabel(spec, "namespace", spec.label_namespace));
  TALLY_RETURN_IF_ERROR(CheckLabel(spec, "pod", spec.pod));
  TALLY_RETURN_IF_ERROR(CheckLabel(spec, "container", spec.container));
  if (spec.domain_policy == DomainPolicy::kNamespace && !IsPlainName(spec.label_namespace)) {
    return Invalid(
        fmt::format("grant '{}': a domain for each namespace needs the grant's namespace, a name like that "
                    "of a tenant",
                    spec.tenant));
  }
  if (!(spec.share >= 0.001 && spec.share <= 1)) {
    return Invalid(fmt::format("grant '{}': a share of {} is not from 0.001 to 1", spec.tenant, spec.share));
  }
  if (spec.share < 1 && spec.ceiling == shm::PriorityClass::kHighPriority) {
    return Invalid(
        fmt::format("grant '{}': a share caps best-effort programs: leave it away, or the class high", spec.tenant));
  }
  if (spec.owner_uid == control::kNobody) {
    return Invalid(fmt::format("grant '{}': {} is no user's number", spec.tenant, control::kNobody));
  }
  return CheckGpus(spec);
}

Status CheckGrants(const std::vector<GrantSpec>& specs, const std::string& runtime_dir) {
  std::set<std::string> tenants;
  for (const GrantSpec& spec : specs) {
    TALLY_RETURN_IF_ERROR(CheckGrant(spec));
    if (!tenants.insert(spec.tenant).second) return Invalid(fmt::format("grant '{}' is there twice", spec.tenant));
    const size_t size = control::GrantSocketIn(runtime_dir, spec.tenant).size();
    if (size > kMaxSocketPath) {
      return Invalid(fmt::format("grant '{}': the path of its socket is too long by {} characters", spec.tenant,
                                 size - kMaxSocketPath));
    }
  }
  if (specs.size() > kMaxGrants) return Invalid(fmt::format("{} grants: {} may be", specs.size(), kMaxGrants));
  return OkStatus();
}

Result<DomainPolicy> ParseDomainPolicy(const std::string& text) {
  for (const DomainPolicy policy : {DomainPolicy::kTenant, DomainPolicy::kNamespace, DomainPolicy::kShared}) {
    if (text == DomainPolicyName(policy)) return policy;
  }
  return Error(StatusCode::kInvalidArgument,
               fmt::format("'{}' is no domain policy: say tenant, namespace or shared", Shown(text)));
}

const char* DomainPolicyName(DomainPolicy policy) {
  switch (policy) {
    case DomainPolicy::kTenant:
      return "tenant";
    case DomainPolicy::kNamespace:
      return "namespace";
    case DomainPolicy::kShared:
      return "shared";
  }
  return "unknown";
}

Result<GrantSpec> GrantFromJson(const Json& object) {
  if (!object.is_object()) return Error(StatusCode::kInvalidArgument, "a grant must be an object {...}");
  GrantSpec spec;
  Members members(object);
  members.Read("tenant", spec.tenant);
  members.Read("class", ParsePriorityClass, spec.ceiling);
  members.Read("weight", spec.weight);
  members.Read("level", spec.level);
  members.Read("device_memory_bytes", spec.device_memory_bytes);
  members.Read("share", spec.share);
  members.Read("gpus", spec.gpus);
  members.Read("domain", ParseDomainPolicy, spec.domain_policy);
  members.Read("namespace", spec.label_namespace);
  members.Read("pod", spec.pod);
  members.Read("container", spec.container);
  members.Read("owner", spec.owner_uid);
  if (const Status read = members.Finish(); !read.ok()) return std::unexpected(read);
  return spec;
}

Json ToJson(const GrantSpec& spec) {
  Json json = {{"tenant", spec.tenant},
               {"class", PriorityClassName(spec.ceiling)},
               {"weight", spec.weight},
               {"level", spec.level},
               {"device_memory_bytes", spec.device_memory_bytes},
               {"share", spec.share},
               {"gpus", spec.gpus},
               {"domain", DomainPolicyName(spec.domain_policy)},
               {"namespace", spec.label_namespace},
               {"pod", spec.pod},
               {"container", spec.container}};
  if (spec.owner_uid) json["owner"] = *spec.owner_uid;
  return json;
}

}  // namespace tally::server

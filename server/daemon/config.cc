#include "server/daemon/config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/unique_fd.h"
#include "proto/control/cache_directory.h"
#include "proto/control/socket_paths.h"
#include "scheduler/policy_list.h"
#include "scheduler/slo.h"
#include "server/daemon/executor_spawner.h"
#include "server/daemon/policy_rules.h"

namespace tally::server {
namespace {

using Json = nlohmann::json;

// Characters of a text, by which a parser's place is known: the parser reads them one by one, in order, none ahead of
// the token that it is at.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, size_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_++ == '\n') ++*line_;
    return *this;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }
  bool operator!=(const LineCounter& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* line_;
};

Status WrongType(const std::string& key, const char* expected, const Json& value) {
  return Status(StatusCode::kInvalidArgument, fmt::format("'{}' must be {}, not {}", key, expected, value.dump()));
}

Status ReadString(const std::string& key, const Json& value, std::string& into) {
  if (!value.is_string()) return WrongType(key, "a string", value);
  into = value.get<std::string>();
  // A path would be another one to the kernel, which reads up to there.
  if (into.find('\0') != std::string::npos) return WrongType(key, "a string without a NUL", value);
  return OkStatus();
}

Status ReadBool(const std::string& key, const Json& value, bool& into) {
  if (!value.is_boolean()) return WrongType(key, "true or false", value);
  into = value.get<bool>();
  return OkStatus();
}

Status ReadCount(const std::string& key, const Json& value, uint32_t& into) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > 1'000'000) {
    return WrongType(key, "a whole number from 0 to 1000000", value);
  }
  into = value.get<uint32_t>();
  return OkStatus();
}

Status ReadBytes(const std::string& key, const Json& value, uint64_t& into) {
  if (!value.is_number_unsigned()) return WrongType(key, "a number of bytes", value);
  into = value.get<uint64_t>();
  return OkStatus();
}

Status ReadSeconds(const std::string& key, const Json& value, std::chrono::seconds& into) {
  uint32_t count = 0;
  TALLY_RETURN_IF_ERROR(ReadCount(key, value, count));
  into = std::chrono::seconds(count);
  return OkStatus();
}

// Whole ones, `most` at most; `range` says so.
template <typename Duration>
Status ReadTime(const std::string& key, const Json& value, uint64_t most, const char* range, Duration& into) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > most) return WrongType(key, range, value);
  into = Duration(value.get<uint64_t>());
  return OkStatus();
}

Status ReadUids(const std::string& key, const Json& value, std::optional<UidSet>& into) {
  UidSet set;
  if (value == "any") {
    set.everybody = true;
  } else if (value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& uid) {
               // A larger one would be cut to another user's: 4294967296 to root's.
               return uid.is_number_unsigned() && uid.get<uint64_t>() < std::numeric_limits<uid_t>::max();
             })) {
    for (const Json& uid : value) set.uids.push_back(uid.get<uid_t>());
  } else {
    return WrongType(key, "\"any\" or a list of numeric user ids", value);
  }
  into = std::move(set);
  return OkStatus();
}

Status ReadGrants(const std::string& key, const Json& value, std::vector<GrantSpec>& into) {
  if (!value.is_array()) return WrongType(key, "a list of grants", value);
  std::vector<GrantSpec> grants;
  for (const Json& each : value) {
    auto grant = GrantFromJson(each);
    if (!grant) return grant.error().With(key);
    grants.push_back(std::move(*grant));
  }
  into = std::move(grants);
  return OkStatus();
}

using Reader = std::function<Status(const std::string& key, const Json& value, DaemonConfig& config)>;

// The whole vocabulary of the file. docs/tallyd.md describes each; tests/server/daemon/config_test.cc compares.
const std::map<std::string, Reader>& Readers() {
  static const std::map<std::string, Reader> readers = {
      {"socket", [](auto& key, auto& value, auto& config) { return ReadString(key, value, config.socket); }},
      {"allowed_uids", [](auto& key, auto& value, auto& config) { return ReadUids(key, value, config.allowed_uids); }},
      {"high_priority_uids",
       [](auto& key, auto& value, auto& config) { return ReadUids(key, value, config.high_priority_uids); }},
      {"grants", [](auto& key, auto& value, auto& config) { return ReadGrants(key, value, config.grants); }},
      {"default_priority",
       [](auto& key, auto& value, auto& config) {
         std::string text;
         TALLY_RETURN_IF_ERROR(ReadString(key, value, text));
         const auto parsed = ParsePriorityClass(text);
         if (!parsed) return parsed.error().With(key);
         config.default_priority = *parsed;
         return OkStatus();
       }},
      {"share_domains_between_users",
       [](auto& key, auto& value, auto& config) { return ReadBool(key, value, config.share_domains_between_users); }},
      {"show_own_sessions",
       [](auto& key, auto& value, auto& config) { return ReadBool(key, value, config.shows_own_sessions); }},
      {"show_totals", [](auto& key, auto& value, auto& config) { return ReadBool(key, value, config.shows_totals); }},
      {"share_contexts",
       [](auto& key, auto& value, auto& config) { return ReadBool(key, value, config.share_contexts); }},
      {"suspend_best_effort",
       [](auto& key, auto& value, auto& config) { return ReadBool(key, value, config.suspend_best_effort); }},
      {"refresh_contexts",
       [](auto& key, auto& value, auto& config) { return ReadBool(key, value, config.refresh_contexts); }},
      {"hold_gpu", [](auto& key, auto& value, auto& config) { return ReadBool(key, value, config.hold_gpu); }},
      {"max_sessions", [](auto& key, auto& value, auto& config) { return ReadCount(key, value, config.max_sessions); }},
      {"max_sessions_per_user",
       [](auto& key, auto& value, auto& config) { return ReadCount(key, value, config.max_sessions_per_user); }},
      {"max_domains_per_user",
       [](auto& key, auto& value, auto& config) { return ReadCount(key, value, config.max_domains_per_user); }},
      {"session_device_memory_bytes",
       [](auto& key, auto& value, auto& config) { return ReadBytes(key, value, config.session_device_memory_bytes); }},
      {"session_pinned_memory_bytes",
       [](auto& key, auto& value, auto& config) { return ReadBytes(key, value, config.session_pinned_memory_bytes); }},
      {"driver",
       [](auto& key, auto& value, auto& config) {
         std::string text;
         TALLY_RETURN_IF_ERROR(ReadString(key, value, text));
         const auto parsed = ParseDriverChoice(text);
         if (!parsed) return parsed.error().With(key);
         config.driver = *parsed;
         return OkStatus();
       }},
      {"executor_idle_seconds",
       [](auto& key, auto& value, auto& config) { return ReadSeconds(key, value, config.executor_idle); }},
      {"departed_work_limit_seconds",
       [](auto& key, auto& value, auto& config) { return ReadSeconds(key, value, config.departed_work_limit); }},
      {"executor_start_limit_seconds",
       [](auto& key, auto& value, auto& config) { return ReadSeconds(key, value, config.executor_start_limit); }},
      {"policy",
       [](auto& key, auto& value, auto& config) {
         std::string text;
         TALLY_RETURN_IF_ERROR(ReadString(key, value, text));
         const auto parsed = ParsePolicy(text);
         if (!parsed) return parsed.error().With(key);
         config.policy = *parsed;
         return OkStatus();
       }},
      {"transforms",
       [](auto& key, auto& value, auto& config) {
         std::string text;
         TALLY_RETURN_IF_ERROR(ReadString(key, value, text));
         const auto parsed = ParseTransforms(text);
         if (!parsed) return parsed.error().With(key);
         config.transforms = *parsed;
         return OkStatus();
       }},
      {"turnaround_threshold_us",
       [](auto& key, auto& value, auto& config) {
         if (!value.is_number() || value.template get<double>() < 1 || value.template get<double>() > 1e6) {
           return WrongType(key, "a number of microseconds from 1 to 1000000", value);
         }
         config.turnaround_threshold =
             std::chrono::nanoseconds(static_cast<int64_t>(value.template get<double>() * 1e3));
         return OkStatus();
       }},
      {"gates_rest_after_ms",
       [](auto& key, auto& value, auto& config) {
         return ReadTime(key, value, kLongestGatesRestMs, "milliseconds from 0 to 3600000", config.gates_rest_after);
       }},
      {"time_slice_us",
       [](auto& key, auto& value, auto& config) {
         return ReadTime(key, value, kLongestTimeSliceUs, "microseconds from 0 to 1000000",
                         config.best_effort_time_slice);
       }},
      {"starvation_bound",
       [](auto& key, auto& value, auto& config) {
         std::string text;
         TALLY_RETURN_IF_ERROR(ReadString(key, value, text));
         const auto parsed = ParseStarvationBound(text);
         if (!parsed) return parsed.error().With(key);
         config.starvation_bound = *parsed;
         return OkStatus();
       }},
      {"cache_directory",
       [](auto& key, auto& value, auto& config) { return ReadString(key, value, config.cache_directory); }},
      {"metrics_address",
       [](auto& key, auto& value, auto& config) {
         config.is_metrics_address_explicit = true;
         return ReadString(key, value, config.metrics_address);
       }},
  };
  return readers;
}

Status CheckStarvationBound(const DaemonConfig& config) {
  if (!HasStarvationBound(config)) return OkStatus();
  if (config.transforms != Transforms::kNone && config.transforms != Transforms::kSlices) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a starvation bound goes with transforms none or slices, not with {}: kernels that yield "
                              "would give back at once what they were granted",
                              TransformsName(config.transforms)));
  }
  return OkStatus();
}

Status CheckDescheduling(const DaemonConfig& config) {
  if (!config.suspend_best_effort) return OkStatus();
  const char* without = HasStarvationBound(config)                   ? "a starvation bound"
                        : config.best_effort_time_slice.count() == 0 ? "time_slice_us 0"
                        : config.share_contexts                      ? "share_contexts"
                                                                     : nullptr;
  if (without == nullptr) return OkStatus();
  return Status(StatusCode::kInvalidArgument, fmt::format("suspend_best_effort does not go with {}", without));
}

Status CheckMetricsAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  const bool has_port = colon != std::string::npos && colon > 0 && colon + 1 < address.size() &&
                        address.find_first_not_of("0123456789", colon + 1) == std::string::npos &&
                        address.size() - colon <= 6 && std::stoi(address.substr(colon + 1)) <= 65535;
  if (has_port) return OkStatus();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("metrics address '{}' must be HOST:PORT, e.g. 127.0.0.1:9464, or 0 for none", address));
}

}  // namespace

bool UidSet::Contains(uid_t uid) const { return everybody || std::find(uids.begin(), uids.end(), uid) != uids.end(); }

Result<shm::PriorityClass> ParsePriorityClass(const std::string& text) {
  if (text == "high") return shm::PriorityClass::kHighPriority;
  if (text == "best-effort") return shm::PriorityClass::kBestEffort;
  return Error(StatusCode::kInvalidArgument, fmt::format("'{}' is no priority: say high or best-effort", text));
}

const char* PriorityClassName(shm::PriorityClass priority_class) {
  switch (priority_class) {
    case shm::PriorityClass::kDefault:
      return "default";
    case shm::PriorityClass::kHighPriority:
      return "high";
    case shm::PriorityClass::kBestEffort:
      return "best-effort";
  }
  return "unknown";
}

Result<DriverChoice> ParseDriverChoice(const std::string& text) {
  if (text == "auto") return DriverChoice::kAuto;
  if (text == "cuda") return DriverChoice::kCuda;
  if (text == "sim") return DriverChoice::kSim;
  return Error(StatusCode::kInvalidArgument, fmt::format("'{}' is no driver: say auto, cuda or sim", text));
}

const char* DriverChoiceName(DriverChoice driver) {
  switch (driver) {
    case DriverChoice::kAuto:
      return "auto";
    case DriverChoice::kCuda:
      return "cuda";
    case DriverChoice::kSim:
      return "sim";
  }
  return "unknown";
}

Result<std::string> ParsePolicy(const std::string& text) {
  if (text == scheduler::kAutoPolicy) return text;
  std::string names = fmt::format("{} ({} where the driver accepts them, else {})", scheduler::kAutoPolicy,
                                  scheduler::kTimeSlicesPolicy, scheduler::kLookAheadPolicy);
  for (const scheduler::PolicyRow& row : scheduler::Policies()) {
    if (row.is_by_auto_only) continue;
    if (row.name == text) return text;
    names += fmt::format(", {}", row.name);
  }
  return Error(StatusCode::kInvalidArgument, fmt::format("there is no policy '{}'; there are {}", text, names));
}

Result<std::optional<std::chrono::nanoseconds>> ParseStarvationBound(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "off") return std::chrono::nanoseconds(0);
  const auto bound = scheduler::ParseTime(text, kShortestStarvationBound, kLongestStarvationBound);
  if (!bound) return std::unexpected(bound.error());
  return *bound;
}

Result<Transforms> ParseTransforms(const std::string& text) {
  for (const Transforms transforms :
       {Transforms::kAll, Transforms::kSlices, Transforms::kPersistentBlocks, Transforms::kGate, Transforms::kNone}) {
    if (text == TransformsName(transforms)) return transforms;
  }
  return Error(StatusCode::kInvalidArgument,
               fmt::format("'{}' is no choice: say all, slices, workers, gate or none", text));
}

const char* TransformsName(Transforms transforms) {
  switch (transforms) {
    case Transforms::kNone:
      return "none";
    case Transforms::kSlices:
      return "slices";
    case Transforms::kPersistentBlocks:
      return "workers";
    case Transforms::kGate:
      return "gate";
    case Transforms::kAll:
      return "all";
  }
  return "unknown";
}

bool OthersMayConnect(const DaemonConfig& config) {
  return config.allowed_uids->everybody || config.allowed_uids->uids != std::vector<uid_t>{::geteuid()};
}

std::vector<std::string> ConfigKeys() {
  std::vector<std::string> keys;
  for (const auto& [key, reader] : Readers()) keys.push_back(key);
  return keys;
}

Status MergeConfigJson(const std::string& text, DaemonConfig& config) {
  size_t line = 1;
  std::map<std::string, size_t> line_of;
  const auto note_key = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::key && depth == 1) line_of[value.get<std::string>()] = line;
    return true;
  };
  const auto invalid = [](size_t at, const std::string& what) {
    return Status(StatusCode::kInvalidArgument, fmt::format("line {}: {}", at, OneLine(what)));
  };
  const Json root =
      Json::parse(LineCounter(text.data(), &line), LineCounter(text.data() + text.size(), &line), note_key,
                  /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (root.is_discarded()) return invalid(line, "not valid JSON");
  if (!root.is_object()) return Status(StatusCode::kInvalidArgument, "must be one JSON object {...}");
  for (const auto& [key, value] : root.items()) {
    const auto reader = Readers().find(key);
    if (reader == Readers().end()) {
      return invalid(line_of[key], fmt::format("unknown key '{}' (known: {})", key, fmt::join(ConfigKeys(), ", ")));
    }
    if (const Status read = reader->second(key, value, config); !read.ok())
      return invalid(line_of[key], read.message());
  }
  return OkStatus();
}

Status MergeConfigFile(const std::string& path, DaemonConfig& config) {
  const auto unreadable = [&](int error) {
    return StatusFromErrno(error, fmt::format("cannot read the config file '{}'", path));
  };
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return unreadable(errno);
  std::string text;
  char part[4096];
  ssize_t size = 0;
  while ((size = ::read(file.get(), part, sizeof(part))) > 0) text.append(part, static_cast<size_t>(size));
  if (size < 0) return unreadable(errno);
  return MergeConfigJson(text, config).With(fmt::format("config file '{}'", path));
}

Status Validate(uid_t uid, DaemonConfig& config) {
  if (config.socket.empty()) config.socket = control::DefaultSocket(uid);
  if (config.socket.front() != '/') {
    return Status(StatusCode::kInvalidArgument, fmt::format("socket '{}' must be an absolute path", config.socket));
  }
  const std::string socket_name = config.socket.substr(config.socket.rfind('/') + 1);
  config.runtime_dir = control::RuntimeDirOf(config.socket);
  if (config.runtime_dir.empty() || socket_name.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("socket '{}' must be a file in a directory of its own", config.socket));
  }
  config.socket = config.runtime_dir + "/" + socket_name;  // the link, where what it leads to was named
  // Linux gives a UNIX socket's path 107 characters; that of clients is the longest in the directory.
  constexpr size_t kMost = 107;
  if (const size_t size = control::ClientSocketIn(config.runtime_dir, socket_name).size(); size > kMost) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the path of socket '{}' is too long by {} characters: tallyd has its socket in a "
                              "directory '{}' beside it",
                              config.socket, size - kMost, control::kClientDirectoryName));
  }
  TALLY_RETURN_IF_ERROR(CheckGrants(config.grants, config.runtime_dir));
  if (!config.allowed_uids) config.allowed_uids = UidSet{uid == 0 && config.embedded_parent == 0, {uid}};
  if (!config.high_priority_uids) config.high_priority_uids = UidSet{false, {uid}};
  if (config.max_sessions == 0 || config.max_sessions_per_user == 0 || config.max_domains_per_user == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "max_sessions, max_sessions_per_user and max_domains_per_user must be at least 1");
  }
  if (config.executor_start_limit.count() == 0) {
    return Status(StatusCode::kInvalidArgument, "executor_start_limit_seconds must be at least 1");
  }
  TALLY_RETURN_IF_ERROR(CheckHonoured(config, ResolveDriver(config.driver).driver));
  TALLY_RETURN_IF_ERROR(CheckStarvationBound(config));
  TALLY_RETURN_IF_ERROR(CheckDescheduling(config));
  if (config.cache_directory == "auto") config.cache_directory = control::DefaultCacheDirectory(uid);
  if (!config.cache_directory.empty() && config.cache_directory.front() != '/') {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("cache_directory '{}' must be an absolute path", config.cache_directory));
  }
  if (config.metrics_address == "0") config.metrics_address.clear();
  if (!config.metrics_address.empty()) TALLY_RETURN_IF_ERROR(CheckMetricsAddress(config.metrics_address));
  return OkStatus();
}

}  // namespace tally::server

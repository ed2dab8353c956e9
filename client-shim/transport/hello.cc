#include "client-shim/transport/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "client-shim/transport/rank.h"
#include "proto/control/amounts.h"
#include "proto/control/graph_figures.h"
#include "proto/control/window_mode.h"
#include "proto/driver/generated/wire_ops.h"

namespace tally::client_shim {
namespace {

template <size_t kSize>
void CopyText(char (&out)[kSize], const char* text) {
  std::strncpy(out, text, kSize - 1);
}

// Of an environment variable; 0 if it is not there. tallyd says what it thinks of a number that makes no sense.
template <typename T>
T NumberOf(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return 0;
  return static_cast<T>(std::min<unsigned long>(std::strtoul(text, nullptr, 10), std::numeric_limits<T>::max()));
}

// Likewise, of microseconds, in nanoseconds. Not by the locale of the program.
uint64_t NanosecondsOf(const char* variable) {
  const char* text = std::getenv(variable);
  double microseconds = 0;
  if (text == nullptr || std::from_chars(text, text + std::strlen(text), microseconds).ec != std::errc()) return 0;
  return microseconds > 0 ? static_cast<uint64_t>(std::min(microseconds * 1e3, 1e18)) : 0;
}

// A limit that cannot be read must not be none: false, and `*sentence` says which.
bool ReadLimits(shm::HelloRequest* hello, std::string* sentence) {
  sentence->clear();
  if (const char* memory = std::getenv("TALLY_MEMORY"); memory != nullptr) {
    hello->device_memory_bytes = control::ParseBytes(memory).value_or(0);
    if (hello->device_memory_bytes == 0) *sentence = fmt::format("TALLY_MEMORY={} is no size like 8G", memory);
  }
  if (const char* share = std::getenv("TALLY_SHARE"); share != nullptr) {
    hello->share_permille = static_cast<uint32_t>(control::ParseShare(share).value_or(0) * 1000 + 0.5);
    if (hello->share_permille == 0) *sentence = fmt::format("TALLY_SHARE={} is no part of GPU time like 30%", share);
  }
  return sentence->empty();
}

// Ranks of a job compute together: each needs an executor of its own (docs/sharing.md). So may anybody else.
void StandApart(shm::HelloRequest* hello) {
  const char* apart = std::getenv("TALLY_APART");
  const bool is_asked = apart != nullptr && std::strcmp(apart, "1") == 0;
  const auto rank = FindRank();
  if (!is_asked && !rank) return;
  if (is_asked || rank->job.empty()) {
    hello->own_domain = static_cast<uint8_t>(shm::OwnDomain::kApart);
    return;
  }
  hello->own_domain = static_cast<uint8_t>(shm::OwnDomain::kRank);
  hello->rank = rank->number;
  CopyText(hello->domain_name, rank->job.c_str());
}

}  // namespace

bool MakeHello(shm::HelloRequest* out, std::string* sentence) {
  shm::HelloRequest& hello = *out;
  hello = {};
  hello.magic = shm::kHelloMagic;
  hello.protocol_version = shm::kProtocolVersion;
  hello.api_table_hash = kApiTableHash;
  const char* priority = std::getenv("TALLY_PRIORITY");
  auto priority_class = shm::PriorityClass::kDefault;
  if (priority != nullptr && std::strcmp(priority, "high") == 0) priority_class = shm::PriorityClass::kHighPriority;
  if (priority != nullptr && std::strcmp(priority, "best-effort") == 0)
    priority_class = shm::PriorityClass::kBestEffort;
  hello.priority_class = static_cast<uint16_t>(priority_class);
  hello.weight = NumberOf<uint16_t>("TALLY_WEIGHT");
  hello.level = NumberOf<uint8_t>("TALLY_LEVEL");
  const char* transforms = std::getenv("TALLY_TRANSFORMS");
  hello.keeps_kernels = transforms != nullptr && std::strcmp(transforms, "none") == 0 ? 1 : 0;
  const char* window = std::getenv("TALLY_WINDOW");
  const auto window_mode = control::ParseWindowMode(window != nullptr ? window : "");
  hello.window = static_cast<uint8_t>(window_mode.value_or(control::WindowMode::kOff));
  const char* graphs = std::getenv("TALLY_GRAPHS");
  const auto graph_mode = control::ParseGraphMode(graphs != nullptr ? graphs : "");
  hello.graphs = static_cast<uint8_t>(graph_mode.value_or(control::GraphMode::kPartitions));
  hello.turnaround_ns = NanosecondsOf("TALLY_TURNAROUND_US");
  if (const char* slo = std::getenv("TALLY_SLO"); slo != nullptr) CopyText(hello.slo, slo);
  const char* name = std::getenv("TALLY_NAME");
  CopyText(hello.tenant_name, name != nullptr ? name : program_invocation_short_name);
  if (const char* domain = std::getenv("TALLY_DOMAIN"); domain != nullptr) CopyText(hello.domain_name, domain);
  StandApart(&hello);
  return ReadLimits(&hello, sentence);
}

}  // namespace tally::client_shim

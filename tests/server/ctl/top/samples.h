// Samples for the tests of top.
#pragma once

#include <cstdint>
#include <string>

#include "server/ctl/top/model.h"

namespace tally::cli {

inline constexpr uint64_t kSecondNs = 1'000'000'000;

inline control::v1::Session* AddSession(uint64_t id, const std::string& tenant, bool is_high, TopSample* sample) {
  auto* session = sample->sessions.add_sessions();
  session->set_id(id);
  session->set_tenant(tenant);
  session->set_pid(1000 + static_cast<int32_t>(id));
  session->set_priority_class(is_high ? control::v1::PRIORITY_CLASS_HIGH : control::v1::PRIORITY_CLASS_BEST_EFFORT);
  session->set_weight(100);
  session->set_age_ns(100 * kSecondNs);
  return session;
}

inline void SetBusy(uint64_t busy_ns, control::v1::Session* session) {
  (*session->mutable_figures())["busy_ns"] = busy_ns;
}

inline TopSample SampleAt(uint64_t seconds, const std::string& driver = "sim") {
  TopSample sample;
  sample.at_ns = seconds * kSecondNs;
  sample.version.set_version("0.1.0");
  sample.version.set_driver(driver);
  return sample;
}

}  // namespace tally::cli

// What is counted of domains since tallyd started; it survives their executors.
//
// Programs name domains, one after the other as many as they like, and each is three series of metrics for good. So of
// one owner so many are counted by name, and the rest together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "server/daemon/domain.h"

namespace tally::server {

struct DomainCounters {
  uint64_t starts = 0;
  uint64_t faults = 0;    // an executor lost its context
  uint64_t failures = 0;  // an executor ended without having been asked
};

class DomainBook {
 public:
  static constexpr size_t kMostPerOwner = 64;

  DomainCounters& Of(const Domain& domain) {
    if (const auto known = counters_.find(domain.CounterLabel()); known != counters_.end()) return known->second;
    size_t& num_named = num_named_[domain.OwnerLabel()];
    if (num_named < kMostPerOwner) {
      ++num_named;
      return counters_[domain.CounterLabel()];
    }
    Domain others = domain;
    others.name = "(others)";  // no program can name that
    return counters_[others.Label()];
  }
  const std::map<std::string, DomainCounters>& counters() const { return counters_; }  // by Domain::CounterLabel

 private:
  std::map<std::string, DomainCounters> counters_;
  std::map<std::string, size_t> num_named_;  // by Domain::OwnerLabel
};

}  // namespace tally::server

// What is known of a session's graphs, for whoever asks (tallyctl graphs, tallyctl graph). Its channels know; they
// publish a copy now and then, when they hold the sequencer.
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "proto/control/graph_figures.h"
#include "server/executor/issue/graph_picture.h"
#include "server/executor/mirror/plan_picture.h"

namespace tally::server {

// A plan and its last launch; nulls: there is none.
struct SpreadRecord {
  std::shared_ptr<const PlanOutline> plan;
  std::shared_ptr<const std::vector<StepTimes>> times;
};

struct GraphRow {
  control::GraphFigures figures{};                 // without the session
  std::shared_ptr<const GraphOutline> partitions;  // null: it has not been cut
  SpreadRecord spread{};
};

class PublishedGraphs {
 public:
  // All of them, in place of those before.
  void Publish(std::vector<GraphRow> rows) {
    const std::lock_guard lock(mutex_);
    rows_ = std::move(rows);
  }
  std::vector<GraphRow> Last() const {
    const std::lock_guard lock(mutex_);
    return rows_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<GraphRow> rows_;
};

}  // namespace tally::server

#include "server/ctl/top/snapshot_json.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace tally::cli {
namespace {

using Json = nlohmann::json;

template <typename Figure>
Json OrNull(const std::optional<Figure>& figure) {
  return figure ? Json(*figure) : Json(nullptr);
}

Json ToJson(const GpuReading& gpu) {
  return {{"index", gpu.index},
          {"name", gpu.name},
          {"uuid", gpu.uuid},
          {"utilization_percent", OrNull(gpu.utilization_percent)},
          {"used_bytes", OrNull(gpu.used_bytes)},
          {"total_bytes", OrNull(gpu.total_bytes)},
          {"celsius", OrNull(gpu.celsius)},
          {"watts", OrNull(gpu.watts)}};
}

Json ToJson(const TopRow& row) {
  return {{"sessions", row.session_ids},
          {"tenant", row.tenant},
          {"pid", row.pid},
          {"uid", row.uid},
          {"class", row.is_high ? "high" : "best-effort"},
          {"weight", row.is_high ? Json(nullptr) : OrNull(row.rank)},
          {"level", row.is_high ? OrNull(row.rank) : Json(nullptr)},
          {"gpus", row.gpus},
          {"is_stale", row.is_stale},
          {"busy_share", OrNull(row.busy_share)},
          {"device_memory_bytes", row.memory_bytes},
          {"launches_per_s", OrNull(row.launches_per_s)},
          {"held_per_s", OrNull(row.held_per_s)},
          {"slo", row.objective},
          {"slo_observed_ns", row.observed_ns},
          {"age_ns", row.age_ns}};
}

}  // namespace

Json ToJson(const TopView& view, const std::string& clock) {
  Json gpus = Json::array(), rows = Json::array();
  for (const GpuReading& gpu : view.gpus) gpus.push_back(ToJson(gpu));
  for (const TopRow& row : view.rows) rows.push_back(ToJson(row));
  return {{"time", clock},
          {"gpus", std::move(gpus)},
          {"num_executors", view.totals.num_executors},
          {"rows", std::move(rows)}};
}

}  // namespace tally::cli

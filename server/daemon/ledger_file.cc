#include "server/daemon/ledger_file.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/replaced_file.h"

namespace tally::server {
namespace {

using Json = nlohmann::json;

// Most are 0: only the others, by their places.
Json ToJson(const control::SessionFigures& figures) {
  Json values = Json::array();
  for (size_t i = 0; i < std::size(figures.values); ++i) {
    if (figures.values[i] != 0) values.push_back({i, figures.values[i]});
  }
  return values;
}

control::SessionFigures FiguresOf(const Json& values) {
  control::SessionFigures figures{};
  for (const Json& pair : values) {
    const auto place = pair.at(0).get<size_t>();
    if (place < std::size(figures.values)) figures.values[place] = pair.at(1).get<uint64_t>();
  }
  return figures;
}

KeptLedger LedgerOf(const Json& file) {
  KeptLedger kept;
  if (file.at("figures").get<uint32_t>() != control::kSessionFiguresHash) return kept;
  kept.gpus = file.at("gpus").get<std::vector<std::string>>();
  if (kept.gpus.size() > control::kMostGpus) return {};
  for (const Json& tenant : file.at("tenants")) {
    const TenantKey key{tenant.at("name").get<std::string>(), tenant.at("uid").get<uint32_t>(),
                        tenant.at("has_grant").get<bool>()};
    kept.ledger.Restore(key, FiguresOf(tenant.at("values")));
  }
  return kept;
}

}  // namespace

void SaveLedger(const std::string& path, const TenantLedger& ledger, const std::vector<std::string>& gpus) {
  Json file = {{"figures", control::kSessionFiguresHash}, {"gpus", gpus}, {"tenants", Json::array()}};
  for (const auto& [tenant, figures] : ledger.ended()) {
    file["tenants"].push_back(
        {{"name", tenant.name}, {"uid", tenant.uid}, {"has_grant", tenant.has_grant}, {"values", ToJson(figures)}});
  }
  // A name may be any bytes. Whose there are is nobody else's business.
  const std::string text = file.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (const Status written = ReplaceFile(path, text, 0600); !written.ok()) LOG_WARNING("{}", written.message());
}

KeptLedger LoadLedger(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {};
  try {
    return LedgerOf(Json::parse(in));
  } catch (const Json::exception& error) {
    LOG_WARNING("'{}' is not understood, tenants' counters start at 0: {}", path, error.what());
    return {};
  }
}

}  // namespace tally::server

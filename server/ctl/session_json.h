// A session as `tallyctl ps --json` shows it: every field of the message, under its name.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "proto/control/control.pb.h"

namespace tally::cli {

nlohmann::json ToJson(const control::v1::Session& session);
// As `tallyctl totals --json` does.
nlohmann::json ToJson(const control::v1::GetTotalsResponse& totals);

}  // namespace tally::cli

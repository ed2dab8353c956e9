// A view of `tallyctl top` as `tallyctl --json top` prints it. What is not known is null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "server/ctl/top/model.h"

namespace tally::cli {

nlohmann::json ToJson(const TopView& view, const std::string& clock);

}  // namespace tally::cli

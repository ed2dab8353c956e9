// What tallyctl graphs shows.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "proto/control/control.pb.h"

namespace tally::cli {

// Which graph: "7.1" is the first of session 7.
struct GraphName {
  uint64_t session_id = 0;
  uint32_t number = 0;
};
std::optional<GraphName> ParseGraphName(const std::string& text);

// Empty: there are none.
std::string GraphTable(const control::v1::ListGraphsResponse& response);
nlohmann::json GraphJson(const control::v1::ListGraphsResponse& response);

}  // namespace tally::cli

// 'tallyctl window': what the windows of programs find, as a table for people and as JSON (docs/window.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/control/control.pb.h"

namespace tally::cli {

// Empty: no session has a window.
std::string WindowTable(const control::v1::ListSessionsResponse& response);
// An array of the same sessions.
nlohmann::json WindowJson(const control::v1::ListSessionsResponse& response);

// Empty: no batch has come twice.
std::string ShapeTable(const control::v1::ListWindowShapesResponse& response);
nlohmann::json ShapeJson(const control::v1::ListWindowShapesResponse& response);

}  // namespace tally::cli

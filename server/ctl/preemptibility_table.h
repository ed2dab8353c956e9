// 'tallyctl coverage': by what the GPU could be taken from each best-effort program, as a table for people.
#pragma once

#include <string>

#include "proto/control/control.pb.h"

namespace tally::cli {

// Empty: no session has used the GPU in a way that is counted.
std::string PreemptibilityTable(const control::v1::ListSessionsResponse& response);

}  // namespace tally::cli

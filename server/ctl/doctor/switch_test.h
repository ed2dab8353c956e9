// Runs tally-switch-test, which is beside tallyctl.
#pragma once

#include <chrono>

#include "server/ctl/doctor/facts.h"

namespace tally::cli {

// Ends it after `limit`. Also without a GPU: then it says why there are no figures.
SwitchFact RunSwitchTest(std::chrono::seconds limit);

}  // namespace tally::cli

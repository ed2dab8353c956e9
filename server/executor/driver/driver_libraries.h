// Which driver an executor opens, and where it is.
#pragma once

#include <string>

#include "proto/control/executor_choices.h"

namespace tally::server {

struct DriverLibraries {
  control::DriverChoice choice = control::DriverChoice::kAuto;
  std::string cuda_path;  // empty: search (TALLY_REAL_LIBCUDA, then the usual directories)
  std::string sim_path;   // full path of libtally-sim-driver.so; empty: TALLY_SIM_DRIVER, then beside the program and
                          // in ../lib
};

}  // namespace tally::server

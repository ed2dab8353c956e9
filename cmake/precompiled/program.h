// Read once for all programs (cmake/tally_targets.cmake).
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cmake/precompiled/room.h"

// Read once for all tests (cmake/tally_targets.cmake).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "cmake/precompiled/room.h"

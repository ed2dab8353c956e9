// What every entry file begins with: entries check arguments, look up handles and call the code behind them.
#pragma once

#include <cuda.h>

#include "sim-driver/api/capture.h"
#include "sim-driver/api/context.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"

#define TALLY_EXPORT extern "C" __attribute__((visibility("default")))

// The body of an exported function: TALLY_ENTRY({ ...; }) or with a `return code;` inside.
#define TALLY_ENTRY(...) return ::tally::sim_driver::Guarded([&]() __VA_ARGS__)

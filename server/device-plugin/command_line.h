// The options of tally-device-plugin.
#pragma once

#include <variant>

#include "server/device-plugin/plugin.h"

namespace tally::device_plugin {

// What to do, or the exit status of a run that ends here.
std::variant<PluginOptions, int> ParsePluginCommandLine(int argc, char** argv);

}  // namespace tally::device_plugin

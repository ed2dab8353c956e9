// How many objects of each kind are alive: for tests that look for what an executor forgot to give back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tally::sim_driver {

// `count` is asked whenever somebody wants to know, from any thread. For ever.
void RegisterLive(const char* kind, std::function<uint64_t()> count);

// A line "KIND NUMBER" for each kind that was registered, in order of names.
std::string DescribeLive();

}  // namespace tally::sim_driver

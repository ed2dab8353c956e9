// Every allocation of this program, counted. The program has one thread.
#pragma once

#include <cstdint>

namespace tally::scheduler_sim {

extern uint64_t num_allocations;
extern int64_t allocated_bytes;  // at the moment, as malloc rounds them

}  // namespace tally::scheduler_sim

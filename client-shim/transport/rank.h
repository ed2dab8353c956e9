// Whether this process is one of several that compute together (a *rank* of a job), as its starter says in the
// environment: torchrun, Open MPI, MPICH and its kin, SLURM. Reads the environment, as hello.h does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tally::client_shim {

struct Rank {
  uint16_t number = 0;
  // Tells the jobs of one machine apart: 16 hexadecimal digits. Empty: the starter says nothing that does.
  std::string job;
};

// nullopt: nothing is said, or that no other rank of the job is on this machine.
std::optional<Rank> FindRank();

}  // namespace tally::client_shim

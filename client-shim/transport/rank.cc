#include "client-shim/transport/rank.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace tally::client_shim {
namespace {

// What a starter sets. `local_size`: how many ranks are on this machine; null: it does not say. `job`: what two jobs at
// a time never have in common, all of it together.
struct Starter {
  const char* rank;
  const char* size;
  const char* local_size;
  std::array<const char*, 3> job;
};

// In order: torchrun may itself have been started by srun or mpirun.
constexpr std::array kStarters = {
    // Without a run's id the port is what a second job on this machine cannot have.
    Starter{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR"}},
    Starter{"OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
            {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"}},
    Starter{"MV2_COMM_WORLD_RANK",
            "MV2_COMM_WORLD_SIZE",
            "MV2_COMM_WORLD_LOCAL_SIZE",
            {"PMI_ID", "MPIRUN_ID", "HYDRA_PROXY_ID"}},
    Starter{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {"PMI_PORT", "PMI_JOBID", "PMI_KVS"}},
    Starter{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME"}},
};

// nullopt: it is not there, or no number.
std::optional<uint32_t> NumberOf(const char* variable) {
  const char* text = variable != nullptr ? std::getenv(variable) : nullptr;
  if (text == nullptr) return std::nullopt;
  uint32_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

// FNV-1a of what the variables hold. Nobody gains by a collision: it names a domain of the user's own.
std::string JobOf(const Starter& starter) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](const char* text) {
    do {
      hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3;
    } while (*text++ != '\0');
  };
  bool is_any_there = false;
  for (const char* variable : starter.job) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == '\0') continue;
    is_any_there = true;
    mix(variable);
    mix(text);
  }
  return is_any_there ? fmt::format("{:016x}", hash) : std::string();
}

}  // namespace

std::optional<Rank> FindRank() {
  for (const Starter& starter : kStarters) {
    const auto rank = NumberOf(starter.rank);
    const auto size = NumberOf(starter.size);
    if (!rank || !size || *size < 2 || *rank >= *size || *rank > UINT16_MAX) continue;
    if (NumberOf(starter.local_size) == 1) return std::nullopt;
    return Rank{static_cast<uint16_t>(*rank), JobOf(starter)};
  }
  return std::nullopt;
}

}  // namespace tally::client_shim

#include "client-shim/transport/rank.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace tally::client_shim {
namespace {

using Environment = std::map<std::string, std::string>;

// In an environment in which nothing else says anything of ranks.
std::optional<Rank> FindRankIn(const Environment& environment) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "PMI_RANK",
        "PMI_SIZE", "PMI_PORT", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"}) {
    ::unsetenv(name);
  }
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  return FindRank();
}

const Environment kTorchrun = {{"RANK", "3"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_WORLD_SIZE", "8"},
                               {"MASTER_PORT", "29500"},
                               {"MASTER_ADDR", "a"},
                               {"TORCHELASTIC_RUN_ID", "none"}};

Environment With(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

TEST(Rank, EachStarterIsUnderstood) {
  const Environment starters[] = {
      kTorchrun,
      {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "prterun-1"}},
      {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_PORT", "host:1"}},
      {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"}}};
  for (const Environment& environment : starters) {
    const auto rank = FindRankIn(environment);
    ASSERT_TRUE(rank) << environment.begin()->first;
    EXPECT_EQ(rank->number, 3);
    EXPECT_EQ(rank->job.size(), 16u);
  }
}

TEST(Rank, WhoIsAloneIsNone) {
  EXPECT_FALSE(FindRankIn({}));
  EXPECT_FALSE(FindRankIn(With(With(kTorchrun, "WORLD_SIZE", "1"), "RANK", "0")));
  EXPECT_FALSE(FindRankIn(With(kTorchrun, "LOCAL_WORLD_SIZE", "1"))) << "the other ranks are on other machines";
  EXPECT_FALSE(FindRankIn({{"RANK", "1"}})) << "of how many?";
}

TEST(Rank, NonsenseIsNoRank) {
  for (const char* nonsense : {"", "x", "-1", "8", "1.5", "99999999999", "3 "}) {
    EXPECT_FALSE(FindRankIn(With(kTorchrun, "RANK", nonsense))) << nonsense;
  }
  EXPECT_FALSE(FindRankIn(With(With(kTorchrun, "RANK", "70000"), "WORLD_SIZE", "80000")));
}

TEST(Rank, JobsAreToldApartAndRanksOfOneAreNot) {
  const std::string job = FindRankIn(kTorchrun)->job;
  EXPECT_EQ(FindRankIn(With(kTorchrun, "RANK", "0"))->job, job);
  EXPECT_NE(FindRankIn(With(kTorchrun, "MASTER_PORT", "29501"))->job, job);
  EXPECT_NE(FindRankIn(With(kTorchrun, "TORCHELASTIC_RUN_ID", "7"))->job, job);
  // What one variable loses another must not gain.
  EXPECT_NE(FindRankIn(With(With(kTorchrun, "MASTER_ADDR", "ab"), "TORCHELASTIC_RUN_ID", "non"))->job, job);
}

TEST(Rank, WithoutAJobsNameThereIsNone) {
  const auto rank = FindRankIn({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->job, "");
}

TEST(Rank, TorchrunUnderSlurmCounts) {
  Environment both = kTorchrun;
  both.insert({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_ID", "17"}});
  EXPECT_EQ(FindRankIn(both)->number, 3);
}

}  // namespace
}  // namespace tally::client_shim

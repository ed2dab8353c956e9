#include "server/daemon/gpu_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tally::server {
namespace {

using ::testing::ElementsAre;

control::LinkGpus Gpus(std::initializer_list<uint8_t> last_bytes) {
  control::LinkGpus gpus{};
  for (const uint8_t byte : last_bytes) {
    gpus.uuid[gpus.num_gpus][0] = 0x5c;
    gpus.uuid[gpus.num_gpus++][15] = byte;
  }
  return gpus;
}

TEST(GpuPlaces, NamesAreThoseOfNvidiaSmi) {
  GpuPlaces places;
  EXPECT_THAT(places.PlacesOf(Gpus({1})), ElementsAre(0u));
  EXPECT_THAT(places.names(), ElementsAre("GPU-5c000000-0000-0000-0000-000000000001"));
  control::LinkGpus unnamed{};
  unnamed.num_gpus = 2;
  EXPECT_THAT(places.PlacesOf(unnamed), ElementsAre(1u, 2u));
  EXPECT_EQ(places.names().back(), "GPU 1") << "two that the driver does not name are two";
}

// The first GPU was lost: an executor that starts now counts the second one as its first.
TEST(GpuPlaces, AGpuKeepsItsPlaceWhoeverCountsIt) {
  GpuPlaces places;
  EXPECT_THAT(places.PlacesOf(Gpus({1, 2, 3})), ElementsAre(0u, 1u, 2u));
  const std::vector<size_t> after = places.PlacesOf(Gpus({3, 4}));
  EXPECT_THAT(after, ElementsAre(2u, 3u));
  EXPECT_EQ(places.names().size(), 4u);
  control::SessionFigures figures{};
  figures["requests"] = 5;
  const auto entries = figures.entries("busy_ns");
  entries[control::GpuEntry(0, false)] = 30;
  entries[control::GpuEntry(0, true)] = 31;
  entries[control::GpuEntry(1, true)] = 41;
  const control::SessionFigures moved = ByPlaces(figures, after);
  const auto there = moved.entries("busy_ns");
  EXPECT_EQ(moved["requests"], 5u);
  EXPECT_EQ(there[control::GpuEntry(2, false)], 30u);
  EXPECT_EQ(there[control::GpuEntry(2, true)], 31u);
  EXPECT_EQ(there[control::GpuEntry(3, true)], 41u);
  for (size_t place : {0, 1}) {
    for (bool is_high_priority : {false, true}) EXPECT_EQ(there[control::GpuEntry(place, is_high_priority)], 0u);
  }
}

// Two executors that count in opposite order.
TEST(GpuPlaces, TwoMayChangePlaces) {
  GpuPlaces places;
  places.PlacesOf(Gpus({1, 2}));
  control::SessionFigures figures{};
  figures.entries("busy_ns")[control::GpuEntry(0, false)] = 10;
  figures.entries("busy_ns")[control::GpuEntry(1, false)] = 20;
  const control::SessionFigures moved = ByPlaces(figures, places.PlacesOf(Gpus({2, 1})));
  EXPECT_EQ(moved.entries("busy_ns")[control::GpuEntry(0, false)], 20u);
  EXPECT_EQ(moved.entries("busy_ns")[control::GpuEntry(1, false)], 10u);
}

TEST(GpuPlaces, ThoseThatHaveNoRoomShareTheLastPlace) {
  GpuPlaces places;
  control::LinkGpus gpus{};
  gpus.num_gpus = control::kMostGpus;
  for (size_t i = 0; i < control::kMostGpus; ++i) gpus.uuid[i][15] = static_cast<uint8_t>(i + 1);
  places.PlacesOf(gpus);
  EXPECT_THAT(places.PlacesOf(Gpus({200, 3})), ElementsAre(control::kMostGpus - 1, control::kMostGpus - 1));
  EXPECT_EQ(places.names().size(), control::kMostGpus);
}

}  // namespace
}  // namespace tally::server

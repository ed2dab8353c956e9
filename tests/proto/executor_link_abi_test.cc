// The layout once more, written down apart: a change of one is a change of the other and of kLinkVersion.
#include "proto/control/executor_link_abi.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace tally::control {
namespace {

struct TwinHello {
  uint32_t magic, kind;
  uint64_t request_id;
  uint32_t link_version, priority_class;
  uint64_t api_table_hash;
  uint32_t owner_uid, status_code, num_devices, is_faulted, is_software, figures_hash;
  char domain_name[128], policy_name[64], driver_name[512], error[512];
};

struct TwinReport {
  uint32_t magic, kind;
  uint64_t request_id, session_id, opened_ns;
  int32_t pid;
  uint32_t uid, gid, priority_class, weight;
  uint16_t level;
  uint8_t keeps_kernels, window;
  uint64_t turnaround_ns;
  uint64_t slo_latency_ns;
  double slo_percentile;
  char tenant_name[64];
  uint64_t grant_id, device_memory_bytes;
  uint32_t share_permille;
  uint16_t only_starts, graphs;
  uint32_t owner_uid, identity_reserved;
  char gpus[656];
  uint64_t figures[kNumFigureValues];  // what each is, kSessionFiguresHash says
  uint32_t has_ended, reserved;
};

TEST(ExecutorLinkAbi, VersionBelongsToThisLayout) { EXPECT_EQ(kLinkVersion, 26u); }

TEST(ExecutorLinkAbi, AnExecutorMaySayAnything) {
  EXPECT_STREQ(NameOf(LinkDescheduling::kRefused), "refused");
  EXPECT_STREQ(NameOf(static_cast<LinkDescheduling>(77)), "unknown");
}

TEST(ExecutorLinkAbi, HelloIsLaidOutAsItsTwin) {
  static_assert(std::is_standard_layout_v<LinkHello> && std::is_trivially_copyable_v<LinkHello>);
  EXPECT_EQ(sizeof(LinkHello), sizeof(TwinHello));
  EXPECT_EQ(offsetof(LinkHello, link_version), offsetof(TwinHello, link_version));
  EXPECT_EQ(offsetof(LinkHello, api_table_hash), offsetof(TwinHello, api_table_hash));
  EXPECT_EQ(offsetof(LinkHello, owner_uid), offsetof(TwinHello, owner_uid));
  EXPECT_EQ(offsetof(LinkHello, status_code), offsetof(TwinHello, status_code));
  EXPECT_EQ(offsetof(LinkHello, is_software), offsetof(TwinHello, is_software));
  EXPECT_EQ(offsetof(LinkHello, figures_hash), offsetof(TwinHello, figures_hash));
  EXPECT_EQ(offsetof(LinkHello, domain_name), offsetof(TwinHello, domain_name));
  EXPECT_EQ(offsetof(LinkHello, policy_name), offsetof(TwinHello, policy_name));
  EXPECT_EQ(offsetof(LinkHello, driver_name), offsetof(TwinHello, driver_name));
  EXPECT_EQ(offsetof(LinkHello, error), offsetof(TwinHello, error));
}

TEST(ExecutorLinkAbi, ReportIsLaidOutAsItsTwin) {
  static_assert(std::is_trivially_copyable_v<LinkSessionReport>);
  EXPECT_EQ(sizeof(LinkSessionReport), sizeof(TwinReport));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, session_id),
            offsetof(TwinReport, session_id));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, pid), offsetof(TwinReport, pid));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, window), offsetof(TwinReport, window));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, tenant_name),
            offsetof(TwinReport, tenant_name));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, grant_id),
            offsetof(TwinReport, grant_id));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, graphs), offsetof(TwinReport, graphs));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, owner_uid),
            offsetof(TwinReport, owner_uid));
  EXPECT_EQ(offsetof(LinkSessionReport, identity) + offsetof(SessionIdentity, gpus), offsetof(TwinReport, gpus));
  EXPECT_EQ(offsetof(LinkSessionReport, figures), offsetof(TwinReport, figures));
  EXPECT_EQ(offsetof(LinkSessionReport, has_ended), offsetof(TwinReport, has_ended));
}

TEST(ExecutorLinkAbi, TimeSlicesAreLaidOutAsTheirTwin) {
  EXPECT_EQ(offsetof(LinkTimeSlices, shortest_us), 16u);
  EXPECT_EQ(offsetof(LinkTimeSlices, num_refused), 36u);
  EXPECT_EQ(offsetof(LinkTimeSlices, num_deschedulings), 40u);
  EXPECT_EQ(offsetof(LinkTimeSlices, num_standstills), 48u);
  EXPECT_EQ(offsetof(LinkTimeSlices, num_refreshes), 56u);
  EXPECT_EQ(offsetof(LinkTimeSlices, descheduling), 64u);
  EXPECT_EQ(offsetof(LinkTimeSlices, has_contexts), 68u);
  EXPECT_EQ(offsetof(LinkTimeSlices, used_gpus), 72u);
  EXPECT_EQ(offsetof(LinkSetTimeSlice, is_left_to_slices), 16u);
  EXPECT_EQ(offsetof(LinkSetTimeSlice, slice_us), 24u);
}

TEST(ExecutorLinkAbi, GpusAreLaidOutAsTheirTwin) {
  struct Twin {
    uint32_t magic, kind;
    uint64_t request_id;
    uint32_t num_gpus, driver_version;
    uint8_t uuid[64][16];
  };
  static_assert(std::is_trivially_copyable_v<LinkGpus>);
  EXPECT_EQ(sizeof(LinkGpus), sizeof(Twin));
  EXPECT_EQ(offsetof(LinkGpus, num_gpus), offsetof(Twin, num_gpus));
  EXPECT_EQ(offsetof(LinkGpus, uuid), offsetof(Twin, uuid));
}

TEST(ExecutorLinkAbi, OneGpuIsLaidOutAsItsTwin) {
  struct Twin {
    uint32_t magic, kind;
    uint64_t request_id;
    uint32_t ordinal, capability;
    uint64_t total_memory_bytes;
    uint32_t pci_domain, pci_bus, pci_device, reserved;
    uint8_t uuid[16];
    char name[64];
  };
  static_assert(std::is_trivially_copyable_v<LinkGpu>);
  EXPECT_EQ(sizeof(LinkGpu), sizeof(Twin));
  EXPECT_EQ(offsetof(LinkGpu, total_memory_bytes), offsetof(Twin, total_memory_bytes));
  EXPECT_EQ(offsetof(LinkGpu, pci_device), offsetof(Twin, pci_device));
  EXPECT_EQ(offsetof(LinkGpu, uuid), offsetof(Twin, uuid));
  EXPECT_EQ(offsetof(LinkGpu, name), offsetof(Twin, name));
}

TEST(ExecutorLinkAbi, SetPriorityIsLaidOutAsItsTwin) {
  struct Twin {
    uint32_t magic, kind;
    uint64_t request_id, session_id;
    uint32_t priority_class, weight, level, reserved;
    uint64_t turnaround_ns;
  };
  static_assert(std::is_standard_layout_v<LinkSetPriority> && std::is_trivially_copyable_v<LinkSetPriority>);
  EXPECT_EQ(sizeof(LinkSetPriority), sizeof(Twin));
  EXPECT_EQ(offsetof(LinkSetPriority, level), offsetof(Twin, level));
  EXPECT_EQ(offsetof(LinkSetPriority, turnaround_ns), offsetof(Twin, turnaround_ns));
}

TEST(ExecutorLinkAbi, LongBlocksAreLaidOutAsTheirTwin) {
  struct Twin {
    uint32_t magic, kind;
    uint64_t request_id, session_id, left_ns;
    char kernel[512];
  };
  static_assert(std::is_standard_layout_v<LinkLongBlocks> && std::is_trivially_copyable_v<LinkLongBlocks>);
  EXPECT_EQ(sizeof(LinkLongBlocks), sizeof(Twin));
  EXPECT_EQ(offsetof(LinkLongBlocks, session_id), offsetof(Twin, session_id));
  EXPECT_EQ(offsetof(LinkLongBlocks, left_ns), offsetof(Twin, left_ns));
  EXPECT_EQ(offsetof(LinkLongBlocks, kernel), offsetof(Twin, kernel));
}

TEST(ExecutorLinkAbi, KindsAreNumberedForGood) {
  EXPECT_EQ(static_cast<uint32_t>(LinkKind::kHello), 1u);
  EXPECT_EQ(static_cast<uint32_t>(LinkKind::kAddSession), 4u);
  EXPECT_EQ(static_cast<uint32_t>(LinkKind::kShutdown), 10u);
  EXPECT_EQ(static_cast<uint32_t>(LinkKind::kRefusedFunction), 11u);
}

TEST(ExecutorLinkAbi, KernelReportIsLaidOutAsItsTwin) {
  struct Twin {
    uint32_t magic, kind;
    uint64_t request_id;
    uint32_t grid[3], block[3], shared_bytes, form, degree, is_turnaround_measured;
    uint64_t num_launches, gpu_time_ns, duration_ns, turnaround_ns, original_duration_ns;
    char kernel[512], remark[512];
  };
  static_assert(std::is_standard_layout_v<LinkKernelReport> && std::is_trivially_copyable_v<LinkKernelReport>);
  EXPECT_EQ(sizeof(LinkKernelReport), sizeof(Twin));
  EXPECT_EQ(offsetof(LinkKernelReport, num_launches), offsetof(Twin, num_launches));
  EXPECT_EQ(offsetof(LinkKernelReport, remark), offsetof(Twin, remark));
}

TEST(ExecutorLinkAbi, WindowShapeIsLaidOutAsItsTwin) {
  struct Twin {
    uint32_t magic, kind;
    uint64_t request_id, session_id;
    uint32_t num_nodes, num_levels, num_tracks, way;
    uint64_t num_uses, in_order_ns, graph_ns;
  };
  static_assert(std::is_standard_layout_v<LinkWindowShape> && std::is_trivially_copyable_v<LinkWindowShape>);
  EXPECT_EQ(sizeof(LinkWindowShape), sizeof(Twin));
  constexpr size_t kShape = offsetof(LinkWindowShape, shape);
  EXPECT_EQ(kShape + offsetof(WindowShapeFigures, way), offsetof(Twin, way));
  EXPECT_EQ(kShape + offsetof(WindowShapeFigures, num_uses), offsetof(Twin, num_uses));
  EXPECT_EQ(kShape + offsetof(WindowShapeFigures, graph_ns), offsetof(Twin, graph_ns));
  EXPECT_STREQ(NameOf(WindowWay::kRefused), "refused");
  EXPECT_STREQ(NameOf(static_cast<WindowWay>(77)), "unknown");
}

}  // namespace
}  // namespace tally::control

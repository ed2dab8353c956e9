# The control plane: tallyd, the main of tally-executor, tallyctl. gRPC and prometheus-cpp stay in libraries of their
# own, because everything that includes their headers is slow to compile.
tally_room_library(tally_control_base
  daemon/version.cc
  DEPS tally_base tally_shm_abi)
target_compile_definitions(tally_control_base PUBLIC TALLY_VERSION="${PROJECT_VERSION}")

tally_room_library(tally_daemon_core
  daemon/client_gate.cc daemon/command_line.cc daemon/config.cc daemon/executor_link.cc daemon/executor_pool.cc
  daemon/executor_spawner.cc daemon/loop_desk.cc daemon/readiness.cc daemon/runtime_dir.cc daemon/switch_test.cc daemon/tenant_ledger.cc
  DEPS tally_control_base tally_scheduler CLI11::CLI11 nlohmann_json::nlohmann_json)

tally_room_library(tally_rpc
  rpc/control_service.cc
  DEPS tally_daemon_core tally_control_proto)

tally_room_library(tally_metrics
  metrics/exporter.cc metrics/families.cc metrics/metrics_list.cc
  DEPS tally_daemon_core prometheus-cpp::pull)

tally_executable(tallyd
  daemon/daemon.cc daemon/main.cc
  DEPS tally_daemon_core tally_rpc tally_metrics)

# The process around an Executor (server/executor.h), linked with the real one here and with a scripted one by the tests.
tally_room_library(tally_executor_process
  executor_process/command_line.cc executor_process/daemon_link.cc executor_process/domain_process.cc executor_process/channel_groups.cc executor_process/refresher.cc executor_process/suspender.cc
  DEPS tally_control_base CLI11::CLI11)
if(TARGET tally_executor_core)
  tally_executable(tally-executor
    executor_process/main.cc executor_process/observed_ioctl.cc
    DEPS tally_executor_process tally_executor_core)
  tally_executable(tally-switch-test
    executor_process/switch_test.cc executor_process/observed_ioctl.cc
    DEPS tally_executor_process tally_executor_core)
  foreach(program tally-executor tally-switch-test)
    target_link_options(${program} PRIVATE -Wl,--export-dynamic-symbol=ioctl)
  endforeach()
endif()

tally_executable(tallyctl
  cli/coverage_table.cc cli/main.cc cli/table.cc
  DEPS tally_control_base tally_control_proto CLI11::CLI11 nlohmann_json::nlohmann_json)

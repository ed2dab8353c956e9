# The control plane: tallyd, the main of tally-executor, tallyctl. gRPC and prometheus-cpp stay in libraries of their
# own, because everything that includes their headers is slow to compile.
tally_room_library(tally_control_base
  daemon/journal.cc daemon/switch_figures.cc daemon/version.cc
  DEPS tally_base tally_shm_abi nlohmann_json::nlohmann_json)
target_compile_definitions(tally_control_base PUBLIC TALLY_VERSION="${PROJECT_VERSION}")

tally_room_library(tally_daemon_core
  daemon/client_gate.cc daemon/command_line.cc daemon/config.cc daemon/executor_link.cc daemon/executor_pool.cc
  daemon/executor_pool_sessions.cc daemon/executor_spawner.cc daemon/loop_desk.cc daemon/policy_rules.cc
  daemon/reload.cc daemon/runtime_dir.cc daemon/starter.cc daemon/switch_test.cc daemon/tenant_ledger.cc
  DEPS tally_control_base tally_command_line tally_scheduler nlohmann_json::nlohmann_json PkgConfig::SYSTEMD)

tally_room_library(tally_rpc
  rpc/control_service.cc
  DEPS tally_daemon_core tally_control_proto)

tally_room_library(tally_metrics
  metrics/exporter.cc metrics/families.cc metrics/metrics_list.cc
  DEPS tally_daemon_core prometheus-cpp::pull civetweb-cpp civetweb)

tally_executable(tallyd
  daemon/daemon.cc daemon/main.cc
  DEPS tally_daemon_core tally_rpc tally_metrics)

# The process around an Executor (server/executor.h), linked with the real one here and with a scripted one by the tests.
tally_room_library(tally_executor_process
  executor_process/command_line.cc executor_process/daemon_link.cc executor_process/domain_process.cc executor_process/channel_groups.cc executor_process/refresher.cc executor_process/suspender.cc
  DEPS tally_control_base tally_command_line)
tally_compile_apart(executor_process/domain_process.cc)  # it wants an executor, which tests of its neighbours have not
if(TARGET tally_executor_core)
  tally_executable(tally-executor
    executor_process/main.cc executor_process/deliverable_faults.cc executor_process/observed_ioctl.cc
    DEPS tally_executor_process tally_executor_core)
  tally_executable(tally-switch-test
    executor_process/switch_test.cc executor_process/observed_ioctl.cc
    DEPS tally_executor_process tally_executor_core)
  foreach(program tally-executor tally-switch-test)
    target_link_options(${program} PRIVATE -Wl,--export-dynamic-symbol=ioctl)
  endforeach()
  target_link_options(tally-executor PRIVATE
    -Wl,--export-dynamic-symbol=pthread_sigmask -Wl,--export-dynamic-symbol=sigprocmask)
endif()

# What tallyctl looks at and says without a tallyd, for its tests, too.
tally_room_library(tally_doctor
  cli/cdi_specification.cc cli/client_library.cc cli/control_call.cc cli/doctor/collect.cc cli/doctor/switch_test.cc cli/doctor/verdicts.cc
  cli/session_json.cc cli/table.cc
  DEPS tally_control_base tally_control_proto tally_images nlohmann_json::nlohmann_json)
tally_executable(tallyctl
  cli/cdi.cc cli/coverage_table.cc cli/doctor.cc cli/executors.cc cli/kernels.cc cli/main.cc cli/sessions.cc
  DEPS tally_doctor tally_command_line)

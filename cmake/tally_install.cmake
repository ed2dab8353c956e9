# What `cmake --install` puts where, and what `cpack` (tools/package) makes of it. docs/installing.md is for users.
#
# Two components: `tally` (everything that is ours) and `carried` (the shared libraries of others, for the tarball: a
# machine that takes the .deb gets those from its distribution).
include(GNUInstallDirs)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tally)

# Programs find one another and these by relative paths (../lib/tally), so not CMAKE_INSTALL_LIBDIR, which holds the
# machine's triplet on Debian. libcuda.so.1 has a directory of its own, where no loader looks by default.
set(tally_private_directory lib/tally)
set(tally_programs tallyd tally-executor tally-switch-test tallyctl tally-device-plugin tally-run cubin-gate)
set(tally_carried_directory ${tally_private_directory}/carried)

# DT_RPATH and no DT_RUNPATH: that one would not hold for what the libraries themselves load.
foreach(program tallyd tally-executor tally-switch-test tallyctl tally-device-plugin cubin-gate)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${tally_carried_directory}")
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(TARGETS ${tally_programs} tally_sim_driver
  RUNTIME_DEPENDENCY_SET tally_carried
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${tally_private_directory})
install(TARGETS tally_shim tally_arrivals_preload tally_nvml LIBRARY DESTINATION ${tally_private_directory}/client)
install(TARGETS tally_pipelines LIBRARY DESTINATION ${tally_private_directory})

install(FILES include/tally/expect_work.h include/tally/segments.h include/tally/taskgraph.h include/tally/pipelines.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tally)
install(FILES deploy/systemd/tallyd.service deploy/systemd/tally.socket DESTINATION lib/systemd/system)
install(FILES deploy/systemd/tally.sysusers.conf DESTINATION lib/sysusers.d RENAME tally.conf)
install(FILES deploy/systemd/tally.tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME tally.conf)
install(FILES LICENSE NOTICE docs/json-schema/tallyctl.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)  # where Debian looks
install(DIRECTORY deploy/prometheus deploy/grafana DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(PROGRAMS deploy/slurm/prolog deploy/slurm/epilog deploy/slurm/task-prolog DESTINATION ${CMAKE_INSTALL_DATADIR}/tally/slurm)
install(FILES deploy/slurm/job.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/tally/slurm)
# Plain Python: where Debian's looks, whatever its version. It finds tallyctl from there.
install(DIRECTORY python/tally DESTINATION lib/python3/dist-packages FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
# What PyTorch looks for the name of a backend in; as python/pyproject.toml has it for pip.
set(tally_distribution "${PROJECT_BINARY_DIR}/tally_gpu-${PROJECT_VERSION}.dist-info")
file(CONFIGURE OUTPUT "${tally_distribution}/METADATA" CONTENT "Metadata-Version: 2.1\nName: tally-gpu\nVersion: ${PROJECT_VERSION}\n")
file(CONFIGURE OUTPUT "${tally_distribution}/entry_points.txt" CONTENT "[torch_dynamo_backends]\ntally = tally.pipelines.backend:tally\n")
install(DIRECTORY "${tally_distribution}" DESTINATION lib/python3/dist-packages)
# In /etc for an installation in /usr, as the file hierarchy wants it; decided when installing, as the prefix is.
install(CODE "set(tally_sample \"${PROJECT_SOURCE_DIR}/deploy/tallyd.json\")" COMPONENT tally)
install(CODE [[
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    file(INSTALL DESTINATION "/etc/tally" TYPE FILE FILES "${tally_sample}")
  else()
    file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/etc/tally" TYPE FILE FILES "${tally_sample}")
  endif()]] COMPONENT tally)

# Made by the build where it can.
install(DIRECTORY "${PROJECT_BINARY_DIR}/man/" DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
install(DIRECTORY "${PROJECT_BINARY_DIR}/completions/bash/"
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions OPTIONAL)
install(DIRECTORY "${PROJECT_BINARY_DIR}/completions/zsh/" DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions OPTIONAL)
install(DIRECTORY "${PROJECT_BINARY_DIR}/completions/fish/"
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)

# glibc's own libraries must fit the kernel and one another; everything else may travel.
install(RUNTIME_DEPENDENCY_SET tally_carried
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nss_.*)\\.so"
  DESTINATION ${tally_carried_directory} COMPONENT carried EXCLUDE_FROM_ALL)
install(CODE "set(tally_tarball_readme \"${PROJECT_SOURCE_DIR}/deploy/tarball/README.in\")
  set(tally_carried_directory ${tally_carried_directory})
  set(tally_documents ${CMAKE_INSTALL_DOCDIR})
  set(tally_version ${PROJECT_VERSION})
  set(tally_programs ${tally_programs})" COMPONENT carried EXCLUDE_FROM_ALL)
install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/tally_tarball.cmake" COMPONENT carried EXCLUDE_FROM_ALL)

set(TALLY_PACKAGE_CONTACT "The Tally authors <tally@localhost>" CACHE STRING "Maintainer field of the Debian package")
set(CPACK_PACKAGE_NAME tally)
set(CPACK_PACKAGE_VENDOR "The Tally authors")
set(CPACK_PACKAGE_CONTACT "${TALLY_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "share GPUs between unmodified CUDA programs")
set(CPACK_PACKAGE_DESCRIPTION "A daemon owns the GPU and decides whose kernels run: a latency-critical service is served
first, a training beside it gets what is left. Programs are prefixed with tally-run and not changed.")
set(CPACK_PACKAGE_FILE_NAME tally-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_CURRENT_LIST_DIR}/tally_cpack.cmake")
set(CPACK_TALLY_BUILD "${PROJECT_BINARY_DIR}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles, init-system-helpers (>= 1.54), passwd")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${PROJECT_SOURCE_DIR}/deploy/debian/conffiles" "${PROJECT_SOURCE_DIR}/deploy/debian/postinst"
    "${PROJECT_SOURCE_DIR}/deploy/debian/prerm" "${PROJECT_SOURCE_DIR}/deploy/debian/postrm")
include(CPack)

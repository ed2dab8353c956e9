# Files of ours that run inside other people's containers and processes, next to whatever glibc is there.
#
#   tally_client_file(TARGET)   for each such file: nothing else makes it one, and tools/bundle and packages take it as built
#
# A library needs glibc 2.28 at most and nothing but glibc: it is linked against the symbols that 2.28 had
# (client-shim/portable), and its C++ runtime is inside it. A program needs nothing at all: it is linked statically, so it
# starts in an image with musl, too, and can say there what is missing. A test reads the finished file.
set(TALLY_CLIENT_GLIBC 2.28 CACHE INTERNAL "")

set(tally_old_glibc "${PROJECT_BINARY_DIR}/client-shim/old-glibc")
add_custom_command(
  OUTPUT "${tally_old_glibc}/libc.so"
  COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/client-shim/portable/make_old_glibc.py"
          ${TALLY_CLIENT_GLIBC} "${tally_old_glibc}" "${CMAKE_C_COMPILER}"
  DEPENDS "${PROJECT_SOURCE_DIR}/client-shim/portable/make_old_glibc.py"
  COMMENT "Making the symbols of glibc ${TALLY_CLIENT_GLIBC} to link against"
  VERBATIM)
add_custom_target(tally_old_glibc DEPENDS "${tally_old_glibc}/libc.so")
add_library(tally_newer_glibc OBJECT "${PROJECT_SOURCE_DIR}/client-shim/portable/newer_glibc.cc")
target_link_libraries(tally_newer_glibc PRIVATE tally_options)

add_library(tally_portable_library INTERFACE)
add_dependencies(tally_portable_library tally_old_glibc)
target_link_libraries(tally_portable_library INTERFACE $<TARGET_OBJECTS:tally_newer_glibc>)
target_link_options(tally_portable_library INTERFACE "-L${tally_old_glibc}" -static-libstdc++ -static-libgcc)
set_target_properties(tally_portable_library PROPERTIES INTERFACE_LINK_DEPENDS "${tally_old_glibc}/libc.so")

function(tally_client_file_test name path)
  if(TALLY_BUILD_TESTS)
    add_test(NAME client_file_${name}
             COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tests/client-shim/portable/client_file_test.py"
                     ${TALLY_CLIENT_GLIBC} "${path}")
    set_tests_properties(client_file_${name} PROPERTIES LABELS "unit;client-shim" TIMEOUT 60)
  endif()
endfunction()

function(tally_client_file target)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "EXECUTABLE")
    target_link_libraries(${target} PRIVATE tally_portable_library)
  elseif(NOT TALLY_SANITIZER)
    target_link_options(${target} PRIVATE -static-pie)
  else()  # sanitizers have no static runtime, and nobody ships such a build
    return()
  endif()
  tally_client_file_test(${target} "$<TARGET_FILE:${target}>")
endfunction()

# How a target is made in this repository: one function per kind.
#
#   tally_room_library(NAME SOURCES... [DEPS ...])      a static library, usable from shared ones
#   tally_executable(NAME SOURCES... [DEPS ...])        a program, into build/<preset>/bin
#   tally_test(NAME SOURCES... [DEPS ...] [LABELS ...]) a GoogleTest binary, registered with CTest as a whole
#   tally_bench(NAME SOURCES... [DEPS ...])             a Google Benchmark binary, run once per CI as <NAME>_smoke
#   tally_compile_apart(SOURCES...)                     not together with others where a preset says CMAKE_UNITY_BUILD
#   tally_compile_together(TARGETS...)                  more at once than others there
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(tally_options INTERFACE)
# In what sanitizers add, gcc warns of what is not there; the other builds judge the sources.
target_compile_options(tally_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       $<$<NOT:$<CONFIG:Sanitize>>:-Werror>)
target_include_directories(tally_options INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")

# A code that runs inside somebody else's process (the shim) is never instrumented: see tally_uninstrumented().
add_library(tally_sanitizer INTERFACE)
if(TALLY_SANITIZER STREQUAL "address")
  # Not `enum`: callers of a C ABI pass whatever integers they like as enumerators; refusing them is tested.
  # Not `null` and `object-size`, a fifth of the compile time: the address sanitizer reports the access itself.
  set(TALLY_SANITIZER_FLAGS -fsanitize=address,undefined -fno-sanitize=enum,null,object-size -fno-sanitize-recover=undefined
                            -fno-omit-frame-pointer)
elseif(TALLY_SANITIZER STREQUAL "thread")
  set(TALLY_SANITIZER_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
elseif(TALLY_SANITIZER STREQUAL "coverage")
  set(TALLY_SANITIZER_FLAGS -fsanitize-coverage=trace-pc)  # calls what tests/ptx-transforms/fuzz/afl_target.cc defines
elseif(NOT TALLY_SANITIZER STREQUAL "")
  message(FATAL_ERROR "TALLY_SANITIZER is '', 'address', 'thread' or 'coverage', not '${TALLY_SANITIZER}'")
endif()
if(TALLY_SANITIZER)
  target_compile_options(tally_sanitizer INTERFACE ${TALLY_SANITIZER_FLAGS})
  target_link_options(tally_sanitizer INTERFACE ${TALLY_SANITIZER_FLAGS})
endif()

# From nothing, tools/test compiles up to eight sources of a target as one (CMAKE_UNITY_BUILD): what their headers make of
# templates is most of a file's compile time. Sources that share a name in their unnamed namespaces with a neighbour are
# named here, next to the target; a new clash is a compile error ("redefinition of", "ambiguous") in those builds. What a
# file forgot to include shows where neither this nor precompiled headers are in force: preset debug.
function(tally_compile_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Up to 24 sources of these targets become one: each has heavy headers (session_state.h alone takes
# 5 s). Elsewhere more than eight at a time gain nothing.
function(tally_compile_together)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD_BATCH_SIZE 24)
endfunction()

# tally_precompile(TARGET KIND): cmake/precompiled/KIND.h is read before each source of it. One compilation serves all targets
# of a kind; those with options of their own (an instruction set, no sanitizer) cannot share it and go without.
function(tally_precompile target kind)
  if(NOT TALLY_PRECOMPILED_HEADERS)
    return()
  endif()
  if(NOT TARGET tally_precompiled_${kind})
    # gcc refuses it where code is position-independent in another way, so programs are compiled with -fPIC, too.
    add_library(tally_precompiled_${kind} OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled/empty.cc")
    target_link_libraries(tally_precompiled_${kind} PRIVATE tally_options tally_sanitizer)
    if(kind STREQUAL "test")
      target_link_libraries(tally_precompiled_test PRIVATE GTest::gmock)
    elseif(kind STREQUAL "program")
      target_link_libraries(tally_precompiled_program PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
    endif()
    target_precompile_headers(tally_precompiled_${kind} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/precompiled/${kind}.h")
  endif()
  if(NOT kind STREQUAL "room")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  if(kind STREQUAL "test")
    # Little of a test's time is spent in the test itself. With the header precompiled gcc 12 no longer sees that moving a
    # std::string, inlined into a test, is the library's doing, and warns of bytes past its end: false, and known.
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>
                           -Wno-array-bounds -Wno-stringop-overread -Wno-stringop-overflow)
  endif()
  target_precompile_headers(${target} REUSE_FROM tally_precompiled_${kind})
endfunction()

function(tally_room_library name)
  cmake_parse_arguments(arg "UNINSTRUMENTED;OWN_OPTIONS" "" "DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC tally_options ${arg_DEPS})
  if(NOT arg_UNINSTRUMENTED)
    target_link_libraries(${name} PUBLIC tally_sanitizer)
  endif()
  if(NOT arg_OWN_OPTIONS AND NOT (TALLY_SANITIZER AND arg_UNINSTRUMENTED))
    tally_precompile(${name} room)
  endif()
endfunction()

function(tally_executable name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE tally_options tally_sanitizer ${arg_DEPS})
  if(NOT TALLY_SANITIZER)  # too few of them there
    tally_precompile(${name} program)
  endif()
endfunction()

function(tally_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE tally_options tally_sanitizer ${arg_DEPS} GTest::gmock GTest::gtest_main)
  if(TALLY_SANITIZER STREQUAL "thread")
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/thread_sanitizer.cc")
  endif()
  tally_precompile(${name} test)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

function(tally_bench name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE tally_options tally_sanitizer ${arg_DEPS} benchmark::benchmark_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bench")
  add_test(NAME ${name}_smoke COMMAND ${name} --benchmark_min_time=0.001)
  set_tests_properties(${name}_smoke PROPERTIES TIMEOUT 120 LABELS bench)
endfunction()

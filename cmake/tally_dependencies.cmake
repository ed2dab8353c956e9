# Everything that Tally takes from elsewhere, in one place. docs/decisions/ says why each was chosen; NOTICE has the licences
# and the same versions (a test compares).
if(NOT EXISTS "${CUDA_ROOT}/include/cuda.h")
  message(FATAL_ERROR "Tally needs the CUDA toolkit (12.8 or newer) to build; none is in ${CUDA_ROOT}. "
                      "Install it, or pass -DCUDA_ROOT=/path/to/cuda.")
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
find_package(fmt 9.1 REQUIRED)
find_package(Protobuf 3.21 REQUIRED)
pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET grpc++>=1.51)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd>=1.5)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4>=1.9)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd>=252)
find_package(prometheus-cpp REQUIRED)  # 1.0; its CMake files do not say
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
if(TALLY_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(TALLY_BUILD_BENCH)
  find_package(benchmark 1.7 REQUIRED)
endif()
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

# cuda.h for its types and prototypes only: nothing links the driver. With this macro the header declares every
# ABI of every function under its exact exported name, so `cuMemAlloc_v2` in our sources is the symbol cuMemAlloc_v2.
add_library(tally_cuda_headers INTERFACE)
target_include_directories(tally_cuda_headers SYSTEM INTERFACE "${CUDA_ROOT}/include")
target_compile_definitions(tally_cuda_headers INTERFACE __CUDA_API_VERSION_INTERNAL)

# The CUDA device: nvcc is called for each source itself, since CMake's own CUDA language knows only the
# toolkits that are older than it.
find_package(CUDAToolkit 12.3 REQUIRED)
set(SEALRING_CUDA_ARCHITECTURES 90a CACHE STRING
    "compute capabilities to build for, e.g. 80;90a;100; one that ends in +ptx is kept as PTX too")

set(cuda_gencode)
foreach(architecture ${SEALRING_CUDA_ARCHITECTURES})
  string(REPLACE "+ptx" "" number ${architecture})
  list(APPEND cuda_gencode -gencode=arch=compute_${number},code=sm_${number})
  if(architecture MATCHES "ptx$")
    list(APPEND cuda_gencode -gencode=arch=compute_${number},code=compute_${number})
  endif()
endforeach()
list(JOIN SEALRING_CUDA_ARCHITECTURES " sm_" cuda_names)
get_target_property(expected_include tl::expected INTERFACE_INCLUDE_DIRECTORIES)
set(cuda_includes -I${CMAKE_CURRENT_SOURCE_DIR})
foreach(folder ${expected_include})
  if(NOT folder STREQUAL "/usr/include")
    list(APPEND cuda_includes -isystem ${folder})
  endif()
endforeach()

set(cuda_options -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr
                 -Xcompiler=-fPIC,-Wall,-Wno-unknown-pragmas)
set(cuda_definitions "-DSEALRING_CUDA_ARCHITECTURES=\"sm_${cuda_names}\"")
# sealring_nvcc(objects folder gencode sources...): one object a source in build/<folder>; their list in `objects`.
function(sealring_nvcc objects folder gencode)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
  set(made)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_BINARY_DIR}/${folder}/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -c ${source} -o ${object} ${cuda_options} ${${gencode}}
              ${cuda_includes} ${cuda_definitions} -MD -MF ${object}.d
      DEPENDS ${source}
      DEPFILE ${object}.d
      VERBATIM
      COMMENT "nvcc ${folder}/${name}")
    list(APPEND made ${object})
  endforeach()
  set(${objects} ${made} PARENT_SCOPE)
endfunction()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/sealring/device/cuda/*.cu)
file(GLOB cuda_host_sources CONFIGURE_DEPENDS sealring/device/cuda/*.cc)
sealring_nvcc(cuda_objects cuda cuda_gencode ${cuda_sources})
target_sources(sealring_device PRIVATE ${cuda_objects} ${cuda_host_sources})
sealring_drop_source(device sealring/device/cuda_absent.cc)
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/sealring/device/cuda/errors.cc PROPERTIES
                            COMPILE_OPTIONS "${cuda_definitions}")
target_link_libraries(sealring_device PUBLIC CUDA::cudart_static)

file(GLOB gpu_bench_sources CONFIGURE_DEPENDS bench/gpu/*.cc)
add_executable(gpu_bench ${gpu_bench_sources})
target_compile_options(gpu_bench PRIVATE ${cuda_definitions})
target_link_libraries(gpu_bench PRIVATE sealring_device sealring_wire sealring_base CUDA::cudart_static
                                        ${CMAKE_DL_LIBS})

# The CUDA device: nvcc is called for each source itself, since CMake's own CUDA language knows only the
# toolkits that are older than it.
find_package(CUDAToolkit 12.3 REQUIRED)
set(SEALRING_CUDA_ARCHITECTURES 90a CACHE STRING
    "compute capabilities to build for, e.g. 80;90a;100; one that ends in +ptx is kept as PTX too")

# sealring_gencode(options architectures...): nvcc's options for them.
function(sealring_gencode options)
  set(made)
  foreach(architecture ${ARGN})
    string(REPLACE "+ptx" "" number ${architecture})
    list(APPEND made -gencode=arch=compute_${number},code=sm_${number})
    if(architecture MATCHES "ptx$")
      list(APPEND made -gencode=arch=compute_${number},code=compute_${number})
    endif()
  endforeach()
  set(${options} ${made} PARENT_SCOPE)
endfunction()

sealring_gencode(cuda_gencode ${SEALRING_CUDA_ARCHITECTURES})
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
# sealring_nvcc(objects folder gencode sources...): an object a source in build/<folder>, listed in `objects`.
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

# `cuda_targets`: a short list of kernels (a seal and an open of each suite, the small tables, the prologue)
# for the other targets, so that what breaks them is seen. Compiled, not linked; none was run on hardware.
set(SEALRING_CUDA_OTHER_ARCHITECTURES 80 100+ptx CACHE STRING "what the target cuda_targets compiles for")
sealring_gencode(cuda_other_gencode ${SEALRING_CUDA_OTHER_ARCHITECTURES})
set(cuda_other_sources)
foreach(name launch chacha_seal chacha_open_f32 aes_seal aes_open_f32 aes_compact)
  list(APPEND cuda_other_sources ${CMAKE_CURRENT_SOURCE_DIR}/sealring/device/cuda/${name}.cu)
endforeach()
sealring_nvcc(cuda_other_objects cuda_targets cuda_other_gencode ${cuda_other_sources})
add_custom_target(cuda_targets DEPENDS ${cuda_other_objects})

file(GLOB gpu_bench_sources CONFIGURE_DEPENDS bench/gpu/*.cc)
add_executable(gpu_bench ${gpu_bench_sources})
target_compile_options(gpu_bench PRIVATE ${cuda_definitions})
target_link_libraries(gpu_bench PRIVATE sealring_device sealring_wire sealring_base CUDA::cudart_static
                                        ${CMAKE_DL_LIBS})

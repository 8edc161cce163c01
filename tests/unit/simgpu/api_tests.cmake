# Tests of the simulated driver's modules, launches, graphs and lookups (tools/simgpu/driver/api.cmake). They are programs
# on cuda.h, linked with the built libcuda.so.1; each process has a simulated machine of its own.

include(${CMAKE_SOURCE_DIR}/cmake/cuda_ptx.cmake)  # finds Python and NVRTC

function(plexrl_driver_test name)
  plexrl_unit_test(${name} SOURCES ${ARGN} LIBS simgpu_cuda plexrl_cuda_headers ${CMAKE_DL_LIBS})
endfunction()

plexrl_driver_test(simgpu_entry_points_test entry_points_test.cc)

set(documented ${CMAKE_CURRENT_BINARY_DIR}/documented.inc)
add_custom_command(OUTPUT ${documented}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/documented.py ${PLEXRL_CUDA_INCLUDE_DIR}/cuda.h > ${documented}
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/documented.py ${PLEXRL_CUDA_INCLUDE_DIR}/cuda.h
  VERBATIM)
plexrl_driver_test(simgpu_entry_sweep_test entry_sweep_test.cc ${documented})
target_include_directories(simgpu_entry_sweep_test PRIVATE ${CMAKE_CURRENT_BINARY_DIR})

plexrl_driver_test(simgpu_module_test module_test.cc)
plexrl_driver_test(simgpu_launch_test launch_test.cc chunk_hash_test.cc)
plexrl_driver_test(simgpu_graph_test graph_test.cc)
plexrl_driver_test(simgpu_capture_test capture_test.cc)

add_test(NAME unit.simgpu_exports
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/exports_check.py
          ${CMAKE_SOURCE_DIR}/tools/simgpu/driver/entry_points.py ${CMAKE_CXX_COMPILER} ${PLEXRL_CUDA_INCLUDE_DIR}
          $<TARGET_FILE:simgpu_cuda>)
set_tests_properties(unit.simgpu_exports PROPERTIES LABELS default)

# Images that nvcc makes: PTX in each packing, and what must be refused. Without nvcc the tests say that they skip.
set(images ${CMAKE_CURRENT_BINARY_DIR}/images)
file(MAKE_DIRECTORY ${images})
plexrl_driver_test(simgpu_image_test image_test.cc)
target_link_libraries(simgpu_image_test PRIVATE plexrl_simgpu_image)
target_compile_definitions(simgpu_image_test PRIVATE PLEXRL_TEST_IMAGES="${images}")
function(plexrl_test_image name)
  add_custom_command(OUTPUT ${images}/${name}
    COMMAND ${PLEXRL_NVCC} ${ARGN} -o ${images}/${name} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/image_kernel.cu
    DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/image_kernel.cu
    VERBATIM)
  target_sources(simgpu_image_test PRIVATE ${images}/${name})
endfunction()
if(PLEXRL_NVCC)
  set(both -fatbin -gencode "arch=compute_75,code=[sm_75,compute_75]")
  plexrl_test_image(plain.fatbin ${both} --no-compress)
  plexrl_test_image(zstd.fatbin ${both})
  plexrl_test_image(lz4.fatbin ${both} --compress-mode=speed)
  plexrl_test_image(machine_code.fatbin -fatbin -gencode arch=compute_75,code=sm_75)
  plexrl_test_image(machine_code.cubin -cubin -arch=sm_75)
  plexrl_test_image(lto.fatbin -fatbin -dc -dlto -arch=lto_75)
  plexrl_test_image(newer.fatbin -fatbin -gencode arch=compute_90,code=compute_90)
endif()

# The way of frameworks on the plain driver API, with this machine's NVRTC.
add_test(NAME unit.simgpu_ctypes
  COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${PLEXRL_SIMGPU_DIR}:${PLEXRL_NVRTC_FOLDER}
          ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/ctypes_test.py
          $<TARGET_FILE:simgpu_cuda> ${PLEXRL_NVRTC})
set_tests_properties(unit.simgpu_ctypes PROPERTIES LABELS default SKIP_RETURN_CODE 77 TIMEOUT 900)

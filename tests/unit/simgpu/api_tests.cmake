# Tests of the simulated driver's modules, launches, graphs and lookups (tools/simgpu/driver/api.cmake). They are programs
# on cuda.h, linked with the built libcuda.so.1; each process has a simulated machine of its own.

function(plexrl_driver_test name)
  plexrl_unit_test(${name} SOURCES ${ARGN} LIBS simgpu_cuda plexrl_cuda_headers ${CMAKE_DL_LIBS})
endfunction()

plexrl_driver_test(simgpu_entry_points_test entry_points_test.cc)
plexrl_driver_test(simgpu_module_test module_test.cc)
plexrl_driver_test(simgpu_launch_test launch_test.cc)
plexrl_driver_test(simgpu_graph_test graph_test.cc)
plexrl_driver_test(simgpu_capture_test capture_test.cc)

add_test(NAME unit.simgpu_exports
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/exports_check.py
          ${CMAKE_SOURCE_DIR}/tools/simgpu/driver/entry_points.py ${CMAKE_CXX_COMPILER} ${PLEXRL_CUDA_INCLUDE_DIR}
          $<TARGET_FILE:simgpu_cuda>)
set_tests_properties(unit.simgpu_exports PROPERTIES LABELS default)

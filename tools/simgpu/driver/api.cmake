# Modules, launches, graphs and lookups of the simulated driver, and what is generated from NVIDIA's
# headers: the rows of cuGetProcAddress and a weak definition (NOT_SUPPORTED) of every function of
# cuda.h, which the real definitions of this folder replace at link time.

find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(simgpu_api_dir ${CMAKE_CURRENT_LIST_DIR})
set(simgpu_generated ${CMAKE_BINARY_DIR}/tools/simgpu/driver)
file(MAKE_DIRECTORY ${simgpu_generated})
foreach(row "table;entry_points.inc" "stubs;entry_stubs.cc" "errors;errors.inc")
  list(GET row 0 what)
  list(GET row 1 file)
  add_custom_command(
    OUTPUT ${simgpu_generated}/${file}
    COMMAND ${Python3_EXECUTABLE} ${simgpu_api_dir}/entry_points.py ${what} ${CMAKE_CXX_COMPILER}
            ${PLEXRL_CUDA_INCLUDE_DIR} > ${simgpu_generated}/${file}
    DEPENDS ${simgpu_api_dir}/entry_points.py ${PLEXRL_CUDA_INCLUDE_DIR}/cuda.h
            ${PLEXRL_CUDA_INCLUDE_DIR}/cudaTypedefs.h
    VERBATIM)
endforeach()

# Reading images; fuzzed on its own. Compression is linked statically: a job's process may bring its own versions.
find_library(PLEXRL_ZSTD_STATIC libzstd.a REQUIRED)
find_library(PLEXRL_LZ4_STATIC liblz4.a REQUIRED)
add_library(plexrl_simgpu_image STATIC ${simgpu_api_dir}/fat_binary.cc ${simgpu_api_dir}/image.cc)
target_link_libraries(plexrl_simgpu_image PUBLIC plexrl_cuda_headers plexrl_ptx
                      PRIVATE ${PLEXRL_ZSTD_STATIC} ${PLEXRL_LZ4_STATIC})

add_library(plexrl_simgpu_api OBJECT
  ${simgpu_generated}/entry_points.inc
  ${simgpu_generated}/entry_stubs.cc
  ${simgpu_generated}/errors.inc
  ${simgpu_api_dir}/capture.cc
  ${simgpu_api_dir}/copy_shape.cc
  ${simgpu_api_dir}/entry_capture.cc
  ${simgpu_api_dir}/entry_error.cc
  ${simgpu_api_dir}/entry_function.cc
  ${simgpu_api_dir}/entry_graph.cc
  ${simgpu_api_dir}/entry_graph_exec.cc
  ${simgpu_api_dir}/entry_graph_node.cc
  ${simgpu_api_dir}/entry_graph_object.cc
  ${simgpu_api_dir}/entry_launch.cc
  ${simgpu_api_dir}/entry_launch_old.cc
  ${simgpu_api_dir}/entry_library.cc
  ${simgpu_api_dir}/entry_link.cc
  ${simgpu_api_dir}/entry_module.cc
  ${simgpu_api_dir}/entry_points.cc
  ${simgpu_api_dir}/entry_profiler.cc
  ${simgpu_api_dir}/function_attributes.cc
  ${simgpu_api_dir}/graph.cc
  ${simgpu_api_dir}/graph_edges.cc
  ${simgpu_api_dir}/graph_exec.cc
  ${simgpu_api_dir}/graph_memory.cc
  ${simgpu_api_dir}/launch.cc
  ${simgpu_api_dir}/module.cc
  ${simgpu_api_dir}/native_kernel.cc
  ${simgpu_api_dir}/node_work.cc
  ${simgpu_api_dir}/occupancy.cc
  ${simgpu_api_dir}/proc_address.cc)
target_link_libraries(plexrl_simgpu_api PUBLIC plexrl_simgpu_image plexrl_chunk_hash plexrl_cuda_headers)
# Only the driver API is exported, nothing of the libraries inside.
target_link_options(plexrl_simgpu_api INTERFACE -Wl,--version-script=${simgpu_api_dir}/exports.map)
set_property(TARGET plexrl_simgpu_api PROPERTY INTERFACE_LINK_DEPENDS ${simgpu_api_dir}/exports.map)

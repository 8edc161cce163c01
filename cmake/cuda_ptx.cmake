# plexrl_ptx_headers(TARGET FILE.cu …): compiles each CUDA C++ file to PTX at build time and makes FILE.ptx.h beside it in the
# build folder, which defines `inline constexpr char FILE_ptx[]` (the PTX text). Include it as "<source folder>/FILE.ptx.h".
# nvcc compiles where there is one, else NVRTC (libnvrtc.so of the same toolkit, or a wheel's).

find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_library(PLEXRL_NVRTC NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12
             HINTS ${PLEXRL_CUDA_HOME}/lib64 ${PLEXRL_CUDA_HOME}/lib /usr/local/cuda/lib64)
# NVRTC looks for its builtins as the loader does; a wheel's folder is in none of its lists.
get_filename_component(PLEXRL_NVRTC_FOLDER "${PLEXRL_NVRTC}" DIRECTORY)
set(PLEXRL_PTX_ARCH 75 CACHE STRING "Architecture of the PTX that tests and workloads carry")

function(plexrl_ptx_headers target)
  foreach(source ${ARGN})
    get_filename_component(stem ${source} NAME_WE)
    set(input ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    get_filename_component(input_folder ${input} DIRECTORY)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${input_folder})
    set(header ${CMAKE_BINARY_DIR}/${folder}/${stem}.ptx.h)
    add_custom_command(
      OUTPUT ${header}
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/cuda_ptx.py ${input} ${header}
              --arch ${PLEXRL_PTX_ARCH} --include ${PLEXRL_CUDA_INCLUDE_DIR}
              "$<$<BOOL:${PLEXRL_NVCC}>:--nvcc;${PLEXRL_NVCC}>" "$<$<BOOL:${PLEXRL_NVRTC}>:--nvrtc;${PLEXRL_NVRTC}>"
      COMMAND_EXPAND_LISTS VERBATIM
      DEPENDS ${input} ${CMAKE_SOURCE_DIR}/cmake/cuda_ptx.py
      COMMENT "PTX ${folder}/${stem}")
    target_sources(${target} PRIVATE ${header})
  endforeach()
endfunction()

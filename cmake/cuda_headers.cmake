# Finds cuda.h and nvcc. PlexRL needs the headers only: nothing links NVIDIA's driver or runtime.
# -DPLEXRL_CUDA_ROOT=DIR names a toolkit (a folder with include/cuda.h); else CUDA_HOME, /usr/local/cuda.

set(PLEXRL_CUDA_ROOT "" CACHE PATH "CUDA toolkit whose headers are used (has include/cuda.h)")
find_path(PLEXRL_CUDA_INCLUDE_DIR cuda.h
          HINTS ${PLEXRL_CUDA_ROOT}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include REQUIRED)
find_program(PLEXRL_NVCC nvcc HINTS ${PLEXRL_CUDA_ROOT}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
get_filename_component(PLEXRL_CUDA_HOME ${PLEXRL_CUDA_INCLUDE_DIR} DIRECTORY)

add_library(plexrl_cuda_headers INTERFACE)
target_include_directories(plexrl_cuda_headers SYSTEM INTERFACE ${PLEXRL_CUDA_INCLUDE_DIR})

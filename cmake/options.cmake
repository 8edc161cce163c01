# Compiler settings that every target shares, and where built files go.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

option(PLEXRL_BUILD_TESTS "Build the tests and benchmarks" ON)
set(PLEXRL_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize= (for example address,undefined or thread)")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers -fno-omit-frame-pointer)
if(PLEXRL_SANITIZE)
  # Lines for the reports, and no more optimisation than makes up for the checks: such a build takes half the time.
  add_compile_options(-fsanitize=${PLEXRL_SANITIZE} -fno-sanitize-recover=undefined -O1 -g1)
  add_link_options(-fsanitize=${PLEXRL_SANITIZE})
  if(PLEXRL_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-tsan)  # fences, which it doesn't model; what they order is atomic anyway
  endif()
endif()

# Usable in place: build/<preset>/bin and build/<preset>/lib/plexrl mirror the installed tree.
set(PLEXRL_BIN_DIR ${CMAKE_BINARY_DIR}/bin)
set(PLEXRL_LIB_DIR ${CMAKE_BINARY_DIR}/lib/plexrl)
set(PLEXRL_SIMGPU_DIR ${PLEXRL_LIB_DIR}/simgpu)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PLEXRL_BIN_DIR})

include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})

# A pack (tools/gpu-validate) brings the libraries that a machine may lack in lib/plexrl/deps. RPATH, not RUNPATH: it holds for the
# libraries' own needs too. Elsewhere the folder does not exist and the loader passes it over.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib/plexrl/deps")
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib/plexrl/deps")
add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,--disable-new-dtags>)

# plexrl_unit_test(NAME SOURCES a.cc … [LIBS …] [LABEL default])
# One GoogleTest program, registered with ctest under `unit.NAME`.

find_package(Threads REQUIRED)
if(PLEXRL_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

function(plexrl_unit_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL default)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
  add_test(NAME unit.${name} COMMAND ${name})
  set_tests_properties(unit.${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 900)
endfunction()

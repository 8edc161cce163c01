# plexrl_fuzz_target(NAME ITERATIONS n LIBS …): targets/NAME.cc with seeds in seeds/NAME/, tried with a fixed random seed in the
# default run. The long run gives more iterations and builds with sanitizers.

function(plexrl_fuzz_target name)
  cmake_parse_arguments(ARG "" "ITERATIONS" "LIBS" ${ARGN})
  add_executable(fuzz_${name} targets/${name}.cc mutate_main.cc)
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(fuzz_${name} PRIVATE ${ARG_LIBS})
  set(work ${CMAKE_BINARY_DIR}/tests/fuzz/${name})
  file(MAKE_DIRECTORY ${work})
  add_test(NAME fuzz.${name} COMMAND fuzz_${name} ${CMAKE_CURRENT_SOURCE_DIR}/seeds/${name} ${ARG_ITERATIONS}
           WORKING_DIRECTORY ${work})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS default TIMEOUT 1200)
  math(EXPR many "${ARG_ITERATIONS} * 100")
  add_test(NAME fuzz_long.${name} COMMAND fuzz_${name} ${CMAKE_CURRENT_SOURCE_DIR}/seeds/${name} ${many} 2
           WORKING_DIRECTORY ${work})
  set_tests_properties(fuzz_long.${name} PROPERTIES LABELS long TIMEOUT 7200)
endfunction()

/// Which of the two stand-ins for libstdc++ this is (CMakeLists.txt): PLEXRL_TEST_RUNTIME.
extern "C" __attribute__((visibility("default"))) const char* plexrl_test_runtime() {
  return PLEXRL_TEST_RUNTIME;
}

// A preload lies before AddressSanitizer's runtime where that is a shared library, and the runtime
// ends a program in which it is not the first. It wants to be first so that its malloc and the like
// are found before others; we export none of those, so it may be told not to look. A program that
// has options of its own in this function, or in ASAN_OPTIONS, keeps them: its function is found
// before ours, and then it has to name this one as well.
// (https://github.com/google/sanitizers/wiki/AddressSanitizerFlags: verify_asan_link_order)

extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() noexcept {
  return "verify_asan_link_order=0";
}

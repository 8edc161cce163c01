// A program with a C++ runtime that is not the system's, as from conda or a container: its
// exceptions work around CUDA calls, in calls made while one unwinds, on other threads and in host
// functions, and no second runtime comes into the process. For run_catching.py.
#include <cuda.h>
#include <link.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

extern "C" const char* plexrl_test_runtime();

namespace {

struct Error {
  explicit Error(CUresult the_result) : result(the_result) {}
  virtual ~Error() = default;
  virtual const char* name() const = 0;
  CUresult result;
};
struct DriverError : Error {
  using Error::Error;
  const char* name() const override {
    const char* text = nullptr;
    return cuGetErrorName(result, &text) == CUDA_SUCCESS ? text : "unknown";
  }
};

void check(CUresult result) {
  if (result != CUDA_SUCCESS) throw DriverError(result);
}

/// Device memory that is given back while an exception unwinds, too.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) { check(cuMemAlloc(&address_, bytes)); }
  ~Buffer() {
    const int uncaught = std::uncaught_exceptions();
    try {
      check(cuMemsetD8(address_, 1, bytes_));
      check(cuMemFree(0xbad));
    } catch (const Error& error) {
      std::printf("  while %d unwind: %s\n", uncaught, error.name());
    }
    std::printf("  freed: %d\n", static_cast<int>(cuMemFree(address_)));
  }
  unsigned sum() const {
    unsigned char* const bytes = new unsigned char[bytes_];
    check(cuMemcpyDtoH(bytes, address_, bytes_));
    unsigned total = 0;
    for (std::size_t i = 0; i < bytes_; ++i) total = total * 31 + bytes[i];
    delete[] bytes;
    return total;
  }
  CUdeviceptr address() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

int throw_and_catch(const char* where) {
  try {
    const Buffer buffer(1 << 20);
    check(cuMemsetD8(buffer.address(), 7, 1 << 20));
    std::printf("%s: sum %u\n", where, buffer.sum());
    check(cuMemFree(buffer.address() + 1));
  } catch (Error& error) {
    std::printf("  caught %s, %s\n", error.name(),
                dynamic_cast<DriverError*>(&error) != nullptr ? "a driver's" : "another");
    return 1;
  }
  return 0;
}

/// Host functions may not call the driver.
void on_drivers_thread(void* caught) {
  try {
    throw 5;
  } catch (int value) {
    *static_cast<int*>(caught) = value;
  }
}

void* on_a_thread(void* context) {
  try {
    check(cuCtxSetCurrent(static_cast<CUcontext>(context)));
    throw_and_catch("another thread");
  } catch (const Error& error) {
    std::printf("another thread: %s\n", error.name());
  }
  return nullptr;
}

void rethrow_later() {
  std::exception_ptr kept;
  try {
    check(CUDA_ERROR_NOT_FOUND);
  } catch (...) {
    kept = std::current_exception();
  }
  try {
    check(cuCtxSynchronize());
    std::rethrow_exception(kept);
  } catch (const DriverError& error) {
    std::printf("kept and thrown again: %s\n", error.name());
  }
  try {
    volatile std::size_t too_much = ~std::size_t{0} / 4;
    delete[] new char[too_much];
  } catch (const std::bad_alloc&) {
    std::printf("no memory: std::bad_alloc\n");
  }
}

int print_runtime(dl_phdr_info* info, std::size_t, void* count) {
  if (std::strstr(info->dlpi_name, "libstdc++") == nullptr) return 0;
  std::printf("runtime: %s\n", info->dlpi_name);
  ++*static_cast<int*>(count);
  return 0;
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  int caught = 0, runtimes = 0;
  try {
    check(cuInit(0));
    check(cuDeviceGet(&device, 0));
    check(cuDevicePrimaryCtxRetain(&context, device));
    check(cuCtxSetCurrent(context));
    throw_and_catch("this thread");
    check(cuLaunchHostFunc(nullptr, &on_drivers_thread, &caught));
    check(cuCtxSynchronize());
    std::printf("the driver's thread: caught %d\n", caught);
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &on_a_thread, context) != 0) return 1;
    pthread_join(thread, nullptr);
    rethrow_later();
    dl_iterate_phdr(&print_runtime, &runtimes);
    std::printf("%s, %d in the process\n", plexrl_test_runtime(), runtimes);
    check(cuDevicePrimaryCtxRelease(device));
  } catch (const Error& error) {
    std::fprintf(stderr, "not caught where it was expected: %s\n", error.name());
    return 1;
  }
  return 0;
}

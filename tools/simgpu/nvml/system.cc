// NVML: the library itself, versions, and processes.

#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tools/simgpu/nvml/answers.h"
#include "tools/simgpu/nvml/session.h"

namespace plexrl::simgpu::nvml {

nvmlReturn_t answer_text(const std::string& text, char* buffer, unsigned length) {
  if (buffer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

namespace {

constexpr int kCudaMajor = CUDA_VERSION / 1000;
// The driver branch that came with CUDA 13.0; tools parse it as numbers and dots.
constexpr char kDriverVersion[] = "580.00";

/// The command of a process, as far as it is to be seen; empty when there is none.
std::string command_of(unsigned pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/cmdline";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[4096];
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return "";
  text[size] = 0;
  return text;
}

}  // namespace
}  // namespace plexrl::simgpu::nvml

using namespace plexrl::simgpu::nvml;

NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned) { return session().initialise(); }
NVML_EXPORT nvmlReturn_t nvmlInit_v2() { return session().initialise(); }
NVML_EXPORT nvmlReturn_t nvmlInit() { return session().initialise(); }
NVML_EXPORT nvmlReturn_t nvmlShutdown() { return session().shut_down(); }

NVML_EXPORT const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_ALREADY_INITIALIZED:
      return "Already Initialized";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  NVML_ENTER();
  return answer_text(kDriverVersion, version, length);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  // Needs no nvmlInit.
  return answer_text(std::to_string(kCudaMajor) + "." + kDriverVersion, version, length);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = CUDA_VERSION;
  return NVML_SUCCESS;
}
NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  NVML_ENTER();
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  const std::string command = command_of(pid);
  if (command.empty()) return NVML_ERROR_NOT_FOUND;
  std::snprintf(name, length, "%s", command.c_str());  // a name too long is cut, as documented
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned* count) {
  NVML_ENTER();
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned* count) {
  return nvmlUnitGetCount(count);
}

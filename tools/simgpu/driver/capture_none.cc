// No stream is ever in capture in a build without the graph code.

#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {

CUresult capture_operation(Stream*, std::unique_ptr<Operation>) { return CUDA_ERROR_NOT_SUPPORTED; }
bool capture_event_record(Stream*, Event*, CUresult*) { return false; }
bool capture_event_wait(Stream*, Event*, CUresult*) { return false; }
CUresult check_unsafe_call() { return CUDA_SUCCESS; }

}  // namespace plexrl::simgpu

// Copies and fills that reach beyond an allocation, of every form, and into freed memory: refused,
// as by the driver, and nothing is written to the neighbouring allocations. Then allocations and
// frees on a thread that captures, in every mode: refused where the mode forbids them, which ends
// the capture. All of it before and after a pause.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

// As the allocations of many small tensors: neighbours in one block of PlexRL's.
constexpr std::size_t kBytes = 4096, kRow = 512;

void say(const char* what, CUresult result) {
  std::printf("%s: %s\n", what, error_name(result).c_str());
}

CUDA_MEMCPY2D rows(CUdeviceptr target, CUdeviceptr source, std::size_t first, std::size_t count) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = source;
  copy.dstDevice = target;
  copy.srcPitch = copy.dstPitch = kRow;
  copy.dstY = first;
  copy.WidthInBytes = kRow;
  copy.Height = count;
  return copy;
}

CUDA_MEMCPY3D slices(CUdeviceptr target, CUdeviceptr source, std::size_t first, std::size_t count) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = source;
  copy.dstDevice = target;
  copy.srcPitch = copy.dstPitch = kRow;
  copy.srcHeight = copy.dstHeight = 2;  // rows of a slice
  copy.srcZ = first;
  copy.WidthInBytes = kRow;
  copy.Height = 2;
  copy.Depth = count;
  return copy;
}

void reach_beyond(CUdeviceptr small, CUdeviceptr other, CUdeviceptr large, std::size_t large_bytes,
                  CUstream stream) {
  std::vector<unsigned char> host(large_bytes + kBytes, 7);
  say("to the device, one row more", cuMemcpyHtoD(small, host.data(), kBytes + kRow));
  say("to the device, from its middle", cuMemcpyHtoD(small + kRow, host.data(), kBytes));
  say("to the device, queued", cuMemcpyHtoDAsync(small, host.data(), kBytes + kRow, stream));
  say("to the host", cuMemcpyDtoH(host.data(), small, kBytes + kRow));
  say("to the host, queued", cuMemcpyDtoHAsync(host.data(), small, kBytes + kRow, stream));
  say("between, the target", cuMemcpyDtoD(small, large, kBytes + kRow));
  say("between, the source", cuMemcpyDtoDAsync(large, small, kBytes + kRow, stream));
  say("by address", cuMemcpy(small, large, kBytes + kRow));
  say("by address, queued", cuMemcpyAsync(large, small, kBytes + kRow, stream));
  say("of a large one", cuMemcpyHtoD(large, host.data(), large_bytes + kBytes));
  say("fill of bytes", cuMemsetD8(small, 9, kBytes + kRow));
  say("fill of shorts", cuMemsetD16(small, 9, (kBytes + kRow) / 2));
  say("fill of words", cuMemsetD32(small, 9, (kBytes + kRow) / 4));
  say("fill of words, queued", cuMemsetD32Async(small, 9, (kBytes + kRow) / 4, stream));
  say("fill of rows", cuMemsetD2D8(small, kRow, 9, kRow, kBytes / kRow + 1));
  say("fill of rows, queued", cuMemsetD2D32Async(small, kRow, 9, kRow / 4, 9, stream));
  const CUDA_MEMCPY2D flat = rows(small, large, 1, kBytes / kRow);
  say("rows", cuMemcpy2D(&flat));
  say("rows, queued", cuMemcpy2DAsync(&flat, stream));
  const CUDA_MEMCPY3D deep = slices(large, small, 1, kBytes / kRow / 2);
  say("slices", cuMemcpy3D(&deep));
  say("slices, queued", cuMemcpy3DAsync(&deep, stream));
  // What stays inside goes on.
  say("all of it", cuMemsetD8(small, 3, kBytes));
  const CUDA_MEMCPY2D last_row = rows(small, large, kBytes / kRow - 1, 1);
  say("its last row", cuMemcpy2D(&last_row));
  const CUDA_MEMCPY3D last_slice = slices(large, small, kBytes / kRow / 2 - 1, 1);
  say("its last slice", cuMemcpy3D(&last_slice));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuCtxSynchronize());
  print_device("small", small, kBytes);
  print_device("its neighbour", other, kBytes);
  print_device("large", large, large_bytes);
}

void use_freed(std::size_t bytes) {
  unsigned char host[16] = {};
  const CUdeviceptr freed = allocate(bytes);
  CHECK(cuMemcpyHtoD(freed, host, sizeof host));  // as long as it lives
  CHECK(cuMemFree(freed));
  say("copy to freed memory", cuMemcpyHtoD(freed, host, sizeof host));
  say("copy from freed memory", cuMemcpyDtoH(host, freed, sizeof host));
  say("fill of freed memory", cuMemsetD8(freed, 1, sizeof host));
  say("and the context", cuCtxSynchronize());
}

void allocate_in_captures(CUstream stream, CUdeviceptr small) {
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED}) {
    for (const bool relaxed : {false, true}) {
      for (const bool frees : {false, true}) {
        CUdeviceptr made = 0, before = allocate(kBytes);
        CUgraph graph = nullptr;
        CHECK(cuStreamBeginCapture(stream, mode));
        CHECK(cuMemsetD8Async(small, 4, kBytes, stream));
        CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;
        if (relaxed) CHECK(cuThreadExchangeStreamCaptureMode(&own));
        const CUresult result = frees ? cuMemFree(before) : cuMemAlloc(&made, kBytes);
        if (relaxed) CHECK(cuThreadExchangeStreamCaptureMode(&own));
        std::printf("mode %d%s, ", static_cast<int>(mode), relaxed ? ", relaxed meanwhile" : "");
        say(frees ? "free" : "allocation", result);
        say("  its end", cuStreamEndCapture(stream, &graph));
        if (graph != nullptr) CHECK(cuGraphDestroy(graph));
        if (made != 0) CHECK(cuMemFree(made));
        if (!frees || result != CUDA_SUCCESS) CHECK(cuMemFree(before));
      }
    }
  }
}

}  // namespace

int main() {
  Program program;
  const std::size_t large_bytes = 4 << 20;
  const CUdeviceptr small = allocate(kBytes), other = allocate(kBytes);
  const CUdeviceptr large = allocate(large_bytes);
  CHECK(cuMemsetD8(small, 1, kBytes));
  CHECK(cuMemsetD8(other, 2, kBytes));
  CHECK(cuMemsetD32(large, 5, large_bytes / 4));
  CHECK(cuCtxSynchronize());
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 2; ++round) {
    reach_beyond(small, other, large, large_bytes, stream);
    use_freed(kBytes);
    use_freed(large_bytes);
    allocate_in_captures(stream, small);
    program.pause();
  }
  CHECK(cuStreamDestroy(stream));
}

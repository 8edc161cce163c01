// Host functions between kernels: they run in stream order, and work behind them waits for them.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

struct Order {
  std::atomic<int> next{0};
  std::string seen;  // written by host functions only, which run one after the other
};

void CUDA_CB note(void* data) {
  auto* order = static_cast<Order*>(data);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  order->seen += std::to_string(order->next.fetch_add(1)) + " ";
}

}  // namespace

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemsetD32Async(data, 3, words, stream));
  Order order;
  for (unsigned round = 0; round < 4; ++round) {
    launch(program.kernel("mix"), words, stream, data, static_cast<unsigned long long>(words),
           round);
    CHECK(cuLaunchHostFunc(stream, note, &order));
    launch(program.kernel("mix"), words, stream, data, static_cast<unsigned long long>(words),
           round + 10);
    CHECK(cuLaunchHostFunc(stream, note, &order));
    program.pause();
  }
  CHECK(cuStreamSynchronize(stream));
  std::printf("order: %s\n", order.seen.c_str());
  print_device("data", data, bytes);
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(data));
}

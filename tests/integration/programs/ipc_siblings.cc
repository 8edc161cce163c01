// Legacy handles between two children of a program that itself never uses the GPU and only passes
// on what they say, as a launcher does: opened by one, written by both, before and after a switch.
#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 6 << 20, kWords = kBytes / 4;

void mix(const Program& program, CUdeviceptr data, unsigned add) {
  launch(program.kernel("mix"), kWords, nullptr, data, static_cast<unsigned long long>(kWords),
         add);
  CHECK(cuCtxSynchronize());
}

int give(Channel parent) {
  Program program;
  const CUdeviceptr data = allocate(kBytes);
  CHECK(cuMemsetD32(data, 6, kWords));
  mix(program, data, 1);
  CUipcMemHandle handle;
  CHECK(cuIpcGetMemHandle(&handle, data));
  parent.send(handle);
  parent.wait();  // its sibling has been at it, and a switch
  print_device("giver: given", data, kBytes);
  mix(program, data, 2);
  parent.tell();
  parent.wait();  // its sibling has closed it
  print_device("giver: given, closed", data, kBytes);
  CHECK(cuMemFree(data));
  return 0;
}

int take(Channel parent) {
  Program program;
  CUdeviceptr data;
  CHECK(cuIpcOpenMemHandle(&data, parent.receive<CUipcMemHandle>(),
                           CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  print_device("taker: taken", data, kBytes);
  mix(program, data, 3);
  program.pause();
  print_device("taker: taken, after a switch", data, kBytes);
  parent.tell();
  parent.wait();  // the giver has been at it
  print_device("taker: taken, written by the giver", data, kBytes);
  program.pause();
  mix(program, data, 4);
  CHECK(cuIpcCloseMemHandle(data));
  parent.tell();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PLEXRL_TEST_BALLAST", "41943040", 1);  // both have to fit together
  if (argc > 2) {
    Channel parent(argv[2]);
    return std::strcmp(argv[1], "giver") == 0 ? give(parent) : take(parent);
  }
  Channel giver = Channel::to_child("giver"), taker = Channel::to_child("taker");
  taker.send(giver.receive<CUipcMemHandle>());
  taker.wait();
  giver.tell();
  giver.wait();
  taker.tell();
  taker.wait();
  taker.join_child();
  giver.tell();
  giver.join_child();
}

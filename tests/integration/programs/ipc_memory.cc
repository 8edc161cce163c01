// Legacy handles between a parent and the child it has spawned: opened before and after a switch,
// memory inside a larger one, written by both sides, opened twice, closed in another order, and a
// child that dies with memory open.
#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 6 << 20, kWords = kBytes / 4, kSmallBytes = 4096;

CUdeviceptr open(Channel& channel) {
  CUdeviceptr address;
  CHECK(cuIpcOpenMemHandle(&address, channel.receive<CUipcMemHandle>(),
                           CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return address;
}

void offer(Channel& channel, CUdeviceptr address) {
  CUipcMemHandle handle;
  CHECK(cuIpcGetMemHandle(&handle, address));
  channel.send(handle);
}

void mix(Program& program, CUdeviceptr address, std::size_t words, unsigned add) {
  launch(program.kernel("mix"), words, nullptr, address, static_cast<unsigned long long>(words),
         add);
  CHECK(cuCtxSynchronize());
}

int child(const char* socket) {
  Program program;
  Channel parent(socket);
  const CUdeviceptr large = open(parent), small = open(parent);
  print_device("child: large", large, kBytes);
  print_device("child: small", small, kSmallBytes);
  mix(program, large, kWords, 1);
  mix(program, small, kSmallBytes / 4, 2);
  parent.tell();
  parent.wait();  // a switch has been meanwhile
  print_device("child: large, after a switch", large, kBytes);
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  CHECK(cuMemGetAddressRange(&start, &bytes, large + 77));
  std::printf("child: range %s, %zu bytes\n", start == large ? "its start" : "elsewhere", bytes);
  const CUdeviceptr again = open(parent);
  std::printf("child: opened again %s\n", again == large ? "at the same place" : "elsewhere");
  const CUdeviceptr late = open(parent);  // written before the switch, opened after it
  print_device("child: late", late, kBytes);
  mix(program, late, kWords, 3);
  CHECK(cuIpcCloseMemHandle(large));
  CHECK(cuIpcCloseMemHandle(small));
  mix(program, again, kWords, 4);
  CHECK(cuIpcCloseMemHandle(again));
  std::printf("child: closed once too often: %s\n", error_name(cuIpcCloseMemHandle(again)).c_str());
  parent.tell();
  parent.wait();
  CHECK(cuIpcCloseMemHandle(late));
  parent.tell();
  return 0;
}

int dying_child(const char* socket) {
  Program program;
  Channel parent(socket);
  mix(program, open(parent), kWords, 5);
  parent.tell();
  parent.wait();  // for ever
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PLEXRL_TEST_BALLAST", "20971520", 1);  // the processes of the job have to fit together
  if (argc > 2) return std::strcmp(argv[1], "child") == 0 ? child(argv[2]) : dying_child(argv[2]);
  Program program;
  const CUdeviceptr large = allocate(kBytes), late = allocate(kBytes);
  const CUdeviceptr first = allocate(1000), small = allocate(kSmallBytes);
  CHECK(cuMemsetD32(large, 1, kWords));
  CHECK(cuMemsetD32(late, 2, kWords));
  CHECK(cuMemsetD8(first, 3, 1000));
  CHECK(cuMemsetD8(small, 4, kSmallBytes));
  Channel channel = Channel::to_child();
  offer(channel, large);
  offer(channel, small);
  channel.wait();
  program.pause();
  print_device("parent: large", large, kBytes);
  print_device("parent: small", small, kSmallBytes);
  mix(program, large, kWords, 9);
  channel.tell();
  offer(channel, large);
  offer(channel, late);
  channel.wait();
  program.pause();
  print_device("parent: large", large, kBytes);
  print_device("parent: late", late, kBytes);
  channel.tell();
  channel.wait();
  channel.join_child();
  CHECK(cuMemFree(late));

  Channel dying = Channel::to_child("dying");
  offer(dying, large);
  dying.wait();
  dying.kill_child();
  program.pause();
  print_device("parent: large", large, kBytes);
  print_device("parent: first", first, 1000);
  for (const CUdeviceptr address : {large, first, small}) CHECK(cuMemFree(address));
}

// A handle of virtual memory management that is passed on: from a parent to its child, which
// imports it twice, and by the child to a grandchild, later to another one. Each writes before and
// after switches and the others see it, also when its maker has freed it.
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 12 << 20, kWords = kBytes / 4;
constexpr int kRounds = 2;

void mix(Program& program, CUdeviceptr address, unsigned add) {
  launch(program.kernel("mix"), kWords, nullptr, address, static_cast<unsigned long long>(kWords),
         add);
  CHECK(cuCtxSynchronize());
}

/// Each time it is told, until it is told that it is over.
int last(const char* socket) {
  Program program;
  Channel giver(socket);
  const CUmemGenericAllocationHandle handle = import_handle(giver);
  const CUdeviceptr address = map_handle(program.device(), handle, kBytes);
  print_device("last, as it came", address, kBytes);
  while (const int add = giver.receive<int>()) {
    mix(program, address, static_cast<unsigned>(add));
    print_device("last", address, kBytes);
    giver.tell();
  }
  unmap_handle(address, handle, kBytes);
  return 0;
}

int child(const char* socket) {
  Program program;
  Channel parent(socket);
  const CUmemGenericAllocationHandle first = import_handle(parent);
  const CUmemGenericAllocationHandle second = import_handle(parent);
  const CUdeviceptr address = map_handle(program.device(), first, kBytes);
  const CUdeviceptr again = map_handle(program.device(), second, kBytes);
  mix(program, address, 1);
  print_device("child, elsewhere", again, kBytes);
  unmap_handle(address, first, kBytes);
  Channel grandchild = Channel::to_child("last");
  offer_handle(grandchild, second);
  for (int round = 0; round < kRounds; ++round) {
    grandchild.send(10 + round);
    grandchild.wait();
    print_device("child, of the last", again, kBytes);
    parent.tell();
    parent.wait();
  }
  Channel late = Channel::to_child("last");
  offer_handle(late, second);
  for (int round = 0; round < kRounds; ++round) {
    late.send(20 + round);
    late.wait();
    grandchild.send(30 + round);
    grandchild.wait();
    print_device("child, of both", again, kBytes);
    parent.tell();
    parent.wait();  // the first time, it has freed it then
  }
  unmap_handle(again, second, kBytes);
  for (Channel* one : {&grandchild, &late}) {
    one->send(0);
    one->wait_for_end();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PLEXRL_TEST_BALLAST", "25165824", 1);  // the processes of the job have to fit together
  if (argc > 2) return std::strcmp(argv[1], "child") == 0 ? child(argv[2]) : last(argv[2]);
  Program program;
  const CUmemGenericAllocationHandle handle = create_handle(program.device(), kBytes);
  const CUdeviceptr address = map_handle(program.device(), handle, kBytes);
  CHECK(cuMemsetD32(address, 5, kWords));
  CHECK(cuCtxSynchronize());
  Channel channel = Channel::to_child();
  for (int i = 0; i < 2; ++i) offer_handle(channel, handle);
  for (int round = 0; round < kRounds; ++round) {
    channel.wait();
    program.pause();
    print_device("parent, of the last", address, kBytes);
    channel.tell();
  }
  for (int round = 0; round < kRounds; ++round) {
    channel.wait();
    program.pause();
    if (round == 0) unmap_handle(address, handle, kBytes);
    channel.tell();
  }
  channel.wait_for_end();
}

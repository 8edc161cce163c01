// Handles of virtual memory management between processes, as descriptors: a child maps what its
// parent made, then the parent maps what a child made, and goes on with it after that child was
// killed, before and after a switch.
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

void mix(Program& program, CUdeviceptr address, unsigned add) {
  launch(program.kernel("mix"), kWords, nullptr, address, static_cast<unsigned long long>(kWords),
         add);
  CHECK(cuCtxSynchronize());
}

int child(const char* socket) {
  Program program;
  Channel parent(socket);
  const CUmemGenericAllocationHandle handle = import_handle(parent);
  const CUdeviceptr address = map_handle(program.device(), handle, kBytes);
  print_device("child", address, kBytes);
  mix(program, address, 1);
  parent.tell();
  parent.wait();  // a switch has been meanwhile, and the parent has released its own
  print_device("child, after a switch", address, kBytes);
  mix(program, address, 2);
  print_device("child, alone with it", address, kBytes);
  unmap_handle(address, handle, kBytes);
  // Now the other way round: the parent gets ours, and we are killed.
  const CUmemGenericAllocationHandle left[2] = {create_handle(program.device(), kBytes),
                                                create_handle(program.device(), kBytes)};
  for (unsigned i = 0; i < 2; ++i) {
    const CUdeviceptr own = map_handle(program.device(), left[i], kBytes);
    CHECK(cuMemsetD32(own, 70 + i, kWords));
    offer_handle(parent, left[i]);
  }
  CHECK(cuCtxSynchronize());
  parent.tell();
  parent.wait();  // for ever
  return 1;
}

/// Offers a handle, and is killed while what is behind it is away.
int second_child(const char* socket) {
  Program program;
  Channel parent(socket);
  const CUmemGenericAllocationHandle own = create_handle(program.device(), kBytes);
  CHECK(cuMemsetD32(map_handle(program.device(), own, kBytes), 90, kWords));
  CHECK(cuCtxSynchronize());
  offer_handle(parent, own);
  parent.wait();  // for ever
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PLEXRL_TEST_BALLAST", "20971520", 1);  // the processes of the job have to fit together
  if (argc > 2) return std::strcmp(argv[1], "child") == 0 ? child(argv[2]) : second_child(argv[2]);
  Program program;
  const CUmemGenericAllocationHandle handle = create_handle(program.device(), kBytes);
  const CUdeviceptr address = map_handle(program.device(), handle, kBytes);
  CHECK(cuMemsetD32(address, 5, kWords));
  Channel channel = Channel::to_child();
  offer_handle(channel, handle);
  channel.wait();
  program.pause();
  print_device("parent", address, kBytes);
  mix(program, address, 7);
  unmap_handle(address, handle, kBytes);  // the child has it still
  channel.tell();

  CUmemGenericAllocationHandle theirs[2];
  CUdeviceptr mapped[2];
  for (int i = 0; i < 2; ++i) {
    theirs[i] = import_handle(channel);
    mapped[i] = map_handle(program.device(), theirs[i], kBytes);
  }
  channel.wait();
  print_device("parent, of the child", mapped[0], kBytes);
  mix(program, mapped[0], 8);
  program.pause();  // the first time its owner brings it back
  print_device("parent, of the child", mapped[0], kBytes);
  mix(program, mapped[1], 9);
  channel.kill_child();
  mix(program, mapped[1], 10);

  Channel second = Channel::to_child("second");
  const CUmemGenericAllocationHandle last = import_handle(second);
  const CUdeviceptr last_mapped = map_handle(program.device(), last, kBytes);
  mix(program, last_mapped, 11);
  program.pause();
  second.kill_child();
  print_device("parent, of the second", last_mapped, kBytes);
  mix(program, last_mapped, 12);
  program.pause();  // now there is nobody else
  print_device("parent, of the second", last_mapped, kBytes);
  unmap_handle(last_mapped, last, kBytes);
  for (int i = 0; i < 2; ++i) {
    print_device("parent, of the dead", mapped[i], kBytes);
    unmap_handle(mapped[i], theirs[i], kBytes);
  }
}

// Memory that is registered with a NIC: a peer writes into it while the program is away from the
// GPU, and the bytes are there when it comes back. Memory that is not registered, or not any more,
// leaves and comes back as any other.
//
// `nic_registration hold FILE` registers, waits until FILE, a FIFO, has been written, deregisters,
// and waits for a second time.
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/nic.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kMiB = 1 << 20;
/// Memory that is never registered: with less of it the neighbour would find room without taking
/// what is, and nothing would be shown.
constexpr std::size_t kElsewhere = 40 * kMiB;

CUdeviceptr filled(std::size_t bytes, std::uint32_t seed) {
  const CUdeviceptr address = allocate(bytes);
  CHECK(cuMemcpyHtoD(address, pattern(bytes, seed).data(), bytes));
  CHECK(cuCtxSynchronize());  // a NIC waits for nothing
  return address;
}

/// Away from the GPU: the peer writes all the while, and once more when the memory of the program
/// is known to be in the host, with no call of the driver's in between.
void pause_and_write(Program& program, Nic& nic, const Nic::Region* region, std::uint64_t address,
                     const std::vector<unsigned char>& bytes) {
  const std::vector<unsigned char> early(bytes.size(), 0xa5);
  program.pause([&] {
    nic.write(region, address, early);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  nic.write(region, address, bytes);
}

void mix(Program& program, CUdeviceptr address, std::size_t bytes, unsigned seed) {
  launch(program.kernel("mix"), bytes / 4, nullptr, address,
         static_cast<unsigned long long>(bytes / 4), seed);
  CHECK(cuCtxSynchronize());
}

void several_rounds(Program& program, Nic& nic, CUdeviceptr large, CUdeviceptr small,
                    CUdeviceptr elsewhere) {
  Nic::Region* const in_large = nic.register_memory(large + kMiB, 6 * kMiB);
  Nic::Region* const in_small = nic.register_memory(small, 1000, 0);
  for (unsigned round = 0; round < 3; ++round) {
    pause_and_write(program, nic, in_large, large + (2 + round) * kMiB - 100,
                    pattern(kMiB + 7, 10 + round));
    nic.write(in_small, 30 * round, pattern(500, 20 + round));
    print_device("large", large, 8 * kMiB);
    print_device("small", small, 1000);
    print_device("not registered", elsewhere, kElsewhere);
    mix(program, large, 8 * kMiB, round);
    mix(program, elsewhere, kElsewhere, round);
  }
  nic.deregister(in_large);
  nic.deregister(in_small);
  program.pause();
  print_device("deregistered", large, 8 * kMiB);
}

/// Memory that is in the host when it is registered, and registered twice.
void registered_late_and_twice(Program& program, Nic& nic) {
  const CUdeviceptr address = filled(4 * kMiB, 5), other = filled(2 * kMiB, 6);
  program.pause();
  Nic::Region* const first = nic.register_memory(address, 4 * kMiB);
  Nic::Region* const second = nic.register_memory(address, kMiB);
  nic.deregister(first);
  pause_and_write(program, nic, second, address, pattern(kMiB, 30));
  print_device("registered once more", address, 4 * kMiB);
  nic.move(second, other, 2 * kMiB);
  pause_and_write(program, nic, second, other + 5, pattern(kMiB, 31));
  print_device("before", address, 4 * kMiB);
  print_device("registered instead", other, 2 * kMiB);
  nic.deregister(second);
  CHECK(cuMemFree(address));
  CHECK(cuMemFree(other));
}

/// One region over two handles of the program's own that are mapped side by side.
void own_mappings(Program& program, Nic& nic) {
  constexpr std::size_t kBytes = 4 * kMiB;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  CUdeviceptr start;
  CHECK(cuMemAddressReserve(&start, 2 * kBytes, 0, 0, 0));
  CUmemGenericAllocationHandle handles[2];
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(cuMemCreate(&handles[i], kBytes, &prop, 0));
    CHECK(cuMemMap(start + i * kBytes, kBytes, 0, handles[i], 0));
  }
  const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemSetAccess(start, 2 * kBytes, &access, 1));
  CHECK(cuMemcpyHtoD(start, pattern(2 * kBytes, 7).data(), 2 * kBytes));
  Nic::Region* const region = nic.register_memory(start, 2 * kBytes);
  pause_and_write(program, nic, region, start + kBytes - kMiB, pattern(2 * kMiB, 40));
  print_device("two handles", start, 2 * kBytes);
  nic.deregister(region);
  CHECK(cuMemUnmap(start, 2 * kBytes));
  for (const CUmemGenericAllocationHandle handle : handles) CHECK(cuMemRelease(handle));
  CHECK(cuMemAddressFree(start, 2 * kBytes));
}

int hold(const char* fifo) {
  const Program program;
  Nic nic;
  const CUdeviceptr address = filled(8 * kMiB, 1);
  Nic::Region* const region = nic.register_memory(address, 8 * kMiB);
  std::printf("registered\n");
  std::fflush(stdout);
  std::ifstream(fifo).get();
  nic.deregister(region);
  std::ifstream(fifo).get();
  CHECK(cuMemFree(address));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "hold") == 0) return hold(argv[2]);
  Program program;
  Nic nic;
  const CUdeviceptr large = filled(8 * kMiB, 1), small = filled(1000, 2);
  const CUdeviceptr elsewhere = filled(kElsewhere, 3);
  several_rounds(program, nic, large, small, elsewhere);
  CHECK(cuMemFree(large));
  CHECK(cuMemFree(small));
  registered_late_and_twice(program, nic);
  own_mappings(program, nic);
  CHECK(cuMemFree(elsewhere));
}

// What the keys of PLEXRL_SIMGPU do. Times are read from the modelled clock (the machine's
// counters), so they are exact on any host.

#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/simgpu/own_process.h"
#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {
namespace {

/// order(p): p[1 + arrival] = block. work(p): runs for some 100,000 instructions a warp.
/// alone(p): p[0] = how many of its kind were ever inside at once.
constexpr char kKernels[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .entry order(.param .u64 p) {
  .reg .b32 %r<4>;
  .reg .b64 %a<4>;
  ld.param.u64 %a0, [p];
  atom.global.add.u32 %r0, [%a0], 1;
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %a1, %r0, 4;
  add.u64 %a1, %a1, %a0;
  st.global.u32 [%a1+4], %r1;
  ret;
}
.visible .entry work(.param .u64 p) {
  .reg .pred %more;
  .reg .b32 %r<4>;
  mov.u32 %r0, 0;
AGAIN:
  add.u32 %r0, %r0, 1;
  setp.lt.u32 %more, %r0, 30000;
  @%more bra AGAIN;
  ret;
}
.visible .entry alone(.param .u64 p) {
  .reg .b32 %r<4>;
  .reg .b64 %a<2>;
  ld.param.u64 %a0, [p];
  atom.global.add.u32 %r0, [%a0+4], 1;
  add.u32 %r0, %r0, 1;
  atom.global.max.u32 %r1, [%a0], %r0;
  nanosleep.u32 1000000;
  atom.global.add.u32 %r1, [%a0+4], -1;
  ret;
}
.visible .entry store(.param .u64 p) {
  .reg .b32 %r<2>;
  .reg .b64 %a<2>;
  ld.param.u64 %a0, [p];
  mov.u32 %r0, 77;
  st.global.u32 [%a0], %r0;
  ret;
}
)";

constexpr std::size_t kMillion = 1'000'000;

std::string name() {
  static int count = 0;
  return "figures-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

void ok(CUresult result, const char* what) {
  require(result == CUDA_SUCCESS, std::string(what) + " answers " + std::to_string(result));
}
#define OK(call) ok(call, #call)

/// A context on the process's device, with the kernels and the machine seen from outside.
struct Gpu {
  explicit Gpu(int ordinal = 0) {
    OK(cuInit(0));
    OK(cuCtxCreate(&context, nullptr, 0, ordinal));
    OK(cuModuleLoadData(&module, kKernels));
    Spec spec;
    std::string error;
    require(parse_spec(getenv("PLEXRL_SIMGPU"), &spec, &error), error);
    machine = Machine::observe(spec.name, &error);
    require(machine != nullptr, "no machine: " + error);
  }
  std::uint64_t busy() const { return machine->counters(0).busy_ns.load(); }
  CUdeviceptr memory(std::size_t bytes) const {
    CUdeviceptr pointer = 0;
    OK(cuMemAlloc(&pointer, bytes));
    OK(cuMemsetD8(pointer, 0, bytes));
    OK(cuCtxSynchronize());
    return pointer;
  }
  CUstream stream() const {
    CUstream made = nullptr;
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
  }
  CUresult launch(const char* kernel, unsigned grid, CUdeviceptr pointer,
                  CUstream stream = nullptr) const {
    CUfunction function = nullptr;
    OK(cuModuleGetFunction(&function, module, kernel));
    void* parameters[] = {&pointer};
    return cuLaunchKernel(function, grid, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  std::unique_ptr<Machine> machine;
};

const std::string kFree = ",memory=64MiB,ctx=2MiB,free_delay=0";

/// Modelled ns of a fill, of a copy within the device, of one each way over the link, and of a
/// kernel, a million bytes each.
std::string times(const std::string& figures) {
  return in_own_process("name=" + name() + kFree + ",vmm=0" + figures, [] {
    const Gpu gpu;
    const CUdeviceptr from = gpu.memory(kMillion), to = gpu.memory(kMillion);
    const std::vector<char> host(kMillion);
    std::string said;
    const auto took = [&](CUresult result, std::uint64_t before) {
      require(result == CUDA_SUCCESS, "error " + std::to_string(result));
      OK(cuCtxSynchronize());
      said += std::to_string(gpu.busy() - before) + " ";
    };
    took(cuMemsetD8(from, 1, kMillion), gpu.busy());
    took(cuMemcpyDtoD(to, from, kMillion), gpu.busy());
    took(cuMemcpyHtoD(to, host.data(), kMillion), gpu.busy());
    took(cuMemcpyDtoH(const_cast<char*>(host.data()), to, kMillion), gpu.busy());
    took(gpu.launch("work", 1, 0), gpu.busy());
    return said;
  });
}

TEST(Figures, RatesOfMemoryAndLinkGiveTheTimeOfCopies) {
  // 90,002 instructions of the one warp, 4 multiprocessors, 5 us a launch.
  EXPECT_EQ("1000000 2000000 2000000 2000000 27500 ", times(",hbm=1GB/s,link=500MB/s"));
}

TEST(Figures, SlowStretchesEveryTime) {
  EXPECT_EQ("3000000 6000000 6000000 6000000 82501 ", times(",hbm=1GB/s,link=500MB/s,slow=3"));
}

TEST(Figures, MultiprocessorsShareAKernelsInstructions) {
  EXPECT_EQ("0 0 0 0 50001 ", times(",hbm=0,link=0,sms=2"));
}

TEST(Figures, CallsOfMemoryManagementTakeDriverTimeInMeasuredShares) {
  const std::string spec = "name=" + name() + kFree + ",vmm=1930us";
  EXPECT_EQ("38600000 1930000 15000 360000 260000 ", in_own_process(spec, [] {
              const Gpu gpu;
              std::string said;
              std::uint64_t before = 0;
              const auto took = [&](CUresult result) {
                require(result == CUDA_SUCCESS, "error " + std::to_string(result));
                const std::uint64_t now = gpu.machine->driver_ns();
                said += std::to_string(now - std::exchange(before, now)) + " ";
              };
              took(CUDA_SUCCESS);  // the context
              CUmemAllocationProp properties{};
              properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
              properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
              CUmemGenericAllocationHandle handle = 0;
              CUdeviceptr base = 0;
              OK(cuMemAddressReserve(&base, 2 << 20, 0, 0, 0));
              took(cuMemCreate(&handle, 2 << 20, &properties, 0));
              took(cuMemMap(base, 2 << 20, 0, handle, 0));
              const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
              took(cuMemSetAccess(base, 2 << 20, &access, 1));
              took(cuMemUnmap(base, 2 << 20));
              return said;
            }));
}

TEST(Figures, AFullQueueHoldsTheLaunchUntilThereIsRoom) {
  const std::string spec = "name=" + name() + kFree + ",vmm=0,queue=4";
  EXPECT_EQ(
      "", in_own_process(spec, [] {
        const Gpu gpu;
        const CUdeviceptr gate = gpu.memory(4), other = gpu.memory(4096);
        const CUstream stream = gpu.stream(), opener = gpu.stream();
        OK(cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
        for (int i = 0; i < 3; ++i) OK(gpu.launch("store", 1, other, stream));
        std::atomic<bool> may_go{false}, went_early{false};
        std::thread fifth([&] {
          cuCtxSetCurrent(gpu.context);
          const CUresult result = gpu.launch("store", 1, other, stream);
          went_early = !may_go || result != CUDA_SUCCESS;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        may_go = true;
        OK(cuStreamWriteValue32(opener, gate, 1, 0));
        fifth.join();
        OK(cuStreamSynchronize(stream));
        return std::string(went_early ? "the fifth launch returned with four outstanding" : "");
      }));
}

TEST(Figures, OnlyTheNamedKernelHangsAndTheProcessCanStillExit) {
  const std::string spec = "name=" + name() + kFree + ",vmm=0,hang=2";
  EXPECT_EQ("", in_own_process(spec, [] {
              const Gpu gpu;
              const CUdeviceptr pointer = gpu.memory(4096);
              const CUstream first = gpu.stream(), second = gpu.stream(), third = gpu.stream();
              const auto is_done = [](CUstream stream) {
                return cuStreamQuery(stream) == CUDA_SUCCESS;
              };
              OK(gpu.launch("store", 1, pointer, first));
              OK(cuStreamSynchronize(first));
              // One of these two begins as the second kernel.
              OK(gpu.launch("store", 1, pointer, second));
              OK(gpu.launch("store", 1, pointer, third));
              while (!is_done(second) && !is_done(third))
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              const CUstream done = is_done(second) ? second : third;
              for (int i = 0; i < 10; ++i) {
                OK(gpu.launch("store", 1, pointer, done));
                OK(cuStreamSynchronize(done));
              }
              return std::string(is_done(done == second ? third : second) ? "both ended" : "");
            }));
}

std::string block_order(const std::string& figures) {
  return in_own_process("name=" + name() + kFree + ",vmm=0" + figures, [] {
    const Gpu gpu;
    std::string said;
    for (int launch = 0; launch < 2; ++launch) {
      constexpr unsigned kBlocks = 12;
      const CUdeviceptr pointer = gpu.memory(4096);
      OK(gpu.launch("order", kBlocks, pointer));
      OK(cuCtxSynchronize());
      std::vector<unsigned> seen(1 + kBlocks);
      OK(cuMemcpyDtoH(seen.data(), pointer, seen.size() * 4));
      require(std::set<unsigned>(seen.begin() + 1, seen.end()).size() == kBlocks,
              "a block was left out or ran twice");
      for (unsigned i = 1; i <= kBlocks; ++i) said += std::to_string(seen[i]) + " ";
      said += "/ ";
    }
    return said;
  });
}

TEST(Figures, ASeedDrawsTheOrderOfBlocksAndFixedOrderKeepsIt) {
  const std::string by_number = "0 1 2 3 4 5 6 7 8 9 10 11 / 0 1 2 3 4 5 6 7 8 9 10 11 / ";
  EXPECT_EQ(by_number, block_order(""));
  EXPECT_EQ(by_number, block_order(",seed=0"));
  EXPECT_EQ(by_number, block_order(",seed=5,order=fixed"));
  const std::string five = block_order(",seed=5");
  EXPECT_NE(by_number, five);
  EXPECT_EQ(five, block_order(",seed=5"));
  EXPECT_NE(five, block_order(",seed=6"));
  EXPECT_NE(five.substr(0, five.find('/')), five.substr(five.find('/') + 2, five.find('/')))
      << "another order for each kernel";
}

TEST(Figures, StaggerMakesEachItemBeginLaterAndKeepsTheOrderOfAStream) {
  const std::string spec = "name=" + name() + kFree + ",vmm=0,stagger=20ms,seed=3";
  EXPECT_EQ("20", in_own_process(spec, [] {
              const Gpu gpu;
              const CUdeviceptr pointer = gpu.memory(4096);
              const CUstream stream = gpu.stream();
              CUevent begin = nullptr, end = nullptr;
              OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
              OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
              OK(cuEventRecord(begin, stream));
              for (unsigned i = 1; i <= 20; ++i) OK(cuMemsetD32Async(pointer, i, 1, stream));
              OK(cuEventRecord(end, stream));
              OK(cuEventSynchronize(end));
              float elapsed_ms = 0;
              OK(cuEventElapsedTime(&elapsed_ms, begin, end));
              // 21 draws of up to 20 ms; all of them small is not what this seed draws.
              require(elapsed_ms > 100, "only " + std::to_string(elapsed_ms) + " ms");
              unsigned last = 0;
              OK(cuMemcpyDtoH(&last, pointer, 4));
              return std::to_string(last);
            }));
}

TEST(Figures, FixedOrderLetsOneKernelInAtATime) {
  const std::string spec = "name=" + name() + kFree + ",vmm=0,order=fixed";
  EXPECT_EQ("1", in_own_process(spec, [] {
              const Gpu gpu;
              const CUdeviceptr pointer = gpu.memory(4096);
              for (int i = 0; i < 4; ++i) OK(gpu.launch("alone", 1, pointer, gpu.stream()));
              OK(cuCtxSynchronize());
              unsigned most = 0;
              OK(cuMemcpyDtoH(&most, pointer, 4));
              return std::to_string(most);
            }));
}

TEST(Figures, TheLogAndTheCountersTellTheSameLag) {
  char path[] = "/tmp/plexrl-simgpu-lag-XXXXXX";
  close(mkstemp(path));
  // Multiprocessors that this host can't keep up with, and nothing else that takes time.
  const std::string spec =
      "name=" + name() + kFree + ",vmm=0,hbm=0,link=0,sms=256,log=" + std::string(path);
  const std::string counted = in_own_process(spec, [] {
    const Gpu gpu;
    for (int i = 0; i < 3; ++i) OK(gpu.launch("work", 256, 0));
    OK(cuCtxSynchronize());
    return std::to_string(gpu.machine->counters(0).lag_ns.load());
  });
  std::uint64_t logged = 0, longest = 0, first = ~0ull, last = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line);
    const std::uint64_t lag = entry["lag_ns"];
    logged += lag;
    longest = std::max(longest, lag);
    first = std::min<std::uint64_t>(first, entry["start_ns"]);
    last = std::max<std::uint64_t>(last, entry["end_ns"]);
  }
  EXPECT_EQ(std::to_string(logged), counted);
  EXPECT_GT(longest, 0u);
  EXPECT_LE(logged, last - first) << "what is late once counts once, not for all that follows";
  unlink(path);
}

/// What a kernel on device 0 that stores to memory of device 1 leads to.
std::string store_to_peer(const std::function<void(CUcontext, CUcontext)>& prepare) {
  return in_own_process("name=" + name() + kFree + ",vmm=0,gpus=2", [&] {
    const Gpu here(0);
    const Gpu there(1);
    const CUdeviceptr before = there.memory(4096);
    OK(cuCtxSetCurrent(here.context));
    prepare(here.context, there.context);
    OK(cuCtxSetCurrent(there.context));
    const CUdeviceptr after = there.memory(4096);
    OK(cuCtxSetCurrent(here.context));
    std::string said;
    for (const CUdeviceptr pointer : {before, after}) {
      OK(here.launch("store", 1, pointer));
      if (const CUresult result = cuCtxSynchronize(); result != CUDA_SUCCESS)
        return "error " + std::to_string(result);
      unsigned stored = 0;
      OK(cuCtxSetCurrent(there.context));
      OK(cuMemcpyDtoH(&stored, pointer, 4));
      OK(cuCtxSetCurrent(here.context));
      said += std::to_string(stored) + " ";
    }
    return said;
  });
}

const std::string kIllegalAddress = "error " + std::to_string(CUDA_ERROR_ILLEGAL_ADDRESS);

TEST(PeerAccess, WithoutItAnotherDevicesMemoryIsOutOfReach) {
  EXPECT_EQ(kIllegalAddress, store_to_peer([](CUcontext, CUcontext) {}));
}

TEST(PeerAccess, ReachesMemoryFromBeforeAndAfterItWasEnabled) {
  EXPECT_EQ("77 77 ",
            store_to_peer([](CUcontext, CUcontext there) { OK(cuCtxEnablePeerAccess(there, 0)); }));
}

TEST(PeerAccess, IsOneWay) {
  EXPECT_EQ(kIllegalAddress, store_to_peer([](CUcontext here, CUcontext there) {
              OK(cuCtxSetCurrent(there));
              OK(cuCtxEnablePeerAccess(here, 0));
              OK(cuCtxSetCurrent(here));
            }));
}

TEST(PeerAccess, EndsWhenItIsDisabled) {
  EXPECT_EQ(kIllegalAddress, store_to_peer([](CUcontext, CUcontext there) {
              OK(cuCtxEnablePeerAccess(there, 0));
              OK(cuCtxDisablePeerAccess(there));
            }));
}

TEST(PeerAccess, AnswersWithTheDocumentedErrors) {
  EXPECT_EQ("", in_own_process("name=" + name() + kFree + ",vmm=0,gpus=2", [] {
              const Gpu here(0), there(1);
              OK(cuCtxSetCurrent(here.context));
              int can = -1;
              OK(cuDeviceCanAccessPeer(&can, 0, 1));
              require(can == 1, "a peer can be accessed");
              OK(cuDeviceCanAccessPeer(&can, 0, 0));
              require(can == 0, "a device is no peer of its own");
              const auto expect = [](CUresult expected, CUresult result, const char* what) {
                require(result == expected, std::string(what) + ": " + std::to_string(result));
              };
              expect(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(there.context),
                     "disabled before it was enabled");
              OK(cuCtxEnablePeerAccess(there.context, 0));
              expect(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
                     cuCtxEnablePeerAccess(there.context, 0), "enabled twice");
              expect(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(there.context, 1), "flags");
              expect(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(nullptr, 0), "no peer");
              return std::string();
            }));
}

}  // namespace
}  // namespace plexrl::simgpu

// Every entry point with nothing (zeros and null pointers): before cuInit, without a context, and
// with one. None may crash or hang, and each answers with a code that cuda.h documents for it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/simgpu/own_process.h"
// Includes cuda.h with every version of a function under its own name.
#include "tools/simgpu/driver/cuda_api.h"

namespace plexrl::simgpu {
namespace {

template <typename... Arguments>
CUresult call_with_nothing(CUresult(CUDAAPI* function)(Arguments...)) {
  return function(Arguments{}...);
}

struct Row {
  std::string base;
  std::string symbol;
  CUresult (*call)();
};

const std::vector<Row> kRows = {
#define ENTRY(base, since, is_per_thread, symbol, type) \
  {base, #symbol, [] { return call_with_nothing(&symbol); }},
#include "tools/simgpu/driver/entry_points.inc"
#undef ENTRY
};

using Codes = std::set<int>;

const std::map<std::string, Codes>& documented() {
  static const std::map<std::string, Codes> all = {
#define DOCUMENTED(function, ...) {function, {__VA_ARGS__}},
#include "documented.inc"
#undef DOCUMENTED
  };
  return all;
}

/// These change what the others see, or hand address 0 to the device, which faults.
const std::set<std::string> kLeftOut = {
    "cuInit",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxSetCurrent",
    "cuCtxDestroy",
    "cuCtxDetach",
    "cuStreamBeginCapture",
    "cuStreamEndCapture",
    "cuStreamWaitValue32",
    "cuStreamWaitValue64",
    "cuStreamWriteValue32",
    "cuStreamWriteValue64",
};

/// Zeros mean something to these: device 0, flags or a limit of 0, nothing to free, no pointer
/// wanted.
const std::set<std::string> kSucceedAlways = {"cuDeviceGraphMemTrim", "cuDevicePrimaryCtxReset",
                                              "cuDevicePrimaryCtxSetFlags", "cuMemFree"};
const std::set<std::string> kSucceedInAContext = {
    "cuCtxGetStreamPriorityRange",
    "cuCtxResetPersistingL2Cache",
    "cuCtxSetCacheConfig",
    "cuCtxSetFlags",
    "cuCtxSetLimit",
    "cuCtxSynchronize",
    "cuMemFreeAsync",
    "cuMemGetInfo",
    "cuProfilerStart",
    "cuProfilerStop",
    "cuStreamBatchMemOp",
    "cuStreamQuery",
    "cuStreamSynchronize",
};
/// The context meant is an argument, or the device's primary one, which nobody retains here.
const std::set<std::string> kOfAnotherContext = {"cuCtxDisablePeerAccess", "cuCtxEnablePeerAccess",
                                                 "cuDevicePrimaryCtxRelease"};

/// A copy or fill of no bytes: done, wherever it points.
bool moves_nothing(const std::string& base) {
  return base.rfind("cuMemcpy", 0) == 0 || base.rfind("cuMemset", 0) == 0;
}

struct Answer {
  std::string base;
  std::string symbol;
  int code;
};

/// What each answers, in one process, after `prepare`.
std::vector<Answer> sweep(const std::function<void()>& prepare) {
  auto* const at = static_cast<std::size_t*>(mmap(
      nullptr, sizeof(std::size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const std::string spec = "name=sweep-" + std::to_string(getpid()) + ",memory=64MiB";
  std::istringstream said(in_own_process(spec, [&] {
    prepare();
    std::string codes;
    for (*at = 0; *at < kRows.size(); ++*at) {
      const Row& row = kRows[*at];
      if (kLeftOut.count(row.base) == 0) codes += std::to_string(row.call()) + " ";
    }
    return codes;
  }));
  std::vector<Answer> answers;
  for (const Row& row : kRows) {
    int code = 0;
    if (kLeftOut.count(row.base) != 0) continue;
    if (!(said >> code)) {
      ADD_FAILURE() << kRows[std::min(*at, kRows.size() - 1)].symbol << " ended the process";
      break;
    }
    answers.push_back({row.base, row.symbol, code});
  }
  munmap(at, sizeof *at);
  return answers;
}

/// The header's lists leave out what any call may answer of its context and arguments.
bool is_documented(const Answer& answer) {
  const std::set<int> always = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT,
                                CUDA_ERROR_INVALID_HANDLE};
  const auto codes = documented().find(answer.base);
  // What is not built yet answers NOT_SUPPORTED (tools/simgpu/README.md).
  return answer.code == CUDA_ERROR_NOT_SUPPORTED || always.count(answer.code) != 0 ||
         codes == documented().end() || codes->second.count(answer.code) != 0;
}

TEST(EntrySweep, BeforeInitialisationEachSaysSo) {
  // "If cuInit() has not been called, any function from the driver API will return
  // CUDA_ERROR_NOT_INITIALIZED"; these need no driver.
  const std::set<std::string> free = {"cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
                                      "cuGetProcAddress", "cuGetExportTable"};
  for (const Answer& answer : sweep([] {})) {
    const bool is_free = free.count(answer.base) != 0;
    const CUresult expected = is_free ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    if (answer.code == CUDA_ERROR_NOT_SUPPORTED) continue;  // not built yet
    EXPECT_EQ(expected, answer.code) << answer.symbol;
  }
}

TEST(EntrySweep, WithoutAContextEachAnswersAsDocumented) {
  for (const Answer& answer : sweep([] { require(cuInit(0) == CUDA_SUCCESS, "cuInit"); })) {
    EXPECT_TRUE(is_documented(answer)) << answer.symbol << " answers " << answer.code;
    EXPECT_TRUE(answer.code != CUDA_SUCCESS || kSucceedAlways.count(answer.base) != 0)
        << answer.symbol;
  }
}

TEST(EntrySweep, WithAContextEachAnswersAsDocumented) {
  std::size_t succeeded = 0;
  for (const Answer& answer : sweep([] {
         CUcontext context;
         require(cuInit(0) == CUDA_SUCCESS, "cuInit");
         require(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS, "cuCtxCreate");
       })) {
    EXPECT_TRUE(is_documented(answer)) << answer.symbol << " answers " << answer.code;
    if (answer.code == CUDA_SUCCESS) {
      ++succeeded;
      EXPECT_TRUE(kSucceedAlways.count(answer.base) != 0 ||
                  kSucceedInAContext.count(answer.base) != 0 || moves_nothing(answer.base))
          << answer.symbol;
    }
    EXPECT_TRUE(answer.code != CUDA_ERROR_INVALID_CONTEXT ||
                kOfAnotherContext.count(answer.base) != 0)
        << answer.symbol;
  }
  EXPECT_GT(succeeded, kSucceedAlways.size() + kSucceedInAContext.size());
}

}  // namespace
}  // namespace plexrl::simgpu

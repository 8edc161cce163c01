#include "interpose/reach.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace plexrl::interpose {
namespace {

using Stretch = std::pair<std::uint64_t, std::uint64_t>;

/// What was asked about; all of it is inside.
std::vector<Stretch> asked;
bool note(std::uint64_t address, std::uint64_t bytes) noexcept {
  asked.emplace_back(address, bytes);
  return false;
}

template <typename... Parameters>
std::vector<Stretch> reached(const Parameters&... parameters) {
  asked.clear();
  EXPECT_FALSE(Reach(&note)(parameters...));
  return asked;
}

bool always(std::uint64_t, std::uint64_t) noexcept { return true; }

constexpr CUdeviceptr kHere = 0x10000, kThere = 0x90000;
const CUstream kStream = reinterpret_cast<CUstream>(std::uintptr_t{0x1000});

TEST(Reach, ACopyReachesWhatItNames) {
  const void* const source = &asked;
  void* const target = &asked;
  const std::size_t bytes = 100;
  const CUcontext context = nullptr;
  EXPECT_EQ(reached(kHere, source, bytes), (std::vector<Stretch>{{kHere, 100}}));
  EXPECT_EQ(reached(kHere, source, bytes, kStream), (std::vector<Stretch>{{kHere, 100}}));
  EXPECT_EQ(reached(target, kHere, bytes, kStream), (std::vector<Stretch>{{kHere, 100}}));
  EXPECT_EQ(reached(kHere, kThere, bytes), (std::vector<Stretch>{{kHere, 100}, {kThere, 100}}));
  EXPECT_EQ(reached(kHere, context, kThere, context, bytes, kStream),
            (std::vector<Stretch>{{kHere, 100}, {kThere, 100}}));
  EXPECT_EQ(reached(kHere, source, std::size_t{0}), std::vector<Stretch>{}) << "nothing";
}

TEST(Reach, AFillReachesItsElements) {
  const std::size_t count = 10;
  EXPECT_EQ(reached(kHere, static_cast<unsigned char>(1), count).at(0), Stretch(kHere, 10));
  EXPECT_EQ(reached(kHere, static_cast<unsigned short>(1), count).at(0), Stretch(kHere, 20));
  EXPECT_EQ(reached(kHere, 1u, count, kStream).at(0), Stretch(kHere, 40));
  const std::size_t pitch = 512, height = 3;
  EXPECT_EQ(reached(kHere, pitch, 1u, count, height, kStream).at(0), Stretch(kHere, 2 * 512 + 40))
      << "not to the end of the last row's pitch";
}

TEST(Reach, ABoxReachesFromItsFirstToItsLastByte) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = kHere;
  copy.dstPitch = 100;
  copy.dstHeight = 10;
  copy.dstXInBytes = 5;
  copy.dstY = 2;
  copy.dstZ = 1;
  copy.WidthInBytes = 7;
  copy.Height = 3;
  copy.Depth = 2;
  const CUDA_MEMCPY3D* const parameters = &copy;
  EXPECT_EQ(reached(parameters), (std::vector<Stretch>{{kHere + 1000 + 200 + 5, 1000 + 200 + 7}}));
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(reached(parameters), std::vector<Stretch>{}) << "arrays are the driver's";
}

TEST(Reach, ABatchReachesAllOfIt) {
  CUdeviceptr targets[] = {1, 2}, sources[] = {3, 4};
  std::size_t bytes[] = {10, 20};
  EXPECT_EQ(reached(&targets[0], &sources[0], &bytes[0], std::size_t{2}, kStream),
            (std::vector<Stretch>{{1, 10}, {3, 10}, {2, 20}, {4, 20}}));
}

TEST(Reach, OtherCallsAndWhatWrapsAroundAreTheDrivers) {
  EXPECT_FALSE(Reach(&always)(kHere, std::size_t{100}, 0, kStream)) << "a prefetch";
  EXPECT_FALSE(Reach(&always)(kStream, kHere, 1u, 0u)) << "a stream memory operation";
  EXPECT_FALSE(Reach(&always)(static_cast<const CUDA_MEMCPY2D*>(nullptr)));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = copy.dstDevice = kHere;
  copy.srcPitch = copy.dstPitch = ~std::size_t{0};
  copy.WidthInBytes = 1;
  copy.Height = 3;
  EXPECT_FALSE(Reach(&always)(static_cast<const CUDA_MEMCPY2D*>(&copy)));
  copy.Height = 1;
  EXPECT_TRUE(Reach(&always)(static_cast<const CUDA_MEMCPY2D*>(&copy)));
}

}  // namespace
}  // namespace plexrl::interpose

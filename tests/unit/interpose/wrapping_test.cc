#include "interpose/wrapping.h"

#include <gtest/gtest.h>

namespace plexrl::interpose {
namespace {

TEST(Wrapping, StreamZeroIsTheDefaultStreamOfTheForm) {
  const CUstream own = reinterpret_cast<CUstream>(uintptr_t{0x1000});
  EXPECT_EQ(wrapped_stream<false>(nullptr), CU_STREAM_LEGACY);
  EXPECT_EQ(wrapped_stream<true>(nullptr), CU_STREAM_PER_THREAD);
  EXPECT_EQ(wrapped_stream<true>(CU_STREAM_LEGACY), CU_STREAM_LEGACY);
  EXPECT_EQ(wrapped_stream<true>(own), own);
  EXPECT_EQ(wrapped_stream<true>(wrapping::no_stream), CU_STREAM_PER_THREAD);
  EXPECT_EQ(wrapped_stream<false>(wrapping::all_streams), all_streams_mark());
}

TEST(Wrapping, PerThreadFormsAreKnownByTheirSuffix) {
  static_assert(is_per_thread("cuLaunchKernel_ptsz"));
  static_assert(is_per_thread("cuMemcpyHtoD_v2_ptds"));
  static_assert(!is_per_thread("cuMemcpyHtoD_v2"));
}

TEST(Wrapping, OnlyAQueuedAllocationHasAStream) {
  EXPECT_EQ(counted_stream<true>(wrapping::no_stream), nullptr);
  EXPECT_EQ(counted_stream<false>(static_cast<CUstream>(nullptr)), CU_STREAM_LEGACY);
}

TEST(Wrapping, AnArrayTakesItsElements) {
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = 100;
  flat.Format = CU_AD_FORMAT_HALF;
  flat.NumChannels = 2;
  EXPECT_EQ(wrapping::array_bytes(&flat), 100u * 2 * 2);
  flat.Height = 10;
  EXPECT_EQ(wrapping::array_bytes(&flat), 100u * 10 * 2 * 2);
}

TEST(Wrapping, AMipmappedArrayTakesAllItsLevels) {
  CUDA_ARRAY3D_DESCRIPTOR cube{};
  cube.Width = cube.Height = cube.Depth = 4;
  cube.Format = CU_AD_FORMAT_FLOAT;
  cube.NumChannels = 1;
  EXPECT_EQ(wrapping::array_bytes(&cube, 3), (64u + 8 + 1) * 4);
  EXPECT_EQ(wrapping::array_bytes(&cube, 9), (64u + 8 + 1) * 4) << "more than there can be";
  cube.Depth = 6;
  cube.Flags = CUDA_ARRAY3D_CUBEMAP;
  EXPECT_EQ(wrapping::array_bytes(&cube, 9), (16u + 4 + 1) * 6 * 4) << "each has all six faces";
}

TEST(Wrapping, ANullDescriptorTakesNothing) {
  EXPECT_EQ(wrapping::array_bytes(static_cast<const CUDA_ARRAY_DESCRIPTOR*>(nullptr)), 0u);
}

}  // namespace
}  // namespace plexrl::interpose

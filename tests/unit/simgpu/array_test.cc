#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;

/// One block; thread t is texel (t % width, t / width). The executor's tests have the rest of what
/// kernels may do with textures (tests/unit/ptx/texture_kernels_test.cc).
constexpr char kFetches[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .entry plane(.param .u64 object, .param .u32 width, .param .f32 shift, .param .u64 out) {
  .reg .b32 %r<6>;
  .reg .f32 %f<8>;
  .reg .b64 %a<6>;
  ld.param.u64 %a1, [object];
  ld.param.u32 %r1, [width];
  ld.param.f32 %f7, [shift];
  ld.param.u64 %a2, [out];
  mov.u32 %r2, %tid.x;
  rem.u32 %r3, %r2, %r1;
  div.u32 %r4, %r2, %r1;
  cvt.rn.f32.u32 %f1, %r3;
  cvt.rn.f32.u32 %f2, %r4;
  add.f32 %f1, %f1, %f7;
  add.f32 %f2, %f2, %f7;
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%a1, {%f1, %f2}];
  mul.wide.u32 %a3, %r2, 4;
  add.u64 %a4, %a2, %a3;
  st.global.f32 [%a4], %f3;
  ret;
}
.visible .entry line(.param .u64 object, .param .u64 out) {
  .reg .b32 %r<6>;
  .reg .b64 %a<6>;
  ld.param.u64 %a1, [object];
  ld.param.u64 %a2, [out];
  mov.u32 %r2, %tid.x;
  tex.1d.v4.u32.s32 {%r1, %r3, %r4, %r5}, [%a1, {%r2}];
  mul.wide.u32 %a3, %r2, 4;
  add.u64 %a4, %a2, %a3;
  st.global.u32 [%a4], %r1;
  ret;
}
.visible .entry middle_of_level(.param .u64 object, .param .f32 level, .param .u64 out) {
  .reg .f32 %f<8>;
  .reg .b64 %a<4>;
  ld.param.u64 %a1, [object];
  ld.param.f32 %f1, [level];
  ld.param.u64 %a2, [out];
  mov.f32 %f2, 0f3F000000;
  tex.level.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%a1, {%f2, %f2}], %f1;
  st.global.f32 [%a2], %f3;
  ret;
}
.visible .entry middle_of_layer(.param .u64 object, .param .u32 layer, .param .u64 out) {
  .reg .b32 %r<4>;
  .reg .f32 %f<8>;
  .reg .b64 %a<4>;
  ld.param.u64 %a1, [object];
  ld.param.u32 %r1, [layer];
  ld.param.u64 %a2, [out];
  mov.f32 %f2, 0f3F000000;
  tex.a2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%a1, {%r1, %f2, %f2, %f2}];
  st.global.f32 [%a2], %f3;
  ret;
}
.visible .entry add_to_surface(.param .u64 object, .param .u32 width, .param .u32 value) {
  .reg .b32 %r<8>;
  .reg .b64 %a<2>;
  ld.param.u64 %a1, [object];
  ld.param.u32 %r1, [width];
  ld.param.u32 %r5, [value];
  mov.u32 %r2, %tid.x;
  rem.u32 %r3, %r2, %r1;
  div.u32 %r4, %r2, %r1;
  shl.b32 %r3, %r3, 2;
  suld.b.2d.b32.trap {%r6}, [%a1, {%r3, %r4}];
  add.u32 %r6, %r6, %r5;
  sust.b.2d.b32.trap [%a1, {%r3, %r4}], {%r6};
  ret;
}
)";

CUDA_ARRAY3D_DESCRIPTOR described(std::size_t width, std::size_t height, std::size_t depth,
                                  CUarray_format format, unsigned channels, unsigned flags = 0) {
  return {width, height, depth, format, channels, flags};
}

class ArrayTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&fetches_, kFetches));
  }
  static CUarray make(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
    CUarray array = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuArray3DCreate(&array, &descriptor));
    return array;
  }
  /// A plane of 32-bit words.
  static CUarray make_words(std::size_t width, std::size_t height, unsigned flags = 0) {
    return make(described(width, height, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, flags));
  }
  static std::vector<unsigned> counted(std::size_t n, unsigned first = 0) {
    std::vector<unsigned> out(n);
    std::iota(out.begin(), out.end(), first);
    return out;
  }
  static CUtexObject texture_of(CUarray array, CUfilter_mode filter, unsigned flags) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return texture_of(resource, filter, flags);
  }
  static CUtexObject texture_of(const CUDA_RESOURCE_DESC& resource, CUfilter_mode filter,
                                unsigned flags) {
    CUDA_TEXTURE_DESC description{};
    for (CUaddress_mode& mode : description.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
    description.filterMode = filter;
    description.flags = flags;
    CUtexObject object = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuTexObjectCreate(&object, &resource, &description, nullptr));
    return object;
  }
  CUfunction kernel(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, fetches_, name));
    return function;
  }
  /// What `plane` fetches, as many values as kCount.
  std::vector<float> plane(CUtexObject object, unsigned width, float shift) {
    void* parameters[] = {&object, &width, &shift, &words_};
    EXPECT_EQ(CUDA_SUCCESS, cuLaunchKernel(kernel("plane"), 1, 1, 1, kCount, 1, 1, 0, nullptr,
                                           parameters, nullptr));
    std::vector<float> out(kCount);
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(out.data(), words_, kCount * 4));
    return out;
  }
  /// What one thread of `middle_of_level` or `middle_of_layer` fetches.
  template <typename Which>
  float middle(const char* name, CUtexObject object, Which which) {
    void* parameters[] = {&object, &which, &words_};
    EXPECT_EQ(CUDA_SUCCESS,
              cuLaunchKernel(kernel(name), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    float out = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&out, words_, 4));
    return out;
  }
  /// A texture with normalised coordinates; `view` may be null.
  static CUresult make_texture(const CUDA_RESOURCE_DESC& resource,
                               const CUDA_RESOURCE_VIEW_DESC* view, CUtexObject* object) {
    CUDA_TEXTURE_DESC description{};
    description.flags = CU_TRSF_NORMALIZED_COORDINATES;
    description.maxMipmapLevelClamp = 10;
    return cuTexObjectCreate(object, &resource, &description, view);
  }
  /// Writes `value` into all texels of a level or layer of floats.
  static void fill(CUarray array, float value, std::size_t layer = 0) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    ASSERT_EQ(CUDA_SUCCESS, cuArray3DGetDescriptor(&shape, array));
    const std::vector<float> in(shape.Width * shape.Height, value);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in.data();
    copy.srcPitch = shape.Width * 4;
    copy.srcHeight = shape.Height;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.dstZ = layer;
    copy.WidthInBytes = shape.Width * 4;
    copy.Height = shape.Height;
    copy.Depth = 1;
    ASSERT_EQ(CUDA_SUCCESS, cuMemcpy3D(&copy));
  }
  std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free, &total));
    return free;
  }

  CUmodule fetches_ = nullptr;
};

TEST_F(ArrayTest, DescriptorsAreThoseAskedFor) {
  const auto wanted = described(20, 10, 5, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_SURFACE_LDST);
  const CUarray array = make(wanted);
  CUDA_ARRAY3D_DESCRIPTOR full{};
  CUDA_ARRAY_DESCRIPTOR flat{};
  ASSERT_EQ(CUDA_SUCCESS, cuArray3DGetDescriptor(&full, array));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayGetDescriptor(&flat, array));
  EXPECT_EQ(0, std::memcmp(&wanted, &full, sizeof full));
  EXPECT_EQ(20u, flat.Width);
  EXPECT_EQ(10u, flat.Height);
  EXPECT_EQ(CU_AD_FORMAT_HALF, flat.Format);
  EXPECT_EQ(4u, flat.NumChannels);
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(array));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor(&full, array));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
}

TEST_F(ArrayTest, RefusesWhatItCantHold) {
  const auto create = [](const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
    CUarray array = nullptr;
    return cuArray3DCreate(&array, &descriptor);
  };
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create(described(0, 1, 0, CU_AD_FORMAT_FLOAT, 1)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create(described(4, 4, 0, CU_AD_FORMAT_FLOAT, 3)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create(described(4, 0, 4, CU_AD_FORMAT_FLOAT, 1)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create(described(200000, 0, 0, CU_AD_FORMAT_FLOAT, 1)));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, create(described(4, 4, 0, CU_AD_FORMAT_NV12, 1)));
  const auto create_cube = [&](std::size_t width, std::size_t height, std::size_t depth,
                               unsigned flags = 0) {
    return create(
        described(width, height, depth, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP | flags));
  };
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create_cube(4, 5, 6));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create_cube(4, 4, 5));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create_cube(4, 4, 12));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, create_cube(4, 4, 7, CUDA_ARRAY3D_LAYERED));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
            create(described(4, 4, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE)));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, create(described(8192, 8192, 0, CU_AD_FORMAT_FLOAT, 4)));
}

TEST_F(ArrayTest, ItsMemoryIsTheDevicesAndNoPointer) {
  const std::size_t before = free_bytes();
  const CUarray array = make_words(1024, 1024);
  EXPECT_EQ(before - 4 * kMiB, free_bytes());
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(array));
  EXPECT_EQ(before, free_bytes());
  CUcontext other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, device_));
  const CUarray its = make_words(1024, 1024);
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(other));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
  EXPECT_EQ(before, free_bytes());
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(its));
}

TEST_F(ArrayTest, BytesGoInAndOutEveryWay) {
  const CUarray a = make_words(kCount, 0);
  const CUarray b = make_words(kCount, 0);
  const auto in = counted(kCount, 7);
  std::vector<unsigned> out(kCount);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoA(a, 0, in.data(), kCount * 4));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyAtoA(b, 8, a, 0, 40));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyAtoD(words_, b, 8, 40));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoA(b, 48, words_ + 4, 4));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyAtoH(out.data(), b, 0, kCount * 4));
  EXPECT_EQ(7u, out[2]);
  EXPECT_EQ(16u, out[11]);
  EXPECT_EQ(8u, out[12]);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoAAsync(b, 0, in.data(), kCount * 4, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyAtoHAsync(out.data(), b, 4, 8, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(8u, out[0]);
  EXPECT_EQ(9u, out[1]);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(a, 4, in.data(), kCount * 4));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(a));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuMemcpyHtoA(a, 0, in.data(), 4));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(b));
}

TEST_F(ArrayTest, BoxesGoInAndOut) {
  constexpr std::size_t kWidth = 8, kHeight = 6, kDepth = 3;
  const CUarray array = make(described(kWidth, kHeight, kDepth, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  const auto in = counted(kWidth * kHeight * kDepth);
  CUDA_MEMCPY3D all{};
  all.srcMemoryType = CU_MEMORYTYPE_HOST;
  all.srcHost = in.data();
  all.srcPitch = kWidth * 4;
  all.srcHeight = kHeight;
  all.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  all.dstArray = array;
  all.WidthInBytes = kWidth * 4;
  all.Height = kHeight;
  all.Depth = kDepth;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpy3D(&all));
  // A box of 3 × 2 × 2 from (2, 1, 1), into rows of 5 words.
  std::vector<unsigned> out(5 * 2 * 2, 99);
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  box.srcArray = array;
  box.srcXInBytes = 8;
  box.srcY = 1;
  box.srcZ = 1;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = out.data();
  box.dstPitch = 20;
  box.dstHeight = 2;
  box.WidthInBytes = 12;
  box.Height = 2;
  box.Depth = 2;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpy3D(&box));
  for (unsigned z = 0; z < 2; ++z) {
    for (unsigned y = 0; y < 2; ++y) {
      for (unsigned x = 0; x < 5; ++x) {
        const unsigned expected = x < 3 ? ((z + 1) * kHeight + y + 1) * kWidth + x + 2 : 99;
        ASSERT_EQ(expected, out[(z * 2 + y) * 5 + x]);
      }
    }
  }
  box.srcXInBytes = 24;  // would leave the row
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&box));
  box.srcXInBytes = 2;  // no whole element
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(&box));
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  rows.srcArray = array;
  rows.srcY = 4;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = words_;
  rows.dstPitch = kWidth * 4;
  rows.WidthInBytes = kWidth * 4;
  rows.Height = 2;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpy2D(&rows));
  EXPECT_EQ(32u, words()[0]);
  EXPECT_EQ(47u, words()[15]);
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(array));
}

TEST_F(ArrayTest, AGraphKeepsTheArrayOfACopy) {
  const CUarray array = make_words(4, 4);
  ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = words_;
  copy.srcPitch = 8;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.dstXInBytes = 8;
  copy.dstY = 2;
  copy.WidthInBytes = 8;
  copy.Height = 2;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpy2DAsync(&copy, stream_));
  CUgraph graph = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamEndCapture(stream_, &graph));
  CUgraphNode node = nullptr;
  std::size_t count = 1;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphGetNodes(graph, &node, &count));
  CUDA_MEMCPY3D seen{};
  ASSERT_EQ(CUDA_SUCCESS, cuGraphMemcpyNodeGetParams(node, &seen));
  EXPECT_EQ(CU_MEMORYTYPE_ARRAY, seen.dstMemoryType);
  EXPECT_EQ(array, seen.dstArray);
  EXPECT_EQ(8u, seen.dstXInBytes);
  EXPECT_EQ(2u, seen.dstY);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, graph, 0));
  const auto in = counted(4, 50);
  std::vector<unsigned> out(16);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoD(words_, in.data(), 16));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyAtoH(out.data(), array, 0, 64));
  EXPECT_EQ(50u, out[10]);
  EXPECT_EQ(53u, out[15]);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(exec));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(array));
}

TEST_F(ArrayTest, TexturesReadArrays) {
  const CUarray array = make(described(10, 10, 0, CU_AD_FORMAT_FLOAT, 1));
  std::vector<float> in(100);
  std::iota(in.begin(), in.end(), 0.0f);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoA(array, 0, in.data(), 400));
  const CUtexObject nearest = texture_of(array, CU_TR_FILTER_MODE_POINT, 0);
  EXPECT_EQ(in, plane(nearest, 10, 0.5f));
  const CUtexObject filtered = texture_of(array, CU_TR_FILTER_MODE_LINEAR, 0);
  const auto between = plane(filtered, 10, 0.75f);
  EXPECT_EQ(0.25f + 2.5f, between[0]);
  EXPECT_EQ(9 + 2.5f, between[9]);  // clamped at the row's end
  EXPECT_EQ(99.0f, between[99]);
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectGetResourceDesc(&resource, filtered));
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectGetTextureDesc(&description, filtered));
  EXPECT_EQ(array, resource.res.array.hArray);
  EXPECT_EQ(CU_TR_FILTER_MODE_LINEAR, description.filterMode);
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectDestroy(filtered));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(filtered));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(&resource, filtered));
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectDestroy(nearest));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(array));
}

TEST_F(ArrayTest, AMipmappedArrayHasLevelsOfHalfTheSize) {
  const std::size_t before = free_bytes();
  const auto wanted = described(1024, 256, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST);
  CUmipmappedArray mipmapped = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuMipmappedArrayCreate(&mipmapped, &wanted, 100));
  EXPECT_EQ(before - 2 * kMiB, free_bytes()) << "1 MiB and a third, in whole frames";
  CUarray level = nullptr;
  for (unsigned n = 0; n < 11; ++n) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    ASSERT_EQ(CUDA_SUCCESS, cuMipmappedArrayGetLevel(&level, mipmapped, n));
    ASSERT_EQ(CUDA_SUCCESS, cuArray3DGetDescriptor(&shape, level));
    EXPECT_EQ(1024u >> n, shape.Width);
    EXPECT_EQ(std::max(256u >> n, 1u), shape.Height);
    EXPECT_EQ(wanted.Flags, shape.Flags);
    fill(level, static_cast<float>(n));
  }
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmapped, 11));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(level)) << "a part of the whole";

  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmapped;
  CUtexObject object = 0;
  ASSERT_EQ(CUDA_SUCCESS, make_texture(resource, nullptr, &object));
  for (const float n : {0.0f, 3.0f, 7.0f, 10.0f})
    EXPECT_EQ(n, middle("middle_of_level", object, n)) << "no level spilled into another";
  CUDA_RESOURCE_VIEW_DESC view{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceViewDesc(&view, object));
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectDestroy(object));
  CUDA_TEXTURE_DESC whole{};  // coordinates in texels
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &resource, &whole, nullptr));

  ASSERT_EQ(CUDA_SUCCESS, cuMipmappedArrayDestroy(mipmapped));
  EXPECT_EQ(before, free_bytes());
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmapped));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, make_texture(resource, nullptr, &object));
}

TEST_F(ArrayTest, AViewChoosesLevelsAndLayersAndAnotherFormat) {
  const auto wanted = described(8, 8, 4, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_LAYERED);
  CUmipmappedArray mipmapped = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuMipmappedArrayCreate(&mipmapped, &wanted, 3));
  for (unsigned n = 0; n < 3; ++n) {
    CUarray level = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuMipmappedArrayGetLevel(&level, mipmapped, n));
    for (std::size_t layer = 0; layer < 4; ++layer)
      fill(level, static_cast<float>(10 * n + layer), layer);  // their bits, as words
  }
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmapped;
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  view.width = view.height = 8;
  view.firstMipmapLevel = 1;
  view.lastMipmapLevel = 2;
  view.firstLayer = 1;
  view.lastLayer = 2;
  CUtexObject object = 0;
  ASSERT_EQ(CUDA_SUCCESS, make_texture(resource, &view, &object));
  EXPECT_EQ(11.0f, middle("middle_of_layer", object, 0u));
  EXPECT_EQ(12.0f, middle("middle_of_layer", object, 1u));
  EXPECT_EQ(12.0f, middle("middle_of_layer", object, 3u)) << "the last one of the view";
  CUDA_RESOURCE_VIEW_DESC told{};
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectGetResourceViewDesc(&told, object));
  EXPECT_EQ(0, std::memcmp(&view, &told, sizeof view));
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectDestroy(object));

  const auto with = [&](auto change) {
    CUDA_RESOURCE_VIEW_DESC other = view;
    change(other);
    return make_texture(resource, &other, &object);
  };
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            with([](auto& v) { v.format = CU_RES_VIEW_FORMAT_UINT_1X8; }));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, with([](auto& v) { v.width = 16; }));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, with([](auto& v) { v.lastMipmapLevel = 3; }));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, with([](auto& v) { v.lastLayer = 4; }));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, with([](auto& v) { v.firstLayer = 3; }));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
            with([](auto& v) { v.format = CU_RES_VIEW_FORMAT_UNSIGNED_BC1; }));
  ASSERT_EQ(CUDA_SUCCESS, cuMipmappedArrayDestroy(mipmapped));
}

TEST_F(ArrayTest, ACubeIsSixFaces) {
  const CUarray cube = make(described(4, 4, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP));
  for (std::size_t face = 0; face < 6; ++face) fill(cube, static_cast<float>(face), face);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = cube;
  CUtexObject object = 0;
  ASSERT_EQ(CUDA_SUCCESS, make_texture(resource, nullptr, &object));
  for (unsigned face = 0; face < 6; ++face)
    EXPECT_EQ(static_cast<float>(face), middle("middle_of_layer", object, face));
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectDestroy(object));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(cube));
}

TEST_F(ArrayTest, TexturesReadPlainMemoryByIndexAndByRows) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4096));
  std::vector<std::uint8_t> bytes(4096);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoD(memory, bytes.data(), bytes.size()));
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, 60};
  CUtexObject object = texture_of(resource, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
  void* parameters[] = {&object, &words_};
  ASSERT_EQ(CUDA_SUCCESS,
            cuLaunchKernel(kernel("line"), 1, 1, 1, kCount, 1, 1, 0, nullptr, parameters, nullptr));
  const auto seen = words();
  EXPECT_EQ(59u, seen[59]);
  EXPECT_EQ(0u, seen[60]);
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectDestroy(object));
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 1, 10, 10, 64};
  object = texture_of(resource, CU_TR_FILTER_MODE_POINT, 0);
  const auto values = plane(object, 10, 0.5f);
  EXPECT_EQ(static_cast<float>(3 * 64 + 7) / 255, values[37]);
  ASSERT_EQ(CUDA_SUCCESS, cuTexObjectDestroy(object));
  // Unaligned memory or rows, and filters that would need floats.
  CUDA_TEXTURE_DESC description{};
  resource.res.pitch2D.devPtr = memory + 4;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &resource, &description, nullptr));
  resource.res.pitch2D.devPtr = memory;
  resource.res.pitch2D.pitchInBytes = 40;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &resource, &description, nullptr));
  resource.res.pitch2D.pitchInBytes = 64;
  description.filterMode = CU_TR_FILTER_MODE_LINEAR;
  description.flags = CU_TRSF_READ_AS_INTEGER;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&object, &resource, &description, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(memory));
}

TEST_F(ArrayTest, SurfacesReadAndWriteArraysMadeForThem) {
  const CUarray plain = make_words(10, 10);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = plain;
  CUsurfObject surface = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&surface, &resource));
  const CUarray array = make_words(10, 10, CUDA_ARRAY3D_SURFACE_LDST);
  resource.res.array.hArray = array;
  ASSERT_EQ(CUDA_SUCCESS, cuSurfObjectCreate(&surface, &resource));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoA(array, 0, counted(100).data(), 400));
  unsigned width = 10;
  unsigned value = 1000;
  void* parameters[] = {&surface, &width, &value};
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchKernel(kernel("add_to_surface"), 1, 1, 1, kCount, 1, 1, 0,
                                         stream_, parameters, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  std::vector<unsigned> out(100);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyAtoH(out.data(), array, 0, 400));
  EXPECT_EQ(counted(100, 1000), out);
  CUDA_RESOURCE_DESC seen{};
  ASSERT_EQ(CUDA_SUCCESS, cuSurfObjectGetResourceDesc(&seen, surface));
  EXPECT_EQ(array, seen.res.array.hArray);
  ASSERT_EQ(CUDA_SUCCESS, cuSurfObjectDestroy(surface));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(surface));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(array));
  ASSERT_EQ(CUDA_SUCCESS, cuArrayDestroy(plain));
}

}  // namespace
}  // namespace plexrl::simgpu

#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/unit/simgpu/api_fixture.h"
#include "tools/simgpu/driver/fat_binary.h"

// Images as nvcc makes them; the build puts them into PLEXRL_TEST_IMAGES.

namespace plexrl::simgpu {
namespace {

class ImageTest : public DriverTest {
 protected:
  // The bytes of an image, empty where the build has no nvcc.
  static std::string image(const std::string& name) {
    std::ifstream file(std::string(PLEXRL_TEST_IMAGES) + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void expect_adds_bias(CUmodule module) {
    CUfunction function = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&function, module, "add_bias"));
    int count = kCount;
    void* parameters[] = {&words_, &count};
    ASSERT_EQ(CUDA_SUCCESS,
              cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr));
    EXPECT_EQ(all(5), words());
  }
  void expect_loads(const std::string& name) {
    const std::string bytes = image(name);
    if (bytes.empty()) GTEST_SKIP() << "the build has no nvcc that makes " << name;
    CUmodule module = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, bytes.data()));
    expect_adds_bias(module);
  }
  // What the driver says on stderr when it refuses the image.
  std::string refusal(const std::string& bytes) {
    testing::internal::CaptureStderr();
    CUmodule module = nullptr;
    EXPECT_EQ(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, bytes.data()));
    EXPECT_EQ(nullptr, module);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(ImageTest, PlainPtxInAFatBinaryLoads) { expect_loads("plain.fatbin"); }
TEST_F(ImageTest, ZstdPtxInAFatBinaryLoads) { expect_loads("zstd.fatbin"); }
TEST_F(ImageTest, Lz4PtxInAFatBinaryLoads) { expect_loads("lz4.fatbin"); }

TEST_F(ImageTest, EachPackingIsReallyWhatTheNameSays) {
  const struct {
    const char* name;
    FatFile::Packing packing;
  } kCases[] = {{"plain.fatbin", FatFile::Packing::kPlain},
                {"zstd.fatbin", FatFile::Packing::kZstd},
                {"lz4.fatbin", FatFile::Packing::kLz4}};
  for (const auto& [name, packing] : kCases) {
    const std::string bytes = image(name);
    if (bytes.empty()) GTEST_SKIP() << "the build has no nvcc that makes " << name;
    std::vector<FatFile> files;
    ASSERT_TRUE(read_fat_binary(bytes.data(), bytes.size(), &files)) << name;
    ASSERT_EQ(2u, files.size()) << name;
    EXPECT_EQ(FatFile::Kind::kMachineCode, files[0].kind) << name;
    EXPECT_EQ(FatFile::Kind::kPtx, files[1].kind) << name;
    EXPECT_EQ(packing, files[1].packing) << name;
    EXPECT_EQ(75, files[1].sm) << name;
    std::string text;
    ASSERT_TRUE(unpack(files[1], &text)) << name;
    EXPECT_NE(text.find(".visible .entry add_bias"), std::string::npos) << name;
  }
}

TEST_F(ImageTest, AWrapperLeadsToItsFatBinary) {
  const std::string bytes = image("zstd.fatbin");
  if (bytes.empty()) GTEST_SKIP() << "the build has no nvcc";
  // fatbinary_section.h of the toolkit: __fatBinC_Wrapper_t.
  const struct {
    int magic = 0x466243B1;
    int version = 1;
    const void* data;
    void* unused = nullptr;
  } wrapper{.data = bytes.data()};
  CUmodule module = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadFatBinary(&module, &wrapper));
  expect_adds_bias(module);
}

TEST_F(ImageTest, AFatBinaryIsLinkedFromAFile) {
  if (image("zstd.fatbin").empty()) GTEST_SKIP() << "the build has no nvcc";
  const std::string path = std::string(PLEXRL_TEST_IMAGES) + "/zstd.fatbin";
  CUlinkState link = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuLinkCreate(0, nullptr, nullptr, &link));
  ASSERT_EQ(CUDA_SUCCESS,
            cuLinkAddFile(link, CU_JIT_INPUT_FATBINARY, path.c_str(), 0, nullptr, nullptr));
  void* linked = nullptr;
  std::size_t bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuLinkComplete(link, &linked, &bytes));
  CUmodule module = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, linked));
  expect_adds_bias(module);
  EXPECT_EQ(CUDA_SUCCESS, cuLinkDestroy(link));
}

TEST_F(ImageTest, MachineCodeAloneIsRefusedAndTheRouteIsNamed) {
  for (const char* name : {"machine_code.fatbin", "machine_code.cubin", "lto.fatbin"}) {
    const std::string bytes = image(name);
    if (bytes.empty()) GTEST_SKIP() << "the build has no nvcc that makes " << name;
    const std::string said = refusal(bytes);
    EXPECT_NE(said.find("PTX only"), std::string::npos) << name << ": " << said;
    EXPECT_NE(said.find("real GPU"), std::string::npos) << name << ": " << said;
  }
}

TEST_F(ImageTest, PtxForANewerDeviceIsRefused) {
  const std::string bytes = image("newer.fatbin");
  if (bytes.empty()) GTEST_SKIP() << "the build has no nvcc";
  refusal(bytes);
}

TEST_F(ImageTest, DamagedFatBinariesAreRefused) {
  const std::string good = image("zstd.fatbin");
  if (good.empty()) GTEST_SKIP() << "the build has no nvcc";
  std::vector<FatFile> files;
  ASSERT_TRUE(read_fat_binary(good.data(), good.size(), &files));
  const auto packed = static_cast<std::size_t>(files[1].payload.data() - good.data());
  CUmodule module = nullptr;

  std::string bad = good;
  bad[packed] ^= 0x55;  // the compressed text itself
  EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, bad.data()));

  bad = good;
  const std::uint64_t huge = ~0ull;
  std::memcpy(&bad[16 + 8], &huge, sizeof(huge));  // the first file's size
  EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, bad.data()));

  bad = good;
  std::memcpy(&bad[16 + 4], &huge, 4);  // the first file's header size
  EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, bad.data()));
}

TEST_F(ImageTest, ATruncatedFileIsRefusedWhereverItEnds) {
  const std::string good = image("zstd.fatbin");
  if (good.empty()) GTEST_SKIP() << "the build has no nvcc";
  const std::string path =
      testing::TempDir() + "/image_test-" + std::to_string(getpid()) + ".fatbin";
  for (std::size_t bytes = 4; bytes < good.size(); bytes += 61) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << good.substr(0, bytes);
    CUmodule module = nullptr;
    EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE, cuModuleLoad(&module, path.c_str())) << bytes;
  }
  unlink(path.c_str());
}

}  // namespace
}  // namespace plexrl::simgpu

#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "tests/unit/ptx/kernel_test.h"
#include "tools/simgpu/ptx/half.h"

namespace plexrl::simgpu::ptx {
namespace {

using Vector = std::array<float, 4>;

/// What the programming guide says, in doubles. The tests use texels and coordinates for which
/// floats are exact too.
class Reference {
 public:
  using Texel = std::function<std::array<double, 4>(long, long, long)>;
  Reference(const Texture& texture, Texel texel, int dimensions)
      : texture_(texture), texel_(std::move(texel)), dimensions_(dimensions) {}

  Vector at(double x, double y = 0, double z = 0) const {
    const double given[] = {x, y, z};
    double u[3] = {};
    for (int d = 0; d < dimensions_; ++d)
      u[d] = given[d] * (texture_.is_normalized ? static_cast<double>(extent(d)) : 1);
    std::array<double, 4> sum = {};
    if (!texture_.is_filtered) {
      sum = read(std::lround(std::floor(u[0])), std::lround(std::floor(u[1])),
                 std::lround(std::floor(u[2])));
    } else {
      const auto part = [&](int d) { return d < dimensions_ ? std::floor(u[d] - 0.5) : 0; };
      const double i = part(0), j = part(1), k = part(2);
      for (int c = 0; c < 1 << dimensions_; ++c) {
        const double alpha[] = {u[0] - 0.5 - i, u[1] - 0.5 - j, u[2] - 0.5 - k};
        double weight = 1;
        for (int d = 0; d < dimensions_; ++d) weight *= (c >> d & 1) != 0 ? alpha[d] : 1 - alpha[d];
        const auto texel = read(std::lround(i) + (c & 1), std::lround(j) + (c >> 1 & 1),
                                std::lround(k) + (c >> 2 & 1));
        for (std::size_t n = 0; n < 4; ++n) sum[n] += weight * texel[n];
      }
    }
    Vector out;
    for (std::size_t n = 0; n < 4; ++n) out[n] = static_cast<float>(sum[n]);
    return out;
  }

 private:
  long extent(int d) const {
    return static_cast<long>(d == 0   ? texture_.texels.width
                             : d == 1 ? texture_.texels.height
                                      : texture_.texels.depth);
  }
  std::array<double, 4> read(long x, long y, long z) const {
    long at[] = {x, y, z};
    for (int d = 0; d < 3; ++d) {
      const long n = extent(d);
      if (d >= dimensions_) at[d] = 0;
      if (at[d] >= 0 && at[d] < n) continue;
      switch (texture_.modes[d]) {
        case AddressMode::kBorder:
          return {texture_.border[0], texture_.border[1], texture_.border[2], texture_.border[3]};
        case AddressMode::kWrap:
          while (at[d] < 0) at[d] += n;
          while (at[d] >= n) at[d] -= n;
          break;
        case AddressMode::kMirror:  // 0 1 2 | 2 1 0 | 0 1 2
          while (at[d] < 0) at[d] += 2 * n;
          while (at[d] >= 2 * n) at[d] -= 2 * n;
          if (at[d] >= n) at[d] = 2 * n - 1 - at[d];
          break;
        case AddressMode::kClamp:
          at[d] = at[d] < 0 ? 0 : n - 1;
      }
    }
    return texel_(at[0], at[1], at[2]);
  }

  const Texture texture_;
  const Texel texel_;
  const int dimensions_;
};

class TextureKernels : public KernelTest {
 protected:
  /// Dense texels of `bytes` each.
  static TexelArray dense(std::uint64_t address, TexelFormat format, int channels,
                          std::uint64_t width, std::uint64_t height = 1, std::uint64_t depth = 1) {
    TexelArray texels;
    texels.address = address;
    texels.format = format;
    texels.channels = channels;
    texels.width = width;
    texels.height = height;
    texels.depth = depth;
    texels.pitch = width * texels.texel_bytes();
    texels.slice = texels.pitch * height;
    return texels;
  }
  static std::vector<float> counted(std::size_t n, float first = 0) {
    std::vector<float> out(n);
    std::iota(out.begin(), out.end(), first);
    return out;
  }
  /// From below 0 to above n, in sixteenths.
  static std::vector<float> across(int n, float scale = 1) {
    std::vector<float> out;
    for (int i = -40; i < n * 16 + 40; ++i) out.push_back(static_cast<float>(i) / 16 * scale);
    return out;
  }
  static Shape shape(std::size_t n) { return {{static_cast<std::uint32_t>((n + 63) / 64)}, {64}}; }
  std::vector<Vector> fetch(const char* kernel, const Texture& texture,
                            const std::vector<std::vector<float>>& coordinates) {
    const std::size_t n = coordinates[0].size();
    const auto out = device_.allocate(n * sizeof(Vector));
    Arguments arguments;
    arguments.add(device_.add_texture(texture));
    for (const auto& one : coordinates) arguments.add(device_.upload(one));
    expect_ok(kernel, shape(n), arguments.add(static_cast<int>(n)).add(out));
    return device_.download<Vector>(out, n);
  }
};
PLEXRL_INSTANTIATE_KERNEL_TEST(TextureKernels);

constexpr AddressMode kModes[] = {AddressMode::kClamp, AddressMode::kBorder, AddressMode::kWrap,
                                  AddressMode::kMirror};

TEST_P(TextureKernels, LinearMemoryByIndexIsZeroOutside) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture;
  texture.texels = dense(device_.upload(counted(10, 1)), TexelFormat::kFloat, 1, 10);
  texture.texels.is_linear_memory = true;
  const std::vector<int> x = {0, 9, 10, -1, 4};
  const auto out = device_.allocate(5 * sizeof(Vector));
  expect_ok("by_index", shape(5),
            Arguments().add(device_.add_texture(texture)).add(device_.upload(x)).add(5).add(out));
  const auto seen = device_.download<Vector>(out, 5);
  EXPECT_EQ(seen[0], (Vector{1, 0, 0, 1}));
  EXPECT_EQ(seen[1], (Vector{10, 0, 0, 1}));
  EXPECT_EQ(seen[2], (Vector{0, 0, 0, 0}));
  EXPECT_EQ(seen[3], (Vector{0, 0, 0, 0}));
  EXPECT_EQ(seen[4], (Vector{5, 0, 0, 1}));
}

TEST_P(TextureKernels, IntegersComeAsTheyAreOrAsFloatsToOne) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture;
  const std::vector<std::int8_t> bytes = {0, 127, -127, -128, 64, -1, 1, 2};
  texture.texels = dense(device_.upload(bytes), TexelFormat::kInt8, 4, 2);
  texture.texels.is_linear_memory = true;
  texture.reads_integers = true;
  const std::vector<int> x = {0, 1};
  const auto out = device_.allocate(2 * sizeof(Vector));
  const auto places = device_.upload(x);
  expect_ok("integers_by_index", shape(2),
            Arguments().add(device_.add_texture(texture)).add(places).add(2).add(out));
  const auto integers = device_.download<int>(out, 8);
  EXPECT_EQ(integers, (std::vector<int>{0, 127, -127, -128, 64, -1, 1, 2}));
  texture.reads_integers = false;
  expect_ok("by_index", shape(2),
            Arguments().add(device_.add_texture(texture)).add(places).add(2).add(out));
  const auto floats = device_.download<float>(out, 8);
  EXPECT_EQ(floats[1], 1.0f);
  EXPECT_EQ(floats[2], -1.0f);
  EXPECT_EQ(floats[3], -1.0f);
  EXPECT_EQ(floats[4], 64.0f / 127);
  const std::vector<std::uint16_t> halves = {0x3c00, 0xc000, 0x0001, 0x7bff};
  texture.texels = dense(device_.upload(halves), TexelFormat::kHalf, 2, 2);
  texture.texels.is_linear_memory = true;
  expect_ok("by_index", shape(2),
            Arguments().add(device_.add_texture(texture)).add(places).add(2).add(out));
  EXPECT_EQ(device_.download<Vector>(out, 2)[0], (Vector{1, -2, 0, 1}));
  EXPECT_EQ(device_.download<Vector>(out, 2)[1], (Vector{0x1p-24f, 65504, 0, 1}));
}

TEST_P(TextureKernels, OneDimensionInEveryModeAndFilter) {
  PLEXRL_LOAD_OR_SKIP("textures");
  const std::vector<float> values = {3, 8, 2, 40, 5, 16, 7, 1};
  Texture texture;
  texture.texels = dense(device_.upload(values), TexelFormat::kFloat, 1, 8);
  texture.border[0] = 100;
  texture.border[3] = 1;
  const auto texel = [&](long x, long, long) {
    return std::array<double, 4>{values[static_cast<std::size_t>(x)], 0, 0, 1};
  };
  for (const bool is_normalized : {false, true}) {
    for (const AddressMode mode : kModes) {
      if (!is_normalized && mode != AddressMode::kClamp && mode != AddressMode::kBorder) continue;
      for (const bool is_filtered : {false, true}) {
        texture.is_normalized = is_normalized;
        texture.is_filtered = is_filtered;
        texture.modes[0] = mode;
        const auto x = across(8, is_normalized ? 0.125f : 1);
        const auto seen = fetch("one", texture, {x});
        const Reference reference(texture, texel, 1);
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(seen[i], reference.at(x[i]))
              << "x " << x[i] << " mode " << static_cast<int>(mode) << " filtered " << is_filtered
              << " normalized " << is_normalized;
        }
      }
    }
  }
  // Without normalised coordinates, repeating modes mean clamping.
  texture.is_normalized = false;
  texture.is_filtered = false;
  texture.modes[0] = AddressMode::kWrap;
  EXPECT_EQ(fetch("one", texture, {{9.5f, -3.0f}})[0][0], 1);
  EXPECT_EQ(fetch("one", texture, {{std::nanf(""), -1e30f}})[1][0], 3);
}

TEST_P(TextureKernels, TwoAndThreeDimensionsInEveryModeAndFilter) {
  PLEXRL_LOAD_OR_SKIP("textures");
  constexpr std::size_t kWidth = 4, kHeight = 8, kDepth = 2;
  const auto values = counted(kWidth * kHeight * kDepth * 4);
  Texture texture;
  texture.texels = dense(device_.upload(values), TexelFormat::kFloat, 4, kWidth, kHeight, kDepth);
  for (int c = 0; c < 4; ++c) texture.border[c] = -16.0f * static_cast<float>(c);
  const auto texel = [&](long x, long y, long z) {
    const auto at =
        ((static_cast<std::size_t>(z) * kHeight + static_cast<std::size_t>(y)) * kWidth +
         static_cast<std::size_t>(x)) *
        4;
    return std::array<double, 4>{values[at], values[at + 1], values[at + 2], values[at + 3]};
  };
  // A walk through space, with every fraction.
  std::vector<float> x, y, z;
  for (int i = 0; i < 600; ++i) {
    x.push_back(static_cast<float>(i * 37 % 160 - 40) / 16);
    y.push_back(static_cast<float>(i * 59 % 224 - 48) / 16);
    z.push_back(static_cast<float>(i * 23 % 96 - 32) / 16);
  }
  for (const AddressMode mode : kModes) {
    for (const bool is_filtered : {false, true}) {
      texture.is_filtered = is_filtered;
      texture.is_normalized = mode == AddressMode::kWrap || mode == AddressMode::kMirror;
      for (AddressMode& one : texture.modes) one = mode;
      const auto scaled = [&](std::vector<float> values, std::size_t n) {
        for (float& value : values) value /= texture.is_normalized ? static_cast<float>(n) : 1;
        return values;
      };
      const auto u = scaled(x, kWidth), v = scaled(y, kHeight), w = scaled(z, kDepth);
      const auto planar = fetch("two", texture, {u, v});
      const auto spatial = fetch("three", texture, {u, v, w});
      const Reference plane(texture, texel, 2), space(texture, texel, 3);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(planar[i], plane.at(u[i], v[i])) << x[i] << " " << y[i];
        ASSERT_EQ(spatial[i], space.at(u[i], v[i], w[i])) << x[i] << " " << y[i] << " " << z[i];
      }
    }
  }
}

TEST_P(TextureKernels, WithoutMipmapsEveryLevelIsTheOnlyOne) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture;
  texture.texels = dense(device_.upload(counted(16)), TexelFormat::kFloat, 1, 4, 4);
  const auto seen = fetch("two_at_a_level", texture, {{0.5f, 2.25f}, {1.5f, 3.75f}});
  EXPECT_EQ(seen[0], (Vector{4, 4, 1, 1}));
  EXPECT_EQ(seen[1], (Vector{14, 14, 1, 1}));
}

TEST_P(TextureKernels, RowsMayBePadded) {
  PLEXRL_LOAD_OR_SKIP("textures");
  std::vector<std::uint8_t> bytes(3 * 64, 0xee);
  for (std::size_t i = 0; i < 12; ++i) bytes[i / 4 * 64 + i % 4] = static_cast<std::uint8_t>(i);
  Texture texture;
  texture.texels = dense(device_.upload(bytes), TexelFormat::kUint8, 1, 4, 3);
  texture.texels.pitch = 64;
  texture.reads_integers = true;
  const std::vector<float> x = {0, 3.9f, 2}, y = {0, 1, 2.5f};
  const auto out = device_.allocate(3 * 16);
  expect_ok("two_unsigned", shape(3),
            Arguments()
                .add(device_.add_texture(texture))
                .add(device_.upload(x))
                .add(device_.upload(y))
                .add(3)
                .add(out));
  EXPECT_EQ(device_.download<unsigned>(out, 12),
            (std::vector<unsigned>{0, 0, 0, 1, 7, 0, 0, 1, 10, 0, 0, 1}));
}

TEST_P(TextureKernels, LayersAreNeitherFilteredNorWrapped) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture lines;
  lines.texels = dense(device_.upload(counted(12)), TexelFormat::kFloat, 1, 4, 1, 3);
  lines.is_filtered = true;
  Texture planes = lines;
  planes.texels = dense(device_.upload(counted(24)), TexelFormat::kFloat, 1, 4, 2, 3);
  const std::vector<float> x = {1.5f, 2.0f, 1.5f}, y = {0.5f, 1.0f, 1.5f};
  const std::vector<int> layer = {0, 1, 9};
  const auto out = device_.allocate(3 * 8);
  expect_ok("layers", shape(3),
            Arguments()
                .add(device_.add_texture(lines))
                .add(device_.add_texture(planes))
                .add(device_.upload(x))
                .add(device_.upload(y))
                .add(device_.upload(layer))
                .add(3)
                .add(out));
  EXPECT_EQ(device_.download<float>(out, 6),
            (std::vector<float>{1, 1, 5.5f, 8 + 1.5f + 2, 9, 16 + 4 + 1}));
}

TEST_P(TextureKernels, GatheringTakesOneComponentOfTheFourNeighbours) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture;
  texture.texels = dense(device_.upload(counted(4 * 3 * 4)), TexelFormat::kFloat, 4, 4, 3);
  const std::vector<float> x = {1.0f, 3.75f}, y = {2.0f, 0.25f};
  const auto first = device_.allocate(2 * 16), last = device_.allocate(2 * 16);
  expect_ok("gather", shape(2),
            Arguments()
                .add(device_.add_texture(texture))
                .add(device_.upload(x))
                .add(device_.upload(y))
                .add(2)
                .add(first)
                .add(last));
  // Rows of 16 numbers; (0, 2) (1, 2) (1, 1) (0, 1), and at the corner the last texel of the row.
  EXPECT_EQ(device_.download<Vector>(first, 2)[0], (Vector{32, 36, 20, 16}));
  EXPECT_EQ(device_.download<Vector>(last, 2)[0], (Vector{35, 39, 23, 19}));
  EXPECT_EQ(device_.download<Vector>(first, 2)[1], (Vector{12, 12, 12, 12}));
}

TEST_P(TextureKernels, SurfacesCopyElementsOfEverySize) {
  PLEXRL_LOAD_OR_SKIP("textures");
  constexpr std::size_t kWidth = 7, kHeight = 5;
  struct Case {
    const char* kernel;
    TexelFormat format;
    int channels;
  };
  for (const Case& one :
       {Case{"copy_bytes", TexelFormat::kUint8, 1}, Case{"copy_bytes4", TexelFormat::kUint8, 4},
        Case{"copy_shorts2", TexelFormat::kInt16, 2}, Case{"copy_floats", TexelFormat::kFloat, 1},
        Case{"copy_floats4", TexelFormat::kFloat, 4},
        Case{"copy_longs", TexelFormat::kUint32, 2}}) {
    TexelArray from = dense(0, one.format, one.channels, kWidth, kHeight);
    const std::size_t bytes = from.slice;
    std::vector<std::uint8_t> pattern(bytes);
    for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::uint8_t>(i * 151 + 3);
    from.address = device_.upload(pattern);
    TexelArray to = from;
    to.address = device_.allocate(bytes);
    const auto seen = device_.allocate(bytes);
    expect_ok(one.kernel, shape(kWidth * kHeight),
              Arguments()
                  .add(device_.add_surface(from))
                  .add(device_.add_surface(to))
                  .add(static_cast<int>(kWidth))
                  .add(static_cast<int>(kHeight))
                  .add(seen));
    EXPECT_EQ(device_.download<std::uint8_t>(to.address, bytes), pattern) << one.kernel;
    EXPECT_EQ(device_.download<std::uint8_t>(seen, bytes), pattern) << one.kernel;
  }
}

TEST_P(TextureKernels, OutsideASurfaceIsZeroNearestOrATrap) {
  PLEXRL_LOAD_OR_SKIP("textures");
  TexelArray array = dense(device_.upload(counted(12, 1)), TexelFormat::kFloat, 1, 4, 3);
  const auto surface = device_.add_surface(array);
  const std::vector<int> x = {-1, 4, 2, 0, 3}, y = {0, 1, 3, -5, 2};
  const auto zero = device_.allocate(20), clamped = device_.allocate(20);
  const auto xs = device_.upload(x), ys = device_.upload(y);
  expect_ok("outside", shape(5),
            Arguments().add(surface).add(xs).add(ys).add(5).add(zero).add(clamped));
  EXPECT_EQ(device_.download<float>(zero, 5), (std::vector<float>{0, 0, 0, 0, 12}));
  EXPECT_EQ(device_.download<float>(clamped, 5), (std::vector<float>{1, 8, 11, 1, 12}));
  expect_ok("write_outside", shape(5), Arguments().add(surface).add(xs).add(ys).add(5));
  auto expected = counted(12, 1);
  expected[11] = 1004;
  EXPECT_EQ(device_.download<float>(array.address, 12), expected);
  array.height = 1;
  const auto line = device_.add_surface(array);
  expect_ok("trap_outside", {}, Arguments().add(line).add(3));
  EXPECT_EQ(run("trap_outside", {}, Arguments().add(line).add(4)).kind, Fault::Kind::kTrap);
}

TEST_P(TextureKernels, SurfacesOfThreeDimensionsAndOfLayers) {
  PLEXRL_LOAD_OR_SKIP("textures");
  const auto space = dense(device_.allocate(4 * 30), TexelFormat::kFloat, 1, 5, 3, 2);
  const auto planes = dense(device_.allocate(4 * 30), TexelFormat::kFloat, 1, 5, 3, 2);
  expect_ok("fill_space", shape(30),
            Arguments()
                .add(device_.add_surface(space))
                .add(device_.add_surface(planes))
                .add(5)
                .add(3)
                .add(30));
  EXPECT_EQ(device_.download<float>(space.address, 30), counted(30));
  EXPECT_EQ(device_.download<float>(planes.address, 30), counted(30, 0.5f));
}

TEST_P(TextureKernels, AnUnknownObjectOrUnmappedTexelsAreIllegalAddresses) {
  PLEXRL_LOAD_OR_SKIP("textures");
  const auto out = device_.allocate(16), x = device_.upload(std::vector<int>{0});
  const auto arguments = [&](std::uint64_t object) {
    return Arguments().add(object).add(x).add(1).add(out);
  };
  EXPECT_EQ(run("by_index", {}, arguments(0x1234)).kind, Fault::Kind::kIllegalAddress);
  Texture texture;
  texture.texels = dense(FakeDevice::kArenaBase, TexelFormat::kFloat, 1, 4);  // nothing is there
  EXPECT_EQ(run("by_index", {}, arguments(device_.add_texture(texture))).kind,
            Fault::Kind::kIllegalAddress);
}

}  // namespace
}  // namespace plexrl::simgpu::ptx

#include <array>
#include <cmath>
#include <vector>

#include "tests/unit/ptx/kernel_test.h"

/// Mipmaps and cube maps, against the rules of the programming guide.
namespace plexrl::simgpu::ptx {
namespace {

using Vector = std::array<float, 4>;

class TextureLevels : public KernelTest {
 protected:
  /// A plane or a stack of them, of floats.
  TexelArray upload(const std::vector<float>& texels, std::uint64_t width, std::uint64_t height,
                    std::uint64_t depth = 1) {
    TexelArray array;
    array.address = device_.upload(texels);
    array.width = width;
    array.height = height;
    array.depth = depth;
    array.pitch = width * 4;
    array.slice = array.pitch * height;
    return array;
  }
  /// Four levels of 8 × 8 and less; every texel of level n is n.
  Texture four_levels() {
    Texture texture;
    for (std::uint64_t n = 0; n < 4; ++n) {
      const std::uint64_t side = 8 >> n;
      const TexelArray level =
          upload(std::vector<float>(side * side, static_cast<float>(n)), side, side);
      if (n == 0) {
        texture.texels = level;
      } else {
        texture.smaller.push_back(level);
      }
    }
    texture.is_normalized = true;
    texture.most_level = 100;
    return texture;
  }
  /// The first channel of what the kernel fetches.
  std::vector<float> fetch(const char* kernel, const Texture& texture,
                           const std::vector<std::vector<float>>& arguments) {
    const std::size_t n = arguments[0].size();
    const auto out = device_.allocate(n * sizeof(Vector));
    Arguments all;
    all.add(device_.add_texture(texture));
    for (const auto& one : arguments) all.add(device_.upload(one));
    const Shape shape{{static_cast<std::uint32_t>((n + 63) / 64)}, {64}};
    expect_ok(kernel, shape, all.add(static_cast<int>(n)).add(out));
    std::vector<float> first;
    for (const Vector& vector : device_.download<Vector>(out, n)) first.push_back(vector[0]);
    return first;
  }
  std::vector<float> at_levels(const Texture& texture, const std::vector<float>& levels) {
    const std::vector<float> middle(levels.size(), 0.5f);
    return fetch("at_a_level", texture, {middle, middle, levels});
  }
};

TEST_P(TextureLevels, TheNearestLevelIsRead) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture = four_levels();
  EXPECT_EQ(at_levels(texture, {-3, 0, 0.25f, 0.75f, 1, 2.25f, 2.75f, 9, NAN, INFINITY}),
            (std::vector<float>{0, 0, 0, 1, 1, 2, 3, 3, 0, 3}));
  texture.level_bias = 1;
  EXPECT_EQ(at_levels(texture, {-3, 0, 1.25f}), (std::vector<float>{0, 1, 2}));
  texture.least_level = 1.5f;
  texture.most_level = 2.25f;
  EXPECT_EQ(at_levels(texture, {-3, 9, NAN}), (std::vector<float>{2, 2, 2}))
      << "1.5 is nearest to 2";
  const std::vector<float> middle(2, 0.5f);
  EXPECT_EQ(fetch("two", texture, {middle, middle}), (std::vector<float>{2, 2}))
      << "without a level it is 0, with the bias and in the bounds";
}

TEST_P(TextureLevels, TwoLevelsAreMixedByTheFraction) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture = four_levels();
  texture.mixes_levels = true;
  const std::vector<float> levels = {-1, 0, 0.25f, 1.5f, 2.75f, 3, 8, NAN};
  const std::vector<float> mixed = {0, 0, 0.25f, 1.5f, 2.75f, 3, 3, 0};
  EXPECT_EQ(at_levels(texture, levels), mixed);
  texture.is_filtered = true;
  EXPECT_EQ(at_levels(texture, levels), mixed);
}

TEST_P(TextureLevels, EachLevelHasItsOwnSize) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture;
  texture.texels = upload({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 4, 4);
  texture.smaller.push_back(upload({100, 101, 102, 103}, 2, 2));
  texture.is_normalized = true;
  texture.most_level = 1;
  const std::vector<float> x = {0.3f, 0.9f, 0.3f, 0.9f}, y = {0.9f, 0.3f, 0.9f, 0.3f};
  EXPECT_EQ(fetch("at_a_level", texture, {x, y, {0, 0, 1, 1}}),
            (std::vector<float>{13, 7, 102, 101}));
}

TEST_P(TextureLevels, AGradientGivesTheLevelInWhichAPixelIsATexel) {
  PLEXRL_LOAD_OR_SKIP("textures");
  const Texture texture = four_levels();
  const std::vector<float> right = {1.0f / 8, 2.0f / 8, 1.0f / 8, 8.0f / 8, 0, 1e30f};
  const std::vector<float> down = {1.0f / 8, 1.0f / 8, -4.0f / 8, 0, 0, 0};
  EXPECT_EQ(fetch("by_gradient", texture, {right, down}), (std::vector<float>{0, 1, 2, 3, 0, 3}));
}

/// The direction to the texel (i, j) of a face: what the guide's table of faces gives, solved for
/// it.
std::array<float, 3> direction(std::size_t face, std::size_t i, std::size_t j, std::size_t side) {
  const float s = 2 * (static_cast<float>(i) + 0.5f) / static_cast<float>(side) - 1;
  const float t = 2 * (static_cast<float>(j) + 0.5f) / static_cast<float>(side) - 1;
  const std::array<float, 3> directions[] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t},
                                             {s, -1, -t}, {s, -t, 1},  {-s, -t, -1}};
  return directions[face];
}

/// Every texel of `cubes` cubes by its direction, which may be of any length.
std::vector<std::vector<float>> all_directions(std::size_t cubes, std::size_t side) {
  std::vector<std::vector<float>> arguments(4);
  for (std::size_t n = 0; n < cubes * 6 * side * side; ++n) {
    const std::size_t cube = n / (6 * side * side);
    const auto at = direction(n / (side * side) % 6, n % side, n / side % side, side);
    const float length = n % 3 == 0 ? 1 : n % 3 == 1 ? 8 : 0.25f;
    for (std::size_t d = 0; d < 3; ++d) arguments[d].push_back(at[d] * length);
    arguments[3].push_back(static_cast<float>(cube));
  }
  return arguments;
}

std::vector<float> counted(std::size_t n, float first = 0) {
  std::vector<float> out;
  for (std::size_t i = 0; i < n; ++i) out.push_back(first + static_cast<float>(i));
  return out;
}

TEST_P(TextureLevels, ADirectionFindsItsFaceOfACube) {
  PLEXRL_LOAD_OR_SKIP("textures");
  constexpr std::size_t kSide = 4;
  for (const bool is_filtered : {false, true}) {
    Texture texture;
    texture.texels = upload(counted(6 * kSide * kSide), kSide, kSide, 6);
    texture.is_filtered = is_filtered;  // in the middle of a texel it changes nothing
    auto arguments = all_directions(1, kSide);
    arguments.pop_back();
    EXPECT_EQ(fetch("cube", texture, arguments), counted(6 * kSide * kSide));
  }
}

TEST_P(TextureLevels, CubesLieBehindEachOther) {
  PLEXRL_LOAD_OR_SKIP("textures");
  constexpr std::size_t kSide = 2, kCubes = 3;
  Texture texture;
  texture.texels = upload(counted(kCubes * 6 * kSide * kSide), kSide, kSide, kCubes * 6);
  auto arguments = all_directions(kCubes, kSide);
  EXPECT_EQ(fetch("cubes", texture, arguments), counted(kCubes * 6 * kSide * kSide));
  for (float& layer : arguments[3]) layer = 77;
  EXPECT_EQ(fetch("cubes", texture, arguments)[0], kSide * kSide * 2 * 6) << "the last one";
}

TEST_P(TextureLevels, ACubeHasLevels) {
  PLEXRL_LOAD_OR_SKIP("textures");
  Texture texture;
  texture.texels = upload(counted(24), 2, 2, 6);
  texture.smaller.push_back(upload(counted(6, 100), 1, 1, 6));
  texture.most_level = 1;
  auto arguments = all_directions(1, 1);
  arguments[3].assign(6, 1);
  EXPECT_EQ(fetch("cube_at_a_level", texture, arguments), counted(6, 100));
}

PLEXRL_INSTANTIATE_KERNEL_TEST(TextureLevels);

}  // namespace
}  // namespace plexrl::simgpu::ptx

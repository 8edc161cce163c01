#include "shim/va_arena.h"

#include <gtest/gtest.h>

namespace plexrl::shim {
namespace {

TEST(VaArena, TakesFromTheFirstPartThatIsLongEnough) {
  VaArena arena;
  arena.add(0x1000, 0x100);
  arena.add(0x2000, 0x1000);
  EXPECT_EQ(arena.take(0x200), 0x2000u);
  EXPECT_EQ(arena.take(0x100), 0x1000u);
  EXPECT_FALSE(arena.take(0x1000));
}

TEST(VaArena, NeighboursAreJoinedWhenTheyComeBack) {
  VaArena arena;
  arena.add(0, 0x300);
  const auto a = arena.take(0x100);
  const auto b = arena.take(0x100);
  const auto c = arena.take(0x100);
  arena.put(*a, 0x100);
  arena.put(*c, 0x100);
  EXPECT_FALSE(arena.take(0x300));
  arena.put(*b, 0x100);
  EXPECT_EQ(arena.take(0x300), 0u);
  EXPECT_EQ(arena.free_bytes(), 0u);
}

}  // namespace
}  // namespace plexrl::shim

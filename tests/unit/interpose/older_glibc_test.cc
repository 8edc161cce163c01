// This program links interpose/older_glibc.cc, and libstdc++ and libgcc statically, as a preload
// does: what they want of a recent glibc they get from there.

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <new>
#include <random>
#include <string>
#include <thread>

namespace {

TEST(OlderGlibc, AnExceptionIsCaught) {
  auto fail = [] { throw std::string("thrown"); };
  std::string caught;
  try {
    fail();
  } catch (const std::string& what) {
    caught = what;
  }
  EXPECT_EQ(caught, "thrown");
}

TEST(OlderGlibc, AnExceptionPassesThroughAForeignObject) {
  int numbers[] = {2, 1};
  auto compare = [](const void*, const void*) -> int { throw 7; };
  EXPECT_THROW(qsort(numbers, 2, sizeof(int), compare), int);  // libc is built with unwind tables
}

TEST(OlderGlibc, AThreadRunsAndIsJoined) {
  int result = 0;
  std::thread thread([&] { result = 7; });
  thread.join();
  EXPECT_EQ(result, 7);
}

TEST(OlderGlibc, AThreadsOwnValueIsItsOwn) {
  pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key, nullptr), 0);
  int mine = 0;
  ASSERT_EQ(pthread_setspecific(key, &mine), 0);
  void* other = &mine;
  std::thread([&] { other = pthread_getspecific(key); }).join();
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(pthread_getspecific(key), &mine);
  EXPECT_EQ(pthread_key_delete(key), 0);
}

TEST(OlderGlibc, SignalsAreBlocked) {
  sigset_t set, before, now;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 1);
}

TEST(OlderGlibc, RandomWordsDiffer) {
  std::random_device device;
  const auto first = device();
  EXPECT_TRUE(first != device() || first != device());
}

}  // namespace

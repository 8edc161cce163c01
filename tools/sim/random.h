#pragma once

#include <cmath>
#include <cstdint>

namespace plexrl::sim {

/// Random numbers that are the same on every machine and library (splitmix64 and textbook
/// transforms).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double from, double to) { return from + (to - from) * uniform(); }
  /// In [0, count).
  std::uint64_t below(std::uint64_t count) {
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(count));
  }
  /// Standard normal (Box and Muller).
  double normal() {
    double u = 1 - uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * uniform());
  }
  /// Lognormal with this mean and coefficient of variation.
  double lognormal(double mean, double cv) {
    double variance = std::log1p(cv * cv);
    return mean * std::exp(std::sqrt(variance) * normal() - variance / 2);
  }
  double exponential(double mean) { return -mean * std::log(1 - uniform()); }

 private:
  std::uint64_t state_;
};

/// A seed for part `part` of what `seed` stands for.
inline std::uint64_t derive(std::uint64_t seed, std::uint64_t part) {
  return Random(seed * 0x9e3779b97f4a7c15 + part).next();
}

}  // namespace plexrl::sim

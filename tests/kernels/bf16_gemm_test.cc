// SPDX-License-Identifier: MIT
#include "kernels/bf16_gemm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "kernels/amx/tile_kernel.h"
#include "kernels/amx/tile_layout.h"
#include "kernels/amx/tile_pack.h"
#include "kernels/cpu_features.h"
#include "support/amx_emulator.h"
#include "support/with_threads.h"

// Buffers come from here: counting the calls shows what allocates.
std::atomic<int> aligned_allocations = 0;
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++aligned_allocations;
  void* block = nullptr;
  return posix_memalign(&block, alignment, size) == 0 ? block : nullptr;
}

namespace clearhead {
namespace {

using testing::TilesForTest;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The nearest of the two bf16 neighbours, ties to the even one; from the definition, not by adding
// bits.
float RoundToBf16(float x) {
  if (!std::isfinite(x)) return x;
  const std::uint32_t down_bits = std::bit_cast<std::uint32_t>(x) & 0xffff0000u;
  const double down = std::bit_cast<float>(down_bits);
  // One bf16 unit away from zero; beyond the largest number this unit still decides the rounding.
  const float up_value = std::bit_cast<float>(down_bits + 0x10000u);
  const double up = std::isinf(up_value) ? std::copysign(0x1p128, down) : up_value;
  const double to_down = std::abs(x - down);
  const double to_up = std::abs(up - x);
  const bool down_is_even = (down_bits & 0x10000u) == 0;
  const bool take_down = to_down < to_up || (to_down == to_up && down_is_even);
  return take_down ? static_cast<float>(down) : up_value;
}

float FromBf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

struct Shape {
  std::int64_t m, n, k;
};
void PrintTo(const Shape& shape, std::ostream* os) {
  *os << shape.m << "x" << shape.n << "x" << shape.k;
}

// One product with its operands stored the way the options say, and gaps between rows.
struct Problem {
  Shape shape;
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;
  bool with_bias = false;
  std::int64_t a_gap = 0, b_gap = 0, c_gap = 0;

  std::vector<float> a, b, c, bias;

  std::int64_t lda() const { return (a_transposed ? shape.m : shape.k) + a_gap; }
  std::int64_t ldb() const { return (b_transposed ? shape.k : shape.n) + b_gap; }
  std::int64_t ldc() const { return shape.n + c_gap; }
  float& A(std::int64_t i, std::int64_t p) {
    return a[a_transposed ? p * lda() + i : i * lda() + p];
  }
  float& B(std::int64_t p, std::int64_t j) {
    return b[b_transposed ? j * ldb() + p : p * ldb() + j];
  }
  float& C(std::int64_t i, std::int64_t j) { return c[i * ldc() + j]; }

  // Gaps hold NaN: whoever reads them is found out.
  template <typename Value>
  void Fill(const Value& value) {
    a.assign((a_transposed ? shape.k : shape.m) * lda(), kNan);
    b.assign((b_transposed ? shape.n : shape.k) * ldb(), kNan);
    c.assign(shape.m * ldc(), kNan);
    bias.assign(shape.n, 0.0f);
    for (std::int64_t i = 0; i < shape.m; ++i) {
      for (std::int64_t p = 0; p < shape.k; ++p) A(i, p) = value();
    }
    for (std::int64_t p = 0; p < shape.k; ++p) {
      for (std::int64_t j = 0; j < shape.n; ++j) B(p, j) = value();
    }
    for (std::int64_t j = 0; j < shape.n; ++j) bias[j] = value();
    // Without accumulate the old C must not matter, not even a NaN.
    for (std::int64_t i = 0; accumulate && i < shape.m; ++i) {
      for (std::int64_t j = 0; j < shape.n; ++j) C(i, j) = value();
    }
  }
  void FillNormal(std::uint64_t seed) {
    RandomStream random(seed);
    Fill([&] { return static_cast<float>(random.Normal()); });
  }
  // Products and sums of these are exact in fp32, in any order.
  void FillIntegers(std::uint64_t seed) {
    RandomStream random(seed);
    Fill([&] { return static_cast<float>(static_cast<int>(random.Below(17)) - 8); });
  }

  PackedBf16 PackB() const {
    PackedBf16 packed;
    packed.Pack(b.data(), shape.k, shape.n, ldb(), b_transposed);
    return packed;
  }
  std::vector<float> Run() const {
    const PackedBf16 packed = PackB();
    std::vector<float> result = c;
    Bf16GemmArgs args;
    args.m = shape.m;
    args.a = a.data();
    args.lda = lda();
    args.a_transposed = a_transposed;
    args.b = &packed;
    args.c = result.data();
    args.ldc = ldc();
    args.accumulate = accumulate;
    args.bias = with_bias ? bias.data() : nullptr;
    Bf16Gemm(args);
    return result;
  }
};

bool SameBits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

// Compares with double precision, once with operands rounded to bf16, once with the operands as
// they are. u = 2^-24 is half a unit of fp32; sums of k products and up to 2 more terms in any
// order err by at most (k + 2) u times the sum of magnitudes. Rounding an operand to bf16 errs by
// 2^-9 relative, so a product by 2^-8 + 2^-18.
void ExpectMatchesReference(Problem& problem) {
  const std::vector<float> result = problem.Run();
  const auto [m, n, k] = problem.shape;
  const double sum_error = static_cast<double>(k + 2) * 0x1p-24;
  const double round_error = 0x1p-7 + 0x1p-16;
  int failures = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double start = 0.0;
      double start_size = 0.0;
      if (problem.accumulate) {
        start += problem.C(i, j);
        start_size += std::abs(problem.C(i, j));
      }
      if (problem.with_bias) {
        start += problem.bias[j];
        start_size += std::abs(problem.bias[j]);
      }
      double exact = start, rounded = start, exact_size = 0.0, rounded_size = start_size;
      for (std::int64_t p = 0; p < k; ++p) {
        const double a = problem.A(i, p);
        const double b = problem.B(p, j);
        const double product = static_cast<double>(RoundToBf16(problem.A(i, p))) *
                               static_cast<double>(RoundToBf16(problem.B(p, j)));
        exact += a * b;
        exact_size += std::abs(a * b);
        rounded += product;
        rounded_size += std::abs(product);
      }
      const double got = result[i * problem.ldc() + j];
      // Written so that a NaN fails.
      const bool close_to_rounded = std::abs(got - rounded) <= sum_error * rounded_size + 1e-30;
      const bool close_to_exact =
          std::abs(got - exact) <= round_error * exact_size + sum_error * rounded_size + 1e-30;
      if ((!close_to_rounded || !close_to_exact) && ++failures <= 3) {
        ADD_FAILURE() << "C(" << i << "," << j << ") = " << got << ", rounded operands give "
                      << rounded << ", exact ones " << exact;
      }
    }
    for (std::int64_t j = n; j < problem.ldc(); ++j) {
      ASSERT_TRUE(std::isnan(result[i * problem.ldc() + j])) << "wrote beside row " << i;
    }
  }
  EXPECT_EQ(failures, 0);
}

void ExpectExact(Problem& problem) {
  const std::vector<float> result = problem.Run();
  const auto [m, n, k] = problem.shape;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float expected = problem.accumulate ? problem.C(i, j) : 0.0f;
      if (problem.with_bias) expected += problem.bias[j];
      for (std::int64_t p = 0; p < k; ++p) expected += problem.A(i, p) * problem.B(p, j);
      ASSERT_EQ(result[i * problem.ldc() + j], expected) << "C(" << i << "," << j << ")";
    }
  }
}

class Bf16GemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TilesForTest::Possible()) GTEST_SKIP() << Bf16GemmReason();
    tiles_.emplace();
  }

  std::optional<TilesForTest> tiles_;
};

class Bf16GemmShapes : public Bf16GemmTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(Bf16GemmShapes, EveryLayoutMatchesTheReference) {
  for (int options = 0; options < 16; ++options) {
    Problem problem{.shape = GetParam()};
    problem.a_transposed = (options & 1) != 0;
    problem.b_transposed = (options & 2) != 0;
    problem.accumulate = (options & 4) != 0;
    problem.with_bias = (options & 8) != 0;
    problem.FillNormal(1000 + options);
    SCOPED_TRACE(options);
    ExpectMatchesReference(problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Awkward, Bf16GemmShapes,
                         ::testing::Values(Shape{1, 1, 1}, Shape{15, 17, 31}, Shape{16, 16, 32},
                                           Shape{32, 32, 64}, Shape{33, 70, 65}, Shape{31, 97, 2},
                                           Shape{128, 96, 64}, Shape{1, 768, 50}, Shape{67, 3, 193},
                                           Shape{64, 64, 385}, Shape{5, 129, 257}),
                         [](const auto& info) {
                           return std::to_string(info.param.m) + "x" +
                                  std::to_string(info.param.n) + "x" + std::to_string(info.param.k);
                         });

// Each shape crosses one kind of boundary of the blocking; integers leave no room for rounding.
TEST_F(Bf16GemmTest, ManyPiecesChunksGroupsAndRowBlocksAreExact) {
  const Shape shapes[] = {
      {40, 70, 2048 + 33},   // two chunks of k
      {33, 33, 6144},        // three full chunks
      {1100, 40, 70},        // several row blocks
      {70, 300, 400},        // several groups and pieces
      {150, 192, 224},       // two pieces of unequal length, whole blocks only
      {48, 96, 2048 + 2048}  // an odd number of panels
  };
  for (const Shape& shape : shapes) {
    for (int options = 0; options < 4; ++options) {
      Problem problem{.shape = shape};
      problem.a_transposed = (options & 1) != 0;
      problem.b_transposed = (options & 1) == 0;
      problem.accumulate = (options & 2) != 0;
      problem.with_bias = (options & 2) == 0;
      problem.FillIntegers(2000 + options);
      SCOPED_TRACE(::testing::PrintToString(shape) + " options " + std::to_string(options));
      ExpectExact(problem);
    }
  }
}

TEST_F(Bf16GemmTest, RowStridesAreHonouredAndGapsLeftAlone) {
  for (int options = 0; options < 8; ++options) {
    Problem problem{.shape = {37, 67, 75}};
    problem.a_transposed = (options & 1) != 0;
    problem.b_transposed = (options & 2) != 0;
    problem.accumulate = (options & 4) != 0;
    problem.a_gap = 5;
    problem.b_gap = 3;
    problem.c_gap = 9;
    problem.FillNormal(3000 + options);
    SCOPED_TRACE(options);
    ExpectMatchesReference(problem);
  }
}

TEST_F(Bf16GemmTest, DepthZeroGivesTheBias) {
  Problem problem{.shape = {3, 35, 0}, .with_bias = true};
  problem.FillNormal(4);
  const std::vector<float> result = problem.Run();
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 35; ++j) EXPECT_EQ(result[i * 35 + j], problem.bias[j]);
  }
}

TEST_F(Bf16GemmTest, ThreadCountDoesNotChangeABit) {
  for (const Shape& shape : {Shape{300, 200, 450}, Shape{33, 140, 2500}}) {
    Problem problem{.shape = shape, .accumulate = true, .with_bias = true};
    problem.FillNormal(5);
    const std::vector<float> expected = problem.Run();
    for (const int threads : {1, 2, 3, 5}) {
      const UseThreads scope(threads);
      EXPECT_TRUE(SameBits(problem.Run(), expected)) << threads << " threads, m = " << shape.m;
    }
  }
}

TEST_F(Bf16GemmTest, ARowDoesNotDependOnTheRowsAround) {
  Problem many{.shape = {70, 130, 500}};
  many.FillNormal(6);
  const std::vector<float> all = many.Run();
  Problem one = many;
  one.shape.m = 1;
  one.a.assign(many.a.begin() + 69 * many.lda(), many.a.end());
  one.c.resize(one.shape.n);
  EXPECT_TRUE(SameBits(one.Run(), std::vector<float>(all.begin() + 69 * many.ldc(), all.end())));
}

TEST_F(Bf16GemmTest, NanAndInfinityReachTheirRowsAndColumnsOnly) {
  Problem problem{.shape = {35, 37, 40}};
  problem.FillNormal(7);
  problem.A(3, 5) = kNan;
  problem.A(34, 39) = kInfinity;
  problem.B(7, 36) = -kInfinity;
  const std::vector<float> result = problem.Run();
  for (std::int64_t i = 0; i < 35; ++i) {
    for (std::int64_t j = 0; j < 37; ++j) {
      const float got = result[i * 37 + j];
      if (i == 3) {
        EXPECT_TRUE(std::isnan(got)) << i << "," << j;
      } else if (i == 34 && j == 36) {
        const bool same_sign = std::signbit(problem.B(39, 36)) != std::signbit(problem.A(34, 7));
        EXPECT_EQ(std::isinf(got), same_sign);
      } else if (i == 34) {
        EXPECT_EQ(got, std::copysign(kInfinity, problem.B(39, j)));
      } else if (j == 36) {
        EXPECT_EQ(got, -std::copysign(kInfinity, problem.A(i, 7)));
      } else {
        EXPECT_TRUE(std::isfinite(got)) << i << "," << j;
      }
    }
  }
}

TEST_F(Bf16GemmTest, DenormalsCountAsZero) {
  Problem problem{.shape = {1, 2, 2}};
  problem.Fill([] { return 1.0f; });
  problem.A(0, 0) = 0x1p-127f;
  problem.B(0, 0) = 0x1p127f;  // 1 if the denormal counted
  problem.B(1, 0) = 3.0f;
  problem.B(0, 1) = 0.0f;
  problem.B(1, 1) = 0x1p-127f;
  const std::vector<float> result = problem.Run();
  EXPECT_EQ(result[0], 3.0f);
  EXPECT_EQ(result[1], 0.0f);
}

TEST_F(Bf16GemmTest, TheSteadyStateAllocatesNothing) {
  Problem problem{.shape = {130, 96, 100}};
  problem.FillNormal(8);
  PackedBf16 packed = problem.PackB();
  Bf16GemmArgs args{.m = 130, .a = problem.a.data(), .lda = 100, .b = &packed};
  args.c = problem.c.data();
  args.ldc = 96;
  Bf16Gemm(args);
  const int before = aligned_allocations;
  packed.Pack(problem.b.data(), 100, 96, 96, false);
  packed.Pack(problem.b.data(), 96, 100, 96, true);
  packed.Pack(problem.b.data(), 50, 96, 96, false);
  packed.Pack(problem.b.data(), 100, 96, 96, false);
  Bf16Gemm(args);
  EXPECT_EQ(aligned_allocations, before);
  packed.Pack(problem.b.data(), 100, 96, 96, false);
  PackedBf16 another = problem.PackB();
  EXPECT_EQ(aligned_allocations, before + 1);
}

TEST_F(Bf16GemmTest, TheEmulatorRunsExactlyWhereTheSiliconCannot) {
  Problem problem{.shape = {1, 1, 1}};
  problem.FillNormal(9);
  const std::int64_t before = TilesForTest::EmulatedInstructions();
  problem.Run();
  // One block of one step: configure, 4 zero, 4 load, 4 multiply, 4 store, release.
  EXPECT_EQ(TilesForTest::EmulatedInstructions() - before, Cpu().tiles_usable ? 0 : 18);
  EXPECT_EQ(tiles_->emulated(), !Cpu().tiles_usable);
}

TEST_F(Bf16GemmTest, TheEmulatorRejectsTilesWithoutConfiguration) {
  if (!tiles_->emulated()) GTEST_SKIP() << "the silicon has no message to check";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  alignas(64) static const std::uint16_t operand[amx::kStepValues] = {};
  static float out[amx::kBlockValues];
  const amx::TileBlock block{.a = operand,
                             .b = operand,
                             .steps = 1,
                             .in = nullptr,
                             .in_stride = 0,
                             .out = out,
                             .out_stride = 32,
                             .next_b = operand,
                             .next_c = out,
                             .next_c_stride = 0};
  EXPECT_DEATH(amx::MultiplyBlock(block), "amx emulator: a tile instruction before LDTILECFG");
  EXPECT_DEATH(__asm__ volatile("ud2"), "amx emulator: an illegal instruction that is not AMX");
}

TEST(Bf16GemmAvailability, FollowsDetectionAndGivesAReason) {
  EXPECT_EQ(Bf16GemmAvailable(), Cpu().tiles_usable);
  EXPECT_EQ(Bf16GemmReason(), Cpu().tiles_reason);
  EXPECT_EQ(Bf16GemmReason().substr(0, 10), "AMX bf16: ");
  if (Bf16GemmAvailable()) return;
  Problem problem{.shape = {1, 1, 1}};
  problem.FillNormal(10);
  EXPECT_THROW(problem.Run(), std::logic_error);
}

// The packing needs no tiles: it runs everywhere.

TEST(Bf16Pack, RoundsToNearestEvenAndKeepsNan) {
  std::vector<float> values;
  const std::uint32_t uppers[] = {0x0000, 0x0001, 0x007f, 0x0080, 0x3f7f, 0x3f80, 0x3f81,
                                  0x4049, 0x7f7e, 0x7f7f, 0x8000, 0x8001, 0xbf80, 0xff7f};
  for (const std::uint32_t upper : uppers) {
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  const std::size_t finite = values.size();
  values.push_back(kInfinity);
  values.push_back(-kInfinity);
  // NaNs that rounding by addition would turn into infinity, and into minus zero.
  values.push_back(std::bit_cast<float>(0x7f800001u));
  values.push_back(std::bit_cast<float>(0x7fffffffu));
  values.push_back(std::bit_cast<float>(0xffffffffu));

  const auto n = static_cast<std::int64_t>(values.size());
  PackedBf16 packed;
  packed.Pack(values.data(), 1, n, n, false);
  for (std::int64_t j = 0; j < n; ++j) {
    // [panel][tile][k pair 0][column][k 0]
    const std::int64_t at =
        (j / 32) * amx::kStepValues + (j / 16 % 2) * amx::kTileValues + j % 16 * 2;
    const float got = FromBf16(packed.data()[at]);
    if (std::isnan(values[j])) {
      EXPECT_TRUE(std::isnan(got)) << j;
      EXPECT_EQ(std::signbit(got), std::signbit(values[j])) << j;
    } else {
      const float expected = RoundToBf16(values[j]);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected))
          << (j < static_cast<std::int64_t>(finite) ? "finite " : "infinite ") << values[j];
    }
  }
}

TEST(Bf16Pack, EveryValueLandsInItsPlaceAndTheRestIsZero) {
  for (const bool transposed : {false, true}) {
    for (const Shape& shape :
         {Shape{0, 1, 1}, Shape{0, 33, 47}, Shape{0, 80, 96}, Shape{0, 64, 32}}) {
      const auto [m, n, k] = shape;
      std::vector<float> b(n * k);
      RandomStream random(11);
      for (float& x : b) x = RoundToBf16(static_cast<float>(random.Normal()));
      PackedBf16 packed;
      packed.Pack(b.data(), k, n, transposed ? k : n, transposed);
      const std::int64_t steps = (k + 31) / 32;
      const std::int64_t panels = (n + 31) / 32;
      for (std::int64_t p = 0; p < steps * 32; ++p) {
        for (std::int64_t j = 0; j < panels * 32; ++j) {
          const std::int64_t at = ((j / 32) * steps + p / 32) * amx::kStepValues +
                                  (j / 16 % 2) * amx::kTileValues + (p % 32 / 2) * 32 + j % 16 * 2 +
                                  p % 2;
          float expected = 0.0f;
          if (p < k && j < n) expected = transposed ? b[j * k + p] : b[p * n + j];
          ASSERT_EQ(FromBf16(packed.data()[at]), expected)
              << p << "," << j << " of " << k << "," << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace clearhead

//===- ReduceTest.cpp - Bits of reductions ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The reduction kernel against plain arithmetic of another style.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

namespace {
/// The value of a small float with `exponentBits` and `mantissaBits`, straight from the definition.
double valueOf(uint16_t bits, int exponentBits, int mantissaBits) {
  int exponent = (bits >> mantissaBits) & ((1 << exponentBits) - 1), mantissa = bits & ((1 << mantissaBits) - 1);
  int bias = (1 << (exponentBits - 1)) - 1;
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponentBits) - 1)
    return mantissa ? std::nan("") : sign * INFINITY;
  if (exponent == 0)
    return sign * std::ldexp(mantissa, 1 - bias - mantissaBits);
  return sign * std::ldexp(mantissa + (1 << mantissaBits), exponent - bias - mantissaBits);
}

template <typename T> T reduceOne(int32_t dtype, int32_t op, const std::vector<T> &values, double scale = 1.0) {
  std::vector<const void *> ins;
  for (const T &value : values)
    ins.push_back(&value);
  T out;
  EXPECT_EQ(commrt_reduce_local(dtype, op, scale, ins.size(), ins.data(), &out, 1), COMMRT_OK);
  return out;
}

void checkAllValuesRoundTrip(int32_t dtype, int exponentBits, int mantissaBits) {
  for (int bits = 0; bits < 65536; ++bits) {
    auto out = reduceOne<uint16_t>(dtype, COMMRT_SUM, {uint16_t(bits)});
    double value = valueOf(bits, exponentBits, mantissaBits);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(valueOf(out, exponentBits, mantissaBits)));
    else
      EXPECT_EQ(out, bits);
  }
}

/// a + b is rounded to the nearest value, to the even one in a tie.
void checkSumRoundsToNearestEven(int32_t dtype, int exponentBits, int mantissaBits) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    auto a = uint16_t(random()), b = uint16_t(random());
    if (i % 2)
      b = uint16_t((a & 0xff80) ^ (random() & 0x87ff));
    double exact =
        double(float(valueOf(a, exponentBits, mantissaBits)) + float(valueOf(b, exponentBits, mantissaBits)));
    uint16_t out = reduceOne<uint16_t>(dtype, COMMRT_SUM, {a, b});
    double got = valueOf(out, exponentBits, mantissaBits);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    if (std::isinf(exact) || std::isinf(got)) {
      double largest = valueOf(uint16_t((((1 << exponentBits) - 1) << mantissaBits) - 1), exponentBits, mantissaBits);
      double step =
          largest - valueOf(uint16_t((((1 << exponentBits) - 1) << mantissaBits) - 2), exponentBits, mantissaBits);
      EXPECT_EQ(std::isinf(got), std::fabs(exact) >= largest + step / 2) << exact;
      continue;
    }
    for (int neighbour : {-1, 1}) {
      uint16_t near = uint16_t(out + neighbour);
      if ((near ^ out) & 0x8000)
        continue;
      double other = valueOf(near, exponentBits, mantissaBits);
      if (std::isinf(other))
        continue;
      double mine = std::fabs(got - exact), theirs = std::fabs(other - exact);
      EXPECT_TRUE(mine < theirs || (mine == theirs && !(out & 1))) << exact << " gave " << got << " not " << other;
    }
  }
}

TEST(Reduce, F16RoundTrip) { checkAllValuesRoundTrip(COMMRT_F16, 5, 10); }
TEST(Reduce, BF16RoundTrip) { checkAllValuesRoundTrip(COMMRT_BF16, 8, 7); }
TEST(Reduce, F16RoundsToNearestEven) { checkSumRoundsToNearestEven(COMMRT_F16, 5, 10); }
TEST(Reduce, BF16RoundsToNearestEven) { checkSumRoundsToNearestEven(COMMRT_BF16, 8, 7); }

TEST(Reduce, OrderIsTheOrderGiven) {
  // (1e8 + 1) - 1e8 is 0 in f32, (1e8 - 1e8) + 1 is 1.
  EXPECT_EQ(reduceOne<float>(COMMRT_F32, COMMRT_SUM, {1e8f, 1.f, -1e8f}), 0.f);
  EXPECT_EQ(reduceOne<float>(COMMRT_F32, COMMRT_SUM, {1e8f, -1e8f, 1.f}), 1.f);
}

TEST(Reduce, IntegersWrap) {
  EXPECT_EQ(reduceOne<int8_t>(COMMRT_I8, COMMRT_SUM, {100, 100}), int8_t(-56));
  EXPECT_EQ(reduceOne<int64_t>(COMMRT_I64, COMMRT_SUM, {INT64_MAX, 1}), INT64_MIN);
  EXPECT_EQ(reduceOne<uint16_t>(COMMRT_U16, COMMRT_PRODUCT, {300, 300}), uint16_t(90000 - 65536));
  EXPECT_EQ(reduceOne<int32_t>(COMMRT_I32, COMMRT_PRODUCT, {INT32_MAX, 2}), -2);
}

TEST(Reduce, SignDecidesOrder) {
  EXPECT_EQ(reduceOne<int8_t>(COMMRT_I8, COMMRT_MAX, {-1, 1}), 1);
  EXPECT_EQ(reduceOne<uint8_t>(COMMRT_U8, COMMRT_MAX, {255, 1}), 255);
  EXPECT_EQ(reduceOne<int64_t>(COMMRT_I64, COMMRT_MIN, {INT64_MIN, 1}), INT64_MIN);
}

TEST(Reduce, AverageAndScaledSum) {
  EXPECT_EQ(reduceOne<int32_t>(COMMRT_I32, COMMRT_AVG, {7, 8}), 7);
  EXPECT_EQ(reduceOne<int8_t>(COMMRT_I8, COMMRT_AVG, {-100, -100}), -100);
  EXPECT_EQ(reduceOne<double>(COMMRT_F64, COMMRT_AVG, {1.0, 2.0}), 1.5);
  EXPECT_EQ(reduceOne<float>(COMMRT_F32, COMMRT_SCALED_SUM, {3.f, 5.f}, 0.25), 0.75f + 1.25f);
}

TEST(Reduce, BooleansAreLogic) {
  EXPECT_EQ(reduceOne<uint8_t>(COMMRT_I1, COMMRT_SUM, {1, 1, 0}), 1);
  EXPECT_EQ(reduceOne<uint8_t>(COMMRT_I1, COMMRT_PRODUCT, {1, 1, 0}), 0);
  EXPECT_EQ(reduceOne<uint8_t>(COMMRT_I1, COMMRT_MIN, {1, 1}), 1);
}

TEST(Reduce, RefusesWhatHasNoMeaning) {
  uint8_t x = 0;
  const void *in = &x;
  EXPECT_EQ(commrt_reduce_local(COMMRT_I1, COMMRT_AVG, 1, 1, &in, &x, 1), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_reduce_local(COMMRT_I8, COMMRT_SCALED_SUM, 1, 1, &in, &x, 1), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_reduce_local(99, COMMRT_SUM, 1, 1, &in, &x, 1), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_reduce_local(COMMRT_I8, COMMRT_SUM, 1, 0, &in, &x, 1), COMMRT_ERR_INVALID);
}

TEST(Reduce, BlocksDoNotShow) {
  constexpr int64_t n = 5000; // several blocks and a rest
  std::vector<float> a(n), b(n), out(n);
  for (int64_t i = 0; i < n; ++i) {
    a[i] = float(i) * 0.37f;
    b[i] = 1.f / float(i + 1);
  }
  const void *ins[] = {a.data(), b.data()};
  ASSERT_EQ(commrt_reduce_local(COMMRT_F32, COMMRT_SUM, 1, 2, ins, out.data(), n), COMMRT_OK);
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(out[i], a[i] + b[i]);
}
} // namespace

//===- XlaEstimatesTest.cpp - XLA's own estimates, and schedules that heed them ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Graph/XlaEstimates.h"
#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "HloTestSupport.h"
#include "ModuleBuilder.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

/// A configuration as XLA writes it, with the times of two estimators, us.
std::string estimate(StringRef time) {
  std::string bytes;
  writeBytes(instruction_field::kBackendConfig,
             (R"({"reification_cost":[{"exec_time_us":7,"name":""},{"exec_time_us":)" + time +
              R"(,"name":"sol"}],"device_type":"X"})")
                 .str(),
             bytes);
  return bytes;
}

std::string element(int64_t index) {
  std::string bytes;
  writeInteger(instruction_field::kTupleIndex, index, bytes);
  return bytes;
}

constexpr int64_t kSide = 4096;
/// A weight on eight devices, and a part of it. 32 MiB and 4 MiB.
const std::string kWhole = bf16({kSide, kSide}), kPart = bf16({kSide / 8, kSide});

/// A weight that is gathered alone, two that XLA gathers at once, and three kernels in a row that read one each. By
/// XLA's own estimates, the gathers take `one` and `two` us.
std::string gathers(StringRef one, StringRef two) {
  const std::string parts = tuple({kPart, kPart}), wholes = tuple({kWhole, kWhole});
  ModuleBuilder builder;
  builder.begin("main");
  int64_t x = builder.parameter("x", kWhole, 0), a = builder.parameter("a", kPart, 1),
          b = builder.parameter("b", kPart, 2), c = builder.parameter("c", kPart, 3);
  const std::string ranks = group({0, 1, 2, 3, 4, 5, 6, 7}) + dimensions({0});
  int64_t alone = builder.add("alone", "all-gather-start", tuple({kPart, kWhole}), {c}, ranks + estimate(one));
  int64_t start = builder.add("gather", "all-gather-start", tuple({parts, wholes}), {a, b}, ranks + estimate(two));
  int64_t weight = builder.add("weight", "all-gather-done", kWhole, {alone});
  int64_t w = builder.add("w", "add", kWhole, {x, weight}, estimate("1.5"));
  int64_t done = builder.add("gathered", "all-gather-done", wholes, {start}, "");
  int64_t first = builder.add("first", "get-tuple-element", kWhole, {done}, element(0)),
          second = builder.add("second", "get-tuple-element", kWhole, {done}, element(1));
  int64_t y = builder.add("y", "add", kWhole, {w, first}, estimate("1.5"));
  builder.add("z", "add", kWhole, {y, second}, estimate("1.5"));
  return builder.serialize();
}

TransformResult transform(StringRef module, StringRef settings) {
  return transformModule(module, cantFail(parseTransformOptions(settings)));
}

int64_t timeIn(const TransformResult &result, StringRef times, StringRef when) {
  const json::Object *found = result.report.getObject(times);
  return found ? found->getInteger(when).value_or(-1) : -1;
}

} // namespace

// Tests that times are read from the estimator that XLA's scheduler asks, and that those of collectives which XLA did
// not have are read off the others: between two sizes, below the smallest and above the largest one.
TEST(XlaEstimates, ReadsAndInterpolates) {
  ModuleBuilder builder;
  builder.begin("main");
  int64_t x = builder.parameter("x", f32({1000}), 0), wide = builder.parameter("w", f32({3000}), 1);
  std::string two = group({0, 1});
  // 4,000 bytes in 10 us, and 12,000 in 20 us: 600 bytes per us.
  int64_t small = builder.add("small", "all-reduce-start", f32({1000}), {x}, two + estimate("10"));
  int64_t smallDone = builder.add("small-done", "all-reduce-done", f32({1000}), {small});
  int64_t large = builder.add("large", "all-reduce-start", f32({3000}), {wide}, two + estimate("20"));
  builder.add("large-done", "all-reduce-done", f32({3000}), {large});
  builder.add("kernel", "negate", f32({1000}), {smallDone}, estimate("0.25"));
  std::string bytes = builder.serialize();
  HloModule module = cantFail(readModule(bytes));
  XlaEstimates estimates = cantFail(XlaEstimates::readFrom(module, h100()));
  ASSERT_FALSE(estimates.empty());
  EXPECT_EQ(estimates.ofKernel("kernel"), 250);
  EXPECT_EQ(estimates.ofKernel("small-done"), std::nullopt);
  auto ofSize = [&](Bytes size) { return estimates.ofCollective("", CollectiveKind::AllReduce, {2, 1, 2}, size); };
  EXPECT_EQ(estimates.ofCollective("small", CollectiveKind::AllReduce, {2, 1, 2}, 4000), 10'000);
  EXPECT_EQ(ofSize(8000), 15'000);
  EXPECT_EQ(ofSize(0), 10'000);
  EXPECT_EQ(ofSize(2000), 10'000);
  EXPECT_EQ(ofSize(18'000), 30'000);
  // The size of "small" in another collective of that name, another kind, and other ranks.
  EXPECT_EQ(estimates.ofCollective("small", CollectiveKind::AllReduce, {2, 1, 2}, 12'000), 20'000);
  EXPECT_EQ(estimates.ofCollective("", CollectiveKind::AllGather, {2, 1, 2}, 4000), std::nullopt);
  EXPECT_EQ(estimates.ofCollective("", CollectiveKind::AllReduce, {4, 1, 4}, 4000), std::nullopt);
}

// Tests that configurations without times, and times that are none, count as unknown.
TEST(XlaEstimates, WrongTimes) {
  for (StringRef time : {"-1", "1e300", "\"4\"", "4,"}) {
    std::string bytes = gathers(time, time);
    HloModule module = cantFail(readModule(bytes));
    EXPECT_TRUE(cantFail(XlaEstimates::readFrom(module, h100())).empty()) << time.str();
  }
  EXPECT_EQ(withoutEstimates(R"({"a":1,"reification_cost":[{"name":"sol"}],"b":[2]})"),
            R"({"a":1,"reification_cost":[],"b":[2]})");
  EXPECT_EQ(withoutEstimates(R"({"reification_cost":[{"name":)"), R"({"reification_cost":[{"name":)");
  EXPECT_EQ(withoutEstimates("{}"), "{}");
}

// Tests that gathers are taken apart where both costs agree that it helps, and that they are not where a gather of one
// weight takes as long as one of two by XLA's, unless only the model is asked.
TEST(XlaEstimates, AreHeeded) {
  const std::string alike = gathers("75", "150"), unlike = gathers("1000", "1000");
  TransformResult agreed = transform(alike, "{}"), mended = transform(unlike, "{}"),
                  byModel = transform(unlike, R"({"objective": "makespan"})");
  for (const TransformResult *result : {&agreed, &byModel}) {
    EXPECT_EQ(result->report.getInteger("taken_apart"), 1);
    EXPECT_LT(timeIn(*result, "makespan_ns", "after"), timeIn(*result, "makespan_ns", "before"));
  }
  EXPECT_LT(timeIn(agreed, "makespan_by_xla_ns", "after"), timeIn(agreed, "makespan_by_xla_ns", "before"));
  EXPECT_EQ(byModel.report.get("makespan_by_xla_ns"), nullptr);
  // One gather after the other, 2 x 1,000 us, and two kernels behind the last one.
  EXPECT_EQ(timeIn(mended, "makespan_by_xla_ns", "before"), 2'003'000);
  EXPECT_EQ(timeIn(mended, "makespan_by_xla_ns", "after"), 2'003'000);
  EXPECT_EQ(mended.report.getString("kept_because"),
            "every faster order that was found is slower than the given one by "
            "XLA's costs");
  // A module that has to need less memory than XLA's order is not compared with it.
  EXPECT_EQ(transform(unlike, R"({"memory_budget_ratio": -0.01})").report.get("makespan_by_xla_ns"), nullptr);
}

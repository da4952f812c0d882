//===- VariantCostsTest.cpp - Tests of the ways to carry out a collective in profiles ---------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/CostModel.h"
#include "gtest/gtest.h"

using namespace commsched;
using Kind = CollectiveKind;

namespace {

constexpr GroupShape kVariantGroup{4, 1, 4};

std::string profile(const std::string &more) {
  return R"({"schema_version": 1, "name": "plain", "node": {"ranks": 4},
    "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100},
    "compute": {"peak_tflops": {"f32": 1}},
    "copy": {"launch_ns": 3, "bandwidth_gbps": 50},
    "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}})" +
         more + "}";
}

std::string variantErrorOf(const std::string &variants, const std::string &more = "") {
  llvm::Expected<MachineModel> machine = MachineModel::parse(profile(", \"variants\": " + variants + more), "x.json");
  return machine ? "no error" : llvm::toString(machine.takeError());
}

// Tests that names and texts are inverses, and that nothing else is a name.
TEST(VariantName, Texts) {
  for (VariantName name : {VariantName{VariantName::Ring, 1},
                           {VariantName::Ring, 64},
                           {VariantName::CopyEngine, 0},
                           {VariantName::Symmetric, 0},
                           {VariantName::Symmetric, 12}}) {
    EXPECT_TRUE(name.isValid());
    EXPECT_EQ(VariantName::parse(name.text()), name) << name.text();
  }
  for (llvm::StringRef text : {"", "ring", "ring-", "ring-0", "ring-65", "ring-08", "ring--8", "ring-8 ", "Ring-8",
                               "copy-engine-1", "copy_engine", "symmetric-", "symmetric-0", "tree-8"})
    EXPECT_EQ(VariantName::parse(text), std::nullopt) << text.str();
}

// Tests that each wrong field is an error that names it.
TEST(VariantCosts, Errors) {
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "ring", "ctas": 8}])"), "no error");
  EXPECT_EQ(variantErrorOf(R"({})"), "machine 'x.json': field 'variants': expected an array");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "gossip", "means": "ring", "ctas": 8}])"),
            "machine 'x.json': field 'variants[0].kind': expected a kind of collective, such as all_gather");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "tree"}])"),
            "machine 'x.json': field 'variants[0].means': expected one of ring, copy_engine, symmetric");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_reduce", "means": "copy_engine"}])"),
            "machine 'x.json': field 'variants[0].means': copy engines cannot reduce, so they carry out no all_reduce");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "ring"}])"),
            "machine 'x.json': field 'variants[0].ctas': expected 1 to 64, got 0");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "ring", "ctas": 65}])"),
            "machine 'x.json': field 'variants[0].ctas': expected 1 to 64, got 65");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "copy_engine", "ctas": 1}])"),
            "machine 'x.json': field 'variants[0].ctas': expected none, since copy engines take no thread blocks");
  EXPECT_EQ(
      variantErrorOf(R"([{"kind": "all_gather", "means": "ring", "ctas": 8}, {"kind": "all_gather", "means": "ring",
                         "ctas": 8}])"),
      "machine 'x.json': field 'variants[1].means': there is another variant ring-8 of all_gather");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "symmetric", "time_permille": 0}])"),
            "machine 'x.json': field 'variants[0].time_permille': expected an integer of at least 1");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "symmetric", "time_permille": 1000001}])"),
            "machine 'x.json': field 'variants[0].time_permille': expected at most 1000000, got 1000001");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "symmetric", "speed": 2}])"),
            "machine 'x.json': field 'variants[0].speed': unknown field");
  EXPECT_EQ(
      variantErrorOf(R"([{"kind": "all_gather", "means": "symmetric", "curves": [{"kind": "all_gather", "ranks": 4,
                         "nodes": 1, "points": [{"bytes": 1, "ns": 1}]}]}])"),
      "machine 'x.json': field 'variants[0].curves[0].kind': unknown field");
  EXPECT_EQ(variantErrorOf(R"([{"kind": "all_gather", "means": "symmetric", "curves": [{"ranks": 4, "nodes": 1}]}])"),
            "machine 'x.json': field 'variants[0].curves[0].points': expected at least one point");
  std::string contends = R"([{"kind": "all_gather", "means": "symmetric",
                              "contention": [{"bytes": 1, "against": "matrix", "compute_permille": 5}]}])";
  EXPECT_EQ(variantErrorOf(contends),
            "machine 'x.json': field 'variants[0].contention': expected a profile with contention or resources");
  EXPECT_EQ(variantErrorOf(contends, R"(, "resources": {"compute_units": 10})"), "no error");
}

// Tests that a profile with variants prints and reads back as the same profile.
TEST(VariantCosts, RoundTrip) {
  MachineModel machine = llvm::cantFail(MachineModel::parse(profile(
      R"(, "variants": [{"kind": "all_gather", "means": "ring", "ctas": 8, "time_permille": 1200, "latency_ns": 7,
          "source": "measured"}])")));
  MachineModel again = llvm::cantFail(MachineModel::parse(machine.toJSON()));
  EXPECT_EQ(again.toJSON(), machine.toJSON());
  ASSERT_EQ(again.variants.size(), 1u);
  EXPECT_EQ(again.variants[0].name, (VariantName{VariantName::Ring, 8}));
  EXPECT_EQ(again.variants[0].timePermille, 1200);
  EXPECT_EQ(again.variants[0].latency, 7);
}

// Tests times by hand: 4000 bytes over 4 ranks take 100 + 2 x 5 + 3000 / 10 = 410 ns as a rule. A factor rounds up and
// adds its latency. A curve of its own replaces both, and its kind's curve does not.
TEST(VariantCosts, Curves) {
  CostModel model(llvm::cantFail(MachineModel::parse(profile(R"(, "variants": [
    {"kind": "all_gather", "means": "ring", "ctas": 2, "time_permille": 1333, "latency_ns": 7},
    {"kind": "all_gather", "means": "copy_engine", "time_permille": 9000,
     "curves": [{"ranks": 4, "nodes": 1, "points": [{"bytes": 4000, "ns": 600, "lo_ns": 500, "hi_ns": 700}]}]},
    {"kind": "reduce_scatter", "means": "ring", "ctas": 2}])"))));
  EXPECT_EQ(model.costOfCollective(Kind::AllGather, 4000, kVariantGroup, ElementType::F32), 410);
  const CollectiveVariant *ring = model.findVariant(Kind::AllGather, {VariantName::Ring, 2});
  const CollectiveVariant *engines = model.findVariant(Kind::AllGather, {VariantName::CopyEngine, 0});
  ASSERT_TRUE(ring && engines);
  EXPECT_EQ(model.findVariant(Kind::AllGather, {VariantName::Ring, 3}), nullptr);
  EXPECT_EQ(model.findVariant(Kind::AllReduce, {VariantName::Ring, 2}), nullptr);
  EXPECT_EQ(model.curve(*ring, kVariantGroup, ElementType::F32)(4000), 547 + 7);
  EXPECT_EQ(model.curve(*engines, kVariantGroup, ElementType::F32)(4000), 600);
  CostEstimate estimate = model.curve(*engines, kVariantGroup, ElementType::F32).estimate(4000);
  EXPECT_EQ(estimate.lo, 500);
  EXPECT_EQ(estimate.hi, 700);
  EXPECT_EQ(estimate.origin, CostOrigin::Measured);
  // A group of one rank needs nothing, and more bytes never cost less.
  EXPECT_EQ(model.curve(*ring, {1, 1, 1}, ElementType::F32)(4000), 0);
  Ns before = 0;
  for (Bytes bytes = 0; bytes < 100000; bytes += 777) {
    EXPECT_GE(model.curve(*ring, kVariantGroup, ElementType::F32)(bytes), before);
    before = model.curve(*ring, kVariantGroup, ElementType::F32)(bytes);
  }
}

// Tests demands by hand: as on as many thread blocks, of copy engines none, and measured entries before both.
TEST(VariantCosts, Demands) {
  MachineModel machine = llvm::cantFail(MachineModel::parse(profile(R"(,
    "resources": {"compute_units": 10, "ctas": 4, "traffic_permille": 2000}, "variants": [
    {"kind": "all_gather", "means": "ring", "ctas": 1},
    {"kind": "all_gather", "means": "copy_engine"},
    {"kind": "all_gather", "means": "symmetric",
     "contention": [{"bytes": 4000, "against": "matrix", "compute_permille": 1000}]}])")));
  ContentionModel model(machine);
  EXPECT_EQ(model.ofCollective(Kind::AllGather, 4000, kVariantGroup, 1000).share,
            (Shares{400'000, 60'000, 300'000, 0, 0}));
  EXPECT_EQ(model.ofVariant(machine.variants[0], 4000, kVariantGroup, 1000).share,
            (Shares{100'000, 60'000, 300'000, 0, 0}));
  EXPECT_EQ(model.ofVariant(machine.variants[1], 4000, kVariantGroup, 1000).share,
            (Shares{0, 60'000, 300'000, 0, 1'000'000}));
  EXPECT_EQ(model.ofVariant(machine.variants[2], 4000, kVariantGroup, 1000).share,
            (Shares{500'000, 60'000, 300'000, 0, 0}));
  EXPECT_FALSE(model.ofVariant(machine.variants[0], 4000, {1, 1, 1}, 1000).any());
  // Without resources copy engines still use memory: 2.5 bytes for every one that is sent.
  MachineModel measured = llvm::cantFail(MachineModel::parse(profile(R"(,
    "contention": [{"kind": "all_gather", "bytes": 1, "against": "matrix", "compute_permille": 100}],
    "variants": [{"kind": "all_gather", "means": "copy_engine"}])")));
  EXPECT_EQ(ContentionModel(measured).ofVariant(measured.variants[0], 4000, kVariantGroup, 1000).share,
            (Shares{0, 75'000, 0, 0, 1'000'000}));
}

} // namespace

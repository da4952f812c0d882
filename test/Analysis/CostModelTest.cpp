//===- CostModelTest.cpp - Tests of collective, copy and kernel costs -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/CostModel.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>

using namespace commsched;
using Kind = CollectiveKind;
using E = ElementType;

namespace {

constexpr Bytes kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kPetabyte = 1'000'000'000'000'000;
constexpr GroupShape kOneNode{8, 1, 8}, kTwoNodes{16, 2, 8}, kEightNodes{64, 8, 8};

CostModel model(const char *name) { return CostModel(llvm::cantFail(MachineModel::load(name))); }

/// A machine with round numbers, and room for tables: 1 ns per 10 bytes on links, 1 ns per 100 bytes in memory.
MachineModel plain(llvm::StringRef tables = "") {
  std::string text = R"({"schema_version": 1, "name": "plain", "node": {"ranks": 4},
    "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100},
    "compute": {"peak_tflops": {"f32": 1, "bf16": 2}, "vector_tflops": {"f32": 0.5}, "launch_ns": 7},
    "copy": {"launch_ns": 3, "bandwidth_gbps": 50},
    "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5, "message_ns": 1},
              "inter": {"bandwidth_gbps": 1, "latency_ns": 50, "message_ns": 10}})";
  return llvm::cantFail(MachineModel::parse(text + tables.str() + "}"));
}

//===-----------------------------------------------------------------------------------------===//
// Group shapes
//===-----------------------------------------------------------------------------------------===//

TEST(GroupShape, RanksAreNodeMajor) {
  EXPECT_EQ(shapeOfRanks({0, 1, 2, 3}, 8), (GroupShape{4, 1, 4}));
  EXPECT_EQ(shapeOfRanks({0, 8, 16, 24}, 8), (GroupShape{4, 4, 1}));
  EXPECT_EQ(shapeOfRanks({6, 7, 8}, 8), (GroupShape{3, 2, 2}));
  EXPECT_EQ(shapeOfRanks({9, 1, 8, 0}, 8), (GroupShape{4, 2, 2}));
  EXPECT_EQ(shapeOfRanks({5}, 8), (GroupShape{1, 1, 1}));
}

//===-----------------------------------------------------------------------------------------===//
// NCCL's model: golden values
//===-----------------------------------------------------------------------------------------===//

/// The cost of one candidate.
Ns lineAt(const CollectiveCurve &curve, llvm::StringRef name, Bytes bytes) {
  for (const CostLine &line : curve.candidates())
    if (line.name == name)
      return line(bytes);
  ADD_FAILURE() << "no candidate " << name.str();
  return -1;
}

TEST(NcclModel, AllReduceInAnH100Node) {
  CostModel h100 = model("h100-sxm");
  auto curve = h100.curve(Kind::AllReduce, kOneNode, E::BF16);
  EXPECT_EQ(curve->source(), CostSource::Nccl);
  // Ring/LL: base 6.6 + 14 steps x 0.6 = 15.0 us; bus min(12 x 30 / 2, 141) = 141, algorithm 141 x 8/14 = 80.571429
  // GB/s; 1024 B / 80.571429 = 12.709 ns: 15013.
  EXPECT_EQ(lineAt(*curve, "Ring/LL", kKiB), 15013);
  EXPECT_EQ((*curve)(kKiB), 15013);
  // Tree/LL: 6.8 + 2 x 7 x 0.6 = 15.2 us; bus min(0.92 x 360, 12 x 38.7) = 331.2, LL min(331.2/3.8, 141) = 87.157895,
  // half of it x 0.9 (1 KiB is entry 4 of the correction) = 39.221053 GB/s; 1024 B: 26.1 ns.
  EXPECT_EQ(lineAt(*curve, "Tree/LL", kKiB), 15226);
  // Ring/LL128: 14 + 14 x 1.9 = 40.6 us; bus min(0.92 x 360, 12 x 36.7) = 331.2, x 8/14 = 189.257143 GB/s; 4 MiB:
  // 22161.96 ns.
  EXPECT_EQ(lineAt(*curve, "Ring/LL128", 4 * kMiB), 62762);
  // Ring/Simple: 8.4 + 14 x 3.4 = 56 us; 360 x 8/14 = 205.714286 GB/s; 1 GiB: 5219578.3 ns.
  EXPECT_EQ(lineAt(*curve, "Ring/Simple", kGiB), 5275578);
  // NVLS: 25 us; per channel 20 x 0.85 x 15/16 x 2 = 31.875, 16 channels = 510, x 8/14 = 291.428571 GB/s; 1 GiB:
  // 3684408.2 ns.
  EXPECT_EQ(lineAt(*curve, "NVLS/Simple", kGiB), 3709408);
  EXPECT_EQ((*curve)(kGiB), 3709408);
  EXPECT_EQ(curve->nameAt(kGiB), "NVLS/Simple");
}

TEST(NcclModel, AllGatherAcrossH100Nodes) {
  CostModel h100 = model("h100-sxm");
  auto curve = h100.curve(Kind::AllGather, kEightNodes, E::BF16);
  // 64 ranks on 8 nodes: 63 steps, 7 of them between nodes. 8 rails of 48 GB/s: min(48, 360 / 8 = 45) = 45 each; more
  // than four channels below 50 GB/s are not doubled. Bus 8 x 45 = 360.
  // Ring/Simple: 8.4 + 56 x max(3.4, 3 x 1.0) + 7 x 14 = 296.8 us; 360 x 64/63 = 365.714286 GB/s; 1 GiB: 2936012.8.
  EXPECT_EQ(lineAt(*curve, "Ring/Simple", kGiB), 3232813);
  // Ring/LL: 6.6 + 56 x max(0.6, 1.0) + 7 x 2.7 = 81.5 us; bus min(180, 20.4) = 20.4, x 64/63 = 20.723810; 64 KiB:
  // 3162.3 ns.
  EXPECT_EQ(lineAt(*curve, "Ring/LL", 64 * kKiB), 84662);
  // Ring/LL128: 14 + 56 x 1.9 + 7 x 4 = 148.4 us; bus min(331.2, 8 x 36.7 = 293.6), x 64/63 = 298.260317; 64 MiB:
  // 225001.0 ns.
  EXPECT_EQ(lineAt(*curve, "Ring/LL128", 64 * kMiB), 373401);
}

TEST(NcclModel, GroupsPayTheLatencyOfWhatSharesAChannel) {
  CostModel h100 = model("h100-sxm");
  // 8 channels (the rails). Ring/Simple takes 296.8 us, and 1 GiB 2936012.8 ns more.
  auto curve = h100.curve(Kind::AllGather, kEightNodes, E::BF16);
  EXPECT_EQ((*curve)(kGiB, 1), 3232813);
  // Two to eight collectives: one ends on a channel where another begins. 17: ceil(17 / 8) = 3 in turn, and one more.
  EXPECT_EQ((*curve)(kGiB, 2), 2 * 296800 + 2936013);
  EXPECT_EQ((*curve)(kGiB, 8), 2 * 296800 + 2936013);
  EXPECT_EQ((*curve)(kGiB, 17), 4 * 296800 + 2936013);
  // NVLS works off ten in a batch: 25 us once up to 9 x 12 collectives.
  auto reduce = h100.curve(Kind::AllReduce, kOneNode, E::BF16);
  EXPECT_EQ((*reduce)(kGiB, 108), 3709408);
  EXPECT_EQ((*reduce)(kGiB, 109), 3709408 + 25000);
}

TEST(NcclModel, GroupsAreMonotoneAndNoBetterThanOneCollective) {
  for (const char *profile : {"h100-sxm", "cpu-mpi"})
    for (Kind kind : {Kind::AllGather, Kind::ReduceScatter, Kind::AllReduce})
      for (GroupShape shape : {kOneNode, kTwoNodes, kEightNodes}) {
        auto curve = model(profile).curve(kind, shape, E::BF16);
        for (int64_t parts : {2, 5, 40, 1000}) {
          Ns before = 0;
          for (Bytes bytes = 1; bytes <= kGiB; bytes += 1 + bytes / 5) {
            Ns group = (*curve)(bytes, parts);
            ASSERT_GE(group, before);
            ASSERT_GE(group, (*curve)(bytes));
            ASSERT_GE(group, (*curve)(bytes, parts - 1));
            before = group;
          }
        }
      }
}

TEST(MeasuredCurve, GroupsAddTheLatencyOfTheSmallestSize) {
  MachineModel machine;
  CollectiveTable table;
  table.kind = Kind::AllGather;
  table.ranks = 4;
  table.nodes = 1;
  table.points = {{8, 30}, {1000, 70}};
  machine.collectives.push_back(table);
  CollectiveCurve curve = CollectiveCurve::get(machine, Kind::AllGather, {4, 1, 4}, E::F32);
  // Nothing tells of channels: one after the other.
  EXPECT_EQ(curve(1000), 70);
  EXPECT_EQ(curve(1000, 3), 70 + 2 * 30);
}

TEST(NcclModel, AllReduceAcrossTwoH100Nodes) {
  CostModel h100 = model("h100-sxm");
  auto curve = h100.curve(Kind::AllReduce, kTwoNodes, E::BF16);
  // NVLSTree: 25 + 2 x log2(2) x 20.9 = 66.8 us; per channel min(40 x 0.85 x 7/8 x 2 = 59.5, 48 x 2, 57.7) = 57.7, x 8
  // = 461.6, x 16/30 = 246.186667 GB/s; 1 GiB: 4361494.8 ns.
  EXPECT_EQ(lineAt(*curve, "NVLSTree/Simple", kGiB), 4428295);
  // Ring/Simple: 30 steps, 2 between nodes: 8.4 + 28 x 3.4 + 2 x 14 = 131.6 us, x 1.4 from 64 x 8 x 16 = 8192 B on =
  // 184.24 us; 8 x 45 x 16/30 = 192 GB/s. At 8191 B: 42.66 ns. At 8192 B: 42.67 ns.
  EXPECT_EQ(lineAt(*curve, "Ring/Simple", 8191), 131643);
  EXPECT_EQ(lineAt(*curve, "Ring/Simple", 8192), 184283);
  // Tree/LL128 at 1 MiB: 14 + 2 x (7 x 1.25 + 8.5) = 48.5 us; bus min(0.92 x 360, 8 x 41.4) = 331.2, LL128
  // min(331.2 x 120/128, 8 x 36.7) = 293.6, half 146.8; entry 14 is 0.6: 88.08 GB/s; 11904.8 ns.
  EXPECT_EQ(lineAt(*curve, "Tree/LL128", kMiB), 60405);
}

TEST(NcclModel, OneRankPerNode) {
  CostModel h100 = model("h100-sxm");
  auto curve = h100.curve(Kind::ReduceScatter, {8, 8, 1}, E::BF16);
  // One rail of 48 GB/s, doubled to 2 x 24. PAT: 8 + log2(8) x 14 / 3.5 + 2.8 x 8 = 42.4 us; 48 x 0.75 = 36 GB/s; 1
  // MiB: 29127.1 ns.
  EXPECT_EQ(lineAt(*curve, "PAT/Simple", kMiB), 71527);
  // Ring/Simple: all 7 steps cross, at a tree's 14 us: 8.4 + 98 = 106.4 us; 48 x 8/7 = 54.857143 GB/s; 1 MiB: 19114.7.
  EXPECT_EQ(lineAt(*curve, "Ring/Simple", kMiB), 125515);
}

TEST(NcclModel, A100AndB200Nodes) {
  // A100, Ring/LL128: 14 + 14 x 1.9 = 40.6; min(0.92 x 240, 12 x 20) = 220.8, x 8/14 = 126.171429; 4 MiB: 33242.9.
  EXPECT_EQ(lineAt(*model("a100-sxm").curve(Kind::AllReduce, kOneNode, E::BF16), "Ring/LL128", 4 * kMiB), 73843);
  // B200, NVLS: 40 x 0.74 x 15/16 x 2 x 16 = 888, x 8/14 = 507.428571; 25 us + 1 GiB: 2116045.4 ns.
  EXPECT_EQ(lineAt(*model("b200-sxm").curve(Kind::AllReduce, kOneNode, E::BF16), "NVLS/Simple", kGiB), 2141045);
}

TEST(NcclModel, BroadcastFollowsRings) {
  auto curve = model("h100-sxm").curve(Kind::Broadcast, kOneNode, E::BF16);
  // 8.4 + 3.4 us; bus 360 x 8/8; 1 MiB: 2912.7 ns.
  EXPECT_EQ(lineAt(*curve, "Ring/Simple", kMiB), 14713);
}

TEST(NcclModel, EightBitFloatsReduceLosslesslyAboveEightRanks) {
  CostModel h100 = model("h100-sxm");
  auto curve = h100.curve(Kind::AllReduce, kTwoNodes, E::F8);
  for (const CostLine &line : curve->candidates())
    EXPECT_FALSE(line.name.starts_with("Ring")) << line.name.str();
  EXPECT_EQ(h100.curve(Kind::AllGather, kTwoNodes, E::F8)->nameAt(kGiB), "Ring/Simple");
}

//===-----------------------------------------------------------------------------------------===//
// Measured tables
//===-----------------------------------------------------------------------------------------===//

constexpr const char *kTables = R"(, "collectives": [
  {"kind": "all_reduce", "ranks": 4, "nodes": 1, "points": [
     {"bytes": 1000, "ns": 100}, {"bytes": 4000, "ns": 200}, {"bytes": 16000, "ns": 800}]},
  {"kind": "all_reduce", "ranks": 4, "nodes": 1, "element": "bf16", "points": [{"bytes": 1000, "ns": 77}]},
  {"kind": "all_reduce", "group": "tp", "points": [{"bytes": 1000, "ns": 55}, {"bytes": 2000, "ns": 55}]}])";

TEST(MeasuredCurve, InterpolatesInLogLog) {
  CostModel costs(plain(kTables));
  auto curve = costs.curve(Kind::AllReduce, {4, 1, 4}, E::F32);
  EXPECT_EQ(curve->source(), CostSource::Measured);
  EXPECT_EQ((*curve)(0), 100);
  EXPECT_EQ((*curve)(1000), 100);
  // Half way in log bytes is half way in log time: sqrt(100 x 200) = 141.4.
  EXPECT_EQ((*curve)(2000), 141);
  EXPECT_EQ((*curve)(4000), 200);
  EXPECT_EQ((*curve)(8000), 400);
  EXPECT_EQ((*curve)(16000), 800);
  // Beyond: (800 - 200) / (16000 - 4000) = 1/20 ns per byte.
  EXPECT_EQ((*curve)(36000), 1800);
}

TEST(MeasuredCurve, MatchesTheGroupBeforeTheShapeAndTheTypeBeforeAny) {
  CostModel costs(plain(kTables));
  EXPECT_EQ(costs.costOfCollective(Kind::AllReduce, 1000, {4, 1, 4}, E::BF16), 77);
  EXPECT_EQ(costs.costOfCollective(Kind::AllReduce, 1000, {4, 1, 4}, E::BF16, "tp"), 55);
  EXPECT_EQ(costs.costOfCollective(Kind::AllReduce, 1000, {4, 1, 4}, E::F32, "dp"), 100);
  // Another shape on the same links is scaled; other links and other kinds are not measured.
  EXPECT_EQ(costs.curve(Kind::AllReduce, {8, 1, 8}, E::F32)->source(), CostSource::Scaled);
  EXPECT_EQ(costs.curve(Kind::AllReduce, {8, 2, 4}, E::F32)->source(), CostSource::AlphaBeta);
  EXPECT_EQ(costs.curve(Kind::AllGather, {4, 1, 4}, E::F32)->source(), CostSource::AlphaBeta);
  // One point, or one time: proportional beyond.
  EXPECT_EQ(costs.costOfCollective(Kind::AllReduce, 3000, {4, 1, 4}, E::BF16), 231);
  EXPECT_EQ(costs.costOfCollective(Kind::AllReduce, 4000, {4, 1, 4}, E::BF16, "tp"), 110);
}

TEST(MeasuredCurve, TimesAreMadeMonotone) {
  std::vector<MeasuredPoint> points = {{1, 10}, {2, 30}, {3, 20}, {4, 40}, {5, 10}, {6, 100}};
  makeMonotone(points);
  // 30, 20, 40, 10 are one pool: 100 / 4.
  std::vector<Ns> times;
  for (const MeasuredPoint &point : points)
    times.push_back(point.ns);
  EXPECT_EQ(times, (std::vector<Ns>{10, 25, 25, 25, 25, 100}));
}

TEST(MeasuredCurve, InterpolationIsMonotoneAndCloseToFloatingPoint) {
  CostModel costs(plain(kTables));
  auto curve = costs.curve(Kind::AllReduce, {4, 1, 4}, E::F32);
  Ns before = 0;
  for (Bytes bytes = 1000; bytes <= 16000; ++bytes) {
    Ns now = (*curve)(bytes);
    EXPECT_GE(now, before) << bytes;
    double low = bytes < 4000 ? 100 * std::pow(bytes / 1000.0, 0.5) : 200 * (bytes / 4000.0);
    EXPECT_NEAR(static_cast<double>(now), low, 0.51) << bytes;
    before = now;
  }
}

//===-----------------------------------------------------------------------------------------===//
// Error bars and scaling
//===-----------------------------------------------------------------------------------------===//

constexpr const char *kBars = R"(, "collectives": [
  {"kind": "all_reduce", "ranks": 4, "nodes": 1, "element": "f32", "flags": ["skew"], "points": [
     {"bytes": 1000, "ns": 100, "lo_ns": 90, "hi_ns": 121, "n": 20},
     {"bytes": 4000, "ns": 200, "lo_ns": 160, "hi_ns": 225, "n": 30},
     {"bytes": 16000, "ns": 800, "lo_ns": 790, "hi_ns": 820, "n": 10}]}])";

void expectEstimate(const CostEstimate &got, Ns lo, Ns ns, Ns hi, CostOrigin origin, int64_t samples) {
  EXPECT_EQ(got.lo, lo);
  EXPECT_EQ(got.ns, ns);
  EXPECT_EQ(got.hi, hi);
  EXPECT_EQ(stringify(got.origin), stringify(origin));
  EXPECT_EQ(got.samples, samples);
}

// Error bars come through at the points, between them (both ends are interpolated as the value is), and outside of
// them.
TEST(ErrorBars, ByHand) {
  CostModel costs(plain(kBars));
  auto curve = costs.curve(Kind::AllReduce, {4, 1, 4}, E::F32);
  expectEstimate(curve->estimate(1000), 90, 100, 121, CostOrigin::Measured, 20);
  // Half way: sqrt(90 x 160) = 120, sqrt(100 x 200) = 141.4, sqrt(121 x 225) = 165.
  expectEstimate(curve->estimate(2000), 120, 141, 165, CostOrigin::Measured, 20);
  expectEstimate(curve->estimate(16000), 790, 800, 820, CostOrigin::Measured, 10);
  expectEstimate(curve->estimate(10), 90, 100, 121, CostOrigin::Scaled, 20);
  // Beyond, over 12000 bytes: the flattest line through the bars rises from 225 to 790, the steepest from 160 to 820.
  expectEstimate(curve->estimate(28000), 790 + 565, 800 + 600, 820 + 660, CostOrigin::Scaled, 10);
  EXPECT_EQ(curve->estimate(2000).flags, std::vector<std::string>{"skew"});
  // A group of collectives pays the latency of no bytes again.
  expectEstimate(curve->estimate(1000, 2), 180, 200, 242, CostOrigin::Measured, 20);
  expectEstimate(costs.curve(Kind::Broadcast, {4, 1, 4}, E::F32)->estimate(1000), 210, 210, 210, CostOrigin::Analytic,
                 0);
}

// A model that answers with an end of the bars answers with what the estimate says.
TEST(ErrorBars, ScenariosAnswerWithTheEnds) {
  MachineModel machine = plain(std::string(kBars) + R"(, "ops": [{"name": "a", "ns": 5, "lo_ns": 4, "hi_ns": 7}])");
  CostModel values(machine), low(machine, {BarEnd::Low, BarEnd::High}), high(machine, {BarEnd::High, BarEnd::Low});
  EXPECT_EQ(values.measuredOp("a"), 5);
  EXPECT_EQ(low.measuredOp("a"), 7);
  EXPECT_EQ(high.measuredOp("a"), 4);
  for (GroupShape shape : {GroupShape{4, 1, 4}, GroupShape{8, 1, 8}, GroupShape{8, 2, 4}})
    for (Bytes bytes : {Bytes(0), Bytes(999), Bytes(1000), Bytes(1234), Bytes(5000), Bytes(16000), kMiB}) {
      CostEstimate estimate = values.curve(Kind::AllReduce, shape, E::F32)->estimate(bytes);
      EXPECT_EQ(values.costOfCollective(Kind::AllReduce, bytes, shape, E::F32), estimate.ns);
      EXPECT_EQ(low.costOfCollective(Kind::AllReduce, bytes, shape, E::F32), estimate.lo);
      EXPECT_EQ(high.costOfCollective(Kind::AllReduce, bytes, shape, E::F32), estimate.hi);
    }
}

// What was not measured is the nearest measurement times the ratio of the models. By hand, alpha-beta of an all-reduce
// is 100 + 20 + bytes x 3/20 on 4 ranks and 100 + 30 + bytes x 7/40 on 8.
TEST(Scaling, ByHand) {
  CostModel costs(plain(kBars));
  auto curve = costs.curve(Kind::AllReduce, {8, 1, 8}, E::F32);
  EXPECT_EQ(curve->source(), CostSource::Scaled);
  // At a point: 100 x (130 + 175) / (120 + 150) = 112.96.
  expectEstimate(curve->estimate(1000), 102, 113, 137, CostOrigin::Scaled, 20);
  // 800 x (130 + 2800) / (120 + 2400) = 930.2; beyond it, the model of 8 ranks times 930 / 2930.
  EXPECT_EQ((*curve)(16000), 930);
  EXPECT_EQ((*curve)(100000), 17630 * 930 / 2930);
  EXPECT_EQ((*curve)(0), 130 * 113 / 305);
  EXPECT_EQ(curve->nameAt(1000), "scaled");
  // Another element type on the same shape has the same alpha-beta model.
  EXPECT_EQ(costs.costOfCollective(Kind::AllReduce, 2000, {4, 1, 4}, E::BF16), 141);
  // Across nodes nothing was measured.
  EXPECT_EQ(costs.curve(Kind::AllReduce, {4, 2, 2}, E::F32)->source(), CostSource::AlphaBeta);
}

// The nearest number of ranks comes before the element type, and a group's own table before all others.
TEST(Scaling, TakesTheNearestTable) {
  CostModel costs(plain(R"(, "collectives": [
    {"kind": "all_reduce", "ranks": 2, "nodes": 1, "points": [{"bytes": 1000, "ns": 1000}]},
    {"kind": "all_reduce", "ranks": 16, "nodes": 1, "points": [{"bytes": 1000, "ns": 2000}]},
    {"kind": "all_reduce", "ranks": 64, "nodes": 8, "points": [{"bytes": 1000, "ns": 3000}]},
    {"kind": "all_reduce", "group": "tp", "element": "bf16", "points": [{"bytes": 1000, "ns": 4000}]}])"));
  auto cost = [&](GroupShape shape, const char *group = "") {
    return costs.costOfCollective(Kind::AllReduce, 1000, shape, E::F32, group);
  };
  // Models at 1000 bytes: 2 ranks 210, 4 ranks 270, 12 ranks 323, 16 ranks 328.
  EXPECT_EQ(cost({4, 1, 4}), (1000 * 270 + 105) / 210);
  EXPECT_EQ(cost({12, 1, 12}), (2000 * 323 + 164) / 328);
  EXPECT_EQ(costs.curve(Kind::AllReduce, {32, 4, 8}, E::F32)->source(), CostSource::Scaled);
  EXPECT_GT(cost({32, 4, 8}), 2500);
  EXPECT_EQ(cost({4, 1, 4}, "tp"), 4000);
}

// Whatever is measured, every end is monotone in bytes, the bar contains the value, and nothing is below 1 ns.
TEST(ErrorBars, RandomTablesGiveMonotoneBars) {
  std::mt19937_64 random(17);
  auto draw = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % (high - low + 1)); };
  MachineModel h100 = llvm::cantFail(MachineModel::load("h100-sxm"));
  for (int round = 0; round < 200; ++round) {
    MachineModel machine = round % 2 ? h100 : plain();
    CollectiveTable table;
    table.kind = Kind::AllReduce;
    table.ranks = 8;
    table.nodes = 1;
    Bytes bytes = draw(0, 100);
    for (int64_t count = draw(1, 8); count > 0; --count, bytes += draw(1, Bytes(1) << draw(1, 28))) {
      MeasuredPoint point;
      point.bytes = bytes;
      point.ns = draw(1, 1 << draw(1, 20));
      if (draw(0, 3)) {
        point.lo = draw(0, point.ns);
        point.hi = draw(point.ns, 3 * point.ns);
      }
      table.points.push_back(point);
    }
    machine.collectives.push_back(table);
    for (GroupShape shape : {GroupShape{8, 1, 8}, GroupShape{4, 1, 4}, GroupShape{6, 1, 6}}) {
      CollectiveCurve curve = CollectiveCurve::get(machine, Kind::AllReduce, shape, E::F32);
      CostEstimate before;
      for (Bytes size = 0; size < kPetabyte; size = size * 5 / 4 + 1) {
        CostEstimate now = curve.estimate(size);
        ASSERT_LE(now.lo, now.ns);
        ASSERT_LE(now.ns, now.hi);
        ASSERT_GE(now.lo, std::max<Ns>(1, before.lo)) << "round " << round << " bytes " << size;
        ASSERT_GE(now.ns, before.ns) << "round " << round << " bytes " << size;
        ASSERT_GE(now.hi, before.hi) << "round " << round << " bytes " << size;
        ASSERT_NE(now.origin, CostOrigin::Analytic);
        before = now;
      }
    }
  }
}

//===-----------------------------------------------------------------------------------------===//
// Alpha-beta
//===-----------------------------------------------------------------------------------------===//

TEST(AlphaBeta, ByHand) {
  CostModel costs(plain());
  // Inside a node: base 100, two levels of a tree of 4 at 5 ns; bytes x (4-1)/4 at 10 bytes per ns.
  EXPECT_EQ(costs.costOfCollective(Kind::AllGather, 4000, {4, 1, 4}, E::F32), 100 + 10 + 300);
  EXPECT_EQ(costs.costOfCollective(Kind::ReduceScatter, 4000, {4, 1, 4}, E::F32), 410);
  EXPECT_EQ(costs.costOfCollective(Kind::AllReduce, 4000, {4, 1, 4}, E::F32), 100 + 20 + 600);
  EXPECT_EQ(costs.costOfCollective(Kind::Broadcast, 4000, {4, 1, 4}, E::F32), 100 + 10 + 400);
  EXPECT_EQ(costs.costOfCollective(Kind::Send, 4000, {4, 1, 4}, E::F32), 100 + 5 + 400);
  EXPECT_EQ(costs.costOfCollective(Kind::Barrier, 0, {4, 1, 4}, E::F32), 100 + 20);
  // All-to-all: one hop of 5, three messages of 1; three quarters of the bytes leave.
  EXPECT_EQ(costs.costOfCollective(Kind::AllToAll, 4000, {4, 1, 4}, E::F32), 100 + 5 + 3 + 300);
  // Two nodes of two: one level of 5 and one of 50; the slower link is 1 byte per ns.
  EXPECT_EQ(costs.costOfCollective(Kind::AllGather, 4000, {4, 2, 2}, E::F32), 100 + 55 + 3000);
  // One hop of 50, one message inside, two across; half of the bytes leave the node.
  EXPECT_EQ(costs.costOfCollective(Kind::AllToAll, 4000, {4, 2, 2}, E::F32), 100 + 50 + 1 + 20 + 2000);
}

//===-----------------------------------------------------------------------------------------===//
// Kernels and copies
//===-----------------------------------------------------------------------------------------===//

TEST(Roofline, ByHand) {
  CostModel costs(
      plain(R"(, "ops": [{"name": "a.mm", "shapes": ["4x4xf32", "4x4xf32"], "ns": 9}, {"name": "a.mm", "ns": 5}])"));
  // 7 of launch; 1000 flops at 1 per ps; 100 bytes per ns.
  EXPECT_EQ(costs.costOfKernel(1'000'000, 0, E::F32, ComputeUnits::Matrix), 7 + 1000);
  EXPECT_EQ(costs.costOfKernel(1'000'000, 0, E::BF16, ComputeUnits::Matrix), 7 + 500);
  EXPECT_EQ(costs.costOfKernel(1'000'000, 0, E::BF16, ComputeUnits::Vector), 7 + 2000);
  EXPECT_EQ(costs.costOfKernel(1'000'000, 1'000'000, E::F32, ComputeUnits::Matrix), 7 + 10000);
  EXPECT_EQ(costs.costOfKernel(0, 0, E::F32, ComputeUnits::Matrix), 0);
  EXPECT_EQ(costs.costOfWork(0, 1000, E::F32, ComputeUnits::Vector), 10);
  EXPECT_EQ(costs.costOfCopy(1000, 4000), 3 + 100);
  EXPECT_EQ(costs.costOfCopy(0, 0), 0);
  EXPECT_EQ(costs.measuredOp("a.mm", {"4x4xf32", "4x4xf32"}), 9);
  EXPECT_EQ(costs.measuredOp("a.mm"), 5);
  EXPECT_EQ(costs.measuredOp("a.mm", {"4x4xf32"}), std::nullopt);
  EXPECT_EQ(costs.measuredOp("a.add"), std::nullopt);
}

TEST(Roofline, DoesNotOverflow) {
  CostModel costs = model("cpu-mpi");
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (int64_t amount : {kPetabyte, most}) {
    EXPECT_GT(costs.costOfKernel(amount, amount, E::F64, ComputeUnits::Vector), 0);
    EXPECT_LE(costs.costOfKernel(amount, amount, E::F64, ComputeUnits::Vector), kMaxNs);
    EXPECT_LE(costs.costOfCopy(amount, amount), kMaxNs);
  }
}

//===-----------------------------------------------------------------------------------------===//
// Waves of tiles
//===-----------------------------------------------------------------------------------------===//

/// A machine of four units with these sizes of tiles. A tile takes as long as 10 more in depth.
MachineModel tiled(std::vector<TileSize> sizes) {
  MachineModel machine = plain();
  machine.tiles = MatrixTiles{4, 10, std::move(sizes)};
  return machine;
}

/// Operations of a product.
int64_t flopsOf(ProductShape shape, int64_t depth) { return 2 * shape.batches * shape.rows * shape.columns * depth; }

TEST(Tiles, ByHand) {
  CostModel costs(tiled({{2, 4, 1000}, {1, 1, 250}}));
  auto time = [&](ProductShape shape) { return costs.costOfTiles(flopsOf(shape, 99'990), E::F32, shape); };
  // Four tiles of 2 x 4 are one wave: 2 x 2 x 4 x 4 units x 100,000 operations at 1 per ps.
  EXPECT_EQ(time({1, 4, 8}), 6400);
  // One row more makes six tiles, which take two waves, and so do eight.
  EXPECT_EQ(time({1, 5, 8}), 12800);
  EXPECT_EQ(time({1, 8, 8}), 12800);
  // Two batches are twice as many tiles.
  EXPECT_EQ(time({2, 4, 8}), 12800);
  // A single element is computed faster by one small tile, at a quarter of the rate: 2 x 4 x 100,000 / 0.25.
  EXPECT_EQ(time({1, 1, 1}), 3200);
  // The kernel takes a launch, and at least its operations at the sustained rate, and its bytes.
  int64_t flops = flopsOf({1, 5, 8}, 99'990);
  EXPECT_EQ(costs.costOfKernel(flops, 0, E::F32, ComputeUnits::Matrix, {1, 5, 8}), 7 + 12800);
  EXPECT_EQ(costs.costOfKernel(flops, 0, E::F32, ComputeUnits::Matrix), 7 + 7999);
  EXPECT_EQ(costs.costOfKernel(flops, 2'000'000, E::F32, ComputeUnits::Matrix, {1, 5, 8}), 7 + 20000);
  // Other units have no tiles, a machine without tiles has no waves, and neither has a product of unknown shape.
  EXPECT_EQ(costs.costOfKernel(flops, 0, E::F32, ComputeUnits::Vector, {1, 5, 8}), 7 + 15998);
  EXPECT_EQ(CostModel(plain()).costOfTiles(flops, E::F32, {1, 5, 8}), 0);
  EXPECT_EQ(costs.costOfTiles(flops, E::F32, {}), 0);
}

// Whatever the sizes: the number of waves is that of handing out tile after tile, a larger product never takes less,
// and the parts of a product never take less together than the whole.
TEST(Tiles, RandomProducts) {
  std::mt19937_64 random(5);
  auto draw = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % (high - low + 1)); };
  for (int round = 0; round < 500; ++round) {
    TileSize size{draw(1, 9), draw(1, 9), draw(100, 1000)};
    CostModel one(tiled({size})), several(tiled({size, {draw(1, 9), draw(1, 9), draw(100, 1000)}}));
    ProductShape shape{draw(1, 3), draw(1, 60), draw(1, 60)};
    int64_t depth = draw(1, 100'000), waves = 0, taken = 4;
    for (int64_t batch = 0; batch < shape.batches; ++batch)
      for (int64_t row = 0; row < shape.rows; row += size.rows)
        for (int64_t column = 0; column < shape.columns; column += size.columns)
          if (++taken > 4) {
            taken = 1;
            ++waves;
          }
    double expected = static_cast<double>(waves * 2 * size.rows * size.columns * 4 * (depth + 10)) / 1000 * 1000 /
                      static_cast<double>(size.permille);
    ASSERT_NEAR(static_cast<double>(one.costOfTiles(flopsOf(shape, depth), E::F32, shape)), expected,
                1 + expected / 1e6)
        << "round " << round;
    auto time = [&](ProductShape part) { return several.costOfTiles(flopsOf(part, depth), E::F32, part); };
    ASSERT_LE(time(shape), one.costOfTiles(flopsOf(shape, depth), E::F32, shape));
    ASSERT_LE(time(shape), time({shape.batches, shape.rows + 1, shape.columns}));
    ASSERT_LE(time(shape), time({shape.batches, shape.rows, shape.columns + 1}));
    ASSERT_LE(time(shape), time({shape.batches + 1, shape.rows, shape.columns}));
    int64_t parts = draw(2, 4);
    ProductShape part{shape.batches, (shape.rows + parts - 1) / parts, shape.columns};
    ASSERT_LE(time(shape), parts * time(part) + parts) << "round " << round;
  }
}

TEST(Tiles, DoNotOverflow) {
  CostModel costs = model("h100-sxm-tiles");
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (int64_t size : {int64_t(1), kPetabyte, most})
    for (int64_t flops : {int64_t(1), most}) {
      Ns time = costs.costOfTiles(flops, E::BF16, {size, size, size});
      EXPECT_GT(time, 0);
      EXPECT_LE(time, kMaxNs);
    }
}

// With the clock, the start and the end of tiles that NVIDIA's predictor nvMatmulHeuristics 0.1.0.27 assumes for an
// H100 SXM, the model gives its times of bf16 products (CUTLASS 3, rows x columns x depth): steps of waves of 132
// units.
TEST(Tiles, AgreeWithTheVendorsPredictor) {
  MachineModel machine = llvm::cantFail(MachineModel::load("h100-sxm-tiles"));
  machine.peakRates[static_cast<unsigned>(E::BF16)] = 1'070'000'000'000'000;
  machine.tiles->depth = 700;
  CostModel costs(machine);
  struct Prediction {
    int64_t rows, columns, depth;
    double us;
  };
  // One to four waves of 128 x 256; small depths; slim results.
  const Prediction predictions[] = {{1792, 2048, 4096, 48.2},  {3328, 2048, 4096, 86.4},  {3840, 2048, 4096, 86.3},
                                    {5376, 2048, 4096, 124.2}, {5888, 2048, 4096, 124.5}, {7936, 2048, 4096, 162.6},
                                    {4096, 4096, 64, 32.3},    {4096, 4096, 512, 46.8},   {4096, 4096, 2048, 96.4},
                                    {4096, 4096, 8192, 295.0}, {8192, 768, 4096, 69.4},   {4096, 768, 4096, 39.7},
                                    {2048, 768, 4096, 32.1},   {8192, 4096, 512, 94.4},   {2048, 4096, 512, 28.4}};
  for (const Prediction &p : predictions) {
    ProductShape shape{1, p.rows, p.columns};
    double us = 9.2 + static_cast<double>(costs.costOfTiles(flopsOf(shape, p.depth), E::BF16, shape)) / 1e3;
    EXPECT_NEAR(us, p.us, p.us * 0.1) << p.rows << " x " << p.columns << " x " << p.depth;
  }
}

// The shipped profile does not contradict what was measured on H100 SXM devices: 792.1 and 821.2 TFLOP/s (80 GB) and
// 807.1 TFLOP/s (96 GB), in the tables of stas00/ml-engineering and mag-/gpu_benchmark.
TEST(Tiles, AgreeWithMeasuredRates) {
  CostModel costs = model("h100-sxm-tiles");
  auto tflops = [&](ProductShape shape, int64_t depth) {
    int64_t flops = flopsOf(shape, depth);
    return static_cast<double>(flops) / 1e3 /
           static_cast<double>(costs.costOfKernel(flops, 0, E::BF16, ComputeUnits::Matrix, shape));
  };
  EXPECT_NEAR(tflops({1, 6144, 17920}, 2816), 806.7, 15);
  EXPECT_NEAR(tflops({1, 16896, 15680}, 1024), 807.1, 15);
}

//===-----------------------------------------------------------------------------------------===//
// Every profile, kind and shape
//===-----------------------------------------------------------------------------------------===//

/// Tests that costs never fall with bytes, are never negative and never overflow: around every power of two (where
/// NCCL's corrections jump), at random sizes, at nothing and at a petabyte.
TEST(EveryProfile, CostsAreMonotoneInBytes) {
  std::vector<Bytes> sizes = {0, 1, kPetabyte, std::numeric_limits<int64_t>::max()};
  for (unsigned k = 4; k < 50; ++k)
    for (Bytes delta : {-1, 0, 1})
      sizes.push_back((Bytes(1) << k) + delta);
  std::mt19937_64 random(4);
  for (unsigned i = 0; i < 300; ++i)
    sizes.push_back(static_cast<Bytes>(random() >> (14 + random() % 48)));
  std::sort(sizes.begin(), sizes.end());
  std::vector<GroupShape> shapes = {{2, 1, 2},   {3, 1, 3},       {4, 1, 4},    {8, 1, 8},         {2, 2, 1},
                                    {8, 8, 1},   {16, 2, 8},      {12, 3, 4},   {10, 3, 4},        {64, 8, 8},
                                    {64, 32, 2}, {1000, 1000, 1}, {512, 64, 8}, {100000, 12500, 8}};
  for (const std::string &name : MachineModel::available()) {
    CostModel costs = model(name.c_str());
    for (unsigned kind = 0; kind <= static_cast<unsigned>(Kind::Barrier); ++kind)
      for (const GroupShape &shape : shapes)
        for (E element : {E::F32, E::F8}) {
          auto curve = costs.curve(static_cast<Kind>(kind), shape, element);
          Ns before = 0;
          for (Bytes bytes : sizes) {
            Ns now = (*curve)(bytes);
            ASSERT_GE(now, before) << name << " kind " << kind << " ranks " << shape.ranks << " bytes " << bytes;
            ASSERT_GT(now, 0);
            ASSERT_LE(now, kMaxNs);
            before = now;
          }
        }
  }
}

TEST(EveryProfile, OneRankCostsNothing) {
  for (const std::string &name : MachineModel::available())
    for (unsigned kind = 0; kind <= static_cast<unsigned>(Kind::Barrier); ++kind)
      EXPECT_EQ(model(name.c_str()).costOfCollective(static_cast<Kind>(kind), kGiB, {1, 1, 1}, E::F32), 0);
}

/// Tests that a curve is the running maximum of the cheapest line: where NCCL's corrections jump, the size just below
/// the jump decides.
TEST(EveryProfile, CurvesAreTheRunningMaximumOfTheCheapestLine) {
  std::mt19937_64 random(7);
  for (const std::string &name : MachineModel::available()) {
    CostModel costs = model(name.c_str());
    for (Kind kind : {Kind::AllReduce, Kind::AllGather, Kind::AllToAll})
      for (const GroupShape &shape : {kOneNode, kTwoNodes, kEightNodes, GroupShape{8, 8, 1}}) {
        auto curve = costs.curve(kind, shape, E::BF16);
        auto least = [&](Bytes bytes) {
          std::vector<Ns> all;
          for (const CostLine &line : curve->candidates())
            all.push_back(line(bytes));
          return *std::min_element(all.begin(), all.end());
        };
        for (unsigned i = 0; i < 200; ++i) {
          Bytes bytes = static_cast<Bytes>(random() >> (20 + random() % 44));
          Ns expected = least(bytes);
          for (Bytes jump = 128; jump <= bytes && jump <= 64 * 8 * kMiB * 2; jump *= 2)
            expected = std::max(expected, least(jump - 1));
          ASSERT_EQ((*curve)(bytes), expected) << name << " " << stringify(kind).str() << " " << bytes;
        }
      }
  }
}

/// Tests that times of small amounts, which are computed in 64 bits, are those of the definition.
TEST(EveryProfile, LinesRoundToTheNearest) {
  CostLine line;
  line.latency = line.plateauLatency = 5;
  std::mt19937_64 random(9);
  for (unsigned i = 0; i < 1000; ++i) {
    line.bytesPerSecond = static_cast<int64_t>(1'000'000 + random() % 1'000'000'000'000);
    Bytes bytes = static_cast<Bytes>(random() % (i % 2 ? 4'000'000'000 : 100'000'000));
    long double exact = 5 + static_cast<long double>(bytes) * 1'000'000'000 / line.bytesPerSecond;
    EXPECT_NEAR(static_cast<double>(line(bytes) - exact), 0, 0.5001);
  }
}

/// Tests that the envelope stays close to NCCL's own choice: a cost is the model's minimum at this or a smaller size.
TEST(EveryProfile, TheEnvelopeTakesValuesOfTheModel) {
  for (const std::string &name : MachineModel::available()) {
    auto curve = model(name.c_str()).curve(Kind::AllReduce, kTwoNodes, E::BF16);
    for (Bytes bytes = 64; bytes <= kGiB; bytes *= 2) {
      Ns least = kMaxNs;
      for (const CostLine &line : curve->candidates())
        least = std::min(least, line(bytes));
      EXPECT_GE((*curve)(bytes), least);
      EXPECT_LE((*curve)(bytes), least * 3 / 2) << name << " " << bytes;
    }
  }
}

} // namespace

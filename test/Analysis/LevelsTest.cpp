//===- LevelsTest.cpp - Tests of the levels of a machine outside of nodes ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/CollectiveCost.h"
#include "CommSched/Machine/CostModel.h"
#include "gtest/gtest.h"

using namespace commsched;
using Kind = CollectiveKind;

namespace {

const char kLevels[] = R"([
    {"name": "rail", "ranks": 8, "links": {"bandwidth_gbps": 0.25, "latency_ns": 80}},
    {"name": "pod", "ranks": 16, "links": {"bandwidth_gbps": 0.125, "latency_ns": 200}}])";

/// A machine with round numbers: 10 bytes per ns inside nodes of 4 ranks, 1 between nodes, a quarter and an eighth of a
/// rank's byte per ns out of rails and pods.
llvm::Expected<MachineModel> parseMachine(const std::string &levels, const std::string &more = "") {
  std::string text = R"({"schema_version": 1, "name": "plain", "node": {"ranks": 4},
    "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100},
    "compute": {"peak_tflops": {"f32": 1}, "launch_ns": 7},
    "copy": {"launch_ns": 3, "bandwidth_gbps": 50},
    "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5},
              "inter": {"bandwidth_gbps": 1, "latency_ns": 50}}, "levels": )";
  return MachineModel::parse(text + levels + more + "}");
}

std::vector<int64_t> ranksFrom(int64_t first, int64_t count, int64_t stride) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i)
    ranks.push_back(first + i * stride);
  return ranks;
}

Ns costOf(const MachineModel &machine, Kind kind, const std::vector<int64_t> &ranks, Bytes bytes = 16000) {
  return CollectiveCurve::get(machine, kind, shapeOfRanks(ranks, machine), ElementType::F32)(bytes);
}

// Tests that the units of each level are counted.
TEST(Levels, ShapesCountUnits) {
  MachineModel machine = llvm::cantFail(parseMachine(kLevels));
  GroupShape shape = shapeOfRanks(ranksFrom(0, 4, 8), machine);
  EXPECT_EQ(shape.nodes, 4);
  EXPECT_EQ(shape.units, (std::array<int64_t, kMostOuterLevels>{4, 2}));
  EXPECT_FALSE(shapeOfRanks(ranksFrom(0, 8, 1), machine).leavesUnits());
  EXPECT_TRUE(shapeOfRanks(ranksFrom(4, 8, 1), machine).leavesUnits());
}

// Tests the costs of groups that leave units, by hand.
TEST(Levels, CostsByHand) {
  MachineModel machine = llvm::cantFail(parseMachine(kLevels)), flat = llvm::cantFail(parseMachine("[]"));
  // Inside a rail nothing changes.
  for (Kind kind : {Kind::AllGather, Kind::AllReduce, Kind::AllToAll, Kind::Permute})
    for (const std::vector<int64_t> &ranks : {ranksFrom(0, 8, 1), ranksFrom(0, 2, 4), ranksFrom(8, 3, 1)})
      EXPECT_EQ(costOf(machine, kind, ranks), costOf(flat, kind, ranks));
  // 8 of 16 ranks in each rail: the ring leaves a rail at 8 x 0.25 bytes per ns, and a node at 1. One hop is 30 ns
  // longer.
  EXPECT_EQ(costOf(machine, Kind::AllGather, ranksFrom(0, 16, 1)), 100 + 2 * 5 + 2 * 50 + 30 + 15000);
  // One rank in each rail has a quarter of a byte per ns; half of the bytes are sent.
  EXPECT_EQ(costOf(machine, Kind::AllGather, ranksFrom(0, 2, 8)), 100 + 50 + 30 + 32000);
  EXPECT_EQ(costOf(machine, Kind::AllReduce, ranksFrom(0, 2, 8)), 100 + 2 * (50 + 30) + 64000);
  EXPECT_EQ(costOf(machine, Kind::Broadcast, ranksFrom(0, 2, 8)), 100 + 50 + 30 + 64000);
  // Out of the pod, it has an eighth.
  EXPECT_EQ(costOf(machine, Kind::AllGather, ranksFrom(0, 2, 16)), 100 + 50 + 30 + 120 + 64000);
  EXPECT_EQ(costOf(machine, Kind::Permute, ranksFrom(0, 2, 16)), 100 + 50 + 30 + 120 + 128000);
  // Messages to 4 ranks of two pods: half of the bytes leave the pod.
  EXPECT_EQ(costOf(machine, Kind::AllToAll, ranksFrom(0, 4, 8)), 100 + 50 + 30 + 120 + 64000);
  // A one-shot sum reads what the other rank has.
  GroupShape shape = shapeOfRanks(ranksFrom(0, 2, 16), machine);
  EXPECT_EQ(CostModel(machine).costOfOneShot(16000, shape), 7 + 2 * 200 + 128000);
}

// Tests that costs do not fall if a level is slower, and that NCCL's model leaves units, too.
TEST(Levels, NcclLeavesUnits) {
  MachineModel machine = llvm::cantFail(MachineModel::load("h100-sxm")), slow = machine;
  slow.levels = {{"rail", 64, {10'000'000'000, 16000, 0}}};
  for (Kind kind : {Kind::AllGather, Kind::ReduceScatter, Kind::AllReduce, Kind::Broadcast})
    for (const std::vector<int64_t> &ranks : {ranksFrom(0, 4, 32), ranksFrom(0, 128, 1), ranksFrom(0, 16, 8)})
      for (Bytes bytes : {1000, 1000000, 1000000000})
        EXPECT_GE(costOf(slow, kind, ranks, bytes), costOf(machine, kind, ranks, bytes));
  // Two ranks of each of two rails: 20 GB/s leave a rail, and a ring of 4 carries 3/4 of a GB over each link.
  Ns cost = costOf(slow, Kind::AllGather, ranksFrom(0, 4, 32), 1'000'000'000);
  EXPECT_NEAR(static_cast<double>(cost), 1e9 * 3 / 4 / 20, 1e6);
}

// Tests that tables by shape are of groups within units, and are scaled for others.
TEST(Levels, TablesAreOfGroupsWithinUnits) {
  MachineModel machine = llvm::cantFail(parseMachine(
      kLevels,
      R"(, "collectives": [{"kind": "all_gather", "ranks": 2, "nodes": 2, "points": [{"bytes": 16000, "ns": 1000}]}])"));
  EXPECT_EQ(costOf(machine, Kind::AllGather, ranksFrom(0, 2, 4)), 1000);
  EXPECT_EQ(costOf(machine, Kind::AllGather, ranksFrom(0, 2, 8)), 1000 * 32180 / 8150);
}

TEST(Levels, AreReadStrictly) {
  const char *links = R"("links": {"bandwidth_gbps": 1, "latency_ns": 1})";
  auto level = [&](const char *name, int64_t ranks) {
    return std::string(R"({"name": ")") + name + R"(", "ranks": )" + std::to_string(ranks) + ", " + links + "}";
  };
  for (const auto &[levels, message] :
       {std::pair("[" + level("rail", 6) + "]",
                  "levels[0].ranks': expected a multiple of the 4 ranks of the level below"),
        {"[" + level("rail", 4) + "]", "levels[0].ranks': expected a multiple of the 4 ranks"},
        {"[" + level("pod", 16) + "," + level("rail", 8) + "]",
         "levels[1].ranks': expected a multiple of the 16 ranks"},
        {"[" + level("rail", 8) + "," + level("rail", 16) + "]", "levels[1].name': there is another level 'rail'"},
        {"[" + level("node", 8) + "]", "levels[0].name': there is another level 'node'"},
        {"[" + level("a", 8) + "," + level("b", 16) + "," + level("c", 32) + "]",
         "levels[2].name': expected at most 2 levels outside of nodes"},
        {std::string(R"([{"name": "rail", "ranks": 8}])"), "levels[0].links"},
        {std::string("7"), "levels"}}) {
    llvm::Expected<MachineModel> machine = parseMachine(levels);
    ASSERT_FALSE(static_cast<bool>(machine)) << levels;
    std::string error = llvm::toString(machine.takeError());
    EXPECT_NE(error.find(message), std::string::npos) << error;
  }
}

} // namespace

//===- ContentionModelTest.cpp - Tests of demands from machine profiles -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/ContentionModel.h"
#include "Time/ContentionClock.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace commsched;
using Kind = CollectiveKind;

namespace {

constexpr GroupShape kInside{4, 1, 4}, kAcross{8, 2, 4};

/// A machine with round numbers: 10 bytes per ns on links inside a node, 1 between nodes, 100 in memory.
MachineModel contentionMachine(const std::string &more = "") {
  std::string text = R"({"schema_version": 1, "name": "plain", "node": {"ranks": 4},
    "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100},
    "compute": {"peak_tflops": {"f32": 1}},
    "copy": {"launch_ns": 3, "bandwidth_gbps": 50},
    "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5},
              "inter": {"bandwidth_gbps": 1, "latency_ns": 50}})";
  return llvm::cantFail(MachineModel::parse(text + more + "}"));
}

/// What a kernel that takes all of a resource and a collective do to each other, as rates.
std::pair<double, double> ratesOf(int64_t computePermille, int64_t collectivePermille) {
  Demand kernel, collective;
  kernel.set(Resource::Memory, kWhole);
  auto [share, weight] = demandOfPair(computePermille, collectivePermille);
  collective.set(Resource::Memory, share, weight);
  int64_t rates[2];
  shareResources({&kernel, &collective}, rates);
  return {static_cast<double>(rates[0]) / kWhole, static_cast<double>(rates[1]) / kWhole};
}

// Tests that a kernel and a collective that meet are as slow as was measured, to a thousandth.
TEST(ContentionModel, PairsAreWhatWasMeasured) {
  int32_t exact = 0;
  for (int64_t compute : {0, 1, 20, 189, 400, 830, 1000, 3000, 9000, 1000000})
    for (int64_t collective : {0, 1, 60, 300, 1000, 4000, 1000000}) {
      auto [kernelRate, collectiveRate] = ratesOf(compute, collective);
      double p = 1000.0 / (1000 + compute), q = 1000.0 / (1000 + collective);
      if (p + q < 1) {
        // As much as one after the other, in the measured ratio.
        EXPECT_NEAR(kernelRate, p / (p + q), 2e-3) << compute << " " << collective;
        EXPECT_NEAR(collectiveRate, q / (p + q), 2e-3) << compute << " " << collective;
        continue;
      }
      ++exact;
      EXPECT_NEAR(kernelRate, p, 2e-3) << compute << " " << collective;
      EXPECT_NEAR(collectiveRate / q, 1, 2e-3) << compute << " " << collective;
    }
  EXPECT_GE(exact, 30);
}

TEST(ContentionModel, ProfilesWithoutNumbersHaveNone) {
  EXPECT_FALSE(ContentionModel(contentionMachine()).any());
  MachineModel zero = contentionMachine(R"(, "contention": [{"kind": "all_gather", "bytes": 1, "against": "matrix"}])");
  EXPECT_FALSE(ContentionModel(zero).any());
  MachineModel some = contentionMachine(
      R"(, "contention": [{"kind": "all_gather", "bytes": 1, "against": "matrix", "collective_permille": 1}])");
  EXPECT_TRUE(ContentionModel(some).any());
  MachineModel resources = contentionMachine(R"(, "resources": {"compute_units": 10})");
  EXPECT_TRUE(ContentionModel(resources).any());
  // Without a table no kind stands for another one.
  MachineModel nothing = contentionMachine();
  EXPECT_FALSE(ContentionModel(nothing).ofCollective(Kind::AllGather, 4000, kInside, 1000).any());
}

TEST(ContentionModel, KernelsByRoofline) {
  MachineModel machine = contentionMachine(R"(, "resources": {"compute_units": 10, "vector_units_permille": 250})");
  ContentionModel model(machine);
  Demand product = model.ofKernel(/*isProduct=*/true, 30000, 1000), vector = model.ofKernel(false, 200000, 1000);
  EXPECT_EQ(product.share, (Shares{1'000'000, 300'000, 0, 0, 0}));
  EXPECT_EQ(vector.share, (Shares{250'000, 1'000'000, 0, 0, 0}));
  EXPECT_EQ(model.ofCopy().share, (Shares{250'000, 1'000'000, 0, 0, 0}));
  EXPECT_FALSE(model.ofKernel(true, 5, 0).any());
}

// Tests shares by hand: a gather of 4000 bytes over 4 ranks sends 3000, an all-reduce twice that. Over two nodes, the
// four ranks of a node share what leaves it.
TEST(ContentionModel, CollectivesByTraffic) {
  MachineModel machine =
      contentionMachine(R"(, "resources": {"compute_units": 10, "ctas": 2, "traffic_permille": 2000})");
  ContentionModel model(machine);
  EXPECT_EQ(model.ofCollective(Kind::AllGather, 4000, kInside, 1000).share, (Shares{200'000, 60'000, 300'000, 0, 0}));
  EXPECT_EQ(model.ofCollective(Kind::AllReduce, 4000, kInside, 1000, 5).share,
            (Shares{500'000, 120'000, 600'000, 0, 0}));
  EXPECT_EQ(model.ofCollective(Kind::AllGather, 4000, kAcross, 7000).share[2], 50'000);
  EXPECT_EQ(model.ofCollective(Kind::AllGather, 4000, kAcross, 7000).share[3], 125'000);
  EXPECT_EQ(model.ofCollective(Kind::AllToAll, 800, kAcross, 1000).share,
            (Shares{200'000, 14'000, 30'000, 400'000, 0}));
  EXPECT_FALSE(model.ofCollective(Kind::AllGather, 4000, {1, 1, 1}, 1000).any());
}

// Tests which entry counts: the kind first, then the thread blocks, then the nearest size by ratio; and what stands in
// for kinds that were not measured.
TEST(ContentionModel, TheNearestEntryCounts) {
  const char *table = R"(, "contention": [
    {"kind": "all_gather", "bytes": 100, "against": "matrix", "compute_permille": 250},
    {"kind": "all_gather", "bytes": 10000, "against": "matrix", "compute_permille": 1000},
    {"kind": "all_gather", "bytes": 100, "ctas": 8, "against": "matrix", "compute_permille": 3000},
    {"kind": "all_gather", "bytes": 100, "against": "memory", "compute_permille": 1000, "collective_permille": 1000}])";
  MachineModel machine = contentionMachine(table);
  ContentionModel model(machine);
  auto units = [&](Kind kind, Bytes bytes, int64_t ctas = 0) {
    return model.ofCollective(kind, bytes, kInside, 1000, ctas).share[0];
  };
  EXPECT_EQ(units(Kind::AllGather, 1), 200'000);
  EXPECT_EQ(units(Kind::AllGather, 999), 200'000);
  EXPECT_EQ(units(Kind::AllGather, 1001), 500'000);
  EXPECT_EQ(units(Kind::AllGather, 100, 7), 750'000);
  EXPECT_EQ(model.ofCollective(Kind::AllGather, 100, kInside, 1000).share[1], 1'000'000);
  EXPECT_EQ(model.leastOfCollective(Kind::AllGather, kInside), (Shares{200'000, 1'000'000, 0, 0, 0}));
  // Without resources the first kind stands in.
  EXPECT_EQ(units(Kind::ReduceScatter, 1), 200'000);
}

/// By how much two collectives take longer beside each other, permille.
int64_t slowdownOf(const Demand &first, const Demand &second) {
  int64_t rates[2];
  shareResources({&first, &second}, rates);
  return std::llround(1000.0 * kWhole / static_cast<double>(std::min(rates[0], rates[1]))) - 1000;
}

// Tests that two collectives of a kind take as much longer beside each other as was measured of pairs, whatever follows
// from bandwidths, that the nearest size on the same links counts, and what other kinds do.
TEST(ContentionModel, CollectivesBesideEachOtherAreAsMeasured) {
  const char *pairs = R"(, "calibration": {"pairs": [
    {"kind": "all_gather", "bytes": 1000, "ranks": 4, "nodes": 1, "permille": 300},
    {"kind": "all_gather", "bytes": 1000000, "ranks": 4, "nodes": 1, "alone_ns": 1, "both_ns": 2, "permille": 900},
    {"kind": "all_gather", "bytes": 1000, "ranks": 8, "nodes": 2, "permille": 50},
    {"kind": "all_to_all", "bytes": 1000, "ranks": 4, "nodes": 1, "permille": 1700},
    {"kind": "reduce_scatter", "bytes": 1000, "ranks": 4, "nodes": 1, "permille": 0}], "by": "hand"})";
  const std::string contention =
      R"(, "contention": [{"kind": "all_gather", "bytes": 1, "against": "matrix", "compute_permille": 1}])";
  for (const char *more : {"", R"(, "resources": {"compute_units": 10})"}) {
    MachineModel machine = contentionMachine(contention + more + pairs), without = contentionMachine(contention + more);
    bool hasUnits = machine.resources->computeUnits > 0;
    auto pair = [](const MachineModel &of, Kind kind, Bytes bytes, GroupShape shape, Ns time) {
      Demand demand = ContentionModel(of).ofCollective(kind, bytes, shape, time);
      return slowdownOf(demand, demand);
    };
    EXPECT_EQ(pair(machine, Kind::AllGather, 4000, kInside, 1000), 300);
    EXPECT_EQ(pair(machine, Kind::AllGather, 4000, kInside, 301), 300); // Alone it needs all of the link.
    EXPECT_EQ(pair(machine, Kind::AllGather, 100000, kInside, 100000), 900);
    EXPECT_EQ(pair(machine, Kind::AllGather, 4000, kAcross, 7000), 50);
    EXPECT_EQ(pair(machine, Kind::AllGather, 4000, kAcross, 360), 50); // Links inside of nodes would slow it down more.
    EXPECT_EQ(pair(machine, Kind::ReduceScatter, 4000, kInside, 301), 0);
    // No more than one after the other.
    EXPECT_EQ(pair(machine, Kind::AllToAll, 4000, kInside, 1000), 1000);
    // A kind that was not measured is as bandwidths say, or as the median of what was.
    for (Ns time : {301, 1000})
      EXPECT_EQ(pair(machine, Kind::AllReduce, 4000, kInside, time),
                hasUnits ? pair(without, Kind::AllReduce, 4000, kInside, time) : 300);
    if (!hasUnits)
      EXPECT_EQ(pair(machine, Kind::AllReduce, 4000, kAcross, 1000), 50);
  }
  // Pairs alone say what links do, and nothing about kernels.
  MachineModel alone = contentionMachine(pairs);
  EXPECT_TRUE(ContentionModel(alone).any());
  EXPECT_EQ(ContentionModel(alone).ofCollective(Kind::AllGather, 4000, kInside, 1000).share,
            (Shares{0, 0, 650'000, 0, 0}));
}

// Tests that shares mean what pairs of earlier profiles meant, precede them, and that the least share of a kind is one
// that every size has.
TEST(ContentionModel, SharesAreAsMeasured) {
  const char *shares = R"(, "resources": {"shares": [
    {"kind": "all_gather", "bytes": 1000, "ranks": 4, "nodes": 1, "permille": 650},
    {"kind": "all_gather", "bytes": 1000000, "nodes": 1, "permille": 950},
    {"kind": "all_to_all", "bytes": 1000, "nodes": 1, "permille": 1000},
    {"kind": "reduce_scatter", "bytes": 1000, "nodes": 1, "permille": 500}]})";
  MachineModel machine = contentionMachine(shares);
  ContentionModel model(machine);
  EXPECT_TRUE(model.any());
  auto inside = [&](Kind kind, Bytes bytes) { return model.ofCollective(kind, bytes, kInside, 1000).share[2]; };
  EXPECT_EQ(inside(Kind::AllGather, 4000), 650'000);
  EXPECT_EQ(inside(Kind::AllGather, 400000), 950'000);
  EXPECT_EQ(inside(Kind::ReduceScatter, 4000), 0);
  EXPECT_EQ(inside(Kind::AllReduce, 4000), 650'000); // The median.
  EXPECT_EQ(model.leastOfCollective(Kind::AllGather, kInside)[2], 650'000);
  EXPECT_EQ(model.leastOfCollective(Kind::ReduceScatter, kInside)[2], 0);
  EXPECT_EQ(model.leastOfCollective(Kind::AllReduce, kInside)[2], 650'000);
  // Where nothing was measured, groups that had lanes of their own share nothing.
  EXPECT_FALSE(model.ofCollective(Kind::AllGather, 4000, kAcross, 1000).any());
  MachineModel both = contentionMachine(std::string(shares) + R"(, "calibration": {"pairs": [
    {"kind": "all_gather", "bytes": 1000, "nodes": 1, "permille": 0}]})");
  EXPECT_EQ(ContentionModel(both).ofCollective(Kind::AllGather, 4000, kInside, 1000).share[2], 650'000);
  // All of them free: no contention model.
  EXPECT_FALSE(ContentionModel(contentionMachine(R"(, "resources": {"shares": [
    {"kind": "all_gather", "bytes": 1, "nodes": 1, "permille": 500}]})"))
                   .any());
}

// Tests that curves that were measured alone never add up to more than a link: a class of links of which no share was
// measured stays what the lanes or the rates of the profile say.
TEST(ContentionModel, UnmeasuredLinksStayShared) {
  const std::string shares = R"("shares": [{"kind": "all_gather", "bytes": 1, "nodes": 1, "permille": 800}])";
  MachineModel one = contentionMachine(R"(, "lanes": "one", "resources": {)" + shares + "}");
  EXPECT_EQ(one.lanes, LaneSharing::PerGroup);
  EXPECT_EQ(ContentionModel(one).ofCollective(Kind::AllGather, 1, kInside, 9).share, (Shares{0, 0, 800'000, 0, 0}));
  EXPECT_EQ(ContentionModel(one).ofCollective(Kind::AllReduce, 1, kAcross, 9).share,
            (Shares{0, 0, 1'000'000, 1'000'000, 0}));
  MachineModel perLink = contentionMachine(R"(, "lanes": "per_link", "resources": {)" + shares + "}");
  EXPECT_EQ(ContentionModel(perLink).ofCollective(Kind::AllReduce, 1, kAcross, 9).share,
            (Shares{0, 0, 0, 1'000'000, 0}));
  EXPECT_EQ(ContentionModel(perLink).leastOfCollective(Kind::AllReduce, kAcross)[3], 1'000'000);
  MachineModel named =
      contentionMachine(R"(, "lanes": "per_link", "resources": {"network": {"bandwidth_gbps": 2}, )" + shares + "}");
  Demand across = ContentionModel(named).ofCollective(Kind::AllGather, 4000, kAcross, 700);
  EXPECT_EQ(across.share, (Shares{0, 0, 500'000, 625'000, 0}));
  EXPECT_GT(ContentionModel(named).usesOfCollective(Kind::AllGather, kAcross)[3], 0);
  EXPECT_EQ(ContentionModel(named).usesOfCollective(Kind::AllGather, kInside)[2], 0);
}

// Tests that resources without compute units are links alone: a ring over nodes uses both, kernels and memory nothing,
// and two collectives never get more than the card.
TEST(ContentionModel, LinksAlone) {
  MachineModel machine = contentionMachine(R"(, "lanes": "per_link", "resources": {"network": {"bandwidth_gbps": 2}})");
  ContentionModel model(machine);
  EXPECT_TRUE(model.any());
  EXPECT_EQ(machine.lanes, LaneSharing::PerLink);
  EXPECT_FALSE(model.ofKernel(/*isProduct=*/true, 30000, 1000).any());
  EXPECT_FALSE(model.ofCopy().any());
  EXPECT_EQ(model.ofCollective(Kind::AllGather, 4000, kInside, 1000).share, (Shares{0, 0, 300'000, 0, 0}));
  Demand across = model.ofCollective(Kind::AllGather, 4000, kAcross, 700);
  EXPECT_EQ(across.share, (Shares{0, 0, 500'000, 625'000, 0}));
  EXPECT_EQ(slowdownOf(across, across), 250);
  EXPECT_EQ(model.leastOfCollective(Kind::AllGather, kInside), Shares{});
  // What was measured of pairs counts alone.
  MachineModel measured =
      contentionMachine(R"(, "resources": {"network": {"bandwidth_gbps": 2}}, "calibration": {"pairs": [
    {"kind": "all_gather", "bytes": 1000, "ranks": 4, "nodes": 1, "permille": 300}]})");
  EXPECT_EQ(ContentionModel(measured).ofCollective(Kind::AllGather, 4000, kInside, 1000).share,
            (Shares{0, 0, 650'000, 0, 0}));
  EXPECT_EQ(ContentionModel(measured).usesOfCollective(Kind::AllGather, kInside), Uses{});
}

// Tests that a collective of any size and duration uses at least what its bytes do by hand: of 8 ranks on 2 nodes, a
// gather sends 7/8 of its bytes over links of 10 bytes per ns, and a quarter of that over a card of 1 byte per ns.
TEST(ContentionModel, UsesByTheByte) {
  MachineModel machine = contentionMachine(R"(, "resources": {"compute_units": 10, "ctas": 2})");
  ContentionModel model(machine);
  Uses uses = model.usesOfCollective(Kind::AllGather, kAcross);
  constexpr int64_t kGiB = int64_t(1) << 30, kMillionths = 1'000'000;
  EXPECT_EQ(uses[2], kGiB * 7 / 8 / 10 * kMillionths + 600'000 /* of 0.6 ns */);
  EXPECT_EQ(uses[3], kGiB * 7 / 32 * kMillionths);
  EXPECT_EQ(model.leastOfCollective(Kind::AllGather, kAcross)[0], 200'000);
  for (Kind kind : {Kind::AllGather, Kind::ReduceScatter, Kind::AllReduce})
    for (GroupShape shape : {kInside, kAcross, GroupShape{6, 3, 2}})
      for (Bytes bytes : {1, 7, 1000, 123457})
        for (Ns time : {1, 50, 9999, 1234567}) {
          Demand demand = model.ofCollective(kind, bytes, shape, time);
          Uses least = model.usesOfCollective(kind, shape);
          for (unsigned resource = 0; resource < kNumResources; ++resource) {
            Wide needed = std::min<Wide>(static_cast<Wide>(least[resource]) * bytes / kUseBytes, kWhole * Wide(time));
            EXPECT_GE(static_cast<Wide>(demand.share[resource]) * time, needed);
          }
        }
}

TEST(ContentionModel, ResourcesAreReadStrictly) {
  for (const auto &[resources, wrong] :
       {std::pair("{}", "resources.compute_units"),
        {R"({"network": {}})", "resources.network.bandwidth_gbps"},
        {R"({"network": {"bandwidth_gbps": 1}, "ctas": 2})", "resources.ctas"},
        {R"({"shares": [{"kind": "all_gather", "bytes": 1, "nodes": 1}]})", "resources.shares[0].permille"},
        {R"({"shares": [{"kind": "send", "bytes": 1, "nodes": 1, "permille": 499}]})", "resources.shares[0].permille"},
        {R"({"shares": [{"kind": "send", "bytes": 1, "nodes": 1, "permille": 1001}]})", "resources.shares[0].permille"},
        {R"({"shares": [{"kind": "send", "bytes": 1, "permille": 600}]})", "resources.shares[0].nodes"},
        {R"({"pcie": {"bandwidth_gbps": 1}})", "resources.pcie"}}) {
    std::string text = R"({"schema_version": 1, "name": "x", "node": {"ranks": 4},
      "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100}, "compute": {"peak_tflops": {"f32": 1}},
      "copy": {"launch_ns": 3, "bandwidth_gbps": 50},
      "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}}, "resources": )";
    llvm::Expected<MachineModel> machine = MachineModel::parse(text + resources + "}");
    ASSERT_FALSE(machine) << resources;
    EXPECT_NE(llvm::toString(machine.takeError()).find(wrong), std::string::npos) << resources;
  }
}

TEST(ContentionModel, PairsAreReadStrictly) {
  for (const auto &[pairs, wrong] :
       {std::pair(R"([{"kind": "all_gather", "bytes": 1, "permille": 1}])", "nodes"),
        {R"([{"kind": "gossip", "bytes": 1, "nodes": 1}])", "kind"},
        {R"([{"kind": "all_gather", "bytes": 1, "nodes": 1, "permile": 1}])", "permile"},
        {R"([{"kind": "all_gather", "bytes": 1, "nodes": 1, "permille": -1}])", "permille"},
        {R"(7)", "pairs"}}) {
    std::string text = contentionMachine().toJSON();
    text.insert(text.rfind('}'), std::string(R"(, "calibration": {"pairs": )") + pairs + "}");
    llvm::Expected<MachineModel> machine = MachineModel::parse(text);
    ASSERT_FALSE(static_cast<bool>(machine)) << pairs;
    std::string error = llvm::toString(machine.takeError());
    EXPECT_NE(error.find("calibration.pairs"), std::string::npos) << error;
    EXPECT_NE(error.find(wrong), std::string::npos) << error;
  }
  // What else a calibration says is for people.
  for (const char *other : {R"("by hand")", R"({"when": 7})", R"([1])"}) {
    std::string text = contentionMachine().toJSON();
    text.insert(text.rfind('}'), std::string(R"(, "calibration": )") + other);
    EXPECT_FALSE(llvm::cantFail(MachineModel::parse(text)).resources.has_value());
  }
}

} // namespace

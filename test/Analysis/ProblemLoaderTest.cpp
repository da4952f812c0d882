//===- ProblemLoaderTest.cpp - Tests of the way from IR to a Problem --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each test loads a small function and asks for the edges, buffers and lanes that DESIGN's rules give by hand.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"
#include <set>

using namespace mlir;
using namespace commsched;

namespace {

class ProblemLoaderTest : public ::testing::Test {
protected:
  ProblemLoaderTest() {
    context.loadDialect<comm::CommDialect, func::FuncDialect, memref::MemRefDialect, scf::SCFDialect,
                        tensor::TensorDialect, arith::ArithDialect, bufferization::BufferizationDialect>();
  }

  /// Loads the body of a function with these arguments; @dp has four ranks and @tp has two groups of two.
  LoadedBlock &load(StringRef arguments, StringRef body, LoadOptions options = {}) {
    std::string text = "comm.group @dp #comm.iota<[1, 4]>\ncomm.group @tp #comm.iota<[2, 2]>\n"
                       "func.func private @unknown()\nfunc.func @f(" +
                       arguments.str() + ") {\n" + body.str() + "\nreturn\n}\n";
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    MachineModel machine = llvm::cantFail(MachineModel::load("h100-sxm"));
    machine.lanes = lanes;
    machine.ranksPerNode = ranksPerNode;
    model.emplace(machine);
    costs.emplace(*model);
    auto function = module->lookupSymbol<func::FuncOp>("f");
    loaded.emplace(loadBlock(function.front(), *costs, options));
    EXPECT_EQ(loaded->problem.validate(), "");
    return *loaded;
  }

  bool hasEdge(NodeId from, NodeId to) { return llvm::is_contained(loaded->problem.preds[to], from); }
  Bytes peak() { return peakOf(loaded->problem, identityOrder(loaded->problem)); }

  LaneSharing lanes = LaneSharing::PerGroup;
  int64_t ranksPerNode = 8;
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::optional<CostModel> model;
  std::optional<OperationCosts> costs;
  std::optional<LoadedBlock> loaded;
};

TEST_F(ProblemLoaderTest, AViewSharesItsOperandsStorage) {
  LoadedBlock &block = load("%x: tensor<8xf32>", R"(
    %a = comm.compute "f"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %v = comm.compute "view"(%a) aliases [0] : (tensor<8xf32>) -> tensor<2x4xf32>
    %b = comm.compute "g"(%v) : (tensor<2x4xf32>) -> tensor<2xf32>
    %e = tensor.expand_shape %a [[0, 1]] output_shape [4, 2] : tensor<8xf32> into tensor<4x2xf32>)");
  EXPECT_EQ(block.problem.buffers.size(), 2u); // %a and %b: neither the views nor the argument
  EXPECT_EQ(block.problem.buffers[0].bytes, 32);
  EXPECT_EQ(block.problem.users[0].vec(), std::vector<NodeId>({0, 1, 2, 3}));
  EXPECT_EQ(block.problem.argumentBytes, 32);
  EXPECT_EQ(block.problem.nodes[1].cost, 0);
  EXPECT_EQ(peak(), 40);
}

TEST_F(ProblemLoaderTest, ABufferLivesUntilAllStreamsKnowThatItsLastReaderHasEnded) {
  LoadedBlock &block = load("%x: tensor<8xf32>", R"(
    %entry = comm.record on 0 : !comm.event
    comm.await_event %entry on 2 : !comm.event
    %a = comm.compute "f"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %e = comm.record on 0 : !comm.event
    comm.await_event %e on 2 : !comm.event
    %b = comm.compute "g"(%a) {comm.stream = 2 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %d = comm.record on 2 : !comm.event
    %c = comm.compute "h"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    comm.await_event %d on 0 : !comm.event
    %r = comm.compute "i"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %s = comm.compute "j"(%r) : (tensor<8xf32>) -> tensor<8xf32>)");
  EXPECT_EQ(block.problem.streams, std::vector<int64_t>({0, 2}));
  EXPECT_EQ(block.problem.nodes[5].stream, 1);
  EXPECT_EQ(block.problem.nodes[4].event, 3);
  EXPECT_TRUE(block.problem.nodes[6].records);
  // %a is read on stream 2 last, which stream 0 learns at node 8, where it is a use.
  EXPECT_EQ(block.problem.users[0].vec(), std::vector<NodeId>({2, 5, 8}));
  // Nobody reads %b, and stream 0 learns of it at the same place. After node 5, nothing is on stream 2.
  EXPECT_EQ(block.problem.users[1].vec(), std::vector<NodeId>({5, 8}));
  EXPECT_EQ(block.problem.users[2].vec(), std::vector<NodeId>({7}));
  // No operation of a stream passes an anchor of it, but those of the other stream do.
  EXPECT_TRUE(hasEdge(2, 3));
  EXPECT_TRUE(hasEdge(5, 6));
  EXPECT_TRUE(hasEdge(6, 8));
  EXPECT_TRUE(hasEdge(7, 8));
  EXPECT_FALSE(hasEdge(2, 6));
  EXPECT_FALSE(hasEdge(6, 7));
}

TEST_F(ProblemLoaderTest, WhatIsInFlightIsLiveUntilTheWait) {
  LoadedBlock &block = load("%x: tensor<8xf32>", R"(
    %a = comm.compute "f"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %f = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %b = comm.compute "g"(%x) : (tensor<8xf32>) -> tensor<16xf32>
    %w = comm.wait %f : !comm.future<tensor<32xf32>>)");
  EXPECT_EQ(block.problem.nodes[3].start, 1);
  EXPECT_EQ(block.problem.touches[3].vec(), std::vector<BufferId>({0, 1}));
  EXPECT_EQ(peak(), 32 + 128 + 64);
}

TEST_F(ProblemLoaderTest, ADonatedArgumentDiesAfterItsLastUse) {
  LoadedBlock &block = load("%x: tensor<8xf32> {comm.donated}, %y: tensor<4xf32>", R"(
    %a = comm.compute "f"(%x) : (tensor<8xf32>) -> tensor<2xf32>
    %b = comm.compute "g"(%y) : (tensor<4xf32>) -> tensor<16xf32>)");
  EXPECT_EQ(block.problem.buffers[0].def, kNone);
  EXPECT_EQ(block.problem.argumentBytes, 16);
  EXPECT_EQ(peak(), 64); // %x (32) and %a (8) are dead when %b comes
}

TEST_F(ProblemLoaderTest, MutationOrdersReadersAndWriters) {
  load("%x: tensor<8xf32>", R"(
    %a = comm.compute "read"(%x) : (tensor<8xf32>) -> tensor<1xf32>
    comm.compute "write"(%x) mutates [0] : (tensor<8xf32>) -> ()
    %b = comm.compute "read"(%x) : (tensor<8xf32>) -> tensor<1xf32>
    %c = comm.compute "free"(%a) : (tensor<1xf32>) -> tensor<1xf32>)");
  EXPECT_TRUE(hasEdge(0, 1));
  EXPECT_TRUE(hasEdge(1, 2));
  EXPECT_FALSE(hasEdge(0, 2));
  EXPECT_FALSE(hasEdge(1, 3));
}

TEST_F(ProblemLoaderTest, ABufferInFlightIsNotWrittenBeforeTheWait) {
  load("%x: memref<8xf32>, %v: f32, %i: index", R"(
    %in = memref.alloc() : memref<8xf32>
    %out = memref.alloc() : memref<32xf32>
    %f = comm.all_gather %in into %out on @dp : (memref<8xf32>) -> !comm.future<memref<32xf32>>
    %w = comm.wait %f keeping (%in, %out : memref<8xf32>, memref<32xf32>) : !comm.future<memref<32xf32>>
    memref.store %v, %in[%i] : memref<8xf32>
    %r = memref.load %out[%i] : memref<32xf32>
    memref.store %v, %x[%i] : memref<8xf32>)");
  EXPECT_TRUE(hasEdge(3, 4));  // the input may be written after the wait
  EXPECT_TRUE(hasEdge(3, 5));  // the destination may be read after the wait
  EXPECT_FALSE(hasEdge(3, 6)); // other memory has nothing to do with it
  EXPECT_FALSE(hasEdge(4, 6));
}

TEST_F(ProblemLoaderTest, MemrefArgumentsMayBeTheSameMemory) {
  load("%x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32> {llvm.noalias}, %v: f32, %i: index", R"(
    memref.store %v, %x[%i] : memref<8xf32>
    %a = memref.load %y[%i] : memref<8xf32>
    %b = memref.load %z[%i] : memref<8xf32>)");
  EXPECT_TRUE(hasEdge(0, 1));
  EXPECT_FALSE(hasEdge(0, 2));
}

TEST_F(ProblemLoaderTest, UnknownEffectsAreABarrierForCollectivesAndEffects) {
  load("%x: tensor<8xf32>", R"(
    %f = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    func.call @unknown() : () -> ()
    %g = comm.all_reduce sum %x on @tp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %a = comm.compute "pure"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %w = comm.wait %f : !comm.future<tensor<32xf32>>
    %u = comm.wait %g : !comm.future<tensor<8xf32>>)");
  EXPECT_TRUE(hasEdge(0, 1));
  EXPECT_TRUE(hasEdge(1, 2));
  EXPECT_TRUE(hasEdge(1, 4));
  EXPECT_FALSE(hasEdge(1, 3));
}

constexpr StringLiteral kThreeCollectives = R"(
    %f = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %g = comm.all_reduce sum %x on @tp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %h = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    comm.wait %f : !comm.future<tensor<32xf32>>
    comm.wait %g : !comm.future<tensor<8xf32>>
    comm.wait %h : !comm.future<tensor<32xf32>>)";

TEST_F(ProblemLoaderTest, GroupsOnTheSameLinksShareALane) {
  lanes = LaneSharing::PerLink;
  LoadedBlock &inNode = load("%x: tensor<8xf32>", kThreeCollectives);
  EXPECT_EQ(inNode.problem.laneNames, std::vector<std::string>({"compute", "@dp, @tp"}));
  EXPECT_EQ(inNode.problem.nodes[1].lane, inNode.problem.nodes[0].lane);
  EXPECT_NE(inNode.problem.nodes[1].group, inNode.problem.nodes[0].group);
  // @dp leaves the node, @tp does not.
  ranksPerNode = 2;
  LoadedBlock &acrossNodes = load("%x: tensor<8xf32>", kThreeCollectives);
  EXPECT_EQ(acrossNodes.problem.laneNames, std::vector<std::string>({"compute", "@dp", "@tp"}));
  // Every rank is a node: both groups are on the network.
  ranksPerNode = 1;
  EXPECT_EQ(load("%x: tensor<8xf32>", kThreeCollectives).problem.numLanes(), 2);
}

TEST_F(ProblemLoaderTest, TheThreeModesOfCollectiveOrder) {
  LoadedBlock &block = load("%x: tensor<8xf32>", kThreeCollectives);
  EXPECT_EQ(block.problem.laneNames, std::vector<std::string>({"compute", "@dp", "@tp"}));
  EXPECT_TRUE(block.problem.preds[1].empty());
  EXPECT_TRUE(block.problem.preds[2].empty());
  load("%x: tensor<8xf32>", kThreeCollectives, {CollectiveOrder::Group});
  EXPECT_TRUE(loaded->problem.preds[1].empty());
  EXPECT_TRUE(hasEdge(0, 2));
  load("%x: tensor<8xf32>", kThreeCollectives, {CollectiveOrder::Program});
  EXPECT_TRUE(hasEdge(0, 1));
  EXPECT_TRUE(hasEdge(1, 2));
}

TEST_F(ProblemLoaderTest, PointToPointKeepsProgramOrder) {
  load("%x: tensor<8xf32>", R"(
    %s = comm.send %x on @dp peer 1 : (tensor<8xf32>) -> !comm.future<>
    %r = comm.recv on @dp peer 1 : () -> !comm.future<tensor<8xf32>>
    comm.wait %s : !comm.future<>
    comm.wait %r : !comm.future<tensor<8xf32>>)");
  EXPECT_TRUE(hasEdge(0, 1));
}

TEST_F(ProblemLoaderTest, MessagesAreWaitedForAfterTheOnesBeforeAreOffered) {
  load("%x: tensor<8xf32>", R"(
    %s = comm.send %x on @tp peer 0 : (tensor<8xf32>) -> !comm.future<>
    %r = comm.recv on @tp peer 0 : () -> !comm.future<tensor<8xf32>>
    %g = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    comm.wait %s : !comm.future<>
    %h = comm.wait %g : !comm.future<tensor<8xf32>>
    %w = comm.wait %r : !comm.future<tensor<8xf32>>)");
  EXPECT_TRUE(hasEdge(1, 3));
}

/// The rank that sends may wait until the message is received, and start the sum only then. A rank that waits for the
/// sum before it offers to receive waits for ever.
TEST_F(ProblemLoaderTest, NoStartMovesBehindAWaitBesideMessages) {
  for (CollectiveOrder order : {CollectiveOrder::Free, CollectiveOrder::Group, CollectiveOrder::Program}) {
    load("%x: tensor<8xf32>, %c: i1", R"(
      %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
      scf.if %c {
        %s = comm.send %x on @tp peer 1 : (tensor<8xf32>) -> !comm.future<>
        comm.wait %s : !comm.future<>
      }
      scf.if %c {
        %r = comm.recv on @tp peer 0 : () -> !comm.future<tensor<8xf32>>
        %w = comm.wait %r : !comm.future<tensor<8xf32>>
      }
      %g = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
      %gw = comm.wait %g : !comm.future<tensor<32xf32>>
      %fw = comm.wait %f : !comm.future<tensor<8xf32>>)",
         {order});
    EXPECT_TRUE(hasEdge(0, 1)); // a sum that others wait for in front of their receive
    EXPECT_TRUE(hasEdge(2, 4)); // a receive that others wait for in front of their gather
    EXPECT_TRUE(hasEdge(2, 5));
    EXPECT_TRUE(hasEdge(3, 5));
  }
}

/// An event covers messages: a stream that awaits it waits for them.
TEST_F(ProblemLoaderTest, EventsAreAwaitedAfterTheMessagesBeforeAreOffered) {
  load("%x: tensor<8xf32>", R"(
    %s = comm.send %x on @tp peer 0 : (tensor<8xf32>) -> !comm.future<>
    %e = comm.record on 0 : !comm.event
    %r = comm.recv on @tp peer 0 : () -> !comm.future<tensor<8xf32>>
    comm.await_event %e on 2 : !comm.event
    comm.wait %s : !comm.future<>
    %w = comm.wait %r : !comm.future<tensor<8xf32>>)");
  EXPECT_TRUE(hasEdge(0, 1));
  EXPECT_TRUE(hasEdge(2, 3));
}

constexpr StringLiteral kMessagesInARegion = R"(
    %s = comm.send %x on @tp peer 0 : (tensor<8xf32>) -> !comm.future<>
    %a = scf.if %c -> tensor<8xf32> {
      %r = comm.recv on @tp peer 0 : () -> !comm.future<tensor<8xf32>>
      %v = comm.wait %r : !comm.future<tensor<8xf32>>
      scf.yield %v : tensor<8xf32>
    } else {
      scf.yield %x : tensor<8xf32>
    }
    %t = comm.recv on @tp peer 0 : () -> !comm.future<tensor<8xf32>>
    scf.if %c {
      comm.wait %s : !comm.future<>
    }
    %w = comm.wait %t : !comm.future<tensor<8xf32>>)";

TEST_F(ProblemLoaderTest, MessagesInRegionsKeepTheirOrder) {
  for (CollectiveOrder order : {CollectiveOrder::Free, CollectiveOrder::Group, CollectiveOrder::Program}) {
    load("%x: tensor<8xf32>, %c: i1", kMessagesInARegion, {order});
    EXPECT_TRUE(hasEdge(0, 1));
    EXPECT_TRUE(hasEdge(1, 2));
    EXPECT_TRUE(hasEdge(2, 3)); // a wait in a region follows the receive that it may need
  }
}

constexpr StringLiteral kCollectivesInARegion = R"(
    scf.if %c {
      %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
      %fw = comm.wait %f : !comm.future<tensor<8xf32>>
      scf.if %c {
        %g = comm.all_reduce sum %x on @tp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
        %gw = comm.wait %g : !comm.future<tensor<8xf32>>
      }
    }
    %h = comm.all_reduce sum %x on @tp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %i = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %hw = comm.wait %h : !comm.future<tensor<8xf32>>
    %iw = comm.wait %i : !comm.future<tensor<8xf32>>)";

TEST_F(ProblemLoaderTest, CollectivesInRegionsTakePartInTheOrder) {
  load("%x: tensor<8xf32>, %c: i1", kCollectivesInARegion);
  EXPECT_FALSE(hasEdge(0, 1));
  EXPECT_FALSE(hasEdge(0, 2));
  load("%x: tensor<8xf32>, %c: i1", kCollectivesInARegion, {CollectiveOrder::Group});
  EXPECT_TRUE(hasEdge(0, 1)); // @tp, two regions deep
  EXPECT_TRUE(hasEdge(0, 2)); // @dp
  EXPECT_FALSE(hasEdge(1, 2));
  load("%x: tensor<8xf32>, %c: i1", kCollectivesInARegion, {CollectiveOrder::Program});
  EXPECT_TRUE(hasEdge(0, 1));
  EXPECT_TRUE(hasEdge(1, 2));
}

TEST_F(ProblemLoaderTest, UnknownEffectsOrderCollectivesInRegions) {
  load("%x: tensor<8xf32>, %c: i1", R"(
    func.call @unknown() : () -> ()
    scf.if %c {
      %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
      %fw = comm.wait %f : !comm.future<tensor<8xf32>>
    }
    func.call @unknown() : () -> ())");
  EXPECT_TRUE(hasEdge(0, 1));
  EXPECT_TRUE(hasEdge(1, 2));
}

// A gather of 100 us that a branch waits for, then 50 us of compute: 150 us in any order.
constexpr StringLiteral kWaitInARegion = R"(
    %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %g = scf.if %c -> tensor<32xf32> {
      %h = comm.wait %f : !comm.future<tensor<32xf32>>
      scf.yield %h : tensor<32xf32>
    } else {
      %h = comm.wait %f : !comm.future<tensor<32xf32>>
      scf.yield %h : tensor<32xf32>
    }
    %b = comm.compute "b"(%g) {comm.cost = #comm.cost<time = 50000>} : (tensor<32xf32>) -> tensor<32xf32>)";

TEST_F(ProblemLoaderTest, AWaitInARegionIsOneOfItsOperation) {
  LoadedBlock &block = load("%x: tensor<8xf32>, %c: i1", kWaitInARegion);
  ASSERT_EQ(block.problem.regions.size(), 1u);
  EXPECT_EQ(block.problem.regions[0].starts, std::vector<NodeId>({0}));
  EXPECT_TRUE(block.problem.regions[0].lanes.empty());
  Timeline line = simulate(block.problem, identityOrder(block.problem));
  EXPECT_EQ(line.makespan, 150000);
  EXPECT_EQ(line.exposed[1], 100000);
  EXPECT_EQ(lowerBound(block.problem).makespan, 150000);
}

// What a function is given may be what is loaded from memory afterwards, a tensor too: the function may store its
// buffer.
TEST_F(ProblemLoaderTest, AFunctionMayKeepTheBufferOfATensor) {
  load("%f: (tensor<8xf32>) -> (), %x: tensor<8xf32>, %y: tensor<8xf32>, %m: memref<1xmemref<8xf32>>, %v: f32", R"(
    %i = arith.constant 0 : index
    func.call_indirect %f(%x) : (tensor<8xf32>) -> ()
    %kept = memref.load %m[%i] : memref<1xmemref<8xf32>>
    memref.store %v, %kept[%i] : memref<8xf32>
    %a = comm.compute "a"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %b = comm.compute "b"(%y) : (tensor<8xf32>) -> tensor<8xf32>)");
  EXPECT_TRUE(hasEdge(3, 4));
  EXPECT_FALSE(hasEdge(3, 5));
}

// Two all-reduces on one communicator, 4 and 6 us: 10 us in any order.
constexpr StringLiteral kReductionInARegion = R"(
    scf.if %c {
      %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
      %g = comm.wait %f : !comm.future<tensor<8xf32>>
    }
    %r = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 6000>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %s = comm.wait %r : !comm.future<tensor<8xf32>>)";

TEST_F(ProblemLoaderTest, CollectivesInRegionsOccupyTheirLane) {
  LoadedBlock &block = load("%x: tensor<8xf32>, %c: i1", kReductionInARegion);
  EXPECT_EQ(block.problem.nodes[0].kind, NodeKind::Hybrid);
  EXPECT_EQ(makespanOf(block.problem, {0, 1, 2}), 10000);
  EXPECT_EQ(makespanOf(block.problem, {1, 0, 2}), 10000);
  EXPECT_EQ(lowerBound(block.problem).makespan, 10000);
}

// A loop that waits for the gather of the iteration before: 100 us for each of the 11 gathers, then 50 us.
constexpr StringLiteral kCarriedFuture = R"(
    %lo = arith.constant 0 : index
    %n = arith.constant 10 : index
    %one = arith.constant 1 : index
    %f0 = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %r = scf.for %i = %lo to %n step %one iter_args(%carried = %f0) -> !comm.future<tensor<32xf32>> {
      %f1 = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
      %h = comm.wait %carried : !comm.future<tensor<32xf32>>
      %b = comm.compute "b"(%h) {comm.cost = #comm.cost<time = 10000>} : (tensor<32xf32>) -> tensor<32xf32>
      scf.yield %f1 : !comm.future<tensor<32xf32>>
    }
    %last = comm.wait %r : !comm.future<tensor<32xf32>>
    %z = comm.compute "z"(%last) {comm.cost = #comm.cost<time = 50000>} : (tensor<32xf32>) -> tensor<32xf32>)";

TEST_F(ProblemLoaderTest, CarriedFuturesCostWhatTheyTake) {
  LoadedBlock &block = load("%x: tensor<8xf32>", kCarriedFuture);
  EXPECT_EQ(makespanOf(block.problem, identityOrder(block.problem)), 1150000);
  // The body: 10 us of compute and a gather of 100 us, of which an iteration hides no more than the compute.
  Block &body = *findSchedulableBlocks(*module).front();
  LoadedBlock inner = loadBlock(body, *costs);
  Timeline line = simulate(inner.problem, identityOrder(inner.problem));
  EXPECT_EQ(line.makespan, 100000);
  EXPECT_EQ(line.exposedTotal, 90000);
}

TEST_F(ProblemLoaderTest, AFutureThatARegionPassesOnIsWaitedFor) {
  LoadedBlock &block = load("%x: tensor<8xf32>, %c: i1", R"(
    %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 700>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %g = comm.all_reduce sum %x on @tp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %h = scf.if %c -> !comm.future<tensor<8xf32>> {
      scf.yield %f : !comm.future<tensor<8xf32>>
    } else {
      scf.yield %g : !comm.future<tensor<8xf32>>
    }
    %w = comm.wait %h : !comm.future<tensor<8xf32>>
    %a = comm.compute "a"(%w) {comm.cost = #comm.cost<time = 50>} : (tensor<8xf32>) -> tensor<8xf32>)");
  EXPECT_EQ(makespanOf(block.problem, identityOrder(block.problem)), 750);
  // Both are in flight until the wait.
  EXPECT_EQ(block.problem.touches[3].vec(), std::vector<BufferId>({0, 1}));
}

constexpr StringLiteral kCall = R"(
    %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 9000>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %a = func.call @layer(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %g = comm.wait %f : !comm.future<tensor<8xf32>>
    return
  }
  func.func private @layer(%x: tensor<8xf32>) -> tensor<8xf32> {
    %t = comm.compute "big"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<1024xf32>
    %f = comm.all_reduce sum %t on @dp {comm.cost = #comm.cost<time = 7000>} : (tensor<1024xf32>) -> !comm.future<tensor<1024xf32>>
    %g = comm.wait %f : !comm.future<tensor<1024xf32>>
    %r = comm.compute "red"(%g) {comm.cost = #comm.cost<time = 1000>} : (tensor<1024xf32>) -> tensor<8xf32>
    return %r : tensor<8xf32>
  }
  func.func private @again(%x: tensor<8xf32>) {
    func.call @again(%x) : (tensor<8xf32>) -> ())";

// What a region allocates and leaves in flight is one storage for all who wait for it, live from the region on.
TEST_F(ProblemLoaderTest, AFutureOutOfARegionHasOneStorage) {
  LoadedBlock &block = load("%x: memref<8xf32>, %c: i1, %v: f32, %i: index", R"(
    %f = scf.if %c -> (!comm.future<memref<8xf32>>) {
      %a = memref.alloc() : memref<8xf32>
      %g = comm.all_reduce sum %x into %a on @dp : (memref<8xf32>) -> !comm.future<memref<8xf32>>
      scf.yield %g : !comm.future<memref<8xf32>>
    } else {
      %a = memref.alloc() : memref<8xf32>
      %g = comm.all_reduce max %x into %a on @dp : (memref<8xf32>) -> !comm.future<memref<8xf32>>
      scf.yield %g : !comm.future<memref<8xf32>>
    }
    %w = comm.wait %f : !comm.future<memref<8xf32>>
    memref.store %v, %w[%i] : memref<8xf32>
    %w2 = comm.wait %f : !comm.future<memref<8xf32>>
    %l = memref.load %w2[%i] : memref<8xf32>)");
  ASSERT_EQ(block.problem.size(), 5);
  EXPECT_TRUE(hasEdge(2, 4));
  EXPECT_EQ(block.problem.buffers.back().def, 0);
  EXPECT_EQ(block.problem.users[static_cast<BufferId>(block.problem.buffers.size()) - 1].vec(),
            std::vector<NodeId>({0, 1, 2, 3, 4}));
}

// A destination from outside of the region is known, whatever the region sends.
TEST_F(ProblemLoaderTest, AFutureOutOfARegionKeepsItsDestination) {
  LoadedBlock &block = load("%d: memref<8xf32> {llvm.noalias}, %c: i1, %v: f32, %i: index", R"(
    %a = memref.alloc() : memref<8xf32>
    %f = scf.if %c -> (!comm.future<memref<8xf32>>) {
      %s = memref.alloc() : memref<8xf32>
      %g = comm.all_reduce sum %s into %a on @dp : (memref<8xf32>) -> !comm.future<memref<8xf32>>
      scf.yield %g : !comm.future<memref<8xf32>>
    } else {
      %g = comm.all_reduce max %d into %a on @dp : (memref<8xf32>) -> !comm.future<memref<8xf32>>
      scf.yield %g : !comm.future<memref<8xf32>>
    }
    %w = comm.wait %f : !comm.future<memref<8xf32>>
    %l = memref.load %a[%i] : memref<8xf32>)");
  ASSERT_EQ(block.problem.size(), 4);
  EXPECT_TRUE(hasEdge(2, 3));
  Bytes total = 0;
  for (const Buffer &buffer : block.problem.buffers)
    total += buffer.bytes;
  EXPECT_EQ(total, 32);
  EXPECT_EQ(peak(), 64); // %s is live in the region alone
}

TEST_F(ProblemLoaderTest, ACallHasTheLanesAndThePeakOfItsCallee) {
  LoadedBlock &block = load("%x: tensor<8xf32>", kCall);
  EXPECT_EQ(block.problem.nodes[1].kind, NodeKind::Hybrid);
  EXPECT_EQ(makespanOf(block.problem, identityOrder(block.problem)), 9000 + 9000);
  EXPECT_EQ(peak(), 32 + 2 * 4096 + 32 - 32); // the all-reduce outside, the one inside, and the result, counted once
  // A function that calls itself is unknown, and is found out in finite time.
  auto again = module->lookupSymbol<func::FuncOp>("again");
  EXPECT_EQ(loadBlock(again.front(), *costs).unknownCosts, 1);
}

TEST_F(ProblemLoaderTest, ADonatedArgumentThatIsReturnedLivesThroughout) {
  LoadedBlock &block = load("%x: tensor<8xf32> {comm.donated}", R"(
    return
  }
  func.func @g(%x: tensor<8xf32> {comm.donated}) -> tensor<8xf32> {
    return %x : tensor<8xf32>
  }
  func.func @h() {)");
  EXPECT_EQ(block.problem.argumentBytes, 0);
  auto function = module->lookupSymbol<func::FuncOp>("g");
  EXPECT_EQ(loadBlock(function.front(), *costs).problem.argumentBytes, 32);
}

// The largest number in every attribute of every operation: sums are cut where they could overflow.
TEST_F(ProblemLoaderTest, LargestValuesEverywhere) {
  LoadedBlock &block = load(R"(%x: tensor<?xf32> {comm.bytes_hint = 9223372036854775807 : i64},
                               %y: tensor<?xf32> {comm.bytes_hint = 9223372036854775807 : i64, comm.donated},
                               %late: !comm.future<tensor<8xf32>> {comm.ready_ns = 9223372036854775807 : i64})",
                            R"(
    %lo = arith.constant 0 : index
    %n = arith.constant 9223372036854775807 : index
    %one = arith.constant 1 : index
    %l = comm.wait %late : !comm.future<tensor<8xf32>>
    %a = comm.compute "a"(%x) {comm.bytes_hint = array<i64: 9223372036854775807>, comm.cost = #comm.cost<time = 9223372036854775807, workspace = 9223372036854775807>} : (tensor<?xf32>) -> tensor<?xf32>
    %b = comm.compute "b"(%y) {comm.bytes_hint = array<i64: 9223372036854775807>, comm.cost = #comm.cost<flops = 9223372036854775807, bytes = 9223372036854775807, workspace = 9223372036854775807>} : (tensor<?xf32>) -> tensor<?xf32>
    %f = comm.all_gather %a on @dp {comm.bytes_hint = array<i64: 9223372036854775807>, comm.cost = #comm.cost<time = 9223372036854775807, workspace = 9223372036854775807>} : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
    %g = comm.all_gather %b on @tp {comm.bytes_hint = array<i64: 9223372036854775807>} : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
    %w = comm.wait %f : !comm.future<tensor<?xf32>>
    %v = comm.wait %g : !comm.future<tensor<?xf32>>
    %m = comm.compute "m"(%v) {comm.hybrid = @tp, comm.bytes_hint = array<i64: 9223372036854775807>, comm.cost = #comm.cost<time = 9223372036854775807>} : (tensor<?xf32>) -> tensor<?xf32>
    scf.for %i = %lo to %n step %one {
      %d = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 9223372036854775807, workspace = 9223372036854775807>} : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
      %e = comm.wait %d : !comm.future<tensor<?xf32>>
    })",
                            {CollectiveOrder::Free, /*bucketing=*/true});
  EXPECT_GT(block.cutValues, 0);
  Order order = identityOrder(block.problem);
  EXPECT_GT(makespanOf(block.problem, order), 0);
  EXPECT_GE(makespanOf(block.problem, order), lowerBound(block.problem).makespan);
  EXPECT_GT(peakOf(block.problem, order), 0);
  Schedule result = schedule(block.problem);
  EXPECT_EQ(result.defect, "");
  EXPECT_LE(result.makespan, result.inputMakespan);
}

TEST_F(ProblemLoaderTest, CapturedValuesAreUsesOfTheRegionsOperation) {
  LoadedBlock &block = load("%x: tensor<8xf32>, %n: index", R"(
    %a = comm.compute "f"(%x) {comm.cost = #comm.cost<time = 10>} : (tensor<8xf32>) -> tensor<8xf32>
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %ten = arith.constant 10 : index
    scf.for %i = %zero to %ten step %one {
      %b = comm.compute "g"(%a) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<16xf32>
      %f = comm.all_gather %b on @dp {comm.cost = #comm.cost<time = 50>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
      %w = comm.wait %f : !comm.future<tensor<64xf32>>
    })");
  EXPECT_TRUE(hasEdge(0, 4));
  EXPECT_EQ(block.problem.nodes[4].cost, 10 * 150);
  EXPECT_EQ(block.problem.nodes[4].workspace, 64 + 256);
  EXPECT_EQ(findSchedulableBlocks(*module).size(), 1u);
}

TEST_F(ProblemLoaderTest, AFutureThatCameInIsReadyWhenItsArgumentSays) {
  LoadedBlock &block = load("%f: !comm.future<tensor<8xf32>> {comm.ready_ns = 70 : i64}", R"(
    %w = comm.wait %f : !comm.future<tensor<8xf32>>)");
  EXPECT_EQ(block.problem.nodes[0].start, kNone);
  EXPECT_EQ(block.problem.nodes[0].ready, 70);
  EXPECT_EQ(simulate(block.problem, identityOrder(block.problem)).exposedTotal, 70);
}

TEST_F(ProblemLoaderTest, HybridsOccupyTheirGroupsLane) {
  LoadedBlock &block = load("%x: tensor<8xf32>", R"(
    %a = comm.compute "mm_ar"(%x) {comm.hybrid = @tp, comm.cost = #comm.cost<time = 10>} : (tensor<8xf32>) -> tensor<8xf32>)");
  EXPECT_EQ(block.problem.nodes[0].kind, NodeKind::Hybrid);
  EXPECT_EQ(block.problem.laneNames[block.problem.nodes[0].lane], "@tp");
}

TEST_F(ProblemLoaderTest, DynamicSizesCountByTheirHints) {
  LoadedBlock &block = load("%x: tensor<?xf32> {comm.bytes_hint = 100 : i64}", R"(
    %a = comm.compute "f"(%x) {comm.bytes_hint = array<i64: 40>} : (tensor<?xf32>) -> tensor<?xf32>
    %b = comm.compute "g"(%a) : (tensor<?xf32>) -> tensor<?xf32>)");
  EXPECT_EQ(block.unknownSizes, 1);
  EXPECT_EQ(block.problem.argumentBytes, 100);
  EXPECT_EQ(peak(), 40);
}

TEST_F(ProblemLoaderTest, ACopyInsSliceIsPartOfItsBuffer) {
  LoadedBlock &block = load("%x: tensor<8xf32>", R"(
    %slice, %buffer = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<8xf32>) -> (tensor<8xf32>, tensor<32xf32>)
    %f = comm.all_gather %slice into %buffer on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %w = comm.wait %f : !comm.future<tensor<32xf32>>)");
  EXPECT_EQ(block.problem.buffers.size(), 1u);
  EXPECT_EQ(peak(), 128);
}

TEST_F(ProblemLoaderTest, MergeKeysTellGroupsTypesAndReductionsApart) {
  LoadOptions options;
  options.bucketing = true;
  LoadedBlock &block = load("%x: tensor<8xf32>, %h: tensor<8xf16>", R"(
    %a = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %b = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %c = comm.all_gather %h on @dp : (tensor<8xf16>) -> !comm.future<tensor<32xf16>>
    %d = comm.all_gather %x on @tp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
    %e = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %f = comm.all_reduce max %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %aw = comm.wait %a : !comm.future<tensor<32xf32>>
    %bw = comm.wait %b : !comm.future<tensor<32xf32>>
    %cw = comm.wait %c : !comm.future<tensor<32xf16>>
    %dw = comm.wait %d : !comm.future<tensor<16xf32>>
    %ew = comm.wait %e : !comm.future<tensor<8xf32>>
    %fw = comm.wait %f : !comm.future<tensor<8xf32>>)",
                            options);
  EXPECT_EQ(block.problem.mergeKeys.size(), 5u);
  EXPECT_EQ(block.problem.nodes[0].mergeKey, block.problem.nodes[1].mergeKey);
  EXPECT_EQ(block.problem.mergeKeys[0].ranks, 4);
  EXPECT_EQ(block.problem.members[0].wait, 6);
}

// Measured collectives: keys by how their times compare with the model's. A key's curve gives no member less than its
// time.
TEST_F(ProblemLoaderTest, MeasuredCollectivesHaveKeysOfTheirOwn) {
  LoadOptions options;
  options.bucketing = true;
  LoadedBlock &block = load("%x: tensor<8xf32>", R"(
    %f0 = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %f1 = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 50000>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %f2 = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 40000>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %f3 = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 39999>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %f4 = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 0>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %f5 = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
    %w1 = comm.wait %f1 : !comm.future<tensor<32xf32>>
    %w2 = comm.wait %f2 : !comm.future<tensor<32xf32>>
    %w3 = comm.wait %f3 : !comm.future<tensor<32xf32>>
    %w4 = comm.wait %f4 : !comm.future<tensor<32xf32>>
    %w5 = comm.wait %f5 : !comm.future<tensor<32xf32>>)",
                            options);
  std::vector<int32_t> keys;
  for (NodeId start = 0; start < 6; ++start)
    keys.push_back(block.problem.nodes[start].mergeKey);
  EXPECT_EQ(keys[0], keys[5]);
  // The spread of a key is counted from its fastest member.
  EXPECT_EQ(keys[2], keys[3]);
  EXPECT_EQ(std::set<int32_t>(keys.begin(), keys.end()).size(), 4u);
  for (NodeId start = 0; start < 6; ++start) {
    const Node &node = block.problem.nodes[start];
    const MergeKey &key = block.problem.mergeKeys[node.mergeKey];
    EXPECT_GE(key.cost(node.bytes), node.cost);
    EXPECT_LE(key.cost(node.bytes) * 4, node.cost * 5);
    EXPECT_GE(key.coalescedCost(2 * node.bytes, 2), key.cost(2 * node.bytes));
  }
  options.separatesMeasured = false;
  LoadedBlock &together = load("%x: tensor<8xf32>", R"(
    %f0 = comm.all_gather %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %f1 = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 50000>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %w0 = comm.wait %f0 : !comm.future<tensor<32xf32>>
    %w1 = comm.wait %f1 : !comm.future<tensor<32xf32>>)",
                               options);
  EXPECT_EQ(together.problem.nodes[0].mergeKey, together.problem.nodes[1].mergeKey);
}

} // namespace

//===- AccessOrderTest.cpp - Tests of the second derivation of accesses -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each test takes one block, moves one operation in front of another one, and looks at the pair that the check names.
// Orders that keep every access have to pass, too: a check that refuses them would refuse programs.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/InitAll.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"
#include <random>

using namespace mlir;
using namespace commsched;

namespace {

/// The function @main of a module, whose operations have names: the `n` attribute.
class AccessOrderTest : public ::testing::Test {
protected:
  AccessOrderTest() : context(makeRegistry()) { context.allowUnregisteredDialects(); }

  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    mlir::registerAllDialects(registry);
    commsched::registerAllDialects(registry);
    return registry;
  }

  void parse(const std::string &functions) {
    module = parseSourceString<ModuleOp>("comm.group @dp #comm.iota<[1, 2]>\n" + functions, &context);
    ASSERT_TRUE(module);
    function = module->lookupSymbol("main");
    ASSERT_TRUE(function);
  }

  Operation *named(StringRef name) {
    Operation *found = nullptr;
    function->walk([&](Operation *op) {
      if (auto attr = op->getAttrOfType<StringAttr>("n"); attr && attr.getValue() == name)
        found = op;
    });
    EXPECT_NE(found, nullptr) << name.str();
    return found;
  }

  static std::string nameOf(Block &block, int32_t node) {
    auto name = std::next(block.begin(), node)->getAttrOfType<StringAttr>("n");
    return name ? name.str() : "?";
  }

  /// What the check says of the order in which `mover` comes directly in front of `target`, an earlier operation of the
  /// same block: "first < second", or nothing.
  std::string moveInFront(StringRef mover, StringRef target) {
    CallSummaries summaries;
    AccessOrder order(function, summaries);
    Operation *moved = named(mover), *passed = named(target);
    Block &block = *moved->getBlock();
    BlockAccesses accesses = order.derive(block);
    std::vector<AccessTime> times(accesses.numNodes);
    int32_t node = 0, place = 0, from = -1, to = -1;
    for (Operation &op : block) {
      if (node == accesses.numNodes)
        break;
      if (&op == passed)
        to = place++;
      times[node].begin = times[node].end = place++;
      if (&op == moved)
        from = node;
      ++node;
    }
    EXPECT_TRUE(to >= 0 && from >= 0);
    EXPECT_FALSE(findViolation(accesses, times)) << "the order as given";
    times[from].begin = times[from].end = to;
    std::optional<OrderViolation> violation = findViolation(accesses, times);
    return violation ? nameOf(block, violation->first) + " < " + nameOf(block, violation->second) : "";
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  Operation *function = nullptr;
};

// A read that only a callee writes stays behind the call.
TEST_F(AccessOrderTest, ReadStaysBehindCallThatWrites) {
  parse(R"mlir(
    func.func private @bump(%m: memref<4xf32>, %k: index, %v: f32) {
      memref.store %v, %m[%k] : memref<4xf32>
      return
    }
    func.func private @look(%m: memref<4xf32>, %k: index) -> f32 {
      %v = memref.load %m[%k] : memref<4xf32>
      return %v : f32
    }
    func.func private @anything(memref<4xf32>)
    func.func @main(%x: memref<4xf32>, %t: tensor<4xf32>, %k: index, %v: f32) {
      func.call @look(%x, %k) {n = "look"} : (memref<4xf32>, index) -> f32
      func.call @bump(%x, %k, %v) {n = "bump"} : (memref<4xf32>, index, f32) -> ()
      %0 = memref.load %x[%k] {n = "load"} : memref<4xf32>
      func.call @anything(%x) {n = "anything"} : (memref<4xf32>) -> ()
      %1 = memref.load %x[%k] {n = "again"} : memref<4xf32>
      %2 = comm.compute "read"(%t) {n = "tensor"} : (tensor<4xf32>) -> tensor<4xf32>
      return
    })mlir");
  EXPECT_EQ(moveInFront("load", "bump"), "bump < load");
  EXPECT_EQ(moveInFront("bump", "look"), "look < bump");
  EXPECT_EQ(moveInFront("again", "anything"), "anything < again");
  EXPECT_EQ(moveInFront("tensor", "look"), "");
}

// A call writes tensors, too, and what a callee returns may be its argument.
TEST_F(AccessOrderTest, CallsWriteTensorsAndReturnArguments) {
  parse(R"mlir(
    func.func private @write(%t: tensor<4xf32>) {
      comm.compute "w"(%t) mutates [0] : (tensor<4xf32>) -> ()
      return
    }
    func.func private @same(%t: tensor<4xf32>) -> tensor<4xf32> {
      return %t : tensor<4xf32>
    }
    func.func private @new(%t: tensor<4xf32>) -> tensor<4xf32> {
      %0 = comm.compute "c"(%t) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func @main(%t: tensor<4xf32>) {
      %s = func.call @same(%t) : (tensor<4xf32>) -> tensor<4xf32>
      %f = func.call @new(%t) : (tensor<4xf32>) -> tensor<4xf32>
      func.call @write(%t) {n = "write"} : (tensor<4xf32>) -> ()
      %0 = comm.compute "read"(%t) {n = "read"} : (tensor<4xf32>) -> tensor<4xf32>
      comm.compute "w"(%f) mutates [0] {n = "new"} : (tensor<4xf32>) -> ()
      comm.compute "w"(%s) mutates [0] {n = "same"} : (tensor<4xf32>) -> ()
      return
    })mlir");
  EXPECT_EQ(moveInFront("read", "write"), "write < read");
  EXPECT_EQ(moveInFront("new", "write"), "");
  EXPECT_EQ(moveInFront("same", "read"), "read < same");
}

// A memref that was stored in memory may be what is loaded from there.
TEST_F(AccessOrderTest, LoadedMemrefMayBeWhatWasStored) {
  parse(R"mlir(
    func.func @main(%k: index, %v: f32) {
      %a = memref.alloc() : memref<4xf32>
      %b = memref.alloc() : memref<4xf32>
      %mm = memref.alloc() : memref<1xmemref<4xf32>>
      memref.store %a, %mm[%k] : memref<1xmemref<4xf32>>
      %g = memref.load %mm[%k] : memref<1xmemref<4xf32>>
      memref.store %v, %a[%k] {n = "store"} : memref<4xf32>
      memref.store %v, %b[%k] {n = "other"} : memref<4xf32>
      %0 = memref.load %g[%k] {n = "load"} : memref<4xf32>
      return
    })mlir");
  EXPECT_EQ(moveInFront("load", "store"), "store < load");
  EXPECT_EQ(moveInFront("load", "other"), "");
}

// An operation without effects has no address but those that it is given.
TEST_F(AccessOrderTest, PureMemrefIsAView) {
  parse(R"mlir(
    func.func @main(%x: memref<4x2xf32>, %k: index, %v: f32) {
      %a = memref.alloc() : memref<4x2xf32>
      %t = memref.transpose %a (i, j) -> (j, i) : memref<4x2xf32> to memref<2x4xf32, strided<[1, 2]>>
      memref.store %v, %a[%k, %k] {n = "store"} : memref<4x2xf32>
      memref.store %v, %x[%k, %k] {n = "other"} : memref<4x2xf32>
      "any.op"() {n = "any"} : () -> ()
      %0 = memref.load %t[%k, %k] {n = "load"} : memref<2x4xf32, strided<[1, 2]>>
      return
    })mlir");
  EXPECT_EQ(moveInFront("load", "store"), "store < load");
  EXPECT_EQ(moveInFront("load", "other"), "");
  EXPECT_EQ(moveInFront("load", "any"), "");
}

TEST_F(AccessOrderTest, AViewIsTheMemoryOfItsSource) {
  parse(R"mlir(
    func.func @main(%x: memref<4xf32>, %k: index, %v: f32) {
      %a = memref.alloc() : memref<4xf32>
      %s = memref.subview %a[1] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1], offset: 1>>
      %t = bufferization.to_tensor %a restrict : memref<4xf32> to tensor<4xf32>
      %c = tensor.cast %t : tensor<4xf32> to tensor<?xf32>
      memref.store %v, %a[%k] {n = "store"} : memref<4xf32>
      memref.store %v, %x[%k] {n = "other"} : memref<4xf32>
      %0 = memref.load %s[%k] {n = "load"} : memref<2xf32, strided<[1], offset: 1>>
      %1 = tensor.extract %c[%k] {n = "extract"} : tensor<?xf32>
      return
    })mlir");
  EXPECT_EQ(moveInFront("load", "store"), "store < load");
  EXPECT_EQ(moveInFront("load", "other"), "");
  EXPECT_EQ(moveInFront("extract", "store"), "store < extract");
}

// A collective writes its destination from its start on.
TEST_F(AccessOrderTest, ReadOfADestinationStaysBeforeTheStart) {
  parse(R"mlir(
    func.func @main(%x: memref<4xf32>, %y: memref<4xf32>, %k: index) {
      %d = memref.alloc() : memref<4xf32>
      %0 = memref.load %d[%k] {n = "read"} : memref<4xf32>
      %1 = memref.load %y[%k] {n = "other"} : memref<4xf32>
      %f = comm.all_reduce sum %x into %d on @dp {n = "start"} : (memref<4xf32>) -> !comm.future<memref<4xf32>>
      %w = comm.wait %f : !comm.future<memref<4xf32>>
      return
    })mlir");
  EXPECT_EQ(moveInFront("start", "read"), "read < start");
  EXPECT_EQ(moveInFront("start", "other"), "");
}

// What leaves a branch, a loop or a select is what went in.
TEST_F(AccessOrderTest, ResultsOfRegionsAreWhatTheyYield) {
  parse(R"mlir(
    func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1, %l: index, %h: index) {
      %r = scf.if %c -> (tensor<4xf32>) {
        scf.yield %a : tensor<4xf32>
      } else {
        %0 = comm.compute "c"(%b) : (tensor<4xf32>) -> tensor<4xf32>
        scf.yield %0 : tensor<4xf32>
      }
      %o = scf.for %i = %l to %h step %h iter_args(%x = %r) -> (tensor<4xf32>) {
        scf.yield %x : tensor<4xf32>
      }
      comm.compute "w"(%o) mutates [0] {n = "write"} : (tensor<4xf32>) -> ()
      %1 = comm.compute "read"(%b) {n = "readB"} : (tensor<4xf32>) -> tensor<4xf32>
      %2 = comm.all_gather %a on @dp {n = "gather"} : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
      %3 = comm.wait %2 : !comm.future<tensor<8xf32>>
      return
    })mlir");
  EXPECT_EQ(moveInFront("gather", "write"), "write < gather");
  EXPECT_EQ(moveInFront("readB", "write"), "");
}

// A wait that may not run completes nothing. A wait behind a certain one only reads.
TEST_F(AccessOrderTest, OnlyCertainWaitsComplete) {
  parse(R"mlir(
    func.func @main(%c: i1, %k: index) {
      %s = memref.alloc() : memref<4xf32>
      %d = memref.alloc() : memref<4xf32>
      %f = comm.all_reduce sum %s into %d on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
      scf.if %c {
        comm.wait %f keeping (%s, %d : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
      } {n = "maybe"}
      %0 = memref.load %s[%k] {n = "input"} : memref<4xf32>
      comm.wait %f keeping (%s, %d : memref<4xf32>, memref<4xf32>) {n = "wait"} : !comm.future<memref<4xf32>>
      %1 = memref.load %d[%k] {n = "load"} : memref<4xf32>
      comm.wait %f keeping (%s, %d : memref<4xf32>, memref<4xf32>) {n = "again"} : !comm.future<memref<4xf32>>
      return
    })mlir");
  EXPECT_EQ(moveInFront("load", "wait"), "wait < load");
  EXPECT_EQ(moveInFront("again", "load"), "");
  EXPECT_EQ(moveInFront("wait", "input"), "");
}

TEST_F(AccessOrderTest, WaitsInBothBranchesAreCertain) {
  parse(R"mlir(
    func.func @main(%c: i1, %k: index) {
      %s = memref.alloc() : memref<4xf32>
      %d = memref.alloc() : memref<4xf32>
      %f = comm.all_reduce sum %s into %d on @dp {n = "start"} : (memref<4xf32>) -> !comm.future<memref<4xf32>>
      scf.if %c {
        comm.wait %f keeping (%s, %d : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
      } else {
        comm.wait %f keeping (%s, %d : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
      } {n = "both"}
      %1 = memref.load %d[%k] {n = "load"} : memref<4xf32>
      comm.wait %f keeping (%s, %d : memref<4xf32>, memref<4xf32>) {n = "again"} : !comm.future<memref<4xf32>>
      return
    })mlir");
  EXPECT_EQ(moveInFront("again", "load"), "");
  EXPECT_EQ(moveInFront("load", "both"), "both < load");
}

// What a loop's body is given from an earlier iteration is not what it makes in this one.
TEST_F(AccessOrderTest, IterationsHaveMemoryOfTheirOwn) {
  parse(R"mlir(
    func.func @main(%a: tensor<4xf32>, %l: index, %h: index) -> tensor<8xf32> {
      %z = comm.compute "z"(%a) : (tensor<4xf32>) -> tensor<8xf32>
      %o = scf.for %i = %l to %h step %h iter_args(%x = %z) -> (tensor<8xf32>) {
        %0 = comm.compute "read"(%x) {n = "read"} : (tensor<8xf32>) -> tensor<8xf32>
        %d = comm.compute "d"(%a) {n = "make"} : (tensor<4xf32>) -> tensor<8xf32>
        comm.compute "w"(%d) mutates [0] {n = "write"} : (tensor<8xf32>) -> ()
        comm.compute "w"(%x) mutates [0] {n = "carried"} : (tensor<8xf32>) -> ()
        scf.yield %d : tensor<8xf32>
      }
      return %o : tensor<8xf32>
    })mlir");
  EXPECT_EQ(moveInFront("write", "read"), "");
  EXPECT_EQ(moveInFront("carried", "read"), "read < carried");
}

// The same for a loop of basic blocks, whose argument belongs to another block than its body.
TEST_F(AccessOrderTest, RunsOfABlockHaveMemoryOfTheirOwn) {
  parse(R"mlir(
    func.func @main(%a: tensor<4xf32>, %c: i1) -> tensor<8xf32> {
      %z = comm.compute "z"(%a) : (tensor<4xf32>) -> tensor<8xf32>
      cf.br ^head(%z : tensor<8xf32>)
    ^head(%x: tensor<8xf32>):
      cf.cond_br %c, ^body, ^end
    ^body:
      %0 = comm.compute "read"(%x) {n = "read"} : (tensor<8xf32>) -> tensor<8xf32>
      %d = comm.compute "d"(%a) {n = "make"} : (tensor<4xf32>) -> tensor<8xf32>
      comm.compute "w"(%d) mutates [0] {n = "write"} : (tensor<8xf32>) -> ()
      comm.compute "w"(%x) mutates [0] {n = "carried"} : (tensor<8xf32>) -> ()
      cf.br ^head(%d : tensor<8xf32>)
    ^end:
      return %x : tensor<8xf32>
    })mlir");
  EXPECT_EQ(moveInFront("write", "read"), "");
  EXPECT_EQ(moveInFront("carried", "read"), "read < carried");
}

// What a region captures may be one memory under several names, and a collective in flight.
TEST_F(AccessOrderTest, CapturedValuesKeepTheirOrigin) {
  parse(R"mlir(
    func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1) {
      %v = comm.compute "view"(%a) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>
      %f = comm.all_reduce sum %b into %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
      scf.if %c {
        %0 = comm.compute "read"(%v) {n = "early"} : (tensor<4xf32>) -> tensor<4xf32>
        %w = comm.wait %f {n = "wait"} : !comm.future<tensor<4xf32>>
        comm.compute "w"(%a) mutates [0] {n = "write"} : (tensor<4xf32>) -> ()
        %1 = comm.compute "read"(%v) {n = "late"} : (tensor<4xf32>) -> tensor<4xf32>
      }
      return
    })mlir");
  EXPECT_EQ(moveInFront("late", "write"), "write < late");
  EXPECT_EQ(moveInFront("write", "wait"), "wait < write");
  EXPECT_EQ(moveInFront("wait", "early"), "early < wait");
}

// Nobody knows what an unknown operation does, apart from memory that it cannot reach.
TEST_F(AccessOrderTest, UnknownOperationsReachWhatIsExposed) {
  parse(R"mlir(
    memref.global @g : memref<4xf32>
    func.func @main(%t: tensor<4xf32>, %x: memref<4xf32>, %own: memref<4xf32> {llvm.noalias}, %k: index) {
      %g = memref.get_global @g : memref<4xf32>
      %p = memref.alloc() : memref<4xf32>
      "any.op"() {n = "any"} : () -> ()
      %0 = memref.load %g[%k] {n = "global"} : memref<4xf32>
      %1 = memref.load %x[%k] {n = "argument"} : memref<4xf32>
      %2 = memref.load %own[%k] {n = "own"} : memref<4xf32>
      %3 = memref.load %p[%k] {n = "private"} : memref<4xf32>
      %4 = comm.compute "read"(%t) {n = "tensor"} : (tensor<4xf32>) -> tensor<4xf32>
      return
    })mlir");
  EXPECT_EQ(moveInFront("global", "any"), "any < global");
  EXPECT_EQ(moveInFront("argument", "any"), "any < argument");
  EXPECT_EQ(moveInFront("own", "any"), "");
  EXPECT_EQ(moveInFront("private", "any"), "");
  EXPECT_EQ(moveInFront("tensor", "any"), "");
}

// Two collectives in flight at one time may be waited for in any order, even if their memory may be the same.
TEST_F(AccessOrderTest, WaitsNeedNoOrder) {
  parse(R"mlir(
    func.func @main(%x: memref<4xf32>, %y: memref<4xf32>, %k: index) {
      %s = comm.send %x on @dp peer 1 tag 5 : (memref<4xf32>) -> !comm.future<>
      %f = comm.all_reduce sum %y into %y on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
      comm.wait %s {n = "send"} : !comm.future<>
      comm.wait %f {n = "wait"} : !comm.future<memref<4xf32>>
      %0 = memref.load %x[%k] {n = "load"} : memref<4xf32>
      return
    })mlir");
  EXPECT_EQ(moveInFront("wait", "send"), "");
  EXPECT_EQ(moveInFront("load", "wait"), "wait < load");
}

// A function that calls itself may do anything with what it is given.
TEST_F(AccessOrderTest, RecursionIsUnknown) {
  parse(R"mlir(
    func.func private @again(%m: memref<4xf32>) {
      func.call @again(%m) : (memref<4xf32>) -> ()
      return
    }
    func.func @main(%k: index) {
      %a = memref.alloc() : memref<4xf32>
      func.call @again(%a) {n = "call"} : (memref<4xf32>) -> ()
      %0 = memref.load %a[%k] {n = "load"} : memref<4xf32>
      return
    })mlir");
  EXPECT_EQ(moveInFront("load", "call"), "call < load");
}

/// All pairs, one by one.
bool hasViolation(const BlockAccesses &accesses, ArrayRef<AccessTime> times) {
  auto conflicts = [&](ObjectAccess a, ObjectAccess b) {
    return a.node < b.node && (a.writes || b.writes) && !(a.waits && b.waits) &&
           times[a.node].end >= times[b.node].begin;
  };
  std::vector<std::vector<ObjectAccess>> lists = accesses.objects;
  for (auto [object, list] : llvm::enumerate(accesses.objects))
    if (accesses.exposed[object])
      for (ObjectAccess access : list)
        for (ObjectAccess any : accesses.anywhere)
          if (conflicts(access, any) || conflicts(any, access))
            return true;
  lists.push_back(accesses.anywhere);
  for (const auto &list : lists)
    for (ObjectAccess a : list)
      for (ObjectAccess b : list)
        if (conflicts(a, b))
          return true;
  return false;
}

TEST(FindViolationTest, AgreesWithAllPairs) {
  std::mt19937 random(3);
  auto below = [&](int bound) { return static_cast<int32_t>(random() % bound); };
  int found = 0, kept = 0;
  for (int round = 0; round < 4000; ++round) {
    BlockAccesses accesses;
    accesses.numNodes = 1 + below(7);
    std::vector<bool> isWait(accesses.numNodes);
    for (int32_t node = 0; node < accesses.numNodes; ++node)
      isWait[node] = below(3) == 0;
    auto draw = [&](int percent) {
      std::vector<ObjectAccess> list;
      for (int32_t node = 0; node < accesses.numNodes; ++node)
        if (below(100) < percent)
          list.push_back({node, below(3) == 0, isWait[node]});
      return list;
    };
    for (int32_t objects = below(4); objects > 0; --objects) {
      accesses.objects.push_back(draw(40));
      accesses.exposed.push_back(below(2) == 0);
    }
    accesses.anywhere = draw(20);
    std::vector<AccessTime> times(accesses.numNodes);
    for (int32_t node = 0; node < accesses.numNodes; ++node)
      times[node].begin = times[node].end = node;
    for (int32_t swaps = below(3); swaps > 0; --swaps)
      std::swap(times[below(accesses.numNodes)], times[below(accesses.numNodes)]);
    times[below(accesses.numNodes)].end += below(2);
    std::optional<OrderViolation> violation = findViolation(accesses, times);
    EXPECT_EQ(violation.has_value(), hasViolation(accesses, times)) << "round " << round;
    if (violation) {
      EXPECT_LT(violation->first, violation->second);
      EXPECT_GE(times[violation->first].end, times[violation->second].begin);
    }
    ++(violation ? found : kept);
  }
  EXPECT_GT(found, 400);
  EXPECT_GT(kept, 400);
}

} // namespace

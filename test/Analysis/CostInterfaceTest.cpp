//===- CostInterfaceTest.cpp - Tests of what operations cost ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Small programs on a machine with round numbers, each cost by hand. An operation under test carries `test`.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/MatrixProducts.h"
#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/InitAll.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace commsched;

namespace {

/// A kernel's launch is 7 ns. Matrix units: 1 flop per ps (f32), 2 (bf16); vector units: 1 flop per 2 ps. Memory: 100
/// bytes per ns; copies: 50 bytes per ns and a launch of 3 ns. Links: 10 bytes per ns, 100 + 5 ns per level of a tree.
constexpr const char *kMachine = R"({"schema_version": 1, "name": "plain", "node": {"ranks": 4},
  "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100},
  "compute": {"peak_tflops": {"f32": 1, "bf16": 2}, "vector_tflops": {"f32": 0.5}, "launch_ns": 7},
  "copy": {"launch_ns": 3, "bandwidth_gbps": 50}, "overheads": {"issue_ns": 1},
  "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}, "inter": {"bandwidth_gbps": 1, "latency_ns": 50}},
  "ops": [{"name": "linalg.matmul", "shapes": ["8x8xf32", "8x8xf32", "8x8xf32"], "ns": 4242},
          {"name": "aten.mm", "ns": 555}, {"name": "test.known", "ns": 66}]})";

class CostInterfaceTest : public ::testing::Test {
protected:
  CostInterfaceTest() : model(llvm::cantFail(MachineModel::parse(kMachine))), costs(model) {
    DialectRegistry registry;
    mlir::registerAllDialects(registry);
    commsched::registerAllDialects(registry);
    commsched::registerAllExtensions(registry);
    context.appendDialectRegistry(registry);
    context.allowUnregisteredDialects();
  }

  /// The operation with `test` in a module, or in a function with this body and these arguments.
  Operation *parseModule(const std::string &text) {
    modules.push_back(parseSourceString<ModuleOp>(text, &context));
    Operation *found = nullptr;
    if (modules.back())
      modules.back()->walk([&](Operation *op) {
        if (op->hasAttr("test"))
          found = op;
      });
    EXPECT_TRUE(found) << text;
    return found;
  }
  Operation *parse(const std::string &arguments, const std::string &body) {
    return parseModule("func.func private @f(" + arguments + ") {\n" + body + "\nreturn\n}");
  }

  /// Expects a cost by its time and source.
  void expectCost(Operation *op, Ns time, OpCostSource source) {
    ASSERT_TRUE(op);
    OpCost cost = costs.costOf(op);
    EXPECT_EQ(cost.time, time) << op->getName().getStringRef().str();
    EXPECT_EQ(static_cast<int>(cost.source), static_cast<int>(source)) << op->getName().getStringRef().str();
  }
  void expectCost(const std::string &arguments, const std::string &body, Ns time, OpCostSource source) {
    expectCost(parse(arguments, body), time, source);
  }

  MLIRContext context;
  std::vector<OwningOpRef<ModuleOp>> modules;
  CostModel model;
  OperationCosts costs;
};

/// Tests that a time in comm.cost beats everything, and flops and bytes what the operation tells.
TEST_F(CostInterfaceTest, TheAttributeComesFirst) {
  std::string matrices = "%a: tensor<8x8xf32>";
  expectCost(
      matrices,
      R"(%0 = linalg.matmul {test, comm.cost = #comm.cost<time = 31>} ins(%a, %a : tensor<8x8xf32>, tensor<8x8xf32>)
                          outs(%a : tensor<8x8xf32>) -> tensor<8x8xf32>)",
      31, OpCostSource::Measured);
  // 7 + 1,000,000 flops by the matrix units.
  expectCost(
      matrices,
      R"(%0 = comm.compute "x"(%a) {test, comm.cost = #comm.cost<flops = 1000000>} : (tensor<8x8xf32>) -> tensor<8x8xf32>)",
      1007, OpCostSource::Roofline);
  // The vector units, as arith.addf tells, and the bytes of the attribute.
  expectCost(matrices, "%0 = arith.addf %a, %a {test, comm.cost = #comm.cost<flops = 1000000>} : tensor<8x8xf32>", 2007,
             OpCostSource::Roofline);
  expectCost(matrices, "%0 = arith.addf %a, %a {test, comm.cost = #comm.cost<bytes = 100000>} : tensor<8x8xf32>", 1007,
             OpCostSource::Roofline);
  Operation *op =
      parse(matrices,
            R"(%0 = "a.b"(%a) {test, comm.cost = #comm.cost<workspace = 5>} : (tensor<8x8xf32>) -> tensor<8x8xf32>)");
  EXPECT_EQ(costs.costOf(op).workspace, 5);
  expectCost(op, 7 + 5, OpCostSource::Guess);
}

/// Tests that a measurement of these shapes beats the model, and one of the name alone only the guess.
TEST_F(CostInterfaceTest, TheTableOfTheMachine) {
  expectCost("%a: tensor<8x8xf32>",
             "%0 = linalg.matmul {test} ins(%a, %a : tensor<8x8xf32>, tensor<8x8xf32>) outs(%a : tensor<8x8xf32>) -> "
             "tensor<8x8xf32>",
             4242, OpCostSource::Table);
  expectCost("%a: tensor<8x8xf32>", R"(%0 = comm.compute "aten.mm"(%a) {test} : (tensor<8x8xf32>) -> tensor<8x8xf32>)",
             555, OpCostSource::Table);
  expectCost("%a: tensor<8x8xf32>", R"("test.known"(%a) {test} : (tensor<8x8xf32>) -> ())", 66, OpCostSource::Table);
}

TEST_F(CostInterfaceTest, Linalg) {
  // 2 x 100 x 100 x 100 flops at 2 per ps: 1000 ns; 3 x 20000 bytes would take 600.
  expectCost("%a: tensor<100x100xbf16>",
             "%0 = linalg.matmul {test} ins(%a, %a : tensor<100x100xbf16>, tensor<100x100xbf16>) outs(%a : "
             "tensor<100x100xbf16>) -> tensor<100x100xbf16>",
             7 + 1000, OpCostSource::Roofline);
  // A fill writes 40000 bytes.
  expectCost("%a: memref<100x100xf32>, %v: f32", "linalg.fill {test} ins(%v : f32) outs(%a : memref<100x100xf32>)",
             7 + 400, OpCostSource::Roofline);
  // A transposition reads and writes 40000 bytes, a broadcast reads 400.
  expectCost(
      "%a: memref<100x100xf32>, %b: memref<100x100xf32>",
      "linalg.transpose ins(%a : memref<100x100xf32>) outs(%b : memref<100x100xf32>) permutation = [1, 0] {test}",
      7 + 800, OpCostSource::Roofline);
  expectCost("%a: memref<100xf32>, %b: memref<100x100xf32>",
             "linalg.broadcast ins(%a : memref<100xf32>) outs(%b : memref<100x100xf32>) dimensions = [0] {test}",
             7 + 404, OpCostSource::Roofline);
  // exp is 16 operations of 2 ps: 10000 points in 320 ns; 40000 bytes read and written take 800.
  expectCost("%a: memref<100x100xf32>",
             R"(linalg.exp {test} ins(%a : memref<100x100xf32>) outs(%a : memref<100x100xf32>))", 7 + 800,
             OpCostSource::Roofline);
  // A convolution: 8 x 8 x 100 points of 9 x 50 multiplications and additions, 1 flop per ps.
  expectCost("%a: memref<1x10x10x50xf32>, %w: memref<3x3x50x100xf32>, %b: memref<1x8x8x100xf32>",
             "linalg.conv_2d_nhwc_hwcf {test} ins(%a, %w : memref<1x10x10x50xf32>, memref<3x3x50x100xf32>) outs(%b : "
             "memref<1x8x8x100xf32>)",
             7 + 5760, OpCostSource::Roofline);
  // Pooling compares on the vector units, which take 2 ps each: 8 x 8 x 100 points of 400 elements.
  expectCost("%a: memref<1x27x27x100xf32>, %w: memref<20x20xf32>, %b: memref<1x8x8x100xf32>",
             "linalg.pooling_nhwc_max {test} ins(%a, %w : memref<1x27x27x100xf32>, memref<20x20xf32>) outs(%b : "
             "memref<1x8x8x100xf32>)",
             7 + 5120, OpCostSource::Roofline);
  // An accumulation into a fresh tensor does not read it: 2 x 40000 bytes; into an argument, it does: 3 x 40000.
  std::string generic =
      R"(%0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%a : tensor<100x100xf32>) outs(%b : tensor<100x100xf32>) attrs = {test} {
      ^bb0(%x: f32, %y: f32): %s = arith.addf %x, %y : f32 linalg.yield %s : f32 } -> tensor<100x100xf32>)";
  expectCost("%a: tensor<100x100xf32>", "%b = tensor.empty() : tensor<100x100xf32>\n" + generic, 7 + 800,
             OpCostSource::Roofline);
  expectCost("%a: tensor<100x100xf32>, %b: tensor<100x100xf32>", generic, 7 + 1200, OpCostSource::Roofline);
}

/// Tests which shapes matrix products have by their names and types.
TEST_F(CostInterfaceTest, ShapesOfProducts) {
  auto expectShape = [&](const std::string &name, const std::string &types, ProductShape expected) {
    std::string operands = StringRef(types).count("tensor") == 3 ? "%a, %b" : "%a, %b, %c";
    std::string inputs = StringRef(types).split(" -> ").first.drop_front().drop_back().str();
    SmallVector<StringRef> each;
    StringRef(inputs).split(each, ", ");
    std::string arguments;
    for (auto [index, type] : llvm::enumerate(each))
      arguments += (index ? ", %" : "%") + std::string(1, static_cast<char>('a' + index)) + ": " + type.str();
    Operation *op = parse(arguments, "%0 = comm.compute \"" + name + "\"(" + operands + ") {test} : " + types);
    ASSERT_TRUE(op);
    ProductShape shape = getProductShape(op);
    EXPECT_EQ(shape.batches, expected.batches) << name;
    EXPECT_EQ(shape.rows, expected.rows) << name;
    EXPECT_EQ(shape.columns, expected.columns) << name;
  };
  expectShape("aten.mm.default", "(tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>", {1, 4, 6});
  expectShape("aten.addmm", "(tensor<6xf32>, tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>", {1, 4, 6});
  expectShape("aten.bmm.default", "(tensor<3x4x5xf32>, tensor<3x5x6xf32>) -> tensor<3x4x6xf32>", {3, 4, 6});
  // All rows of a linear layer meet one matrix.
  expectShape("aten.linear", "(tensor<3x4x5xf32>, tensor<6x5xf32>) -> tensor<3x4x6xf32>", {1, 12, 6});
  expectShape("aten._scaled_dot_product_flash_attention.default",
              "(tensor<2x3x8x4xf32>, tensor<2x3x9x4xf32>, tensor<2x3x9x4xf32>) -> tensor<2x3x8x4xf32>", {6, 8, 4});
  expectShape("aten.einsum", "(tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>", {1, 0, 0});
  expectShape("aten.convolution", "(tensor<1x2x4x5xf32>, tensor<3x2x1x1xf32>) -> tensor<1x3x4x5xf32>", {1, 0, 0});
  expectShape("aten.mul.Tensor", "(tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>", {1, 0, 0});
}

/// Tests that products take waves of tiles on a machine that has them, and that the model without measurements is told.
TEST_F(CostInterfaceTest, ProductsInWavesOfTiles) {
  MachineModel machine = llvm::cantFail(MachineModel::parse(kMachine));
  machine.tiles = MatrixTiles{2, 0, {{4, 4, 1000}}};
  CostModel tiled(machine);
  OperationCosts inWaves(tiled);
  std::string matrices = "%a: tensor<10x2000xf32>, %b: tensor<2000x4xf32>";
  // 2 x 10 x 4 x 2000 operations take 160 ns. Three tiles take two waves of 2 x 4 x 4 x 2 x 2000 operations: 256 ns.
  // The bytes of the attribute take less.
  Operation *product = parse(
      matrices,
      R"(%0 = comm.compute "aten.mm"(%a, %b) {test, comm.cost = #comm.cost<flops = 160000, bytes = 100>} : (tensor<10x2000xf32>, tensor<2000x4xf32>) -> tensor<10x4xf32>)");
  EXPECT_EQ(costs.costOf(product).time, 7 + 160);
  EXPECT_EQ(inWaves.costOf(product).time, 7 + 256);
  // linalg tells its shape itself: 2 batches of 3 tiles are three waves, which take 384 ns. The attribute replaces
  // flops and bytes.
  Operation *batch = parse(
      "%a: tensor<2x10x2000xf32>, %b: tensor<2x2000x4xf32>, %c: tensor<2x10x4xf32>",
      R"(%0 = linalg.batch_matmul {test, comm.cost = #comm.cost<bytes = 100>} ins(%a, %b : tensor<2x10x2000xf32>, tensor<2x2000x4xf32>)
                          outs(%c : tensor<2x10x4xf32>) -> tensor<2x10x4xf32>)");
  EXPECT_EQ(costs.costOf(batch).time, 7 + 320);
  EXPECT_EQ(inWaves.costOf(batch).time, 7 + 384);
  // Nobody knows in which tiles a convolution is computed.
  Operation *convolution = parse("%a: memref<1x10x10x50xf32>, %w: memref<3x3x50x100xf32>, %b: memref<1x8x8x100xf32>",
                                 "linalg.conv_2d_nhwc_hwcf {test} ins(%a, %w : memref<1x10x10x50xf32>, "
                                 "memref<3x3x50x100xf32>) outs(%b : memref<1x8x8x100xf32>)");
  EXPECT_EQ(inWaves.costOf(convolution).time, 7 + 5760);
  // A given time and an entry of the table precede the model, which modelledTimeOf() asks nevertheless.
  product->setAttr("comm.cost",
                   comm::CostAttr::get(&context, 160000, 100, std::nullopt, 999, std::nullopt, std::nullopt));
  EXPECT_EQ(inWaves.costOf(product).time, 999);
  EXPECT_EQ(inWaves.modelledTimeOf(product), 7 + 256);
  Operation *measured =
      parse("%a: tensor<8x8xf32>",
            "%0 = linalg.matmul {test} ins(%a, %a : tensor<8x8xf32>, tensor<8x8xf32>) outs(%a : tensor<8x8xf32>) -> "
            "tensor<8x8xf32>");
  EXPECT_EQ(inWaves.costOf(measured).time, 4242);
  // 4 x 256 bytes.
  EXPECT_EQ(inWaves.modelledTimeOf(measured), 7 + 10);
  // An operation without work has no time of its own.
  Operation *view = parse("%a: tensor<8x8xf32>", "%0 = tensor.cast %a {test} : tensor<8x8xf32> to tensor<?x8xf32>");
  EXPECT_EQ(inWaves.modelledTimeOf(view), 0);
}

TEST_F(CostInterfaceTest, TensorsAndElementwise) {
  std::string argument = "%a: tensor<1000xf32>";
  // Three times 4000 bytes.
  expectCost(argument, "%0 = arith.addf %a, %a {test} : tensor<1000xf32>", 7 + 120, OpCostSource::Roofline);
  // 16 x 1000 operations of 2 ps, and 8000 bytes take 80.
  expectCost(argument, "%0 = math.exp %a {test} : tensor<1000xf32>", 7 + 80, OpCostSource::Roofline);
  // A cast computes nothing: 4000 bytes read, 2000 written.
  expectCost(argument, "%0 = arith.truncf %a {test} : tensor<1000xf32> to tensor<1000xbf16>", 7 + 60,
             OpCostSource::Roofline);
  expectCost("", "%0 = arith.constant {test} dense<0.0> : tensor<1000xf32>", 0, OpCostSource::Free);
  expectCost("%x: f32", "%0 = arith.addf %x, %x {test} : f32", 0, OpCostSource::Free);
  expectCost(argument, "%0 = tensor.extract_slice %a[0] [10] [1] {test} : tensor<1000xf32> to tensor<10xf32>", 0,
             OpCostSource::Free);
  expectCost(
      argument,
      "%0 = tensor.expand_shape %a [[0, 1]] output_shape [10, 100] {test} : tensor<1000xf32> into tensor<10x100xf32>",
      0, OpCostSource::Free);
  // A slice is read and written: 2 x 400 bytes, not the destination.
  expectCost(argument + ", %s: tensor<100xf32>",
             "%0 = tensor.insert_slice %s into %a[0] [100] [1] {test} : tensor<100xf32> into tensor<1000xf32>", 7 + 8,
             OpCostSource::Roofline);
  expectCost(argument,
             "%0 = tensor.concat dim(0) %a, %a {test} : (tensor<1000xf32>, tensor<1000xf32>) -> tensor<2000xf32>",
             7 + 160, OpCostSource::Roofline);
}

TEST_F(CostInterfaceTest, MemRefsAndBuffers) {
  std::string arguments = "%a: memref<1000xf32>, %b: memref<1000xf32>";
  expectCost(arguments, "memref.copy %a, %b {test} : memref<1000xf32> to memref<1000xf32>", 7 + 80,
             OpCostSource::Roofline);
  expectCost(arguments, "%0 = memref.alloc() {test} : memref<1000xf32>", 0, OpCostSource::Free);
  expectCost(arguments, "%0 = memref.subview %a[0] [10] [1] {test} : memref<1000xf32> to memref<10xf32, strided<[1]>>",
             0, OpCostSource::Free);
  expectCost(arguments, "%0 = bufferization.clone %a {test} : memref<1000xf32> to memref<1000xf32>", 7 + 80,
             OpCostSource::Roofline);
  expectCost(arguments, "%0 = bufferization.to_tensor %a {test} : memref<1000xf32> to tensor<1000xf32>", 0,
             OpCostSource::Free);
}

TEST_F(CostInterfaceTest, LoopsAreOneKernel) {
  // 200 times: 4 bytes loaded, 4 stored, one operation. One launch; 1600 bytes take 16 ns, 200 operations 0.4.
  std::string nest = R"(%c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c10 = arith.constant 10 : index
    %c20 = arith.constant 20 : index
    scf.for %i = %c0 to %c10 step %c1 {
      scf.for %j = %c0 to %c20 step %c1 {
        %x = memref.load %a[%j] : memref<20xf32>
        %y = arith.mulf %x, %x : f32
        memref.store %y, %a[%j] : memref<20xf32>
      }
    } {test})";
  expectCost("%a: memref<20xf32>", nest, 7 + 16, OpCostSource::Roofline);
  // Kernels inside are launched each time: 10 x (7 + 8).
  expectCost("%a: memref<100xf32>, %b: memref<100xf32>", R"(%c0 = arith.constant 0 : index
    %c3 = arith.constant 3 : index
    %c30 = arith.constant 30 : index
    scf.for %i = %c0 to %c30 step %c3 {
      memref.copy %a, %b : memref<100xf32> to memref<100xf32>
    } {test})",
             150, OpCostSource::Roofline);
  // A trip count that is not known counts once, and is reported.
  expectCost("%a: memref<100xf32>, %b: memref<100xf32>, %n: index", R"(%c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.for %i = %c0 to %n step %c1 {
      memref.copy %a, %b : memref<100xf32> to memref<100xf32>
    } {test})",
             15, OpCostSource::Guess);
  // Of branches the longest.
  expectCost("%a: memref<100xf32>, %b: memref<100xf32>, %c: i1", R"(scf.if %c {
      memref.copy %a, %b : memref<100xf32> to memref<100xf32>
      memref.copy %a, %b : memref<100xf32> to memref<100xf32>
    } else {
      memref.copy %a, %b : memref<100xf32> to memref<100xf32>
    } {test})",
             30, OpCostSource::Roofline);
  // 6 x 5 points of 8 bytes.
  expectCost("%a: memref<6x5xf32>", R"(%c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c6 = arith.constant 6 : index
    %c5 = arith.constant 5 : index
    %z = arith.constant 0.0 : f64
    scf.parallel (%i, %j) = (%c0, %c0) to (%c6, %c5) step (%c1, %c1) {
      %x = memref.load %a[%i, %j] : memref<6x5xf32>
      memref.store %x, %a[%i, %j] : memref<6x5xf32>
    } {test})",
             7 + 2, OpCostSource::Roofline);
}

TEST_F(CostInterfaceTest, CallsCostTheirCallee) {
  // The collective (100 + 2 x 5 + 4000 bytes x 3/4 / 10 = 410, issued at 0 for 1 ns) hides a copy of 15 ns; then
  // another.
  Operation *op = parseModule(R"(
    comm.group @dp #comm.iota<[1, 4]>
    func.func private @body(%x: tensor<250xf32>, %a: memref<100xf32>, %b: memref<100xf32>) {
      %f = comm.all_gather %x on @dp : (tensor<250xf32>) -> !comm.future<tensor<1000xf32>>
      memref.copy %a, %b : memref<100xf32> to memref<100xf32>
      %y = comm.wait %f : !comm.future<tensor<1000xf32>>
      memref.copy %a, %b : memref<100xf32> to memref<100xf32>
      return
    }
    func.func @main(%x: tensor<250xf32>, %a: memref<100xf32>, %b: memref<100xf32>) {
      func.call @body(%x, %a, %b) {test} : (tensor<250xf32>, memref<100xf32>, memref<100xf32>) -> ()
      return
    })");
  expectCost(op, 410 + 15, OpCostSource::Roofline);
  // An external function, or one that calls itself, is not known: a kernel over its operands.
  expectCost(parseModule(R"(
    func.func private @outside(memref<100xf32>)
    func.func @main(%a: memref<100xf32>) {
      func.call @outside(%a) {test} : (memref<100xf32>) -> ()
      return
    })"),
             7 + 4, OpCostSource::Guess);
  expectCost(parseModule(R"(
    func.func @main(%a: memref<100xf32>) {
      func.call @main(%a) {test} : (memref<100xf32>) -> ()
      return
    })"),
             7 + 4, OpCostSource::Guess);
}

TEST_F(CostInterfaceTest, VectorsAreInlined) {
  // 10 x 64 bytes read and written.
  expectCost("%a: memref<16xf32>", R"(%c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c10 = arith.constant 10 : index
    scf.for %i = %c0 to %c10 step %c1 {
      %v = vector.load %a[%c0] : memref<16xf32>, vector<16xf32>
      %w = vector.fma %v, %v, %v : vector<16xf32>
      vector.store %w, %a[%c0] : memref<16xf32>, vector<16xf32>
    } {test})",
             7 + 13, OpCostSource::Roofline);
}

TEST_F(CostInterfaceTest, Collectives) {
  const char *module = R"(
    comm.group @tp #comm.iota<[2, 4]>
    comm.group @dp #comm.iota<[4, 2] from [2, 4] transpose [1, 0]>
    comm.group @odd #comm.ranks<[[0, 1], [2, 5], [3, 4], [6, 7]]>
    func.func @main(%x: tensor<250xf32>) {
      %f = comm.all_gather %x on @)";
  const char *rest[] = {R"(tp {test} : (tensor<250xf32>) -> !comm.future<tensor<1000xf32>>
      return })",
                        R"(dp {test} : (tensor<250xf32>) -> !comm.future<tensor<500xf32>>
      return })",
                        R"(odd {test} : (tensor<250xf32>) -> !comm.future<tensor<500xf32>>
      return })"};
  auto shape = [&](Operation *op) { return costs.shapeOf(cast<comm::CollectiveOpInterface>(op)); };
  Operation *tp = parseModule(module + std::string(rest[0]));
  EXPECT_EQ(shape(tp), (GroupShape{4, 1, 4}));
  expectCost(tp, 100 + 10 + 300, OpCostSource::Collective);
  // Ranks 0 and 4 are on two nodes of four: one level of 50, 2000 bytes / 2 at 1 byte per ns.
  Operation *dp = parseModule(module + std::string(rest[1]));
  EXPECT_EQ(shape(dp), (GroupShape{2, 2, 1}));
  expectCost(dp, 100 + 50 + 1000, OpCostSource::Collective);
  // The worst of the groups counts.
  EXPECT_EQ(shape(parseModule(module + std::string(rest[2]))), (GroupShape{2, 2, 1}));
}

TEST_F(CostInterfaceTest, HintsStandForDynamicSizes) {
  expectCost("%a: tensor<?xf32> {comm.bytes_hint = 700 : i64}",
             R"(%0 = "a.b"(%a) {test, comm.bytes_hint = array<i64: 300>} : (tensor<?xf32>) -> tensor<?xf32>)", 7 + 10,
             OpCostSource::Guess);
}

} // namespace

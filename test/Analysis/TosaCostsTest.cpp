//===- TosaCostsTest.cpp - Tests of what TOSA operations cost ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compares the work of TOSA operations with that of what upstream lowers them to, which the models of linalg find in
// the bodies of the operations. What has no such lowering is compared with numbers by hand.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/InitAll.h"
#include "mlir/Conversion/TosaToArith/TosaToArith.h"
#include "mlir/Conversion/TosaToLinalg/TosaToLinalg.h"
#include "mlir/Conversion/TosaToTensor/TosaToTensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "mlir/Dialect/Tosa/Transforms/Passes.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"
#include <array>
#include <string>
#include <vector>

using namespace mlir;
using namespace commsched;

namespace {

/// A kernel's launch is 7 ns. Matrix units: 1 flop per ps; vector units: 1 flop per 2 ps. Memory: 100 bytes per ns.
constexpr const char *kPlain = R"({"schema_version": 1, "name": "plain", "node": {"ranks": 4},
  "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100},
  "compute": {"peak_tflops": {"f32": 1}, "vector_tflops": {"f32": 0.5}, "launch_ns": 7},
  "copy": {"launch_ns": 3, "bandwidth_gbps": 50}, "overheads": {"issue_ns": 1},
  "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}, "inter": {"bandwidth_gbps": 1, "latency_ns": 50}}})";

/// The work of the operations of a function.
struct Sums {
  int64_t matrixFlops = 0, vectorFlops = 0;
  Ns time = 0;
  /// The element types of the operations that compute.
  std::vector<ElementType> elements;
  /// The shapes of the products of known shape.
  std::vector<std::array<int64_t, 3>> products;
};

class TosaCostsTest : public ::testing::Test {
protected:
  TosaCostsTest() : model(llvm::cantFail(MachineModel::parse(kPlain))), costs(model) {
    DialectRegistry registry;
    mlir::registerAllDialects(registry);
    mlir::registerAllExtensions(registry);
    commsched::registerAllDialects(registry);
    commsched::registerAllExtensions(registry);
    context.appendDialectRegistry(registry);
  }

  OwningOpRef<ModuleOp> parse(const std::string &arguments, const std::string &body) {
    // The operands that most operations have beside their tensors.
    std::string constants = R"(
      %z = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
      %shift = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
    )";
    std::string text = "func.func @f(" + arguments + ") {" + constants + body + "\nreturn\n}";
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
    if (module)
      returnLast(cast<func::FuncOp>(module->lookupSymbol("f")));
    return module;
  }

  /// Makes a function return the results of its last operation, which the lowering would delete otherwise.
  void returnLast(func::FuncOp function) {
    Operation *end = function.getBody().front().getTerminator(), *last = end->getPrevNode();
    end->setOperands(last->getResults());
    function.setType(FunctionType::get(&context, function.getArgumentTypes(), last->getResultTypes()));
  }

  /// Upstream's lowering to linalg, without simplifications.
  void lower(ModuleOp module) {
    PassManager manager(&context);
    OpPassManager &functions = manager.nest<func::FuncOp>();
    functions.addPass(tosa::createTosaOptionalDecompositionsPass());
    functions.addPass(tosa::createTosaToLinalgNamed());
    functions.addPass(tosa::createTosaToLinalg());
    functions.addPass(createTosaToTensorPass());
    functions.addPass(createTosaToArithPass());
    ASSERT_TRUE(succeeded(manager.run(module)));
    // Shapes stay as constants without a use.
    module.walk([](Operation *op) {
      EXPECT_TRUE(isa<tosa::ConstShapeOp>(op) || !isa<tosa::TosaDialect>(op->getDialect()))
          << op->getName().getStringRef().str();
    });
  }

  Sums sum(ModuleOp module) {
    Sums sums;
    for (Operation &op : cast<func::FuncOp>(module.lookupSymbol("f")).getBody().front()) {
      sums.time += costs.costOf(&op).time;
      auto costed = dyn_cast<CostOpInterface>(op);
      if (!costed)
        continue;
      OpWork work = costed.getWork(costs);
      (work.units == ComputeUnits::Matrix ? sums.matrixFlops : sums.vectorFlops) += work.flops;
      if (work.flops > 0)
        sums.elements.push_back(work.element);
      if (work.product.rows > 0)
        sums.products.push_back({work.product.batches, work.product.rows, work.product.columns});
    }
    return sums;
  }

  /// The sums of a program as it is, and after its lowering.
  std::pair<Sums, Sums> compare(const std::string &arguments, const std::string &body) {
    OwningOpRef<ModuleOp> module = parse(arguments, body);
    if (!module)
      return {};
    Sums before = sum(*module);
    lower(*module);
    return {before, sum(*module)};
  }

  /// Expects the cost of the last operation of a function.
  void expectCost(const std::string &arguments, const std::string &body, Ns time, OpCostSource source) {
    OwningOpRef<ModuleOp> module = parse(arguments, body);
    ASSERT_TRUE(module);
    Operation *last = cast<func::FuncOp>(module->lookupSymbol("f")).getBody().front().getTerminator()->getPrevNode();
    OpCost cost = costs.costOf(last);
    EXPECT_EQ(cost.time, time) << body;
    EXPECT_EQ(static_cast<int>(cost.source), static_cast<int>(source)) << body;
  }

  MLIRContext context;
  CostModel model;
  OperationCosts costs;
};

/// Tests that products and convolutions have the operations, and products the shape, of what upstream lowers them to.
TEST_F(TosaCostsTest, ProductsAndConvolutions) {
  auto expectEqual = [&](const std::string &arguments, const std::string &body) {
    auto [tosa, linalg] = compare(arguments, body);
    EXPECT_GT(tosa.matrixFlops, 0) << body;
    EXPECT_EQ(tosa.matrixFlops, linalg.matrixFlops) << body;
    EXPECT_EQ(tosa.products, linalg.products) << body;
    EXPECT_EQ(tosa.elements.front(), linalg.elements.front()) << body;
  };
  expectEqual("%a: tensor<2x40x80xf32>, %b: tensor<2x80x16xf32>",
              "%0 = tosa.matmul %a, %b, %z, %z : (tensor<2x40x80xf32>, tensor<2x80x16xf32>, tensor<1xf32>, "
              "tensor<1xf32>) -> tensor<2x40x16xf32>");
  auto convolution = [&](const std::string &name, const std::string &attributes, const std::string &input,
                         const std::string &weight, const std::string &result) {
    std::string types = "tensor<" + input + "xf32>, tensor<" + weight + "xf32>, tensor<16xf32>";
    expectEqual("%x: tensor<" + input + "xf32>, %w: tensor<" + weight + "xf32>, %b: tensor<16xf32>",
                "%0 = tosa." + name + " %x, %w, %b, %z, %z {acc_type = f32, " + attributes + "} : (" + types +
                    ", tensor<1xf32>, tensor<1xf32>) -> tensor<" + result + "xf32>");
  };
  const std::string plain = "pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>";
  const std::string sparse = "pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 2>";
  convolution("conv2d", plain, "2x10x12x8", "16x3x3x8", "2x8x10x16");
  convolution("conv2d", sparse, "2x9x11x8", "16x3x3x8", "2x5x5x16");
  convolution("conv3d",
              "pad = array<i64: 0, 0, 0, 0, 0, 0>, stride = array<i64: 1, 1, 1>, dilation = array<i64: 1, 1, 1>",
              "2x10x12x9x8", "16x2x3x3x8", "2x9x10x7x16");
  convolution("depthwise_conv2d", plain, "2x10x12x8", "3x3x8x2", "2x8x10x16");
  convolution("transpose_conv2d", "out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>", "2x10x12x8",
              "16x3x3x8", "2x12x14x16");
  convolution("transpose_conv2d", "out_pad = array<i64: -1, -1, -1, -1>, stride = array<i64: 1, 1>", "2x10x12x8",
              "16x3x3x8", "2x10x12x16");
  // Upstream carries this one out as four convolutions with a quarter of the weights each.
  convolution("transpose_conv2d", "out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>", "2x10x12x8",
              "16x4x4x8", "2x22x26x16");
}

/// Tests that what upstream lowers to one operation has its work and its time.
TEST_F(TosaCostsTest, OneToOne) {
  auto expectEqual = [&](const std::string &body, bool sameElements = true) {
    auto [tosa, linalg] = compare(
        "%a: tensor<100x40x80xf32>, %b: tensor<100x40x80xf32>, %row: tensor<100x1x80xf32>, %p: tensor<100x40x80xi1>, "
        "%i: tensor<100x40x80xi32>",
        body);
    EXPECT_GT(tosa.time, 7) << body;
    EXPECT_EQ(tosa.vectorFlops, linalg.vectorFlops) << body;
    // A number that TOSA passes as a tensor is at most two bytes per ns.
    EXPECT_NEAR(tosa.time, linalg.time, 1) << body;
    EXPECT_EQ(tosa.matrixFlops, 0) << body;
    if (sameElements) {
      EXPECT_EQ(tosa.elements, linalg.elements) << body;
    }
  };
  const std::string t = "tensor<100x40x80xf32>", i = "tensor<100x40x80xi32>", p = "tensor<100x40x80xi1>";
  for (const char *name :
       {"abs", "ceil", "cos", "erf", "exp", "floor", "log", "reciprocal", "rsqrt", "sigmoid", "sin", "tanh"})
    expectEqual("%0 = tosa." + std::string(name) + " %a : (" + t + ") -> " + t);
  for (const char *name : {"add", "maximum", "minimum", "pow", "sub"}) {
    expectEqual("%0 = tosa." + std::string(name) + " %a, %a : (" + t + ", " + t + ") -> " + t);
    expectEqual("%0 = tosa." + std::string(name) + " %a, %row : (" + t + ", tensor<100x1x80xf32>) -> " + t);
  }
  for (const char *name : {"equal", "greater", "greater_equal"})
    expectEqual("%0 = tosa." + std::string(name) + " %a, %a : (" + t + ", " + t + ") -> " + p);
  for (const char *name :
       {"bitwise_and", "bitwise_or", "bitwise_xor", "intdiv", "logical_left_shift", "logical_right_shift"})
    expectEqual("%0 = tosa." + std::string(name) + " %i, %i : (" + i + ", " + i + ") -> " + i);
  for (const char *name : {"logical_and", "logical_or", "logical_xor"})
    expectEqual("%0 = tosa." + std::string(name) + " %p, %p : (" + p + ", " + p + ") -> " + p);
  expectEqual("%0 = tosa.logical_not %p : (" + p + ") -> " + p);
  expectEqual("%0 = tosa.mul %a, %a, %shift : (" + t + ", " + t + ", tensor<1xi8>) -> " + t);
  expectEqual("%0 = tosa.negate %a, %z, %z : (" + t + ", tensor<1xf32>, tensor<1xf32>) -> " + t);
  expectEqual("%0 = tosa.clamp %a {min_val = 0.0 : f32, max_val = 6.0 : f32} : (" + t + ") -> " + t);
  // linalg counts by the type of the first input.
  expectEqual("%0 = tosa.select %p, %a, %b : (" + p + ", " + t + ", " + t + ") -> " + t, false);
  expectEqual("%0 = tosa.cast %a : (" + t + ") -> tensor<100x40x80xf16>");
  expectEqual("%0 = tosa.transpose %a {perms = array<i32: 2, 0, 1>} : (" + t + ") -> tensor<80x100x40xf32>");
}

/// Tests that reductions and windows have the operations of what upstream lowers them to, a fill and a reduction.
TEST_F(TosaCostsTest, Reductions) {
  auto expectEqual = [&](const std::string &argument, const std::string &body) {
    auto [tosa, linalg] = compare(argument, body);
    EXPECT_GT(tosa.vectorFlops, 0) << body;
    EXPECT_EQ(tosa.vectorFlops, linalg.vectorFlops) << body;
    EXPECT_EQ(tosa.matrixFlops, 0) << body;
    EXPECT_EQ(linalg.matrixFlops, 0) << body;
  };
  for (const char *name : {"max", "min", "product", "sum"})
    expectEqual("%a: tensor<10x40x80xf32>", "%0 = tosa.reduce_" + std::string(name) +
                                                " %a {axis = 1 : i32} : (tensor<10x40x80xf32>) -> tensor<10x1x80xf32>");
  for (const char *name : {"all", "any"})
    expectEqual("%a: tensor<10x40x80xi1>", "%0 = tosa.reduce_" + std::string(name) +
                                               " %a {axis = 1 : i32} : (tensor<10x40x80xi1>) -> tensor<10x1x80xi1>");
  expectEqual("%a: tensor<10x40x80xi32>",
              "%0 = tosa.argmax %a {axis = 2 : i32} : (tensor<10x40x80xi32>) -> tensor<10x40xi32>");
  std::string pool =
      "kernel = array<i64: 2, 3>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 3>} : (tensor<2x10x12x8xf32>";
  expectEqual("%x: tensor<2x10x12x8xf32>", "%0 = tosa.max_pool2d %x {" + pool + ") -> tensor<2x5x4x8xf32>");
  expectEqual("%x: tensor<2x10x12x8xf32>", "%0 = tosa.avg_pool2d %x, %z, %z {acc_type = f32, " + pool +
                                               ", tensor<1xf32>, tensor<1xf32>) -> tensor<2x5x4x8xf32>");
}

/// Tests the bytes of what moves parts of tensors, and what is free.
TEST_F(TosaCostsTest, MovesAndViews) {
  const std::string a = "%a: tensor<10x10x10xf32>";
  // 2 x 4000 bytes read, 8000 written.
  expectCost(a,
             "%0 = tosa.concat %a, %a {axis = 0 : i32} : (tensor<10x10x10xf32>, tensor<10x10x10xf32>) -> "
             "tensor<20x10x10xf32>",
             7 + 160, OpCostSource::Roofline);
  // A slice reads the 2000 bytes that it takes.
  expectCost(a, R"(%start = tosa.const_shape {values = dense<[5, 0, 0]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %size = tosa.const_shape {values = dense<[5, 10, 10]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %0 = tosa.slice %a, %start, %size : (tensor<10x10x10xf32>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<5x10x10xf32>)",
             7 + 40, OpCostSource::Roofline);
  // 10 x 2 rows of 40 bytes, and 80 bytes of indices.
  expectCost(a + ", %i: tensor<10x2xi32>",
             "%0 = tosa.gather %a, %i : (tensor<10x10x10xf32>, tensor<10x2xi32>) -> tensor<10x2x10xf32>", 7 + 17,
             OpCostSource::Roofline);
  expectCost(a, "%0 = tosa.reverse %a {axis = 1 : i32} : (tensor<10x10x10xf32>) -> tensor<10x10x10xf32>", 7 + 80,
             OpCostSource::Roofline);
  expectCost(a, R"(%shape = tosa.const_shape {values = dense<[100, 10]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %0 = tosa.reshape %a, %shape : (tensor<10x10x10xf32>, !tosa.shape<2>) -> tensor<100x10xf32>)",
             0, OpCostSource::Free);
  expectCost(a, "%0 = tosa.identity %a : (tensor<10x10x10xf32>) -> tensor<10x10x10xf32>", 0, OpCostSource::Free);
  expectCost(a, "%0 = tosa.const_shape {values = dense<[100, 10]> : tensor<2xindex>} : () -> !tosa.shape<2>", 0,
             OpCostSource::Free);
  expectCost(a, R"(%0 = "tosa.const"() {values = dense<0.0> : tensor<1000xf32>} : () -> tensor<1000xf32>)", 0,
             OpCostSource::Free);
  expectCost(a, "%0 = tosa.dim %a {axis = 1 : i32} : (tensor<10x10x10xf32>) -> !tosa.shape<1>", 0, OpCostSource::Free);
  // Nobody says what a custom operation computes.
  expectCost(a,
             R"(%0 = tosa.custom %a {domain_name = "a", implementation_attrs = "", operator_name = "b"} :
    (tensor<10x10x10xf32>) -> tensor<10x10x10xf32>)",
             7 + 80, OpCostSource::Guess);
}

/// Tests operations that upstream lowers to sums of another order of size, or not at all.
TEST_F(TosaCostsTest, ByHand) {
  // 5 x 2 x 32 x 32 x log2(1024) operations on the vector units, 2 ps each; half of that for real numbers.
  expectCost("%a: tensor<2x32x32xf32>",
             "%0, %1 = tosa.fft2d %a, %a {inverse = false} : (tensor<2x32x32xf32>, tensor<2x32x32xf32>) -> "
             "(tensor<2x32x32xf32>, tensor<2x32x32xf32>)",
             7 + 328, OpCostSource::Roofline);
  expectCost("%a: tensor<2x32x32xf32>",
             "%0, %1 = tosa.rfft2d %a : (tensor<2x32x32xf32>) -> (tensor<2x32x17xf32>, tensor<2x32x17xf32>)", 7 + 169,
             OpCostSource::Roofline);
  // The scales have a byte for each block of 32. 2 x 2 x 64 x 128 x 256 operations on the matrix units, which have no
  // rate of their own for 8 bits here.
  expectCost("%a: tensor<2x64x256xf8E4M3FN>, %as: tensor<2x64x8xf8E8M0FNU>, %b: tensor<2x128x256xf8E4M3FN>, %bs: "
             "tensor<2x128x8xf8E8M0FNU>",
             "%0 = tosa.matmul_t_block_scaled %a, %as, %b, %bs {block_size = #tosa.block_size<BLOCK_SIZE_32>} : "
             "(tensor<2x64x256xf8E4M3FN>, tensor<2x64x8xf8E8M0FNU>, tensor<2x128x256xf8E4M3FN>, "
             "tensor<2x128x8xf8E8M0FNU>) -> tensor<2x64x128xf32>",
             7 + 8389, OpCostSource::Roofline);
  // Sizes that are not known count as nothing.
  expectCost("%u: tensor<*xf32>",
             "%0 = tosa.matmul %u, %u, %z, %z : (tensor<*xf32>, tensor<*xf32>, tensor<1xf32>, "
             "tensor<1xf32>) -> tensor<*xf32>",
             7, OpCostSource::Roofline);
  expectCost(
      "%x: tensor<?x?x?x?xf32>, %w: tensor<?x3x3x?xf32>, %c: tensor<?xf32>",
      "%0 = tosa.conv2d %x, %w, %c, %z, %z {acc_type = f32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, "
      "1>, dilation = array<i64: 1, 1>} : (tensor<?x?x?x?xf32>, tensor<?x3x3x?xf32>, tensor<?xf32>, "
      "tensor<1xf32>, tensor<1xf32>) -> tensor<?x?x?x?xf32>",
      7, OpCostSource::Roofline);
  expectCost("%u: tensor<*xf32>", "%0 = tosa.reduce_sum %u {axis = 0 : i32} : (tensor<*xf32>) -> tensor<*xf32>", 0,
             OpCostSource::Roofline);
  expectCost("%a: tensor<?x40x80xf32>, %b: tensor<?x80x16xf32>",
             "%0 = tosa.matmul %a, %b, %z, %z : (tensor<?x40x80xf32>, tensor<?x80x16xf32>, tensor<1xf32>, "
             "tensor<1xf32>) -> tensor<?x40x16xf32>",
             7, OpCostSource::Roofline);
}

/// Tests that of two branches the longer counts, and that a loop is a guess of one trip.
TEST_F(TosaCostsTest, ControlFlow) {
  const std::string arguments = "%a: tensor<1000xf32>, %c: tensor<i1>";
  expectCost(arguments, R"(%0 = tosa.cond_if %c (%y = %a) : tensor<i1> (tensor<1000xf32>) -> tensor<1000xf32> {
    ^bb0(%x: tensor<1000xf32>):
      %1 = tosa.abs %x : (tensor<1000xf32>) -> tensor<1000xf32>
      %2 = tosa.abs %1 : (tensor<1000xf32>) -> tensor<1000xf32>
      tosa.yield %2 : tensor<1000xf32>
    } else {
    ^bb0(%x: tensor<1000xf32>):
      %1 = tosa.abs %x : (tensor<1000xf32>) -> tensor<1000xf32>
      tosa.yield %1 : tensor<1000xf32>
    })",
             2 * (7 + 80), OpCostSource::Roofline);
  expectCost(arguments, R"(%0 = tosa.while_loop (%y = %a) : (tensor<1000xf32>) -> tensor<1000xf32> {
      tosa.yield %c : tensor<i1>
    } do {
    ^bb0(%x: tensor<1000xf32>):
      %1 = tosa.abs %x : (tensor<1000xf32>) -> tensor<1000xf32>
      tosa.yield %1 : tensor<1000xf32>
    })",
             7 + 80, OpCostSource::Guess);
}

} // namespace

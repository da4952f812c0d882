//===- QuantiseKernels.cpp - Kernels that pack elements into 8 bits ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// MLIR has the type f8E4M3FN, but no lowering of its conversions for processors without instructions for them. The
// kernels compute with the bits of f32 instead, as c10/util/Float8_e4m3fn.h of PyTorch does. Scales are powers of two,
// so that products with them are exact.
//
//===------------------------------------------------------------------------------------------===//

#include "QuantiseKernels.h"
#include "CommSched/Support/Numerics.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;

namespace {

/// f32: bits of the mantissa, the bias of the exponent, and all bits of a positive infinity.
constexpr int32_t kMantissa = 23, kBias = 127, kInfinity = 0x7f800000;
/// f8E4M3FN: bits of the mantissa, the bias of the exponent, and the exponent of the largest number, 448 = 1.75 * 2^8.
constexpr int32_t kSmallMantissa = 3, kSmallBias = 7, kLargestExponent = 8;
/// The mantissa of 448, as f32 has it.
constexpr int32_t kLargestMantissa = 0x600000;
/// E8M0 has the bias of f32, and this byte for a NaN.
constexpr int32_t kNanScale = 255;

constexpr int64_t kRow = kQuantisedBlock + 1;

int32_t bitsOf(double number) {
  return static_cast<int32_t>(llvm::APFloat(static_cast<float>(number)).bitcastToAPInt().getZExtValue());
}

/// The exponents of an element type by which scales are limited.
struct ScaleLimits {
  /// The exponent of the smallest scale. If no number is closer to zero than the smallest number of f8E4M3FN with this
  /// scale, every unpacked number is one of the type.
  int32_t smallest;
  /// The bits (of f32) of the largest number that is not rounded to one above the type's largest: with 4 significant
  /// bits, everything below 248/256 of the next power of two.
  int32_t largest;

  explicit ScaleLimits(FloatType type) {
    const llvm::fltSemantics &format = type.getFloatSemantics();
    // The inverse of a smaller scale than 2^-126 is above the largest scale of E8M0.
    const int32_t tiny = ilogb(llvm::APFloat::getSmallest(format));
    smallest = std::max(tiny + kSmallBias - 1 + kSmallMantissa, -126);
    const int32_t top = llvm::APFloat::semanticsMaxExponent(format);
    largest = bitsOf(std::ldexp(248.0 / 256, top) * 2) - 1;
  }
};

/// Builds the body of a kernel, with numbers of i32 and f32.
class Body {
public:
  Body(OpBuilder &builder, Location loc) : builder(builder), loc(loc) {}

  Value constant(int32_t value) { return arith::ConstantIntOp::create(builder, loc, value, 32); }
  Value constant(double value) {
    return arith::ConstantFloatOp::create(builder, loc, builder.getF32Type(), llvm::APFloat(static_cast<float>(value)));
  }
  Value bits(Value number) { return arith::BitcastOp::create(builder, loc, builder.getI32Type(), number); }
  Value number(Value bits) { return arith::BitcastOp::create(builder, loc, builder.getF32Type(), bits); }
  Value widen(Value number) {
    return number.getType().isF32() ? number : arith::ExtFOp::create(builder, loc, builder.getF32Type(), number);
  }
  Value select(arith::CmpIPredicate predicate, Value a, int32_t b, Value yes, Value no) {
    Value holds = arith::CmpIOp::create(builder, loc, predicate, a, constant(b));
    return arith::SelectOp::create(builder, loc, holds, yes, no);
  }
  template <typename Op> Value make(Value a, Value b) { return Op::create(builder, loc, a, b); }
  template <typename Op> Value make(Value a, int32_t b) { return Op::create(builder, loc, a, constant(b)); }
  template <typename Op> Value make(Value a, double b) { return Op::create(builder, loc, a, constant(b)); }

  /// The bits of the magnitude of a number.
  Value magnitude(Value number) { return make<arith::AndIOp>(bits(number), 0x7fffffff); }

  /// The exponent, with the bias, of the scale of a block: that of its largest magnitude less that of 448, rounded up.
  Value exponentOfScale(Value largest, const ScaleLimits &limits) {
    Value finite = make<arith::MinSIOp>(largest, limits.largest);
    Value up = make<arith::AddIOp>(finite, (1 << kMantissa) - 1 - kLargestMantissa);
    Value exponent = make<arith::SubIOp>(make<arith::ShRUIOp>(up, kMantissa), kLargestExponent);
    return make<arith::MaxSIOp>(exponent, limits.smallest + kBias);
  }

  /// The bits of f8E4M3FN, without the sign, of a number from 0 to 448.
  Value roundToSmall(Value number) {
    // Half a unit in the last place, less one if the last bit is 0: carries are those of rounding ties to even.
    constexpr int32_t dropped = kMantissa - kSmallMantissa;
    Value given = bits(number);
    Value last = make<arith::AndIOp>(make<arith::ShRUIOp>(given, dropped), 1);
    Value rounded = make<arith::AddIOp>(make<arith::AddIOp>(given, last), (1 << (dropped - 1)) - 1);
    Value normal = make<arith::SubIOp>(make<arith::ShRUIOp>(rounded, dropped), (kBias - kSmallBias) << kSmallMantissa);
    // Below 2^-6 all numbers have the distance 2^-9, which is that of f32 from 2^14 on.
    const double shift = std::ldexp(1.0, kMantissa - kSmallMantissa - kSmallBias + 1);
    Value tiny = make<arith::SubIOp>(bits(make<arith::AddFOp>(number, shift)), bitsOf(shift));
    return select(arith::CmpIPredicate::ult, given, bitsOf(std::ldexp(1.0, 1 - kSmallBias)), tiny, normal);
  }

  /// The number with the bits of f8E4M3FN, without the sign.
  Value widenSmall(Value small) {
    Value exponent =
        make<arith::AddIOp>(make<arith::ShLIOp>(small, kMantissa - kSmallMantissa), (kBias - kSmallBias) << kMantissa);
    Value multiple = arith::UIToFPOp::create(builder, loc, builder.getF32Type(), small);
    Value tiny = make<arith::MulFOp>(multiple, std::ldexp(1.0, 1 - kSmallBias - kSmallMantissa));
    return select(arith::CmpIPredicate::ult, small, 1 << kSmallMantissa, tiny, number(exponent));
  }

  Value truncate(Value bits) { return arith::TruncIOp::create(builder, loc, builder.getI8Type(), bits); }
  Value extend(Value byte) { return arith::ExtUIOp::create(builder, loc, builder.getI32Type(), byte); }
  Value narrow(Value number, Type type) {
    return type.isF32() ? number : arith::TruncFOp::create(builder, loc, type, number);
  }

private:
  OpBuilder &builder;
  Location loc;
};

/// The byte of an element, or, behind the last element of a row, that of the scale.
Value packElement(OpBuilder &builder, Location loc, Value given, Value largest, const ScaleLimits &limits) {
  Body body(builder, loc);
  Value wide = body.widen(given);
  Value exponent = body.exponentOfScale(largest, limits);
  Value inverse = body.number(
      body.make<arith::ShLIOp>(arith::SubIOp::create(builder, loc, body.constant(2 * kBias), exponent), kMantissa));
  Value magnitude = body.make<arith::MinSIOp>(body.magnitude(wide), limits.largest);
  Value small = body.roundToSmall(body.make<arith::MulFOp>(body.number(magnitude), inverse));
  Value sign = body.make<arith::AndIOp>(body.make<arith::ShRUIOp>(body.bits(wide), 24), 0x80);
  Value scale = body.select(arith::CmpIPredicate::uge, largest, kInfinity, body.constant(kNanScale), exponent);
  Value column =
      arith::IndexCastOp::create(builder, loc, builder.getI32Type(), linalg::IndexOp::create(builder, loc, 1));
  return body.truncate(body.select(arith::CmpIPredicate::eq, column, static_cast<int32_t>(kQuantisedBlock), scale,
                                   body.make<arith::OrIOp>(small, sign)));
}

Value unpackElement(OpBuilder &builder, Location loc, Value byte, Value scale, Type element) {
  Body body(builder, loc);
  Value bits = body.extend(byte), exponent = body.extend(scale);
  Value magnitude = body.widenSmall(body.make<arith::AndIOp>(bits, 0x7f));
  Value sign = body.make<arith::ShLIOp>(body.make<arith::AndIOp>(bits, 0x80), 24);
  Value number = body.number(body.make<arith::OrIOp>(body.bits(magnitude), sign));
  Value factor = body.select(arith::CmpIPredicate::eq, exponent, kNanScale, body.constant(0x7fc00000),
                             body.make<arith::ShLIOp>(exponent, kMantissa));
  return body.narrow(body.make<arith::MulFOp>(number, body.number(factor)), element);
}

SmallVector<ReassociationIndices> allDims(int64_t rank) { return {llvm::to_vector<2>(llvm::seq<int64_t>(0, rank))}; }

Value flatten(OpBuilder &builder, Location loc, Value tensor) {
  int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
  return rank == 1 ? tensor : tensor::CollapseShapeOp::create(builder, loc, tensor, allDims(rank));
}

Value unflatten(OpBuilder &builder, Location loc, Value tensor, RankedTensorType type) {
  return type.getRank() == 1 ? tensor
                             : tensor::ExpandShapeOp::create(builder, loc, type, tensor, allDims(type.getRank()));
}

/// The rows of blocks, with zeros behind the last element.
Value splitIntoBlocks(OpBuilder &builder, Location loc, Value shard) {
  auto type = cast<RankedTensorType>(shard.getType());
  Value flat = flatten(builder, loc, shard);
  const int64_t blocks = llvm::divideCeil(type.getNumElements(), kQuantisedBlock);
  if (const int64_t missing = blocks * kQuantisedBlock - type.getNumElements(); missing > 0) {
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type.getElementType()));
    flat = tensor::PadOp::create(builder, loc, type.clone({blocks * kQuantisedBlock}), flat,
                                 ArrayRef<OpFoldResult>{builder.getIndexAttr(0)},
                                 ArrayRef<OpFoldResult>{builder.getIndexAttr(missing)}, zero);
  }
  return unflatten(builder, loc, flat, type.clone({blocks, kQuantisedBlock}));
}

} // namespace

bool commsched::isQuantisable(Type element) { return element.isF32() || element.isF16() || element.isBF16(); }

RankedTensorType commsched::packedTypeOf(RankedTensorType shard) {
  return RankedTensorType::get({static_cast<int64_t>(llvm::divideCeil(shard.getNumElements(), kQuantisedBlock)), kRow},
                               IntegerType::get(shard.getContext(), 8));
}

Value commsched::buildPacking(OpBuilder &builder, Location loc, Value shard) {
  constexpr auto parallel = utils::IteratorType::parallel, reduction = utils::IteratorType::reduction;
  auto type = cast<RankedTensorType>(shard.getType());
  const ScaleLimits limits(cast<FloatType>(type.getElementType()));
  RankedTensorType packed = packedTypeOf(type);
  Value blocks = splitIntoBlocks(builder, loc, shard);

  AffineExpr block = builder.getAffineDimExpr(0), column = builder.getAffineDimExpr(1);
  auto map = [&](ArrayRef<AffineExpr> results) { return AffineMap::get(2, 0, results, builder.getContext()); };
  // The order of magnitudes is that of their bits, with infinities and NaN above all numbers.
  Value zero = arith::ConstantIntOp::create(builder, loc, 0, 32);
  Value init = tensor::EmptyOp::create(builder, loc, packed.getShape().take_front(), builder.getI32Type());
  init = linalg::FillOp::create(builder, loc, zero, init).getResult(0);
  Value largest =
      linalg::GenericOp::create(builder, loc, init.getType(), blocks, init, {map({block, column}), map({block})},
                                {parallel, reduction},
                                [](OpBuilder &nested, Location at, ValueRange values) {
                                  Body body(nested, at);
                                  Value magnitude = body.magnitude(body.widen(values[0]));
                                  linalg::YieldOp::create(nested, at, body.make<arith::MaxSIOp>(magnitude, values[1]));
                                })
          .getResult(0);
  // The last column has no element of its own, and reads the first.
  Value bytes = tensor::EmptyOp::create(builder, loc, packed.getShape(), packed.getElementType());
  return linalg::GenericOp::create(
             builder, loc, packed, ValueRange{blocks, largest}, bytes,
             {map({block, column % kQuantisedBlock}), map({block}), map({block, column})}, {parallel, parallel},
             [&](OpBuilder &nested, Location at, ValueRange values) {
               linalg::YieldOp::create(nested, at, packElement(nested, at, values[0], values[1], limits));
             })
      .getResult(0);
}

Value commsched::buildUnpacking(OpBuilder &builder, Location loc, Value gathered, RankedTensorType shard, int64_t ranks,
                                int64_t dim) {
  constexpr auto parallel = utils::IteratorType::parallel;
  int64_t outer = 1;
  for (int64_t size : shard.getShape().take_front(dim))
    outer *= size;
  const int64_t inner = shard.getNumElements() / outer, blocks = packedTypeOf(shard).getDimSize(0);
  auto bytes = cast<RankedTensorType>(gathered.getType());
  Value rows = tensor::ExpandShapeOp::create(builder, loc, bytes.clone({ranks, blocks, kRow}), gathered,
                                             ArrayRef<ReassociationIndices>{{0, 1}, {2}});
  auto columns = [&](int64_t first, int64_t count) -> Value {
    auto attributes = [&](ArrayRef<int64_t> numbers) { return getAsIndexOpFoldResult(builder.getContext(), numbers); };
    return tensor::ExtractSliceOp::create(builder, loc, rows, attributes({0, 0, first}),
                                          attributes({ranks, blocks, count}), attributes({1, 1, 1}));
  };
  // A point is an element of a rank's shard: its place along the dimensions before `dim`, the rank, and the rest.
  AffineExpr before = builder.getAffineDimExpr(0), rank = builder.getAffineDimExpr(1),
             rest = builder.getAffineDimExpr(2), place = before * inner + rest;
  auto map = [&](ArrayRef<AffineExpr> results) { return AffineMap::get(3, 0, results, builder.getContext()); };
  Value init = tensor::EmptyOp::create(builder, loc, {outer, ranks, inner}, shard.getElementType());
  AffineExpr block = place.floorDiv(kQuantisedBlock);
  Value unpacked =
      linalg::GenericOp::create(
          builder, loc, init.getType(), ValueRange{columns(0, kQuantisedBlock), columns(kQuantisedBlock, 1)}, init,
          {map({rank, block, place % kQuantisedBlock}), map({rank, block, builder.getAffineConstantExpr(0)}),
           map({before, rank, rest})},
          {parallel, parallel, parallel},
          [&](OpBuilder &nested, Location at, ValueRange values) {
            linalg::YieldOp::create(nested, at,
                                    unpackElement(nested, at, values[0], values[1], shard.getElementType()));
          })
          .getResult(0);
  SmallVector<int64_t> shape(shard.getShape());
  shape[dim] *= ranks;
  return unflatten(builder, loc, flatten(builder, loc, unpacked), shard.clone(shape));
}

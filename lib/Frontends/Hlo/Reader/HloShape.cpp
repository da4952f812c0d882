//===- HloShape.cpp - Shapes of XLA and their sizes -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Sizes are those of dense arrays: XLA:GPU pads none, and packs types of less than a byte.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

/// xla::PrimitiveType, by its numbers.
enum PrimitiveType : int32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kTuple = 13,
  kC64 = 15,
  kBf16 = 16,
  kC128 = 18,
  kF8e5m2 = 19,
  kF8e4m3fn = 20,
  kS4 = 21,
  kU4 = 22,
  kF8e4m3b11fnuz = 23,
  kF8e5m2fnuz = 24,
  kF8e4m3fnuz = 25,
  kS2 = 26,
  kU2 = 27,
  kF8e4m3 = 28,
  kF8e3m4 = 29,
  kS1 = 30,
  kU1 = 31,
  kF4e2m1fn = 32,
  kF8e8m0fnu = 33,
  kF6e3m2fn = 35,
  kF6e2m3fn = 36,
};

} // namespace

int64_t commsched::hlo::bitsOf(int32_t type) {
  switch (type) {
  case kS1:
  case kU1:
    return 1;
  case kS2:
  case kU2:
    return 2;
  case kS4:
  case kU4:
  case kF4e2m1fn:
    return 4;
  case kF6e3m2fn:
  case kF6e2m3fn:
    return 6;
  case kPred:
  case kS8:
  case kU8:
  case kF8e5m2:
  case kF8e4m3fn:
  case kF8e4m3b11fnuz:
  case kF8e5m2fnuz:
  case kF8e4m3fnuz:
  case kF8e4m3:
  case kF8e3m4:
  case kF8e8m0fnu:
    return 8;
  case kS16:
  case kU16:
  case kF16:
  case kBf16:
    return 16;
  case kS32:
  case kU32:
  case kF32:
    return 32;
  case kS64:
  case kU64:
  case kF64:
  case kC64:
    return 64;
  case kC128:
    return 128;
  default:
    return 0;
  }
}

ElementType commsched::hlo::elementTypeOf(int32_t type) {
  switch (type) {
  case kF64:
    return ElementType::F64;
  case kF32:
    return ElementType::F32;
  case kBf16:
    return ElementType::BF16;
  case kF16:
    return ElementType::F16;
  case kF4e2m1fn:
    return ElementType::F4;
  case kS64:
  case kU64:
    return ElementType::I64;
  case kS32:
  case kU32:
    return ElementType::I32;
  case kS16:
  case kU16:
    return ElementType::I16;
  case kS8:
  case kU8:
  case kPred:
    return ElementType::I8;
  default:
    return bitsOf(type) == 8 ? ElementType::F8 : ElementType::Other;
  }
}

bool HloShape::isTuple() const { return elementType == kTuple; }

int64_t HloShape::numLeaves() const {
  if (!isTuple())
    return 1;
  int64_t sum = 0;
  for (const HloShape &element : elements)
    sum += element.numLeaves();
  return sum;
}

void HloShape::appendLeaves(SmallVectorImpl<const HloShape *> &leaves) const {
  if (!isTuple())
    leaves.push_back(this);
  for (const HloShape &element : elements)
    element.appendLeaves(leaves);
}

int64_t HloShape::numElements() const {
  int64_t product = 1;
  for (int64_t size : dimensions)
    product = saturateAmount(static_cast<Wide>(product) * size);
  return product;
}

Bytes HloShape::bytes() const {
  if (isTuple()) {
    Bytes sum = 0;
    for (const HloShape &element : elements)
      sum = saturateAmount(static_cast<Wide>(sum) + element.bytes());
    return sum;
  }
  return memorySpace == kHostMemory ? 0 : mulDivUp(numElements(), bitsOf(elementType), 8);
}

int64_t HloShape::leafAt(ArrayRef<int64_t> index) const {
  const HloShape *shape = this;
  int64_t leaf = 0;
  for (int64_t at : index) {
    if (!shape->isTuple() || at < 0 || at >= static_cast<int64_t>(shape->elements.size()))
      return -1;
    for (int64_t i = 0; i < at; ++i)
      leaf += shape->elements[i].numLeaves();
    shape = &shape->elements[at];
  }
  return leaf;
}

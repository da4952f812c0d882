//===- StablehloCosts.cpp - Costs of StableHLO's operations by name ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Products and convolutions by their dimensions, elementwise operations by their elements, all others by the bytes that
// they move. Attributes of a dialect that is not registered are read from what MLIR prints of them.
//
//===------------------------------------------------------------------------------------------===//

#include "StablehloCosts.h"
#include "CommSched/Machine/Rounding.h"
#include "CostModels.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

namespace {
/// How the cost of an operation is found.
enum class Family : uint8_t {
  Free,           ///< a constant, a view, or a number of the process
  Move,           ///< reads its operands and writes its results
  Pick,           ///< reads as much of its first operand as it writes, and all of the others
  Update,         ///< writes its second operand into its first in place, as XLA does
  Simple,         ///< elementwise, one operation per element
  Transcendental, ///< elementwise, a special function
  Dot,
  Convolution,
  Reduce,       ///< applies its region to every element of its inputs
  ReduceWindow, ///< applies its region to every element of a window, for each element of the result
};
} // namespace

static std::optional<Family> familyOf(StringRef name) {
  using F = Family;
  static const llvm::StringMap<Family> families = [] {
    llvm::StringMap<Family> map;
    auto add = [&](Family family, std::initializer_list<StringRef> names) {
      for (StringRef name : names)
        map[name] = family;
    };
    add(F::Free, {"constant", "partition_id", "replica_id", "create_token", "after_all", "tuple", "get_tuple_element",
                  "reshape", "optimization_barrier", "return"});
    add(F::Move, {"bitcast_convert", "broadcast", "broadcast_in_dim", "concatenate", "convert", "copy", "iota", "pad",
                  "reverse", "transpose", "scatter", "rng_bit_generator", "reduce_precision"});
    add(F::Pick, {"slice", "dynamic_slice", "gather"});
    add(F::Update, {"dynamic_update_slice"});
    add(F::Simple, {"abs",
                    "add",
                    "and",
                    "ceil",
                    "clamp",
                    "compare",
                    "complex",
                    "count_leading_zeros",
                    "divide",
                    "floor",
                    "imag",
                    "is_finite",
                    "map",
                    "maximum",
                    "minimum",
                    "multiply",
                    "negate",
                    "not",
                    "or",
                    "popcnt",
                    "real",
                    "remainder",
                    "select",
                    "round_nearest_afz",
                    "shift_left",
                    "shift_right_arithmetic",
                    "round_nearest_even",
                    "sign",
                    "shift_right_logical",
                    "subtract",
                    "xor"});
    add(F::Transcendental,
        {"atan2",  "cbrt",         "cosine",   "erf",    "erf_inv", "exponential", "exponential_minus_one",
         "log",    "log_plus_one", "logistic", "power",  "rsqrt",   "sine",        "sqrt",
         "square", "tan",          "tanh",     "lgamma", "digamma", "sinh",        "cosh",
         "asin",   "acos",         "atan",     "asinh",  "acosh",   "atanh"});
    add(F::Dot, {"dot", "dot_general"});
    add(F::Convolution, {"convolution"});
    add(F::Reduce, {"reduce"});
    add(F::ReduceWindow, {"reduce_window", "select_and_scatter"});
    return map;
  }();
  if (!name.consume_front("stablehlo.") && !name.consume_front("chlo."))
    return std::nullopt;
  auto found = families.find(name);
  return found == families.end() ? std::nullopt : std::optional(found->second);
}

static std::string textOfAttribute(Operation *op, StringRef name) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (Attribute attribute = op->getAttr(name))
    attribute.print(os);
  return text;
}

/// The numbers of `name = [1, 2]` in a text.
static SmallVector<int64_t> numbersNamed(StringRef text, StringRef name) {
  SmallVector<int64_t> numbers;
  StringRef rest = text.split((name + " = [").str()).second.split(']').first;
  for (int64_t number; !rest.consumeInteger(10, number); rest = rest.ltrim(", "))
    numbers.push_back(number);
  return numbers;
}

/// The product of some sizes of a shape.
static int64_t sizeAlong(ShapedType type, ArrayRef<int64_t> dims) {
  int64_t size = 1;
  for (int64_t dim : dims)
    if (dim >= 0 && dim < type.getRank())
      size = multiplyAmounts(size, type.isDynamicDim(dim) ? 0 : type.getDimSize(dim));
  return size;
}

/// The type whose rate a product has. XLA multiplies f32 as TF32 on GPUs unless the precision is higher than the
/// default one (`jax.default_matmul_precision`).
static ElementType productElement(Operation *op) {
  ElementType element = elementTypeOf(op->getOperand(0).getType());
  bool isExact = StringRef(textOfAttribute(op, "precision_config")).contains("HIGH");
  return element == ElementType::F32 && !isExact ? ElementType::TF32 : element;
}

static OpWork workOfDot(Operation *op) {
  OpWork work = OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
  auto lhs = dyn_cast<RankedTensorType>(op->getOperand(0).getType()),
       rhs = dyn_cast<RankedTensorType>(op->getOperand(1).getType());
  if (!lhs || !rhs)
    return work;
  std::string numbers = textOfAttribute(op, "dot_dimension_numbers");
  SmallVector<int64_t> contracted = numbersNamed(numbers, "lhs_contracting_dimensions");
  if (op->getName().getStringRef() == "stablehlo.dot")
    contracted = {lhs.getRank() - 1};
  int64_t batches = sizeAlong(lhs, numbersNamed(numbers, "lhs_batching_dimensions"));
  int64_t shared = multiplyAmounts(batches, sizeAlong(lhs, contracted));
  work.units = ComputeUnits::Matrix;
  work.element = productElement(op);
  work.flops = multiplyAmounts(2, multiplyAmounts(elementsOf(op->getResult(0).getType()), sizeAlong(lhs, contracted)));
  if (shared > 0)
    work.product = {batches, elementsOf(lhs) / shared, elementsOf(rhs) / shared};
  return work;
}

/// Each element of the output adds up as many products as one feature of the output has elements in the kernel.
static OpWork workOfConvolution(Operation *op) {
  OpWork work = OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
  auto kernel = dyn_cast<RankedTensorType>(op->getOperand(1).getType());
  // #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>
  std::string numbers = textOfAttribute(op, "dimension_numbers");
  SmallVector<StringRef> dims;
  StringRef(numbers).split("]x[").second.split(']').first.split(dims, ',');
  int64_t features = 0;
  for (auto [dim, name] : llvm::enumerate(dims))
    if (name.trim() == "o" && kernel && static_cast<int64_t>(dim) < kernel.getRank())
      features = kernel.getDimSize(dim);
  work.units = ComputeUnits::Matrix;
  work.element = productElement(op);
  if (features > 0)
    work.flops =
        multiplyAmounts(2, multiplyAmounts(elementsOf(op->getResult(0).getType()), elementsOf(kernel) / features));
  work.known = features > 0;
  return work;
}

/// Operations on one element of the region of a reduction.
static int64_t flopsOfRegion(Operation *op) {
  int64_t flops = 0;
  op->walk([&](Operation *inner) {
    if (inner == op)
      return;
    std::optional<Family> family = familyOf(inner->getName().getStringRef());
    flops += family == Family::Simple ? 1 : family == Family::Transcendental ? kTranscendentalFlops : 0;
  });
  return flops;
}

static OpWork workOfReduction(Operation *op, Family family) {
  OpWork work = OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
  int64_t times = elementsOf(op->getOperand(0).getType());
  if (family == Family::ReduceWindow) {
    times = elementsOf(op->getResult(0).getType());
    if (auto window = op->getAttrOfType<DenseI64ArrayAttr>("window_dimensions"))
      for (int64_t size : window.asArrayRef())
        times = multiplyAmounts(times, size);
  }
  work.flops = multiplyAmounts(times, flopsOfRegion(op));
  work.element = elementTypeOf(op->getOperand(0).getType());
  return work;
}

std::optional<OpWork> commsched::detail::getStablehloWork(Operation *op) {
  std::optional<Family> family = familyOf(op->getName().getStringRef());
  if (!family)
    return std::nullopt;
  if (*family == Family::Free || op->getNumResults() == 0)
    return OpWork::view();
  const unsigned needed = *family == Family::Dot || *family == Family::Convolution || *family == Family::Update ? 2 : 0;
  if (op->getNumOperands() < needed)
    return std::nullopt;
  Bytes written = bytesOf(op->getResults());
  OpWork work = OpWork::copy(bytesOf(op->getOperands()), written);
  switch (*family) {
  case Family::Dot:
    return workOfDot(op);
  case Family::Convolution:
    return workOfConvolution(op);
  case Family::Reduce:
  case Family::ReduceWindow:
    return op->getNumOperands() > 0 ? workOfReduction(op, *family) : work;
  case Family::Pick:
    return OpWork::copy(addAmounts(written, bytesOf(op->getOperands().drop_front())), written);
  case Family::Update:
    return OpWork::copy(bytesOf(op->getOperand(1)), bytesOf(op->getOperand(1)));
  case Family::Simple:
  case Family::Transcendental:
    work.flops =
        multiplyAmounts(elementsOf(op->getResult(0).getType()), *family == Family::Simple ? 1 : kTranscendentalFlops);
    work.element = elementTypeOf(op->getResult(0).getType());
    return work;
  case Family::Free:
  case Family::Move:
    return work;
  }
  return work;
}

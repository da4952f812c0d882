//===- ComputeSplitTable.cpp - Splitting of comm.compute by its name --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The names of PyTorch's operations (aten, prims), as the importer prints them, and of the runtime's reference kernels.
// An imported operation has its tensors as operands and none of its scalars: the dimension of a softmax, say. A rule
// uses what the shapes say for every value of the scalars, and otherwise does not split. A name that is not in the
// table is a barrier.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "SplitModels.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

//===-----------------------------------------------------------------------------------------===//
// Rules
//===-----------------------------------------------------------------------------------------===//

/// Adds the axis that splits operand `operand` along `dim` and result 0 along `resultDim`.
static void addAxis(SplitAxes &axes, Operation *op, std::initializer_list<std::pair<unsigned, int64_t>> operands,
                    int64_t resultDim) {
  SplitAxis axis = makeAxis(op);
  for (auto [operand, dim] : operands)
    axis.operands[operand] = dim;
  axis.results.assign(op->getNumResults(), resultDim);
  axes.push_back(std::move(axis));
}

/// The shapes of all operands and results; none if one is not a tensor of static size.
static std::optional<SmallVector<ArrayRef<int64_t>>> shapesOf(Operation *op) {
  SmallVector<ArrayRef<int64_t>> shapes;
  for (ValueRange values : {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : values) {
      std::optional<ArrayRef<int64_t>> shape = shapeOf(value);
      if (!shape)
        return std::nullopt;
      shapes.push_back(*shape);
    }
  return shapes;
}

/// Left x right: rows of the left, columns of the right operand, and what it sums over; with three dimensions, the
/// first counts products.
static SplitAxes productOf(Operation *op, unsigned left, unsigned right, bool transposed) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumResults() != 1)
    return {};
  ArrayRef<int64_t> a = (*shapes)[left], b = (*shapes)[right], c = shapes->back();
  int64_t rank = static_cast<int64_t>(c.size());
  if (rank < 2 || static_cast<int64_t>(a.size()) != rank || static_cast<int64_t>(b.size()) != rank)
    return {};
  SplitAxes axes;
  for (int64_t dim = 0; dim < rank - 2; ++dim)
    if (a[dim] == c[dim] && b[dim] == c[dim])
      addAxis(axes, op, {{left, dim}, {right, dim}}, dim);
  addAxis(axes, op, {{left, rank - 2}}, rank - 2);
  addAxis(axes, op, {{right, transposed ? rank - 2 : rank - 1}}, rank - 1);
  addAxis(axes, op, {{left, rank - 1}, {right, transposed ? rank - 1 : rank - 2}}, kPartialResult);
  return axes;
}

static SplitAxes productAxes(Operation *op) {
  return op->getNumOperands() == 2 ? productOf(op, 0, 1, /*transposed=*/false) : SplitAxes();
}

/// bias + left x right. The bias has the columns of the result, or its shape.
static SplitAxes biasedProductAxes(Operation *op) {
  if (op->getNumOperands() != 3)
    return {};
  SplitAxes axes = productOf(op, 1, 2, /*transposed=*/false);
  // Every part would add the bias.
  llvm::erase_if(axes, [](const SplitAxis &axis) { return axis.hasPartialResults(); });
  std::optional<ArrayRef<int64_t>> bias = shapeOf(op->getOperand(0)), result = shapeOf(op->getResult(0));
  for (SplitAxis &axis : axes) {
    int64_t own = axis.results[0] - static_cast<int64_t>(result->size() - bias->size());
    if (own >= 0 && (*bias)[own] != 1)
      axis.operands[0] = own;
  }
  return axes;
}

/// input x weight^T (+ bias), for any number of leading dimensions.
static SplitAxes linearAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() < 2 || op->getNumOperands() > 3 || op->getNumResults() != 1)
    return {};
  ArrayRef<int64_t> input = shapes->front(), result = shapes->back();
  if (input.size() != result.size() || (*shapes)[1].size() != 2)
    return {};
  SplitAxes axes;
  int64_t last = static_cast<int64_t>(result.size()) - 1;
  for (int64_t dim = 0; dim < last; ++dim)
    addAxis(axes, op, {{0, dim}}, dim);
  addAxis(axes, op, {{1, 0}}, last);
  if (op->getNumOperands() == 3)
    axes.back().operands[2] = 0;
  else
    addAxis(axes, op, {{0, last}, {1, 1}}, kPartialResult);
  return axes;
}

/// A reduction over some dimensions. With equal ranks, the reduced ones have size 1. A dimension of another size than
/// all others keeps its place in the order, so it is known in the result, too.
static SplitAxes reductionAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() != 1 || op->getNumResults() != 1)
    return {};
  ArrayRef<int64_t> from = shapes->front(), to = shapes->back();
  SplitAxes axes;
  for (auto [index, size] : llvm::enumerate(to)) {
    int64_t dim = static_cast<int64_t>(index);
    if (from.size() == to.size() && from[dim] == size)
      addAxis(axes, op, {{0, dim}}, dim);
    else if (from.size() != to.size() && llvm::count(from, size) == 1 && llvm::count(to, size) == 1) {
      addAxis(axes, op, {{0, llvm::find(from, size) - from.begin()}}, dim);
      axes.back().otherSizes.assign(from.begin(), from.end());
    }
  }
  return axes;
}

/// A sum: parts along the dimensions that it is known to run over are added.
static SplitAxes sumAxes(Operation *op) {
  SplitAxes axes = reductionAxes(op);
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() != 1 || op->getNumResults() != 1)
    return axes;
  ArrayRef<int64_t> from = shapes->front(), to = shapes->back();
  for (auto [index, size] : llvm::enumerate(from)) {
    int64_t dim = static_cast<int64_t>(index);
    bool isSummed = from.size() == to.size() ? to[dim] == 1 : !llvm::is_contained(to, size);
    if (size == 1 || !isSummed)
      continue;
    addAxis(axes, op, {{0, dim}}, kPartialResult);
    axes.back().otherSizes.assign(from.begin(), from.end());
  }
  return axes;
}

/// The gradient of a table of rows: columns alone, because a row may be the sum of several, weighted by their number.
static SplitAxes embeddingGradientAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || shapes->size() != 3 || (*shapes)[2].size() != 2 || (*shapes)[0].size() != (*shapes)[1].size() + 1 ||
      (*shapes)[0].back() != (*shapes)[2].back())
    return {};
  SplitAxes axes;
  addAxis(axes, op, {{0, static_cast<int64_t>((*shapes)[1].size())}}, 1);
  return axes;
}

/// A permutation of the dimensions: a size that occurs once says where its dimension is. With two dimensions that are
/// exchanged, their names say it.
static SplitAxes permutationAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() != 1 || op->getNumResults() != 1 ||
      shapes->front().size() != shapes->back().size())
    return {};
  ArrayRef<int64_t> from = shapes->front(), to = shapes->back();
  SplitAxes axes;
  for (auto [dim, size] : llvm::enumerate(from))
    if (llvm::count(from, size) == 1 && llvm::count(to, size) == 1) {
      addAxis(axes, op, {{0, static_cast<int64_t>(dim)}}, llvm::find(to, size) - to.begin());
      axes.back().otherSizes.assign(from.begin(), from.end());
    }
  return axes;
}

/// The transposition of a matrix.
static SplitAxes transpositionAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() != 1 || op->getNumResults() != 1 || shapes->front().size() != 2)
    return {};
  SplitAxes axes;
  addAxis(axes, op, {{0, 0}}, 1);
  addAxis(axes, op, {{0, 1}}, 0);
  return axes;
}

/// A concatenation: its dimension is the one in which the result is larger than each operand.
static SplitAxes concatenationAxes(Operation *op) {
  return op->getNumOperands() > 1 && op->getNumResults() == 1 ? sameSizeAxes(op) : SplitAxes();
}

/// A slice, or the pieces of one: dimensions of unchanged size are whole.
static SplitAxes sliceAxes(Operation *op) { return op->getNumOperands() == 1 ? sameSizeAxes(op) : SplitAxes(); }

/// A table of rows and a tensor of row numbers.
static SplitAxes embeddingAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || shapes->size() != 3 || (*shapes)[0].size() != 2 || (*shapes)[1].size() + 1 != (*shapes)[2].size())
    return {};
  SplitAxes axes;
  int64_t last = static_cast<int64_t>((*shapes)[1].size());
  for (int64_t dim = 0; dim < last; ++dim)
    addAxis(axes, op, {{1, dim}}, dim);
  addAxis(axes, op, {{0, 1}}, last);
  return axes;
}

/// The only dimension `d` of `whole` for which `part` has the shape of `whole` with dimension `d` replaced by `rows`;
/// -1 if there is none, or several.
static int64_t findIndexed(ArrayRef<int64_t> whole, ArrayRef<int64_t> rows, ArrayRef<int64_t> part) {
  int64_t found = -1;
  for (int64_t dim = 0; dim < static_cast<int64_t>(whole.size()); ++dim) {
    SmallVector<int64_t> shape(whole.take_front(dim));
    llvm::append_range(shape, rows);
    llvm::append_range(shape, whole.drop_front(dim + 1));
    if (part != ArrayRef<int64_t>(shape))
      continue;
    if (found >= 0)
      return -1;
    found = dim;
  }
  return found;
}

/// Returns true if `value` holds numbers of rows, and not a mask.
static bool holdsNumbers(Value value) {
  RankedTensorType type = getSplitType(value.getType());
  return type && type.getElementType().isSignlessInteger() && type.getElementTypeBitWidth() >= 32;
}

/// Rows of a tensor that a tensor of numbers selects: the other dimensions are whole. The shapes have to tell which
/// dimension the numbers count.
static SplitAxes selectionAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() != 2 || op->getNumResults() != 1 || !holdsNumbers(op->getOperand(1)))
    return {};
  ArrayRef<int64_t> whole = (*shapes)[0], numbers = (*shapes)[1];
  int64_t indexed = findIndexed(whole, numbers, (*shapes)[2]), added = static_cast<int64_t>(numbers.size());
  SplitAxes axes;
  if (indexed < 0)
    return axes;
  for (int64_t dim = 0; dim < static_cast<int64_t>(whole.size()); ++dim)
    if (dim != indexed)
      addAxis(axes, op, {{0, dim}}, dim < indexed ? dim : dim + added - 1);
  for (int64_t dim = 0; dim < added; ++dim)
    addAxis(axes, op, {{1, dim}}, indexed + dim);
  return axes;
}

/// A tensor of which a tensor of numbers selects the rows that others replace, or are added to. Two rows may have one
/// number, so only the other dimensions divide.
static SplitAxes replacementAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() != 3 || op->getNumResults() != 1 || !holdsNumbers(op->getOperand(1)) ||
      shapes->front() != shapes->back())
    return {};
  ArrayRef<int64_t> whole = (*shapes)[0], numbers = (*shapes)[1];
  int64_t indexed = findIndexed(whole, numbers, (*shapes)[2]), added = static_cast<int64_t>(numbers.size());
  SplitAxes axes;
  for (int64_t dim = 0; indexed >= 0 && dim < static_cast<int64_t>(whole.size()); ++dim)
    if (dim != indexed)
      addAxis(axes, op, {{0, dim}, {2, dim < indexed ? dim : dim + added - 1}}, dim);
  return axes;
}

/// Attention of queries [batch, heads, rows, width] to keys and values of the same batch. The first results are the
/// mixed values [batch, heads, rows, width] and the logarithms of the sums [batch, heads, rows]. Rows of queries are
/// independent, but a causal mask depends on their place.
static SplitAxes attentionAxes(Operation *op) {
  std::optional<SmallVector<ArrayRef<int64_t>>> shapes = shapesOf(op);
  if (!shapes || op->getNumOperands() != 3 || op->getNumResults() == 0 || op->getNumResults() > 2)
    return {};
  ArrayRef<int64_t> query = (*shapes)[0], key = (*shapes)[1], value = (*shapes)[2];
  if (query.size() != 4 || key.size() != 4 || value.size() != 4 || (*shapes)[3].size() != 4)
    return {};
  if (op->getNumResults() == 2 && (*shapes)[4] != query.take_front(3))
    return {};
  SplitAxes axes;
  for (int64_t dim : {0, 1})
    if (query[dim] == key[dim] && query[dim] == value[dim])
      addAxis(axes, op, {{0, dim}, {1, dim}, {2, dim}}, dim);
  addAxis(axes, op, {{0, 2}}, 2);
  axes.back().positional = true;
  return axes;
}

//===-----------------------------------------------------------------------------------------===//
// Names
//===-----------------------------------------------------------------------------------------===//

namespace {

struct Rule {
  SplitAxes (*axes)(Operation *);
  std::initializer_list<StringRef> names;
};

} // namespace

/// Indexed by name without namespace and overload: the rule.
static llvm::StringMap<SplitAxes (*)(Operation *)> makeTable() {
  const Rule rules[] = {
      {elementwiseAxes,
       {"_to_copy",
        "abs",
        "add",
        "alias",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "cast",
        "ceil",
        "clamp",
        "clone",
        "copy",
        "cos",
        "detach",
        "div",
        "eq",
        "erf",
        "exp",
        "expand",
        "fill",
        "floor",
        "full_like",
        "ge",
        "gelu",
        "gelu_backward",
        "gt",
        "isnan",
        "le",
        "log",
        "logical_and",
        "logical_not",
        "logical_or",
        "lt",
        "maximum",
        "minimum",
        "mul",
        "ne",
        "neg",
        "ones_like",
        "pow",
        "reciprocal",
        "relu",
        "relu_backward",
        "round",
        "rsqrt",
        "rsub",
        "sigmoid",
        "sigmoid_backward",
        "sign",
        "silu",
        "silu_backward",
        "sin",
        "sqrt",
        "sub",
        "tanh",
        "tanh_backward",
        "threshold_backward",
        "where",
        "zeros_like",
        "convert_element_type"}},
      {productAxes, {"mm", "bmm", "matmul"}},
      {biasedProductAxes, {"addmm", "baddbmm"}},
      {linearAxes, {"linear"}},
      {reductionAxes, {"mean", "amax", "amin", "prod", "var"}},
      {sumAxes, {"sum"}},
      {reshapeAxes, {"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"}},
      {permutationAxes, {"permute", "transpose"}},
      {transpositionAxes, {"t"}},
      {concatenationAxes, {"cat"}},
      {sliceAxes, {"slice", "split", "split_with_sizes", "chunk"}},
      {embeddingAxes, {"embedding"}},
      {embeddingGradientAxes, {"embedding_dense_backward"}},
      {selectionAxes, {"index", "index_select", "_unsafe_index"}},
      {replacementAxes, {"index_put", "_unsafe_index_put"}},
      {attentionAxes, {"_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention"}},
  };
  llvm::StringMap<SplitAxes (*)(Operation *)> table;
  for (const Rule &rule : rules)
    for (StringRef name : rule.names)
      table[name] = rule.axes;
  return table;
}

SplitAxes commsched::detail::computeAxes(Operation *op) {
  static const llvm::StringMap<SplitAxes (*)(Operation *)> table = makeTable();
  StringRef name = cast<ComputeOp>(op).getName();
  name.consume_front("aten.") || name.consume_front("prims.");
  auto rule = table.find(name.split('.').first);
  return rule == table.end() ? SplitAxes() : rule->second(op);
}

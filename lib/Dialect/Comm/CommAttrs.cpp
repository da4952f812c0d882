//===- CommAttrs.cpp - Groups, costs, reductions, symmetric memory ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace commsched::comm;

#define GET_ATTRDEF_CLASSES
#include "CommSched/Dialect/Comm/CommAttrs.cpp.inc"

void CommDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "CommSched/Dialect/Comm/CommAttrs.cpp.inc"
      >();
}

/// Exclusive limit of the number of ranks: no machine has as many, and products of two numbers below it fit in 64 bits.
static constexpr int64_t kMaxRanks = int64_t(1) << 31;

/// Parses `[1, 2, 3]`.
static ParseResult parseIntegers(AsmParser &parser, SmallVectorImpl<int64_t> &values) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                        [&] { return parser.parseInteger(values.emplace_back()); });
}

static void printIntegers(AsmPrinter &printer, ArrayRef<int64_t> values) {
  printer << "[";
  llvm::interleaveComma(values, printer);
  printer << "]";
}

//===-----------------------------------------------------------------------------------------===//
// RanksAttr
//===-----------------------------------------------------------------------------------------===//

Attribute RanksAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> ranks;
  int64_t groupSize = -1;
  auto parseGroup = [&]() -> ParseResult {
    size_t before = ranks.size();
    SMLoc groupLoc = parser.getCurrentLocation();
    if (parseIntegers(parser, ranks))
      return failure();
    int64_t size = ranks.size() - before;
    if (groupSize >= 0 && size != groupSize)
      return parser.emitError(groupLoc) << "C2: expected a group of " << groupSize << " ranks like the first, got "
                                        << size;
    groupSize = size;
    return success();
  };
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseGroup) ||
      parser.parseGreater())
    return {};
  return RanksAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), ranks,
                               std::max<int64_t>(groupSize, 0));
}

void RanksAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(llvm::seq<int64_t>(0, getNumGroups()), printer, [&](int64_t group) {
    printIntegers(printer, getRanks().slice(group * getGroupSize(), getGroupSize()));
  });
  printer << "]>";
}

LogicalResult RanksAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<int64_t> ranks,
                                int64_t groupSize) {
  if (ranks.empty() || groupSize <= 0)
    return emitError() << "C1: expected at least one group, and at least one rank in each, got an empty list";
  int64_t world = ranks.size();
  if (world % groupSize != 0)
    return emitError() << "C2: expected a multiple of the group size (" << groupSize << "), got " << world << " ranks";
  llvm::BitVector seen(world);
  for (int64_t rank : ranks) {
    if (rank < 0 || rank >= world)
      return emitError() << "C3: expected ranks from 0 to " << world - 1 << ", got " << rank;
    if (seen.test(rank))
      return emitError() << "C3: rank " << rank << " appears twice";
    seen.set(rank);
  }
  return success();
}

int64_t RanksAttr::getNumGroups() const { return getRanks().size() / getGroupSize(); }

int64_t RanksAttr::getRank(int64_t group, int64_t index) const { return getRanks()[group * getGroupSize() + index]; }

//===-----------------------------------------------------------------------------------------===//
// IotaAttr
//===-----------------------------------------------------------------------------------------===//

Attribute IotaAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<int64_t> shape, dims, perm;
  if (parser.parseLess() || parseIntegers(parser, shape))
    return {};
  if (shape.size() != 2) {
    parser.emitError(loc) << "C1: expected two numbers, [groups, size], got " << shape.size();
    return {};
  }
  if (succeeded(parser.parseOptionalKeyword("from"))) {
    if (parseIntegers(parser, dims))
      return {};
    if (succeeded(parser.parseOptionalKeyword("transpose")) && parseIntegers(parser, perm))
      return {};
  } else {
    dims = shape;
  }
  if (perm.empty())
    perm = llvm::to_vector(llvm::seq<int64_t>(0, dims.size()));
  if (parser.parseGreater())
    return {};
  return IotaAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), shape[0], shape[1], dims,
                              perm);
}

void IotaAttr::print(AsmPrinter &printer) const {
  printer << "<[" << getGroups() << ", " << getSize() << "]";
  bool transposed = !llvm::equal(getPerm(), llvm::seq<int64_t>(0, getDims().size()));
  if (transposed || getDims() != ArrayRef<int64_t>({getGroups(), getSize()})) {
    printer << " from ";
    printIntegers(printer, getDims());
  }
  if (transposed) {
    printer << " transpose ";
    printIntegers(printer, getPerm());
  }
  printer << ">";
}

LogicalResult IotaAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t groups, int64_t size,
                               ArrayRef<int64_t> dims, ArrayRef<int64_t> perm) {
  if (groups <= 0 || size <= 0 || groups >= kMaxRanks || size >= kMaxRanks || groups * size >= kMaxRanks)
    return emitError() << "C1: expected positive numbers with a product below 2^31, got " << groups << " groups of "
                       << size << " ranks";
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim <= 0 || dim >= kMaxRanks || product * dim >= kMaxRanks)
      return emitError() << "C1: expected positive dimensions with a product below 2^31, got dimension " << dim;
    product *= dim;
  }
  if (product != groups * size)
    return emitError() << "C1: expected as many ranks as the product of the dimensions (" << product << "), got "
                       << groups << " groups of " << size;
  if (perm.size() != dims.size())
    return emitError() << "C2: expected a permutation of " << dims.size() << " axes, got " << perm.size() << " entries";
  llvm::BitVector seen(perm.size());
  for (int64_t axis : perm) {
    if (axis < 0 || axis >= static_cast<int64_t>(perm.size()))
      return emitError() << "C2: expected axes from 0 to " << perm.size() - 1 << ", got " << axis;
    if (seen.test(axis))
      return emitError() << "C2: axis " << axis << " appears twice";
    seen.set(axis);
  }
  return success();
}

int64_t IotaAttr::getNumGroups() const { return getGroups(); }

int64_t IotaAttr::getGroupSize() const { return getSize(); }

int64_t IotaAttr::getRank(int64_t group, int64_t index) const {
  // Convert the row-major place in the transposed array to coordinates, then to the row-major place in the original
  // array.
  int64_t place = group * getSize() + index;
  SmallVector<int64_t, 4> coordinates(getDims().size());
  for (int64_t axis : llvm::reverse(getPerm())) {
    coordinates[axis] = place % getDims()[axis];
    place /= getDims()[axis];
  }
  int64_t rank = 0;
  for (auto [dim, coordinate] : llvm::zip_equal(getDims(), coordinates))
    rank = rank * dim + coordinate;
  return rank;
}

//===-----------------------------------------------------------------------------------------===//
// CostAttr
//===-----------------------------------------------------------------------------------------===//

LogicalResult CostAttr::verify(function_ref<InFlightDiagnostic()> emitError, std::optional<int64_t> flops,
                               std::optional<int64_t> bytes, std::optional<int64_t> workspace,
                               std::optional<int64_t> time, std::optional<int64_t> lo, std::optional<int64_t> hi) {
  for (std::optional<int64_t> value : {flops, bytes, workspace, time, lo, hi})
    if (value && *value < 0)
      return emitError() << "C1: expected non-negative numbers, got " << *value;
  if (!lo && !hi)
    return success();
  if (!time || !lo || !hi)
    return emitError() << "C2: expected 'time', 'time_lo' and 'time_hi' together";
  if (*lo > *time || *time > *hi)
    return emitError() << "C2: expected 'time' (" << *time << ") between 'time_lo' (" << *lo << ") and 'time_hi' ("
                       << *hi << ")";
  return success();
}

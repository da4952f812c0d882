//===- CommMoveCasts.cpp - The pass comm-move-casts -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A cast in front of a collective that makes elements wider moves behind its wait, and one behind the wait that makes
// them narrower moves in front of the collective. Either way, the collective carries fewer bytes. Casts convert each
// element by itself, so the bits stay equal if the collective only moves elements, or takes a minimum or maximum before
// they become wider. A sum is computed in the narrow type then, which only happens if the user has asked for it.
//
// The operations stay the same ones, with other operands: front ends recognize them.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Casts.h"
#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/TensorPlaces.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Report/NumericsReport.h"
#include "CommSched/Support/Numerics.h"
#include "CommSched/Transforms/Passes.h"
#include "PassBase/MachinePass.h"
#include "RewriteRemarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/FormatVariadic.h"

namespace commsched {
#define GEN_PASS_DEF_COMMMOVECASTS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

enum class Side { InFront, Behind };

/// A collective with a wait, and one cast for each of its values: on the same side of all of them.
struct Crossing {
  CollectiveOpInterface start;
  WaitOp wait;
  Side side;
  SmallVector<Operation *> casts;
};

FloatType elementOf(Value value) { return cast<FloatType>(cast<ShapedType>(value.getType()).getElementType()); }

/// Returns true if the cast has the narrower type on the other side of the collective.
bool isWorthMoving(Operation *cast, Side side) {
  unsigned from = elementOf(cast->getOperand(0)).getWidth(), to = elementOf(cast->getResult(0)).getWidth();
  return side == Side::InFront ? from < to : from > to;
}

/// The cast that makes an input of a collective, or that reads a value of a wait; null without one.
Operation *castAt(Value value, Side side) {
  Operation *op = side == Side::InFront ? value.getDefiningOp() : nullptr;
  if (side == Side::Behind && !value.use_empty())
    op = *value.user_begin();
  return op && convertsElements(op) && isWorthMoving(op, side) ? op : nullptr;
}

/// The casts on one side of a collective, if every value has one that would save bytes.
std::optional<Crossing> findCrossing(CollectiveOpInterface start, Side side) {
  for (Operation *user : start.getCollectiveFuture().getUsers()) {
    auto wait = dyn_cast<WaitOp>(user);
    if (!wait || wait.getValues().size() != start.getCollectiveInputs().size() || wait.getValues().empty())
      continue;
    Crossing crossing{start, wait, side, {}};
    ValueRange values = side == Side::InFront ? ValueRange(start.getCollectiveInputs()) : ValueRange(wait.getValues());
    for (Value value : values)
      crossing.casts.push_back(castAt(value, side));
    if (!llvm::is_contained(crossing.casts, nullptr))
      return crossing;
  }
  return std::nullopt;
}

/// The class of moving casts across a collective; none if this project does not do it.
std::optional<Numerics> classOf(Crossing &crossing) {
  std::optional<ReductionKind> reduction = crossing.start.getCollectiveReduction();
  if (!reduction)
    return Numerics::Exact;
  // In front of a sum, a cast to fewer bits would round every term. Even a minimum would see zeros of both signs in the
  // place of small numbers, and may take either.
  if (crossing.side == Side::Behind || *reduction == ReductionKind::product)
    return std::nullopt;
  if (*reduction == ReductionKind::min || *reduction == ReductionKind::max)
    return Numerics::Exact;
  bool isTiny =
      llvm::any_of(crossing.casts, [](Operation *op) { return elementOf(op->getOperand(0)).getWidth() < 16; });
  return isTiny ? std::nullopt : std::optional(Numerics::ReducedPrecisionSums);
}

/// Returns why the casts cannot move, or an empty string.
std::string findObstacle(Crossing &crossing, const TensorPlaces &places) {
  if (!crossing.start.getCollectiveFuture().hasOneUse())
    return "the future has several waits or other users";
  if (!llvm::all_of(crossing.casts, isElementTypeCast))
    return "a size is dynamic";
  if (!crossing.start.getCollectiveDests().empty())
    return "the collective has a destination";
  if (crossing.start->hasAttr(CommDialect::kCostAttrName))
    return "the cost of the collective is given, and holds for its bytes as they are";
  if (crossing.wait->getBlock() != crossing.start->getBlock())
    return "the wait is in another block";
  for (Operation *op : crossing.casts) {
    if (op->getBlock() != crossing.start->getBlock())
      return "the cast is in another block";
    for (StringRef name : {CommDialect::kUnitAttrName, CommDialect::kPinnedAttrName, CommDialect::kStreamAttrName,
                           CommDialect::kHybridAttrName})
      if (op->hasAttr(name))
        return "the cast has '" + name.str() + "', which gives it a place";
    Value behind = crossing.side == Side::InFront ? op->getResult(0) : op->getOperand(0);
    if (!behind.hasOneUse())
      return crossing.side == Side::InFront ? "the result of the cast has other readers"
                                            : "the gathered value has other readers";
    if (places.isPlace(op->getOperand(0)) || places.isPlace(op->getResult(0)))
      return "the program writes the storage of a value that the cast reads or makes";
  }
  for (Value value : crossing.wait.getValues())
    if (places.isPlace(value))
      return "the program writes the storage of the collective's value";
  return "";
}

/// The cost of a cast over `now` in place of `before` elements.
void scaleCost(Operation *cast, int64_t before, int64_t now) {
  auto cost = cast->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
  if (!cost || before == 0)
    return;
  auto scaled = [&](std::optional<int64_t> amount) -> std::optional<int64_t> {
    return amount ? std::optional(static_cast<int64_t>((static_cast<__int128>(*amount) * now + before - 1) / before))
                  : std::nullopt;
  };
  cast->setAttr(CommDialect::kCostAttrName,
                CostAttr::get(cast->getContext(), scaled(cost.getFlops()), scaled(cost.getBytes()),
                              scaled(cost.getWorkspace()), scaled(cost.getTime()), scaled(cost.getTimeLo()),
                              scaled(cost.getTimeHi())));
}

void setElement(Value value, Type element) { value.setType(cast<ShapedType>(value.getType()).clone(element)); }

/// Moves the casts to the other side. Doing it twice changes nothing.
void move(Crossing &crossing) {
  SmallVector<Type> types;
  Operation *behind = crossing.wait;
  for (auto [index, cast] : llvm::enumerate(crossing.casts)) {
    OpOperand &input =
        crossing.start->getOpOperand(crossing.start.getCollectiveInputs().getBeginOperandIndex() + index);
    Value value = crossing.wait.getValues()[index], result = cast->getResult(0);
    const Type wide = result.getType();
    const Type element = crossing.side == Side::InFront ? elementOf(cast->getOperand(0)) : elementOf(result);
    if (crossing.side == Side::InFront) {
      input.set(cast->getOperand(0));
      value.replaceAllUsesWith(result);
      cast->setOperand(0, value);
      result.setType(llvm::cast<ShapedType>(value.getType()).clone(elementOf(result)));
      cast->moveAfter(std::exchange(behind, cast));
    } else {
      result.replaceAllUsesWith(value);
      cast->setOperand(0, input.get());
      result.setType(llvm::cast<ShapedType>(input.get().getType()).clone(elementOf(result)));
      input.set(result);
      cast->moveBefore(crossing.start);
    }
    setElement(value, element);
    types.push_back(value.getType());
    scaleCost(cast, llvm::cast<ShapedType>(wide).getNumElements(),
              llvm::cast<ShapedType>(result.getType()).getNumElements());
  }
  Value future = crossing.start.getCollectiveFuture();
  future.setType(FutureType::get(future.getContext(), types));
  crossing.side = crossing.side == Side::InFront ? Side::Behind : Side::InFront;
}

/// The bytes that a collective carries on each rank: those of its larger side.
int64_t bytesOf(Crossing &crossing) {
  int64_t inputs = 0, values = 0;
  for (auto [input, value] : llvm::zip_equal(crossing.start.getCollectiveInputs(), crossing.wait.getValues())) {
    inputs += getStaticBytes(input.getType()).value_or(0);
    values += getStaticBytes(value.getType()).value_or(0);
  }
  return std::max(inputs, values);
}

class FunctionRewriter {
public:
  FunctionRewriter(FunctionOpInterface function, const CostModel &model, Numerics numerics, StringRef pass)
      : function(function), costs(model), places(function), numerics(numerics), pass(pass) {}

  void run() {
    SmallVector<CollectiveOpInterface> starts;
    function->walk([&](CollectiveOpInterface start) { starts.push_back(start); });
    // A cast may cross several collectives, so those that it comes to first are looked at first.
    for (CollectiveOpInterface start : llvm::reverse(starts))
      visit(start, Side::Behind);
    for (CollectiveOpInterface start : starts)
      visit(start, Side::InFront);
    addNumerics(function, changed);
  }

private:
  void visit(CollectiveOpInterface start, Side side) {
    std::optional<Crossing> crossing = findCrossing(start, side);
    if (!crossing)
      return;
    std::optional<Numerics> needed = classOf(*crossing);
    if (!needed)
      return remarkMissed(start, pass, "the collective computes with its elements, which would round differently");
    if (*needed > numerics)
      return remarkMissed(start, pass,
                          "the sum would be computed in fewer bits, which numerics=" + stringify(*needed).str() +
                              " allows");
    if (std::string obstacle = findObstacle(*crossing, places); !obstacle.empty())
      return remarkMissed(start, pass, obstacle);
    const int64_t before = bytesOf(*crossing);
    if (!moveIfFaster(*crossing))
      return remarkMissed(start, pass, "the cast would take longer than the collective saves");
    std::string change = llvm::formatv("carries {0} in place of {1} bytes", bytesOf(*crossing), before);
    if (*needed == Numerics::ReducedPrecisionSums)
      change += "; " + noteSum(*crossing);
    remarkPassed(start, pass, change, before - bytesOf(*crossing));
  }

  Ns timeOf(Crossing &crossing) const {
    Ns time = costs.costOf(crossing.start).time;
    for (Operation *cast : crossing.casts)
      time += costs.costOf(cast).time;
    return time;
  }

  /// Moves the casts, unless collective and casts together take longer then.
  bool moveIfFaster(Crossing &crossing) const {
    SmallVector<Operation *> followers;
    for (Operation *cast : crossing.casts)
      followers.push_back(cast->getNextNode());
    const Ns before = timeOf(crossing);
    move(crossing);
    if (timeOf(crossing) < before)
      return true;
    move(crossing);
    for (auto [cast, follower] : llvm::reverse(llvm::zip_equal(crossing.casts, followers)))
      cast->moveBefore(follower);
    return false;
  }

  /// Counts a sum that is computed in fewer bits now. The bound on its error, in words.
  std::string noteSum(Crossing &crossing) {
    auto group = SymbolTable::lookupNearestSymbolFrom<GroupOp>(crossing.start, crossing.start.getGroupAttr());
    const int64_t ranks = group ? group.getGroupSize() : 1;
    // An average or a factor is a division or product for each element, and its factor is rounded, too.
    const int64_t extra = crossing.start.getCollectiveReduction() == ReductionKind::sum ? 0 : 2;
    std::optional<double> error = 0;
    for (Value value : crossing.wait.getValues()) {
      FloatType narrow = elementOf(value), wide = elementOf(*value.user_begin()->result_begin());
      std::optional<double> ours = sumErrorBound(ranks, narrow.getFloatSemantics(), extra);
      std::optional<double> given = sumErrorBound(ranks, wide.getFloatSemantics(), extra);
      error = error && ours && given ? std::optional(std::max(*error, *ours + *given)) : std::nullopt;
    }
    changed.numerics = Numerics::ReducedPrecisionSums;
    ++changed.collectives;
    changed.error = changed.error && error ? std::optional(std::max(*changed.error, *error)) : std::nullopt;
    std::string text =
        llvm::formatv("a sum of {0} ranks in {1}, ", ranks, elementOf(crossing.wait.getValues().front()));
    return error
               ? text +
                     llvm::formatv("which differs by at most {0:F4} of the sum of the terms' magnitudes", *error).str()
               : text + "whose error has no bound";
  }

  FunctionOpInterface function;
  OperationCosts costs;
  TensorPlaces places;
  Numerics numerics;
  StringRef pass;
  NumericsReport changed;
};

struct CommMoveCastsPass : public MachinePass<commsched::impl::CommMoveCastsBase<CommMoveCastsPass>> {
  using MachinePass::MachinePass;

  void runWithModel() final {
    getOperation()->walk([&](FunctionOpInterface function) {
      if (!function.isExternal())
        FunctionRewriter(function, *model, numerics, getArgument()).run();
    });
  }
};

} // namespace

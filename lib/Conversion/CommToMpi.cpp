//===- CommToMpi.cpp - Collectives on buffers in upstream's mpi dialect -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The mpi dialect of LLVM 22 has no non-blocking collective. What only moves data, and the same on every rank, becomes
// non-blocking sends and receives, whose requests take the place of the future. A sum blocks where it starts.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MPI/IR/MPI.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/TypeSwitch.h"

namespace commsched {
#define GEN_PASS_DEF_CONVERTCOMMTOMPI
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Tags of collectives count from here, above those of messages. MPI guarantees tags up to 32767.
static constexpr int64_t kFirstTag = 16384, kLastTag = 32767;

static constexpr llvm::StringLiteral kConverted = "send, recv, barrier, all_reduce with sum, product, min or max, "
                                                  "all_gather and all_to_all along dimension 0, and permute "
                                                  "in which every place is a source and a target";

namespace {
/// The conversion of one function.
class MpiConversion {
public:
  MpiConversion(ModuleOp module, func::FuncOp function, int64_t &nextTag)
      : module(module), function(function), nextTag(nextTag),
        entry(ImplicitLocOpBuilder::atBlockBegin(function.getLoc(), &function.getBody().front())) {}

  LogicalResult run() {
    SmallVector<Operation *> operations;
    function.walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (isa_and_nonnull<CommDialect>(op->getDialect()))
        operations.push_back(op);
    });
    for (Operation *op : operations)
      if (failed(convert(op)))
        return failure();
    for (Operation *op : llvm::reverse(operations))
      op->erase();
    return success();
  }

private:
  /// What a collective of one group needs.
  struct Communicator {
    Value comm, place;
    int64_t size = 0;
  };

  LogicalResult convert(Operation *op) {
    ImplicitLocOpBuilder builder(op->getLoc(), op);
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<RankOp>([&](RankOp rank) {
          rank.replaceAllUsesWith(arith::IndexCastOp::create(builder, builder.getIndexType(), worldRank()).getResult());
          return success();
        })
        .Case<WaitOp>([&](WaitOp wait) { return convertWait(builder, wait); })
        .Case<CollectiveOpInterface>([&](CollectiveOpInterface start) { return convertStart(builder, start); })
        .Default([](Operation *other) {
          return other->emitOpError() << "has no counterpart in the mpi dialect of LLVM 22";
        });
  }

  LogicalResult refuse(Operation *op) {
    return op->emitOpError() << "has no counterpart in the mpi dialect of LLVM 22; converted are " << kConverted;
  }

  Value worldRank() {
    if (!rank)
      rank = mpi::CommRankOp::create(entry, /*retval=*/Type(), entry.getI32Type(), world()).getRank();
    return rank;
  }

  Value world() {
    if (!worldComm)
      worldComm = mpi::CommWorldOp::create(entry, mpi::CommType::get(module.getContext()));
    return worldComm;
  }

  static Value number(ImplicitLocOpBuilder &builder, int64_t value) {
    return arith::ConstantOp::create(builder, builder.getI32IntegerAttr(value));
  }

  /// The entry of a constant table for this rank.
  Value lookUp(ArrayRef<int32_t> table, Value index, ImplicitLocOpBuilder &builder) {
    auto type = MemRefType::get({static_cast<int64_t>(table.size())}, builder.getI32Type());
    auto values = DenseElementsAttr::get(RankedTensorType::get(type.getShape(), type.getElementType()), table);
    OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
    auto global = memref::GlobalOp::create(top, function.getLoc(), "comm_table", top.getStringAttr("private"), type,
                                           values, /*constant=*/true, /*alignment=*/IntegerAttr());
    global->remove();
    SymbolTable(module).insert(global, module.getBody()->begin());
    Value data = memref::GetGlobalOp::create(builder, type, global.getSymName());
    Value at = arith::IndexCastOp::create(builder, builder.getIndexType(), index);
    return memref::LoadOp::create(builder, data, ValueRange{at});
  }

  /// The communicator of a group, which the function makes once: the color is the group, the key the place in it.
  const Communicator &communicatorOf(GroupOp group) {
    Communicator &known = communicators[group];
    if (known.comm)
      return known;
    ReplicaGroupsInterface groups = group.getGroups();
    SmallVector<int32_t> colors(groups.getWorldSize()), places(groups.getWorldSize());
    for (int64_t color = 0; color < groups.getNumGroups(); ++color)
      for (int64_t place = 0; place < groups.getGroupSize(); ++place) {
        colors[groups.getRank(color, place)] = static_cast<int32_t>(color);
        places[groups.getRank(color, place)] = static_cast<int32_t>(place);
      }
    known.size = groups.getGroupSize();
    bool isWorld = groups.getNumGroups() == 1 && llvm::is_sorted(places);
    known.place = isWorld ? worldRank() : lookUp(places, worldRank(), entry);
    known.comm = isWorld ? world()
                         : mpi::CommSplitOp::create(entry, /*retval=*/Type(), mpi::CommType::get(module.getContext()),
                                                    world(), lookUp(colors, worldRank(), entry), known.place)
                               .getNewcomm();
    return known;
  }

  /// The elements of a buffer as one dimension; null after a diagnostic.
  Value flatten(ImplicitLocOpBuilder &builder, Operation *op, Value buffer) {
    auto type = dyn_cast<MemRefType>(buffer.getType());
    if (!type || !type.hasStaticShape() || !type.getLayout().isIdentity()) {
      op->emitOpError() << "expected contiguous buffers of a static shape, got " << buffer.getType();
      return {};
    }
    if (type.getRank() == 1)
      return buffer;
    if (type.getRank() == 0)
      return memref::ExpandShapeOp::create(builder, ArrayRef<int64_t>{1}, buffer, ArrayRef<ReassociationIndices>{});
    ReassociationIndices all(llvm::to_vector(llvm::seq<int64_t>(0, type.getRank())));
    return memref::CollapseShapeOp::create(builder, buffer, ArrayRef<ReassociationIndices>{all});
  }

  /// Piece `number` (i32) of a flat buffer of `pieces` pieces.
  static Value pieceOf(ImplicitLocOpBuilder &builder, Value flat, Value number, int64_t pieces) {
    int64_t size = cast<MemRefType>(flat.getType()).getDimSize(0) / pieces;
    Value at = arith::IndexCastOp::create(builder, builder.getIndexType(), number);
    at = arith::MulIOp::create(builder, at, arith::ConstantIndexOp::create(builder, size).getResult());
    return memref::SubViewOp::create(builder, flat, ArrayRef<OpFoldResult>{at},
                                     ArrayRef<OpFoldResult>{builder.getIndexAttr(size)},
                                     ArrayRef<OpFoldResult>{builder.getIndexAttr(1)});
  }

  /// The place that comes `step` behind this one, around the group.
  static Value neighbour(ImplicitLocOpBuilder &builder, const Communicator &group, int64_t step) {
    Value sum = arith::AddIOp::create(builder, group.place, number(builder, step));
    return arith::RemUIOp::create(builder, sum, number(builder, group.size));
  }

  LogicalResult convertStart(ImplicitLocOpBuilder &builder, CollectiveOpInterface start) {
    GroupOp group = lookupGroup(start, symbols);
    Value future = start.getCollectiveFuture();
    if (!group || future.getUses().empty() || !future.hasOneUse() || !isa<WaitOp>(*future.user_begin()))
      return start.emitOpError() << "expected exactly one wait, and no other use of the future";
    if (llvm::any_of(start.getCollectiveInputs(), [](Value input) { return isa<TensorType>(input.getType()); }))
      return start.emitOpError() << "expected buffers, got tensors; run comm-bufferize first";
    const Communicator communicator = communicatorOf(group);
    return llvm::TypeSwitch<Operation *, LogicalResult>(start)
        .Case<SendOp>([&](SendOp send) {
          return message<mpi::ISendOp>(builder, start, send.getInputs(), send.getPeer(), send.getTag(), communicator);
        })
        .Case<RecvOp>([&](RecvOp recv) {
          return message<mpi::IRecvOp>(builder, start, recv.getDests(), recv.getPeer(), recv.getTag(), communicator);
        })
        .Case<BarrierOp>([&](BarrierOp) {
          mpi::Barrier::create(builder, /*retval=*/Type(), communicator.comm);
          return success();
        })
        .Case<AllReduceOp>([&](AllReduceOp reduce) { return convertAllReduce(builder, reduce, communicator); })
        .Case<AllGatherOp>([&](AllGatherOp gather) {
          return gather.getDim() == 0 ? exchange(builder, start, communicator, /*splitsInput=*/false) : refuse(start);
        })
        .Case<AllToAllOp>([&](AllToAllOp exchanged) {
          bool isPlain = !exchanged.hasSplits() && exchanged.getSplitDim() == 0 && exchanged.getConcatDim() == 0;
          return isPlain ? exchange(builder, start, communicator, /*splitsInput=*/true) : refuse(start);
        })
        .Case<PermuteOp>([&](PermuteOp permute) { return convertPermute(builder, permute, communicator); })
        .Default([&](Operation *other) { return refuse(other); });
  }

  template <typename Message>
  LogicalResult message(ImplicitLocOpBuilder &builder, CollectiveOpInterface start, ValueRange buffers, int64_t peer,
                        int64_t tag, const Communicator &communicator) {
    if (tag >= kFirstTag)
      return start.emitOpError() << "expected a tag below " << kFirstTag << ", got " << tag;
    for (Value buffer : buffers) {
      Value flat = flatten(builder, start, buffer);
      if (!flat)
        return failure();
      add<Message>(builder, start, flat, number(builder, tag), number(builder, peer), communicator);
    }
    return success();
  }

  template <typename Message>
  void add(ImplicitLocOpBuilder &builder, CollectiveOpInterface start, Value flat, Value tag, Value peer,
           const Communicator &communicator) {
    requests[start.getCollectiveFuture()].push_back(Message::create(builder, /*retval=*/Type(),
                                                                    mpi::RequestType::get(module.getContext()), flat,
                                                                    tag, peer, communicator.comm)
                                                        .getReq());
  }

  FailureOr<Value> freshTag(ImplicitLocOpBuilder &builder, Operation *op) {
    if (nextTag > kLastTag)
      return op->emitOpError() << "expected at most " << kLastTag - kFirstTag + 1
                               << " collectives, because MPI guarantees no more tags";
    return number(builder, nextTag++);
  }

  LogicalResult convertAllReduce(ImplicitLocOpBuilder &builder, AllReduceOp reduce, const Communicator &communicator) {
    std::optional<mpi::MPI_ReductionOpEnum> kind;
    switch (reduce.getReduction()) {
    case ReductionKind::sum:
      kind = mpi::MPI_ReductionOpEnum::MPI_SUM;
      break;
    case ReductionKind::product:
      kind = mpi::MPI_ReductionOpEnum::MPI_PROD;
      break;
    case ReductionKind::min:
      kind = mpi::MPI_ReductionOpEnum::MPI_MIN;
      break;
    case ReductionKind::max:
      kind = mpi::MPI_ReductionOpEnum::MPI_MAX;
      break;
    default:
      return refuse(reduce);
    }
    for (auto [input, dest] : llvm::zip_equal(reduce.getInputs(), reduce.getDests())) {
      Value from = flatten(builder, reduce, input), to = flatten(builder, reduce, dest);
      if (!from || !to)
        return failure();
      mpi::AllReduceOp::create(builder, /*retval=*/Type(), from, to, *kind, communicator.comm);
    }
    return success();
  }

  /// Sends to every other place of the group, and receives from it: the whole input, or the piece for that place.
  LogicalResult exchange(ImplicitLocOpBuilder &builder, CollectiveOpInterface start, const Communicator &communicator,
                         bool splitsInput) {
    for (auto [input, dest] : llvm::zip_equal(start.getCollectiveInputs(), start.getCollectiveDests())) {
      Value from = flatten(builder, start, input), to = flatten(builder, start, dest);
      FailureOr<Value> tag = freshTag(builder, start);
      if (!from || !to || failed(tag))
        return failure();
      auto sent = [&](Value place) { return splitsInput ? pieceOf(builder, from, place, communicator.size) : from; };
      memref::CopyOp::create(builder, sent(communicator.place),
                             pieceOf(builder, to, communicator.place, communicator.size));
      for (int64_t step = 1; step < communicator.size; ++step) {
        Value target = neighbour(builder, communicator, step),
              source = neighbour(builder, communicator, communicator.size - step);
        add<mpi::IRecvOp>(builder, start, pieceOf(builder, to, source, communicator.size), *tag, source, communicator);
        add<mpi::ISendOp>(builder, start, sent(target), *tag, target, communicator);
      }
    }
    return success();
  }

  LogicalResult convertPermute(ImplicitLocOpBuilder &builder, PermuteOp permute, const Communicator &communicator) {
    ArrayRef<int64_t> pairs = permute.getPairs();
    // The verifier has made sure that no place is a source or a target twice.
    if (static_cast<int64_t>(pairs.size()) != 2 * communicator.size)
      return refuse(permute);
    SmallVector<int32_t> targets(communicator.size), sources(communicator.size);
    for (size_t at = 0; at < pairs.size(); at += 2) {
      targets[pairs[at]] = static_cast<int32_t>(pairs[at + 1]);
      sources[pairs[at + 1]] = static_cast<int32_t>(pairs[at]);
    }
    Value target = lookUp(targets, communicator.place, builder), source = lookUp(sources, communicator.place, builder);
    for (auto [input, dest] : llvm::zip_equal(permute.getInputs(), permute.getDests())) {
      Value from = flatten(builder, permute, input), to = flatten(builder, permute, dest);
      FailureOr<Value> tag = freshTag(builder, permute);
      if (!from || !to || failed(tag))
        return failure();
      add<mpi::IRecvOp>(builder, permute, to, *tag, source, communicator);
      add<mpi::ISendOp>(builder, permute, from, *tag, target, communicator);
    }
    return success();
  }

  LogicalResult convertWait(ImplicitLocOpBuilder &builder, WaitOp wait) {
    auto start = wait.getFuture().getDefiningOp<CollectiveOpInterface>();
    if (!start)
      return wait.emitOpError() << "expected the future of a start in this function";
    for (Value request : requests[wait.getFuture()])
      mpi::Wait::create(builder, /*retval=*/Type(), request);
    wait->replaceAllUsesWith(start.getCollectiveDests());
    return success();
  }

  ModuleOp module;
  func::FuncOp function;
  int64_t &nextTag;
  /// In front of the first operation of the function.
  ImplicitLocOpBuilder entry;
  SymbolTableCollection symbols;
  Value worldComm, rank;
  llvm::DenseMap<Operation *, Communicator> communicators;
  /// Indexed by future.
  llvm::DenseMap<Value, SmallVector<Value>> requests;
};

struct ConvertCommToMpiPass : public commsched::impl::ConvertCommToMpiBase<ConvertCommToMpiPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    int64_t nextTag = kFirstTag;
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (!function.isDeclaration() && failed(MpiConversion(module, function, nextTag).run()))
        return signalPassFailure();
    for (auto group : llvm::make_early_inc_range(module.getOps<GroupOp>()))
      group.erase();
  }
};
} // namespace

# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Faults of aliasing, order and lifetime in the compiler and the runtime. `planted_faults.py` plants them."""

from collections import namedtuple

# `file`: below lib. `edits`: each from a text that occurs exactly once to another one. The second analysis of accesses only
# checks the first one: no result depends on it as long as the first one is right, so CertificateOrder has to find its
# faults. `test`: a file of lit below test, or `Program:Suite.Name` of GoogleTest, for a fault that random programs do not
# find.
Fault = namedtuple("Fault", "name file edits test", defaults=("",))
FAULTS = []


def fault(name, file, *edits, test=""):
    FAULTS.append(Fault(name, file, edits, test))


DEPENDENCE = "Analysis/Dependence/Dependence.cpp"
fault("a read of what only a call writes has no edges", DEPENDENCE,
      ("    for (int32_t place : reached)\n      written[place] = true;\n", ""))
fault("a wait does not write the destinations", DEPENDENCE,
      ("bool writes = isFirst && (!start || !start.getCollectiveDests().empty());", "bool writes = false;"))
fault("a wait in a condition takes the place of the certain one", DEPENDENCE,
      ("if (isFirst && llvm::is_contained(findCertainWaits(future, nodes.getBlock()), nodes[id]))", "if (isFirst)"))
fault("a start does not write its destinations", DEPENDENCE, ("add(id, dest, true);", "add(id, dest, false);"))
fault("a start does not read its inputs", DEPENDENCE, ("      add(id, input, false);", "      (void)input;"))
fault("an operation with unknown effects is no barrier", DEPENDENCE,
      ("    barrier[id] = true;\n    reached.push_back", "    reached.push_back"))
fault("a write does not come after the reads", DEPENDENCE,
      ("      for (NodeId reader : place.readers)\n        addPred(reader, DependenceReason::Memory);\n", ""))
fault("a memory effect is a read", DEPENDENCE, ("        add(id, value, write);", "        add(id, value, false);"))
fault("a mutated tensor is only read", DEPENDENCE,
      ("add(id, operand.get(), mutatesOperand(operand));", "add(id, operand.get(), false);"))
fault("what a loop passes on is always a copy", DEPENDENCE,
      ("    for (StorageId other : storage.classes()[storageId].mayBe)\n      accesses[id].push_back({placeOf(other), write});\n", ""),
      test="Transforms/orders-beside-loops.mlir")
fault("messages have no order", DEPENDENCE, ("chain(lastPointToPoint, id, DependenceReason::Messages);", "(void)id;"))
fault("a wait passes the starts in front of it beside messages", DEPENDENCE,
      ("    if (hasMessages && !communication.awaited.empty())", "    if (false)"),
      test="AnalysisTests:ProblemLoaderTest.NoStartMovesBehindAWaitBesideMessages")
fault("messages order nothing in other blocks", "Transforms/Scheduling/BlockPass.cpp",
      ("load.besideMessages = sendsOrReceives(root);", "load.besideMessages = false;"),
      test="Transforms/orders-beside-messages.mlir")

STORAGE, SOURCES, REGIONS = "Analysis/Storage/Storage.cpp", "Analysis/Storage/StorageSources.cpp", "Analysis/Storage/RegionAliases.cpp"
fault("a tensor that leaves a branch is new storage", SOURCES,
      ("bool isCopied = isTensor && isa<LoopLikeOpInterface, DestinationStyleOpInterface>(op);", "bool isCopied = isTensor;"))
fault("a select is its first choice", SOURCES,
      ("addSources(sources, {select.getTrueValue(), select.getFalseValue()});", "addSources(sources, select.getTrueValue());"))
fault("a function never keeps the buffer of a tensor", SOURCES,
      ("return hasStorage(operand.get());", "return isa<BaseMemRefType>(operand.get().getType());"),
      test="AnalysisTests:ProblemLoaderTest.AFunctionMayKeepTheBufferOfATensor")
fault("a loaded memref is none that is known", SOURCES,
      ("Operation *op) {\n  sources.unknown = true;", "Operation *op) {\n  sources.unknown = false;"))
fault("a loop's argument is what it is first given", REGIONS,
      ("        join(operand->get(), input);", "        if (operand->getOwner() == owner)\n          join(operand->get(), input);"),
      test="Transforms/comm-verify-loops.mlir")
fault("an address from memory is never that of a global", STORAGE,
      ("storage[known->second].unknownOrigin = true;", "storage[known->second].unknownOrigin = false;"))
fault("a collective with a destination has memory of its own", STORAGE,
      ("ids = llvm::to_vector<2>(of(start.getCollectiveDests()[index]));", "ids.push_back(allocate(start, future, 0, nested));"))
fault("each wait for a collective from outside returns memory of its own", STORAGE,
      ("if (start.getCollectiveDests().empty())\n    return llvm::SmallVector<StorageId, 4>(receivedStorage(result));",
       "if (start.getCollectiveDests().empty())\n    return {};"),
      test="Transforms/comm-verify-several-waits.mlir")
fault("a wait on one side of a branch is certain", "Analysis/Dependence/CertainWait.cpp",
      ("!successors.empty() && llvm::all_of(", "!successors.empty() && llvm::any_of("))

STAGES = "Transforms/Loops/LoopStages.cpp"
fault("what iterations hand on is new in each of them", STAGES,
      ("  return describe(findSpread(carried, stageOf));", "  return \"\";"), test="Run/loops.test")
fault("what an iteration finds is new in each of them", STAGES,
      ("accesses.comesIn[object] ? findSpread(here, stageOf) : findReversal(here, stageOf)", "findReversal(here, stageOf)"),
      test="Transforms/comm-pipeline-loops-keeps.mlir")

FLOW, ACCESS = "Analysis/Dependence/MemoryFlow.cpp", "Analysis/Dependence/AccessOrder.cpp"
fault("second analysis: a start does not write its destinations", ACCESS,
      ("add(dest, 0, /*writes=*/true);", "add(dest, 0, /*writes=*/false);"),
      test="AnalysisTests:AccessOrderTest.ReadOfADestinationStaysBeforeTheStart")
fault("second analysis: what a branch yields does not leave it", FLOW,
      ("        flow(operand->get(), input);", "        if (operand->getOwner() == op)\n          flow(operand->get(), input);"),
      test="AnalysisTests:AccessOrderTest.ResultsOfRegionsAreWhatTheyYield")
fault("second analysis: a call only reads", ACCESS,
      ("add(operand.first, operand.second, argument.access.writes);", "add(operand.first, operand.second, false);"),
      test="AnalysisTests:AccessOrderTest.ReadStaysBehindCallThatWrites")
fault("second analysis: a view is new memory", FLOW,
      ("flowAll(view ? view.getViewSource() : op->getOperand(0), op->getResults());",
       "(void)view;\n    for (OpResult result : op->getResults())\n      makeFresh(result);"),
      test="AnalysisTests:AccessOrderTest.AViewIsTheMemoryOfItsSource")
fault("second analysis: a repeated wait writes", ACCESS,
      ("bool completes = !repeatedWaits || !repeatedWaits->contains(wait);", "bool completes = true;"))

LIVES, MARKERS, JOIN = "Conversion/Bufferization/StorageLives.cpp", "Conversion/Bufferization/StorageMarkers.cpp", "Conversion/Bufferization/JoinBuffers.cpp"
fault("what a wait returns is no use of the destination", LIVES,
      ("        if (dest == use.get())\n          visit(result);", "        (void)result;"))
fault("a buffer that is stored in a buffer is freed after the store", LIVES,
      ("  return named.empty();\n", "  return false;\n"))
fault("the use of a view is no use of the buffer", LIVES,
      ("        return false;\n      visit(result);\n    }", "        return false;\n    }"))
fault("a buffer in flight is freed when its future leaves the block", "Conversion/Bufferization/CommBufferize.cpp",
      ("if (escapesInFlight(alloc))", "if (false)"),
      test="Conversion/comm-bufferize-fallback.mlir")
fault("no wait is added where none is certain", LIVES,
      ("if (!leavesBlock(start.getCollectiveFuture()) && !findCertainWait(start) && !isWaitedForLater(start, dominance))",
       "if (false)"),
      test="Conversion/comm-bufferize-waits.mlir")
fault("bufferization writes what two waits return", MARKERS,
      ("return start && start->getBlock() == wait->getBlock() && wait.getFuture().hasOneUse();", "return true;"))
fault("bufferization writes inputs in flight", MARKERS,
      ("  llvm::append_range(operands, start.getCollectiveInputs());\n", ""),
      test="Conversion/comm-bufferize-waits.mlir")
fault("bufferization writes the caller's tensors", MARKERS, ("    if (!function.isPublic())", "    if (true)"))
fault("bufferization writes what another basic block reads later", MARKERS,
      ("[](BlockArgument argument) { return isa<RankedTensorType>(argument.getType()); }",
       "[](BlockArgument) { return false; }"),
      test="Conversion/comm-bufferize-blocks.mlir")
fault("the edges of a switch pass on buffers of their own accord", "Conversion/Bufferization/CommBufferize.cpp",
      ("(!isa<cf::SwitchOp>(*branch) && reached.insert(successor).second)", "reached.insert(successor).second"),
      test="Conversion/comm-bufferize-blocks.mlir")
fault("what an iteration leaves in flight is complete in the next one", "Transforms/Verify/FlightsAcrossBlocks.cpp",
      ("            enter(&region->front(), passed, successor.getSuccessorInputs());", "            (void)region;"),
      test="Transforms/comm-verify-across-blocks.mlir")
fault("a wait in a loop of basic blocks is for what came before the loop", "Transforms/Verify/CommVerify.cpp",
      (" && !isInCycle(*op->getBlock())", ""),
      test="Transforms/comm-verify-choices.mlir")
fault("bufferization shares destinations", MARKERS,
      ("if (!places.isPlace(dest->get()) && !isOnlyUse(*dest))", "if (false)"),
      test="Conversion/comm-bufferize.mlir")
fault("a part is computed in place though the whole is used before", JOIN,
      ("return llvm::all_of(others, [&](Operation *other) { return placeOf.lookup(other) > last; });", "return true;"),
      test="Conversion/comm-bufferize-joins.mlir")
fault("a part is computed in place though it is written afterwards", JOIN,
      ("if (isAfter ? !(isRead(use) && wholeIsRead) : !isRead(use) && !isWritten(use))",
       "if (!isAfter && !isRead(use) && !isWritten(use))"),
      test="Conversion/comm-bufferize-joins.mlir")

PLAN = "Conversion/BufferPlan/CommPlanBuffers.cpp"
fault("a buffer in the arena lives half as long", PLAN,
      ("{positions.lookup(alloc), end, *bytes}", "{positions.lookup(alloc), (positions.lookup(alloc) + end) / 2, *bytes}"))
fault("the arena forgets that another stream still uses a buffer", PLAN, ("end = std::max(end, ends[id]);", "(void)id;"),
      test="Conversion/comm-plan-buffers-streams.mlir")
fault("a function that calls itself has one symmetric arena", PLAN,
      ("        recursive.insert(entry.first);", "        (void)entry.first;"),
      test="Run/symmetric-arena.mlir")
fault("the arena places buffers over others that still live", "Scheduling/BufferPlan/GreedyPlacement.cpp",
      ("static_cast<size_t>(other.end >= own.begin)", "static_cast<size_t>(other.end > own.begin + 2)"))

REALIZE, USERS = "Transforms/Rewrites/CommRealizeBuffers.cpp", "Transforms/Rewrites/StorageUsers.cpp"
fault("in place though the input is used afterwards", REALIZE,
      ("if (Operation *later = users.findLaterUser(start, id))", "if (Operation *later = nullptr)"),
      test="Transforms/comm-realize-buffers.mlir")
fault("in place though the input may be read by another name", REALIZE,
      ("if (places->becomesPlace(input, start))", "if (false)"))
fault("in place though two inputs share their storage", REALIZE, ("if (!seen.insert(id).second)", "if (false)"),
      test="Transforms/comm-realize-buffers.mlir")
fault("in place though a loop carries the input", REALIZE,
      ("if (comesFromLoop(input))", "if (false)"), ("if (carried.contains(id))", "if (false)"),
      test="Transforms/comm-realize-buffers.mlir")
fault("in place though an unfinished collective reads the input", REALIZE,
      ("from != inFlightFrom.end() && from->second < users.positionOf(start))", "false)"),
      test="Transforms/comm-realize-symmetric.mlir")
fault("into the copy's destination though it is used before the copy", REALIZE,
      ("if (Operation *user = users.findUserBetween(start, copy, ids.front()))", "if (Operation *user = nullptr)"),
      test="Transforms/comm-realize-destinations.mlir")
fault("in place though the input is the caller's", USERS,
      ("  if (!own.def || own.inner ||", "  if (!own.def)\n    return \"\";\n  if (!own.def || own.inner ||"),
      test="Transforms/comm-realize-buffers.mlir")

KERNELS, QUANTISE = "Transforms/Rewrites/QuantiseKernels.cpp", "Transforms/Rewrites/CommQuantiseGathers.cpp"
fault("ties in 8 bits are rounded down", KERNELS,
      ("make<arith::AddIOp>(make<arith::AddIOp>(given, last), (1 << (dropped - 1)) - 1)", "make<arith::AddIOp>(given, (1 << (dropped - 1)) - 1)"),
      test="Run/quantised-gathers.mlir")
fault("a block of 8 bits forgets its infinities", KERNELS,
      ("largest, kInfinity, body.constant(kNanScale), exponent)", "largest, kInfinity, exponent, exponent)"),
      test="Run/quantised-gathers.mlir")
fault("a gather in 8 bits though the program writes its storage", QUANTISE,
      ("if (llvm::any_of(start.getInputs(), isPlace) || llvm::any_of(wait.getValues(), isPlace))", "if (false && llvm::any_of(start.getInputs(), isPlace))"),
      test="Transforms/comm-quantise-gathers-keeps.mlir")

STREAMS, SWITCHES = "Analysis/Dependence/Streams.cpp", "Conversion/CommToLLVM/StreamLowering.cpp"
fault("a stream does not wait for the work of another one", STREAMS,
      ("if (uses[pred] == StreamUse::Work || uses[pred] == StreamUse::Wait)", "if (uses[pred] == StreamUse::Wait)"))
fault("stream 0 does not wait for the others at the end of a block", STREAMS,
      ("{ require(nodes.size(), 0, lastWork); }", "{}"),
      test="AnalysisTests:StreamsTest.FindsWhatIsMissingOnRandomPrograms")
fault("streams are switched only upwards", SWITCHES,
      ("if (!wanted || *wanted == current)", "if (!wanted || *wanted <= current)"))
fault("a block ends on another stream than it began on", SWITCHES,
      ("  if (op.hasTrait<OpTrait::IsTerminator>())\n    return 0;", "  if (op.hasTrait<OpTrait::IsTerminator>())\n    return std::nullopt;"))
fault("all streams know at once that a buffer is not used any more", STREAMS,
      ("return std::max<NodeId>(id, step->first - 1);", "return id;"),
      test="AnalysisTests:StreamsTest.KnowsWhenAllStreamsKnow")
fault("ranks that are threads share the globals", "Conversion/CommToLLVM/ModuleMemory.cpp",
      ("(onDevice || !global.getConstant())", "onDevice"))

TOKENS, START = "Runtime/Core/Calls/Tokens.cpp", "Runtime/Nccl/Collectives/NcclStart.cpp"
fault("the runtime frees a buffer in flight", "Runtime/Core/Calls/Buffers.cpp",
      ("    ++buffer->holds;\n    work.buffers.push_back(buffer);\n", "    (void)work;\n"))
fault("the runtime does not wait", TOKENS,
      ("[&] { return token->pending == 0; });\n  if (isVirtual", "[&] { return true; });\n  if (isVirtual"))
fault("a stream does not wait for the event of another one", TOKENS,
      ("device->stream_wait(context->peer, streamHandle(context, stream), event->handle)", "COMMRT_OK"))
fault("a stream does not wait for the collectives of another one", TOKENS,
      ("waitOnStream(event->stream->tokens[i], stream);", ";"))
fault("streams do not wait for each other when memory comes or goes", "Runtime/Core/Calls/Device.cpp",
      ("context->job->device->stream_wait(context->peer, stream->handle, events[i])", "COMMRT_OK"))
fault("a collective on nccl does not wait for its inputs", START,
      ("std::string text = awaitEvent(peer, flight.lane->stream, ready)", "std::string text"))
fault("a stream on nccl does not wait for a collective", START,
      ("std::string text = awaitEvent(peer, stream, flight.done)", "std::string text"))
fault("a collective on nccl that moves nothing orders nothing", START,
      ("    return completeEmpty(peer, work);", "    return completeAll(peer, {{&group, work}}, COMMRT_OK), COMMRT_OK;"))

//===- HloTextReader.cpp - From HLO text to a message -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Writes the fields of a message while it reads. Names become ids at once: text has callees before callers, and what an
// instruction needs before it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/HloText.h"
#include "HloFields.h"
#include "TextCursor.h"
#include "TextMessages.h"
#include "WireFormat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

/// An instruction as it is read: its attributes by name.
struct TextInstruction {
  StringRef name, opcode;
  bool isRoot = false;
  HloShape shape;
  std::vector<int64_t> operands;
  /// Where its text ends.
  size_t end = 0;
  /// Of a parameter.
  int64_t parameterNumber = -1;
  SmallVector<std::pair<StringRef, StringRef>, 8> attributes;
};

/// A computation as it is read.
struct TextComputation {
  std::string message;
  StringRef name;
  int64_t id = 0, root = 0;
  /// Ids of its instructions, by name and in their order.
  StringMap<int64_t> idOf;
  std::vector<int64_t> sequence;
  std::vector<StringRef> instructions;
  /// Where the text of the next instruction begins.
  size_t begin = 0;
};

class TextReader {
public:
  TextReader(StringRef text, StringRef file) : cursor(text, file) {}

  Expected<HloText> read();

private:
  Error readHeader();
  Error readComputation();
  Error readInstruction(TextComputation &computation);
  Error readOperands(TextInstruction &instruction, const TextComputation &computation);
  Error readAttributes(TextInstruction &instruction);
  Error writeInstruction(const TextInstruction &instruction, TextComputation &computation);
  Error writeAttribute(StringRef name, StringRef value, const TextComputation &computation, std::string &message);
  Error writeCalls(const TextInstruction &instruction, std::string &message);
  Error readIds(StringRef value, const StringMap<int64_t> &known, StringRef what, SmallVectorImpl<int64_t> &ids);
  Error wrap(const TextInstruction &instruction, const TextComputation &computation, std::string &message);
  void finish(TextComputation &computation);
  void skipTables();

  TextCursor cursor;
  HloText result;
  StringMap<int64_t> computations;
  /// Indexed by computation, whose id is the index + 1: its order, and whether it is fused into a kernel.
  std::vector<std::vector<int64_t>> sequences;
  std::vector<bool> isFused;
  int64_t lastInstruction = 0, entry = 0;
};

/// Attributes that name computations, in the order in which XLA serializes them.
constexpr StringLiteral kCalls[] = {"to_apply",
                                    "calls",
                                    "body",
                                    "condition",
                                    "select",
                                    "scatter",
                                    "branch_computations",
                                    "true_computation",
                                    "false_computation",
                                    "called_computations"};

/// Whether XLA prints an instruction that only wraps another one as if it were that one ("reduce-scatter-start").
bool isShortForm(StringRef opcode, StringRef end) {
  if (!opcode.consume_back(end))
    return false;
  return StringSwitch<bool>(opcode)
      .Cases({"all-gather", "all-reduce", "collective-permute", "copy", "async", "send", "recv"}, false)
      .Default(true);
}

} // namespace

//===- The module -----------------------------------------------------------------------------===//

Error TextReader::readHeader() {
  if (Error error = cursor.expect("HloModule"))
    return error;
  Expected<StringRef> name = cursor.expectWord("the module's name");
  if (!name)
    return name.takeError();
  writeBytes(module_field::kName, *name, result.message);
  bool isScheduled = false;
  int64_t replicas = 1, partitions = 1;
  while (cursor.consume(",")) {
    Expected<StringRef> attribute = cursor.expectWord("an attribute of the module");
    if (!attribute)
      return attribute.takeError();
    if (Error error = cursor.expect("="))
      return error;
    Expected<StringRef> value = cursor.value();
    if (!value)
      return value.takeError();
    TextCursor inner = cursor.within(*value);
    if (*attribute == "is_scheduled")
      isScheduled = *value == "true";
    if (*attribute == "input_output_alias")
      if (Error error = readParameterAliases(inner, result.message))
        return error;
    if (*attribute != "replica_count" && *attribute != "num_partitions")
      continue;
    Expected<int64_t> number = inner.expectInteger();
    if (!number)
      return number.takeError();
    (*attribute == "replica_count" ? replicas : partitions) = *number;
  }
  if (!isScheduled)
    return cursor.faultAt(*name, "expected a module with a schedule, got '" + *name + "' without is_scheduled=true");
  std::string devices;
  writeInteger(device_assignment_field::kReplicas, replicas, devices);
  writeInteger(device_assignment_field::kComputations, partitions, devices);
  writeBytes(module_field::kDeviceAssignment, devices, result.message);
  return Error::success();
}

/// Passes over the tables of source locations: a title on a line, then lines that begin with a number.
void TextReader::skipTables() {
  for (;;) {
    TextCursor ahead = cursor;
    StringRef title = ahead.word();
    if (title != "FileNames" && title != "FunctionNames" && title != "FileLocations" && title != "StackFrames")
      return;
    cursor = ahead;
    while (isDigit(cursor.peek()))
      cursor.skipLine();
  }
}

void TextReader::finish(TextComputation &computation) {
  writeBytes(computation_field::kName, computation.name, computation.message);
  writeInteger(computation_field::kId, computation.id, computation.message);
  writeInteger(computation_field::kRootId, computation.root, computation.message);
  writeBytes(module_field::kComputations, computation.message, result.message);
  result.instructions.push_back(std::move(computation.instructions));
  sequences.push_back(std::move(computation.sequence));
  isFused.push_back(false);
}

Error TextReader::readComputation() {
  TextComputation computation;
  bool isEntry = cursor.consume("ENTRY");
  Expected<StringRef> name = cursor.expectWord("a computation");
  if (!name)
    return name.takeError();
  computation.name = *name;
  if (cursor.peek() == '(') { // Parameters and the result, which their instructions have, too.
    if (Error error = cursor.skipBrackets())
      return error;
    if (Error error = cursor.expect("->"))
      return error;
    if (Expected<HloShape> shape = readShape(cursor); !shape)
      return shape.takeError();
  }
  if (Error error = cursor.expect("{"))
    return error;
  computation.begin = cursor.position();
  while (!cursor.consume("}"))
    if (Error error = readInstruction(computation))
      return error;
  if (computation.sequence.empty())
    return cursor.faultAt(*name, "expected instructions in '" + *name + "', got none");
  // Without a mark the last instruction is the result.
  if (computation.root == 0)
    computation.root = computation.sequence.back();
  while (cursor.consume(","))
    if (Expected<StringRef> attribute = cursor.value(); !attribute)
      return attribute.takeError();
  // What an instruction wraps has been finished in between.
  computation.id = static_cast<int64_t>(sequences.size()) + 1;
  if (!computations.try_emplace(*name, computation.id).second)
    return cursor.faultAt(*name, "expected computations of different names, got '" + *name + "' twice");
  if (isEntry && entry != 0)
    return cursor.faultAt(*name, "expected one entry, got a second one");
  if (isEntry)
    entry = computation.id;
  finish(computation);
  return Error::success();
}

Expected<HloText> TextReader::read() {
  if (Error error = readHeader())
    return std::move(error);
  skipTables();
  while (!cursor.atEnd())
    if (Error error = readComputation())
      return std::move(error);
  if (entry == 0)
    return cursor.fault("expected a computation with the mark ENTRY, got none");
  writeInteger(module_field::kEntryId, entry, result.message);
  std::string schedule;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (isFused[i])
      continue;
    std::string ids, value, sequence;
    for (int64_t id : sequences[i])
      writeVarint(static_cast<uint64_t>(id), ids);
    writeBytes(sequence_field::kInstructionIds, ids, value);
    writeInteger(sequence_field::kKey, static_cast<int64_t>(i) + 1, sequence);
    writeBytes(sequence_field::kValue, value, sequence);
    writeBytes(schedule_field::kSequences, sequence, schedule);
  }
  writeBytes(module_field::kSchedule, schedule, result.message);
  return std::move(result);
}

//===- Instructions ---------------------------------------------------------------------------===//

Error TextReader::readOperands(TextInstruction &instruction, const TextComputation &computation) {
  if (cursor.peek() != '(')
    return cursor.expected("'('");
  if (instruction.opcode == "constant") {
    Error error = cursor.skipBrackets();
    instruction.end = cursor.position();
    return error;
  }
  if (Error error = cursor.expect("("))
    return error;
  if (instruction.opcode == "parameter") {
    Expected<int64_t> number = cursor.expectInteger();
    if (!number)
      return number.takeError();
    instruction.parameterNumber = *number;
  }
  bool hasOperands = instruction.opcode != "parameter" && cursor.peek() != ')';
  while (hasOperands) {
    // XLA may print an operand's shape before its name.
    TextCursor ahead = cursor;
    bool hasShape = cursor.peek() == '(' || (!ahead.word().empty() && ahead.consume("["));
    if (hasShape)
      if (Expected<HloShape> shape = readShape(cursor); !shape)
        return shape.takeError();
    Expected<StringRef> name = cursor.expectWord("an operand");
    if (!name)
      return name.takeError();
    auto known = computation.idOf.find(*name);
    if (known == computation.idOf.end())
      return cursor.faultAt(*name, "expected an instruction that comes before '" + instruction.name + "', got '" +
                                       *name + "'");
    instruction.operands.push_back(known->second);
    hasOperands = cursor.consume(",");
  }
  Error error = cursor.expect(")");
  instruction.end = cursor.position();
  return error;
}

Error TextReader::readAttributes(TextInstruction &instruction) {
  while (cursor.consume(",")) {
    Expected<StringRef> name = cursor.expectWord("an attribute");
    if (!name)
      return name.takeError();
    if (Error error = cursor.expect("="))
      return error;
    Expected<StringRef> value = cursor.value();
    if (!value)
      return value.takeError();
    instruction.end = value->end() - cursor.whole().begin();
    // The devices of a mesh are part of the groups: "mesh['x'=4], device_ids=(...) {'x'}".
    if (*name == "device_ids" && !instruction.attributes.empty() &&
        instruction.attributes.back().second.starts_with("mesh")) {
      StringRef &groups = instruction.attributes.back().second;
      groups = cursor.whole().slice(groups.begin() - cursor.whole().begin(), instruction.end);
      continue;
    }
    instruction.attributes.push_back({*name, *value});
  }
  return Error::success();
}

Error TextReader::readInstruction(TextComputation &computation) {
  TextInstruction instruction;
  instruction.isRoot = cursor.consume("ROOT");
  Expected<StringRef> name = cursor.expectWord("an instruction");
  if (!name)
    return name.takeError();
  instruction.name = *name;
  if (Error error = cursor.expect("="))
    return error;
  Expected<HloShape> shape = readShape(cursor);
  if (!shape)
    return shape.takeError();
  instruction.shape = std::move(*shape);
  Expected<StringRef> opcode = cursor.expectWord("an opcode");
  if (!opcode)
    return opcode.takeError();
  instruction.opcode = *opcode;
  if (Error error = readOperands(instruction, computation))
    return error;
  if (Error error = readAttributes(instruction))
    return error;
  computation.instructions.push_back(cursor.whole().slice(computation.begin, instruction.end));
  computation.begin = instruction.end;
  return writeInstruction(instruction, computation);
}

/// Appends ids of what a list names: "{%a, %b}", or "%a" alone.
Error TextReader::readIds(StringRef value, const StringMap<int64_t> &known, StringRef what,
                          SmallVectorImpl<int64_t> &ids) {
  TextCursor inner = cursor.within(value);
  bool isList = inner.consume("{");
  if (isList && inner.consume("}"))
    return Error::success();
  do {
    Expected<StringRef> name = inner.expectWord(what);
    if (!name)
      return name.takeError();
    auto found = known.find(*name);
    if (found == known.end())
      return inner.faultAt(*name, "expected " + what + " that comes before, got '" + *name + "'");
    ids.push_back(found->second);
  } while (isList && inner.consume(","));
  return isList ? inner.expect("}") : Error::success();
}

Error TextReader::writeCalls(const TextInstruction &instruction, std::string &message) {
  SmallVector<int64_t, 2> ids;
  for (StringRef call : kCalls)
    for (auto [name, value] : instruction.attributes)
      if (name == call)
        if (Error error = readIds(value, computations, "a computation", ids))
          return error;
  for (int64_t id : ids) {
    writeInteger(instruction_field::kCalledComputations, id, message);
    if (instruction.opcode == "fusion")
      isFused[id - 1] = true;
  }
  return Error::success();
}

/// Text in quotes with its escapes resolved.
static std::string unescaped(StringRef text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size())
      ++i;
    result += text[i];
  }
  return result;
}

Error TextReader::writeAttribute(StringRef name, StringRef value, const TextComputation &computation,
                                 std::string &message) {
  TextCursor inner = cursor.within(value);
  std::optional<StringRef> quoted = TextCursor(inner).quoted();
  if (name == "replica_groups")
    return readGroups(inner, message);
  if (name == "source_target_pairs")
    return readPairs(inner, message);
  if (name == "output_to_operand_aliasing")
    return readOperandAliases(inner, message);
  if (name == "control-predecessors") {
    SmallVector<int64_t, 4> ids;
    Error error = readIds(value, computation.idOf, "an instruction", ids);
    for (int64_t id : ids)
      writeInteger(instruction_field::kControlPredecessors, id, message);
    return error;
  }
  if (name == "backend_config")
    writeBytes(instruction_field::kBackendConfig, quoted ? unescaped(*quoted) : value.str(), message);
  if (name == "custom_call_target" && quoted)
    writeBytes(instruction_field::kCustomCallTarget, unescaped(*quoted), message);
  if (name == "custom_call_has_side_effect")
    writeInteger(instruction_field::kHasSideEffect, value == "true", message);
  if (name == "frontend_attributes")
    writeBytes(instruction_field::kFrontendAttributes, value, message);
  if (name == "dim_labels") {
    // "b01f_01io->b01f": input, kernel, output.
    std::string dimensions;
    StringRef kernel = value.split('_').second.split("->").first;
    if (size_t at = kernel.find('o'); at != StringRef::npos)
      writeInteger(convolution_field::kKernelOutputFeature, static_cast<int64_t>(at), dimensions);
    writeBytes(instruction_field::kConvolutionDimensions, dimensions, message);
  }
  bool isList = name == "dimensions" || name == "lhs_contracting_dims";
  if (isList) {
    SmallVector<int64_t, 4> numbers;
    if (Error error = inner.readIntegers('{', '}', numbers))
      return error;
    std::string dimensions;
    for (int64_t number : numbers)
      writeInteger(name == "dimensions" ? uint32_t(instruction_field::kDimensions) : 1, number,
                   name == "dimensions" ? message : dimensions);
    if (name != "dimensions")
      writeBytes(instruction_field::kDotDimensions, dimensions, message);
  }
  if (name != "channel_id" && name != "index")
    return Error::success();
  Expected<int64_t> number = inner.expectInteger();
  if (!number)
    return number.takeError();
  writeInteger(name == "index" ? instruction_field::kTupleIndex : instruction_field::kChannel, *number, message);
  return Error::success();
}

/// Writes the computation that a short form implies: parameters, and the instruction that it wraps. Appends the call.
Error TextReader::wrap(const TextInstruction &instruction, const TextComputation &computation, std::string &message) {
  const std::vector<HloShape> &shapes = instruction.shape.elements;
  if (shapes.size() < 2 || !shapes[0].isTuple() || shapes[0].elements.size() != instruction.operands.size())
    return cursor.faultAt(instruction.opcode, "expected the shape ((operands), result, ...) of '" + instruction.opcode +
                                                  "' for " + Twine(instruction.operands.size()) + " operands");
  TextComputation wrapped;
  std::string operands;
  auto add = [&](StringRef opcode, const HloShape &shape, std::string rest) {
    std::string one;
    writeBytes(instruction_field::kName, ("wrapped." + Twine(wrapped.sequence.size())).str(), one);
    writeBytes(instruction_field::kOpcode, opcode, one);
    writeShape(shape, instruction_field::kShape, one);
    writeInteger(instruction_field::kId, ++lastInstruction, one);
    writeBytes(computation_field::kInstructions, one + rest, wrapped.message);
    wrapped.sequence.push_back(lastInstruction);
  };
  for (auto [number, shape] : enumerate(shapes[0].elements)) {
    std::string parameter;
    writeInteger(instruction_field::kParameterNumber, static_cast<int64_t>(number), parameter);
    add("parameter", shape, parameter);
    writeInteger(instruction_field::kOperands, lastInstruction, operands);
  }
  for (auto [name, value] : instruction.attributes)
    if (name != "control-predecessors")
      if (Error error = writeAttribute(name, value, computation, operands))
        return error;
  if (Error error = writeCalls(instruction, operands))
    return error;
  add(instruction.opcode.drop_back(StringRef("-start").size()), shapes[1], operands);
  wrapped.name = instruction.name;
  wrapped.root = lastInstruction;
  wrapped.id = static_cast<int64_t>(sequences.size()) + 1;
  writeInteger(instruction_field::kCalledComputations, wrapped.id, message);
  finish(wrapped);
  return Error::success();
}

Error TextReader::writeInstruction(const TextInstruction &instruction, TextComputation &computation) {
  std::string message;
  StringRef opcode = instruction.opcode;
  bool isStart = isShortForm(opcode, "-start");
  if (isStart)
    if (Error error = wrap(instruction, computation, message))
      return error;
  if (isStart)
    opcode = "async-start";
  else if (isShortForm(opcode, "-update"))
    opcode = "async-update";
  else if (isShortForm(opcode, "-done"))
    opcode = "async-done";
  writeBytes(instruction_field::kName, instruction.name, message);
  writeBytes(instruction_field::kOpcode, opcode, message);
  writeShape(instruction.shape, instruction_field::kShape, message);
  writeInteger(instruction_field::kId, ++lastInstruction, message);
  if (instruction.parameterNumber >= 0)
    writeInteger(instruction_field::kParameterNumber, instruction.parameterNumber, message);
  for (int64_t operand : instruction.operands)
    writeInteger(instruction_field::kOperands, operand, message);
  for (auto [name, value] : instruction.attributes) {
    // What a short form says of the instruction that it wraps is there.
    if (isStart && name != "control-predecessors" && name != "backend_config" && name != "frontend_attributes")
      continue;
    if (Error error = writeAttribute(name, value, computation, message))
      return error;
  }
  if (!isStart)
    if (Error error = writeCalls(instruction, message))
      return error;
  if (!computation.idOf.try_emplace(instruction.name, lastInstruction).second)
    return cursor.faultAt(instruction.name,
                          "expected instructions of different names, got '" + instruction.name + "' twice");
  if (instruction.isRoot && computation.root != 0)
    return cursor.faultAt(instruction.name, "expected one ROOT, got a second one");
  if (instruction.isRoot)
    computation.root = lastInstruction;
  writeBytes(computation_field::kInstructions, message, computation.message);
  computation.sequence.push_back(lastInstruction);
  return Error::success();
}

Expected<HloText> commsched::hlo::parseText(StringRef text, StringRef file) { return TextReader(text, file).read(); }

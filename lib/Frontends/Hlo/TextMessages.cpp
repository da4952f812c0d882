//===- TextMessages.cpp - Parts of HLO text as messages ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The forms are those that XLA prints (Shape::ToString, CollectiveDeviceListBase::Print, HloInputOutputAliasConfig).
//
//===------------------------------------------------------------------------------------------===//

#include "TextMessages.h"
#include "HloFields.h"
#include "WireFormat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

//===- Shapes ---------------------------------------------------------------------------------===//

/// xla::PrimitiveType of an array's elements, or 0.
static int32_t primitiveType(StringRef name) {
  return StringSwitch<int32_t>(name)
      .Case("pred", 1)
      .Case("s8", 2)
      .Case("s16", 3)
      .Case("s32", 4)
      .Case("s64", 5)
      .Case("u8", 6)
      .Case("u16", 7)
      .Case("u32", 8)
      .Case("u64", 9)
      .Case("f16", 10)
      .Case("f32", 11)
      .Case("f64", 12)
      .Case("opaque", 14)
      .Case("c64", 15)
      .Case("bf16", 16)
      .Case("token", 17)
      .Case("c128", 18)
      .Case("f8e5m2", 19)
      .Case("f8e4m3fn", 20)
      .Case("s4", 21)
      .Case("u4", 22)
      .Case("f8e4m3b11fnuz", 23)
      .Case("f8e5m2fnuz", 24)
      .Case("f8e4m3fnuz", 25)
      .Case("s2", 26)
      .Case("u2", 27)
      .Case("f8e4m3", 28)
      .Case("f8e3m4", 29)
      .Case("s1", 30)
      .Case("u1", 31)
      .Case("f4e2m1fn", 32)
      .Case("f8e8m0fnu", 33)
      .Case("f6e3m2fn", 35)
      .Case("f6e2m3fn", 36)
      .Default(0);
}

/// xla::PrimitiveType of a tuple.
static constexpr int32_t kTupleType = 13;
/// Tuples in tuples, as many as the reader of messages takes: the limit bounds recursion.
static constexpr unsigned kMaxShapeDepth = 60;

/// The memory space in a layout ("{1,0:T(8,128)S(5)}"), or 0.
static int64_t memorySpaceOf(StringRef layout) {
  StringRef properties = layout.split(':').second;
  size_t at = properties.find("S(");
  int64_t space = 0;
  if (at == StringRef::npos || properties.drop_front(at + 2).consumeInteger(10, space))
    return 0;
  return space;
}

static Expected<HloShape> readShapeAt(TextCursor &cursor, unsigned depth) {
  HloShape shape;
  if (depth == kMaxShapeDepth)
    return cursor.fault("expected at most " + Twine(kMaxShapeDepth) + " tuples in each other");
  if (cursor.consume("(")) {
    shape.elementType = kTupleType;
    if (cursor.consume(")"))
      return shape;
    do {
      Expected<HloShape> element = readShapeAt(cursor, depth + 1);
      if (!element)
        return element.takeError();
      shape.elements.push_back(std::move(*element));
    } while (cursor.consume(","));
    if (Error error = cursor.expect(")"))
      return std::move(error);
    return shape;
  }
  TextCursor before = cursor;
  shape.elementType = primitiveType(cursor.word());
  if (shape.elementType == 0)
    return before.expected("a shape");
  if (Error error = cursor.expect("["))
    return std::move(error);
  while (!cursor.consume("]")) {
    if (!shape.dimensions.empty())
      if (Error error = cursor.expect(","))
        return std::move(error);
    cursor.consume("<="); // The largest size of a dynamic dimension.
    if (cursor.consume("?")) {
      shape.dimensions.push_back(0);
      continue;
    }
    Expected<int64_t> size = cursor.expectInteger();
    if (!size)
      return size.takeError();
    shape.dimensions.push_back(std::max<int64_t>(*size, 0));
  }
  // A layout follows without a space; a bracket after a space begins a computation.
  StringRef rest = cursor.whole().drop_front(cursor.position());
  if (rest.starts_with("{")) {
    if (Error error = cursor.skipBrackets())
      return std::move(error);
    shape.memorySpace = memorySpaceOf(rest.take_front(cursor.position() - (rest.data() - cursor.whole().data())));
  }
  return shape;
}

Expected<HloShape> commsched::hlo::readShape(TextCursor &cursor) { return readShapeAt(cursor, 0); }

void commsched::hlo::writeShape(const HloShape &shape, uint32_t number, std::string &out) {
  std::string message;
  writeInteger(shape_field::kElementType, shape.elementType, message);
  writeIntegers(shape_field::kDimensions, shape.dimensions, message);
  for (const HloShape &element : shape.elements)
    writeShape(element, shape_field::kTupleShapes, message);
  if (shape.memorySpace != 0) {
    std::string layout;
    writeInteger(layout_field::kMemorySpace, shape.memorySpace, layout);
    writeBytes(shape_field::kLayout, layout, message);
  }
  writeBytes(number, message, out);
}

//===- Groups of devices ----------------------------------------------------------------------===//

/// A transposed sequence of devices: "[4,2]T(1,0)", or "[8]" as it is.
static Error readIota(TextCursor &cursor, SmallVectorImpl<int64_t> &dims, SmallVectorImpl<int64_t> &permutation) {
  if (Error error = cursor.readIntegers('[', ']', dims))
    return error;
  return cursor.consume("T") ? cursor.readIntegers('(', ')', permutation) : Error::success();
}

/// "[2,4]<=[4,2]T(1,0)", as an IotaReplicaGroupListProto.
static Error readIotaGroups(TextCursor &cursor, std::string &instruction) {
  SmallVector<int64_t, 2> sizes;
  SmallVector<int64_t, 4> dims, permutation;
  if (Error error = cursor.readIntegers('[', ']', sizes))
    return error;
  if (sizes.size() != 2)
    return cursor.fault("expected the number of groups and of devices per group, got " + Twine(sizes.size()) +
                        " numbers");
  if (Error error = cursor.expect("<="))
    return error;
  if (Error error = readIota(cursor, dims, permutation))
    return error;
  std::string message;
  writeInteger(1, sizes[0], message);
  writeInteger(2, sizes[1], message);
  writeIntegers(3, dims, message);
  writeIntegers(4, permutation, message);
  writeBytes(instruction_field::kIotaDeviceList, message, instruction);
  return Error::success();
}

/// The name of an axis, which XLA prints as it is: 'axis_0' with its quotes.
static Expected<StringRef> readAxisName(TextCursor &cursor) {
  bool hasQuotes = cursor.consume("'");
  Expected<StringRef> name = cursor.expectWord("the name of an axis");
  if (name && hasQuotes)
    if (Error error = cursor.expect("'"))
      return std::move(error);
  return name;
}

/// The devices of a mesh: "([4,2]T(1,0))" or "(3,1,0,2)".
static Error readMeshDevices(TextCursor &cursor, std::string &mesh) {
  if (cursor.peek() == '(') {
    TextCursor inner = cursor;
    (void)inner.consume("(");
    if (inner.peek() != '[') {
      SmallVector<int64_t, 8> ids;
      Error error = cursor.readIntegers('(', ')', ids);
      if (!error)
        writeIntegers(2, ids, mesh);
      return error;
    }
  }
  SmallVector<int64_t, 4> dims, permutation;
  if (Error error = cursor.expect("("))
    return error;
  if (Error error = readIota(cursor, dims, permutation))
    return error;
  std::string iota;
  writeIntegers(1, dims, iota);
  writeIntegers(2, permutation, iota);
  writeBytes(3, iota, mesh);
  return cursor.expect(")");
}

/// "mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'x':(1)2,'y'}", as a MeshAxesReplicaGroupListProto.
static Error readMeshGroups(TextCursor &cursor, std::string &instruction) {
  StringMap<int64_t> axes;
  std::string mesh, message;
  if (Error error = cursor.expect("["))
    return error;
  do {
    Expected<StringRef> name = readAxisName(cursor);
    if (!name)
      return name.takeError();
    if (Error error = cursor.expect("="))
      return error;
    Expected<int64_t> size = cursor.expectInteger();
    if (!size)
      return size.takeError();
    if (!axes.try_emplace(*name, axes.size()).second)
      return cursor.faultAt(*name, "expected axes of different names, got '" + *name + "' twice");
    std::string axis;
    writeInteger(2, *size, axis);
    writeBytes(1, axis, mesh);
  } while (cursor.consume(","));
  if (Error error = cursor.expect("]"))
    return error;
  if (cursor.consume(",")) {
    for (StringRef token : {"device_ids", "="})
      if (Error error = cursor.expect(token))
        return error;
    if (Error error = readMeshDevices(cursor, mesh))
      return error;
  }
  writeBytes(1, mesh, message);
  if (Error error = cursor.expect("{"))
    return error;
  while (!cursor.consume("}")) {
    Expected<StringRef> name = readAxisName(cursor);
    if (!name)
      return name.takeError();
    auto axis = axes.find(*name);
    if (axis == axes.end())
      return cursor.faultAt(*name, "expected an axis of the mesh, got '" + *name + "'");
    std::string reference;
    writeInteger(1, axis->second, reference);
    if (cursor.consume(":")) {
      SmallVector<int64_t, 1> before;
      if (Error error = cursor.readIntegers('(', ')', before))
        return error;
      Expected<int64_t> size = cursor.expectInteger();
      if (!size)
        return size.takeError();
      std::string part;
      writeInteger(1, before.size() == 1 ? before[0] : 0, part);
      writeInteger(2, *size, part);
      writeBytes(2, part, reference);
    }
    writeBytes(2, reference, message);
    if (!cursor.consume(",") && cursor.peek() != '}')
      return cursor.expected("',' or '}'");
  }
  writeBytes(instruction_field::kMeshGroups, message, instruction);
  return Error::success();
}

/// Lists of numbers in a list, each given to `write`.
template <typename Write> static Error readLists(TextCursor &cursor, Write write) {
  if (Error error = cursor.expect("{"))
    return error;
  if (cursor.consume("}"))
    return Error::success();
  do {
    SmallVector<int64_t, 8> list;
    if (Error error = cursor.readIntegers('{', '}', list))
      return error;
    if (Error error = write(list))
      return error;
  } while (cursor.consume(","));
  return cursor.expect("}");
}

Error commsched::hlo::readGroups(TextCursor &cursor, std::string &instruction) {
  if (cursor.consume("mesh"))
    return readMeshGroups(cursor, instruction);
  if (cursor.peek() == '[')
    return readIotaGroups(cursor, instruction);
  return readLists(cursor, [&](ArrayRef<int64_t> ids) {
    std::string group;
    writeIntegers(1, ids, group);
    writeBytes(instruction_field::kReplicaGroups, group, instruction);
    return Error::success();
  });
}

Error commsched::hlo::readPairs(TextCursor &cursor, std::string &instruction) {
  return readLists(cursor, [&](ArrayRef<int64_t> pair) -> Error {
    if (pair.size() != 2)
      return cursor.fault("expected a source and a target, got " + Twine(pair.size()) + " numbers");
    std::string message;
    writeInteger(1, pair[0], message);
    writeInteger(2, pair[1], message);
    writeBytes(instruction_field::kSourceTargetPairs, message, instruction);
    return Error::success();
  });
}

//===- Aliases --------------------------------------------------------------------------------===//

/// "{ {0}: (1, {2}, may-alias), ... }": an alias has the same fields wherever it is.
static Error readAliases(TextCursor &cursor, uint32_t number, std::string &out) {
  if (Error error = cursor.expect("{"))
    return error;
  while (!cursor.consume("}")) {
    SmallVector<int64_t, 2> output, index;
    if (Error error = cursor.readIntegers('{', '}', output))
      return error;
    for (StringRef token : {":", "("})
      if (Error error = cursor.expect(token))
        return error;
    Expected<int64_t> operand = cursor.expectInteger();
    if (!operand)
      return operand.takeError();
    if (Error error = cursor.expect(","))
      return error;
    if (Error error = cursor.readIntegers('{', '}', index))
      return error;
    if (cursor.consume(",") && cursor.word().empty()) // The kind: may-alias or must-alias.
      return cursor.expected("the kind of an alias");
    if (Error error = cursor.expect(")"))
      return error;
    std::string message;
    writeIntegers(alias_field::kOutputIndex, output, message);
    writeInteger(alias_field::kOperand, *operand, message);
    writeIntegers(alias_field::kOperandIndex, index, message);
    writeBytes(number, message, out);
    if (!cursor.consume(",") && cursor.peek() != '}')
      return cursor.expected("',' or '}'");
  }
  return Error::success();
}

Error commsched::hlo::readOperandAliases(TextCursor &cursor, std::string &instruction) {
  return readAliases(cursor, instruction_field::kOutputOperandAliasing, instruction);
}

Error commsched::hlo::readParameterAliases(TextCursor &cursor, std::string &module) {
  std::string aliases;
  if (Error error = readAliases(cursor, 1, aliases))
    return error;
  writeBytes(module_field::kInputOutputAlias, aliases, module);
  return Error::success();
}

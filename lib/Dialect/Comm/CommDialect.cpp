//===- CommDialect.cpp - The comm dialect ----------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

#include "CommSched/Dialect/Comm/CommAttrInterfaces.cpp.inc"
#include "CommSched/Dialect/Comm/CommDialect.cpp.inc"
#include "CommSched/Dialect/Comm/CommEnums.cpp.inc"
#include "CommSched/Dialect/Comm/CommOpInterfaces.cpp.inc"

namespace {

/// Every operation may be inlined: groups are symbols of the module, futures are plain values.
struct CommInlinerInterface : public DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};

} // namespace

void CommDialect::initialize() {
  registerAttributes();
  registerTypes();
  registerOps();
  addInterfaces<CommInlinerInterface>();
}

void CommDialect::registerOps() {
  addOperations<
#define GET_OP_LIST
#include "CommSched/Dialect/Comm/CommOps.cpp.inc"
      >();
}

LogicalResult CommDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == kCostAttrName && !isa<CostAttr>(attribute.getValue()))
    return op->emitError() << "'" << name << "' must be a #comm.cost attribute";
  if (name == kHybridAttrName && !isa<FlatSymbolRefAttr>(attribute.getValue()))
    return op->emitError() << "'" << name << "' must be the symbol of a comm.group";
  if (name == kPinnedAttrName && !isa<UnitAttr>(attribute.getValue()))
    return op->emitError() << "'" << name << "' must be a unit attribute";
  if (name == kSignatureAttrName && !isa<StringAttr>(attribute.getValue()))
    return op->emitError() << "'" << name << "' must be a string";
  if (name == kBytesHintAttrName) {
    auto hint = dyn_cast<DenseI64ArrayAttr>(attribute.getValue());
    if (!hint || hint.size() != static_cast<int64_t>(op->getNumResults()) ||
        llvm::any_of(hint.asArrayRef(), [](int64_t bytes) { return bytes < 0; }))
      return op->emitError() << "'" << name << "' must be an i64 array with one non-negative size per result";
  }
  return success();
}

LogicalResult CommDialect::verifyRegionArgAttribute(Operation *op, unsigned regionIndex, unsigned argIndex,
                                                    NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == kDonatedAttrName && !isa<UnitAttr>(attribute.getValue()))
    return op->emitError() << "'" << name << "' of argument #" << argIndex << " must be a unit attribute";
  if (name == kBytesHintAttrName || name == kReadyAttrName) {
    auto value = dyn_cast<IntegerAttr>(attribute.getValue());
    if (!value || !value.getType().isSignlessInteger(64) || value.getInt() < 0)
      return op->emitError() << "'" << name << "' of argument #" << argIndex << " must be a non-negative i64";
  }
  return success();
}

std::optional<int64_t> comm::getStaticBytes(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape())
    return std::nullopt;
  Type element = shaped.getElementType();
  if (auto complex = dyn_cast<ComplexType>(element)) {
    if (!complex.getElementType().isIntOrFloat())
      return std::nullopt;
    return shaped.getNumElements() * 2 * llvm::divideCeil(complex.getElementType().getIntOrFloatBitWidth(), 8);
  }
  if (element.isIndex())
    return shaped.getNumElements() * 8;
  if (!element.isIntOrFloat())
    return std::nullopt;
  return llvm::divideCeil(shaped.getNumElements() * element.getIntOrFloatBitWidth(), 8);
}

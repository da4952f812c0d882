//===- CommOps.td - All operations of the dialect --------------------------*- tablegen -*-===//
#ifndef COMMSCHED_DIALECT_COMM_COMMOPS
#define COMMSCHED_DIALECT_COMM_COMMOPS

include "CommSched/Dialect/Comm/CommCollectiveOps.td"
include "CommSched/Dialect/Comm/CommFsdpOps.td"
include "CommSched/Dialect/Comm/CommStreamOps.td"

#endif // COMMSCHED_DIALECT_COMM_COMMOPS

"""Writes a function in which one operation uses the results of as many collectives as the argument says."""

import sys

count = int(sys.argv[1])
full = "tensor<8xf32>"
print("comm.group @dp #comm.iota<[1, 4]>")
print(f"func.func @fan_in(%x: tensor<2xf32>) -> {full} {{")
for index in range(count):
    print(f"  %f{index} = comm.all_gather %x on @dp : (tensor<2xf32>) -> !comm.future<{full}>")
    print(f"  %w{index} = comm.wait %f{index} : !comm.future<{full}>")
    print(f'  %c{index} = comm.compute "free"(%x) : (tensor<2xf32>) -> tensor<2xf32>')
operands = ", ".join(f"%w{index}" for index in range(count))
types = ", ".join([full] * count)
print(f'  %a = comm.compute "all"({operands}) : ({types}) -> {full}')
print(f"  return %a : {full}\n}}")

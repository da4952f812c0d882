"""Carries a schedule out on an FX graph: reads the plan, writes the buckets, moves the nodes, and counts the memory."""

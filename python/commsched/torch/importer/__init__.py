"""Turns an FX graph into a module of `comm` operations. `export` is the way in, `graph` is the walk over the nodes."""

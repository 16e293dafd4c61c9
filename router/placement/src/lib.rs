//! Which store serves a file handle: a stable keyed hash with weights (the default rule), and the exception set on top.

//! The command `fstress-replay`.
fn main() {}

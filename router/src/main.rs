//! The command `clockwork`.
fn main() {}

//! `clockwork simulate`: policies side by side on a simulated plex. What it does is `fstress_replay::simulate`.
pub(super) use fstress_replay::simulate::{SimulateArgs, run};

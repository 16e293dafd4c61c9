//! The arguments that make a run by profile.

use super::Arguments;
use anyhow::Context as _;
use clap::Args;
use fstress_replay::stress::profile::{self, Profile};
use fstress_replay::stress::{Load, Loop, Spread, StressSpec};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Calls a second, where nothing else is said.
const RATE_DEFAULT: f64 = 1_000.0;

#[derive(Debug, Args)]
pub(crate) struct StressArguments {
    /// Workloads, each perhaps with a weight: webserver, specsfs97, sfs2008, webproxy, mail, news, database, peer-to-peer,
    /// getattr, every-call, or one of --profiles
    #[arg(long, value_name = "NAME[=WEIGHT],...", conflicts_with_all = ["workload", "trace", "hours", "seconds_per_hour", "factor", "peak_rate", "model"])]
    pub(crate) preset: Option<String>,
    /// A TOML file with more profiles, in the form that --show-presets prints
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Set a number of the profiles, or of one: files.count=500, mail:files.popularity={ zipf = 1 }
    #[arg(long, value_name = "[NAME:]FIELD=VALUE")]
    set: Vec<String>,
    /// Print the presets (or those of --preset, with --set applied) as TOML, and do nothing else
    #[arg(long)]
    pub(crate) show_presets: bool,
    /// Seconds that are measured
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    seconds: f64,
    /// Closed loop: keep so many calls on their way, instead of a rate
    #[arg(long, value_name = "CALLS", conflicts_with = "rate")]
    closed: Option<usize>,
    /// Make calls at equal distances, instead of at the times of a Poisson process
    #[arg(long)]
    even: bool,
    /// Make no files: those of an earlier run are there
    #[arg(long)]
    no_create: bool,
}

impl StressArguments {
    /// The profiles that were asked for; all if none were named.
    pub(crate) fn loads(&self) -> anyhow::Result<Vec<Load>> {
        let mut known = profile::presets()?;
        if let Some(file) = &self.profiles {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("--profiles {}", file.display()))?;
            known.extend(profile::parse(&file.display().to_string(), &text)?);
        }
        let mut loads = match &self.preset {
            None => known.into_iter().map(|(name, profile)| Load { name, weight: 1.0, profile }).collect(),
            Some(names) => {
                names.split(',').map(|word| load(word, &known)).collect::<anyhow::Result<Vec<_>>>()?
            }
        };
        for assignment in &self.set {
            let (name, assignment) = match assignment.split_once(':') {
                Some((name, rest)) if !name.contains('=') => (Some(name), rest),
                _ => (None, assignment.as_str()),
            };
            if let Some(name) = name.filter(|name| !loads.iter().any(|load| load.name == *name)) {
                anyhow::bail!("--set {assignment:?}: {name:?} is not among the workloads of --preset");
            }
            for load in loads.iter_mut().filter(|load| name.is_none_or(|name| load.name == name)) {
                load.profile = load.profile.set(&load.name, assignment)?;
            }
        }
        Ok(loads)
    }

    /// The profiles as TOML.
    pub(crate) fn shown(&self) -> anyhow::Result<String> {
        let all: BTreeMap<String, Profile> =
            self.loads()?.into_iter().map(|load| (load.name, load.profile)).collect();
        Ok(toml::to_string(&all)?)
    }
}

fn load(word: &str, known: &BTreeMap<String, Profile>) -> anyhow::Result<Load> {
    let (name, weight) = match word.split_once('=') {
        Some((name, weight)) => {
            (name, weight.parse().with_context(|| format!("--preset: weight of {word:?}"))?)
        }
        None => (word, 1.0),
    };
    let profile = known.get(name).cloned();
    let names = || known.keys().cloned().collect::<Vec<_>>().join(", ");
    let profile =
        profile.with_context(|| format!("--preset: there is no {name:?}; there are {}", names()))?;
    Ok(Load { name: name.into(), weight, profile })
}

impl Arguments {
    /// The run by profile that was asked for.
    pub(crate) async fn stress_spec(&self) -> anyhow::Result<StressSpec> {
        let asked = &self.stress;
        let run = self.run_spec().await?;
        let mut spec = StressSpec::new(run.target, run.export.clone(), asked.loads()?);
        spec.run = run;
        spec.source = match asked.closed {
            Some(outstanding) => Loop::Closed { outstanding },
            None => Loop::Open {
                per_s: self.rate.unwrap_or(RATE_DEFAULT),
                spread: if asked.even { Spread::Even } else { Spread::Poisson },
            },
        };
        spec.length = super::seconds("--seconds", asked.seconds)?;
        spec.create = !asked.no_create;
        spec.seed = self.seed;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn loads(arguments: &[&str]) -> anyhow::Result<Vec<Load>> {
        let all = ["fstress-replay", "--target", "h:1"].iter().chain(arguments);
        Arguments::try_parse_from(all).map_err(anyhow::Error::from)?.stress.loads()
    }

    #[test]
    fn workloads_are_mixed_and_set() {
        let both =
            loads(&["--preset", "mail=2,webserver", "--set", "files.count=9", "--set", "mail:files.depth=3"])
                .unwrap();
        assert_eq!(
            both.iter().map(|load| (load.name.as_str(), load.weight)).collect::<Vec<_>>(),
            [("mail", 2.0), ("webserver", 1.0)]
        );
        assert!(both.iter().all(|load| load.profile.files.count == 9));
        assert_eq!(both[0].profile.files.depth, 3);
        for wrong in [
            &["--preset", "moon"][..],
            &["--preset", "mail=x"],
            &["--preset", "mail", "--set", "files.count=0"],
            &["--preset", "mail", "--set", "news:files.count=1"],
            &["--preset", "mail", "--hours", "1..2"],
            &["--preset", "mail", "--closed", "5", "--rate", "5"],
        ] {
            assert!(loads(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let shown = |arguments: &[&str]| {
            let all = ["fstress-replay", "--show-presets"].iter().chain(arguments);
            Arguments::try_parse_from(all).unwrap().stress.shown().unwrap()
        };
        let all = profile::parse("shown", &shown(&[])).unwrap();
        assert_eq!(all, profile::presets().unwrap());
        assert_eq!(profile::parse("shown", &shown(&["--preset", "mail"])).unwrap().len(), 1);
    }
}

//! A workload as a profile: which calls, on which files, of which sizes. Every number in it can be set.

use super::distribution::{Popularity, SizeDistribution};
use super::operation::StressOperation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The presets, as a file of profiles.
const PRESETS: &str = include_str!("presets.toml");
/// Most files of a profile.
const FILES_MAX: u32 = 10_000_000;
/// Deepest directory.
const DEPTH_MAX: u32 = 32;
/// Most symbolic links of a profile.
const SYMLINKS_MAX: u32 = 1_000_000;
/// Largest piece of a sequential read, in bytes; a server's own limit may make it less.
const SEQUENTIAL_BYTES_MAX: u32 = 1 << 20;

/// A workload: calls and files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it stands for.
    #[serde(default)]
    pub about: String,
    /// Weights of the calls.
    pub operations: BTreeMap<StressOperation, f64>,
    /// Bytes of a random READ.
    pub read_bytes: SizeDistribution,
    /// Bytes of a WRITE.
    pub write_bytes: SizeDistribution,
    /// Bytes of a sequential READ.
    pub sequential_bytes: u32,
    /// The file set.
    pub files: FilesProfile,
}

/// The files of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesProfile {
    /// How many.
    pub count: u32,
    /// Files of a directory.
    pub per_directory: u32,
    /// Directories above a file, besides that of the profile.
    pub depth: u32,
    /// Symbolic links, for READLINK.
    pub symlinks: u32,
    /// Their sizes.
    pub bytes: SizeDistribution,
    /// How often each is asked for.
    pub popularity: Popularity,
}

/// Why there is no such profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No preset of that name.
    #[error("there is no preset {name:?}; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The presets.
        known: String,
    },
    /// A file of profiles, or a value of `--set`, that is no profile.
    #[error("{what}: {reason}")]
    Form {
        /// The file or setting.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// A value out of its range.
    #[error("profile {name:?}, {field}: {allowed}")]
    Value {
        /// The profile.
        name: String,
        /// The field.
        field: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
}

/// The presets by name.
///
/// # Errors
/// None, unless the file that this crate was built with is broken.
pub fn presets() -> Result<BTreeMap<String, Profile>, ProfileError> {
    parse("presets", PRESETS)
}

/// The profiles of a file, by name.
///
/// # Errors
/// [`ProfileError::Form`] with the line; [`ProfileError::Value`].
pub fn parse(what: &str, text: &str) -> Result<BTreeMap<String, Profile>, ProfileError> {
    let profiles: BTreeMap<String, Profile> = toml::from_str(text)
        .map_err(|error| ProfileError::Form { what: what.into(), reason: error.to_string() })?;
    for (name, profile) in &profiles {
        profile.check(name)?;
    }
    Ok(profiles)
}

impl Profile {
    /// The profile with a value set: `files.count=100`, `operations.read_random=5`, `files.bytes={ fixed = 4096 }`.
    ///
    /// # Errors
    /// There is no such field, or it cannot have this value.
    pub fn set(&self, name: &str, assignment: &str) -> Result<Self, ProfileError> {
        let wrong = |reason: String| ProfileError::Form { what: format!("--set {assignment:?}"), reason };
        let (path, value) = assignment
            .split_once('=')
            .ok_or_else(|| wrong("this is not FIELD=VALUE, such as files.count=100".into()))?;
        let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .ok_or_else(|| {
                wrong(format!("{value:?} is not a value of TOML, such as 5, \"equal\" or {{ fixed = 4096 }}"))
            })?;
        let mut whole = toml::Value::try_from(self).map_err(|error| wrong(error.to_string()))?;
        let mut at = &mut whole;
        let (parents, field) = path.trim().rsplit_once('.').unwrap_or(("", path.trim()));
        for part in parents.split('.').filter(|part| !part.is_empty()) {
            at = at.get_mut(part).ok_or_else(|| wrong(format!("there is no {part:?}")))?;
        }
        let table = at.as_table_mut().ok_or_else(|| wrong(format!("{parents:?} has no fields")))?;
        let value = match (table.get(field), value) {
            // A whole number will do where a number is wanted.
            (Some(toml::Value::Float(_)), toml::Value::Integer(whole)) => toml::Value::Float(whole as f64),
            (_, value) => value,
        };
        table.insert(field.into(), value);
        let profile: Self =
            whole.try_into().map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
        profile.check(name)?;
        Ok(profile)
    }

    /// Looks at every value.
    ///
    /// # Errors
    /// [`ProfileError::Value`] for the first that makes no sense.
    pub fn check(&self, name: &str) -> Result<(), ProfileError> {
        let wrong = |field, allowed| Err(ProfileError::Value { name: name.into(), field, allowed });
        let weights = || self.operations.values();
        if !weights().all(|weight| *weight >= 0.0 && weight.is_finite()) || weights().sum::<f64>() <= 0.0 {
            return wrong("operations", "weights must not be negative, and their sum must be more than 0");
        }
        let files = &self.files;
        let ranges = [
            ("files.count", files.count, 1, FILES_MAX, "from 1 to 10000000 files"),
            (
                "files.per_directory",
                files.per_directory,
                1,
                FILES_MAX,
                "from 1 to 10000000 files a directory",
            ),
            ("files.depth", files.depth, 1, DEPTH_MAX, "from 1 to 32 directories"),
            ("files.symlinks", files.symlinks, 0, SYMLINKS_MAX, "at most 1000000 links"),
            (
                "sequential_bytes",
                self.sequential_bytes,
                512,
                SEQUENTIAL_BYTES_MAX,
                "from 512 to 1048576 bytes",
            ),
        ];
        for (field, value, least, most, allowed) in ranges {
            if !(least..=most).contains(&value) {
                return wrong(field, allowed);
            }
        }
        let sizes = [
            ("read_bytes", &self.read_bytes),
            ("write_bytes", &self.write_bytes),
            ("files.bytes", &files.bytes),
        ];
        for (field, sizes) in sizes {
            if let Some(fault) = sizes.fault() {
                return wrong(field, fault);
            }
        }
        match files.popularity.fault() {
            Some(fault) => wrong("files.popularity", fault),
            None if self.weight(StressOperation::Readlink) > 0.0 && files.symlinks == 0 => {
                wrong("files.symlinks", "at least 1, because there is READLINK among the operations")
            }
            None => Ok(()),
        }
    }

    /// The weight of a call.
    #[must_use]
    pub fn weight(&self, operation: StressOperation) -> f64 {
        self.operations.get(&operation).copied().unwrap_or(0.0)
    }

    /// Whether any call reads or writes data.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.operations.iter().any(|(operation, weight)| operation.is_data() && *weight > 0.0)
    }

    /// Whether any call makes or removes names.
    #[must_use]
    pub fn has_scratch(&self) -> bool {
        self.operations.iter().any(|(operation, weight)| operation.is_scratch() && *weight > 0.0)
    }
}

/// The preset of that name.
///
/// # Errors
/// [`ProfileError::Unknown`] with the names that there are.
pub fn preset(name: &str) -> Result<Profile, ProfileError> {
    let mut all = presets()?;
    all.remove(name).ok_or_else(|| {
        let known = all.keys().cloned().collect::<Vec<_>>().join(", ");
        ProfileError::Unknown { name: name.into(), known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_complete_and_sum_to_about_a_hundred() {
        let all = presets().unwrap();
        for name in [
            "specsfs97",
            "sfs2008",
            "webserver",
            "webproxy",
            "mail",
            "news",
            "database",
            "peer-to-peer",
            "getattr",
        ] {
            let profile = &all[name];
            let sum: f64 = profile.operations.values().sum();
            assert!(name == "getattr" || (98.0..=102.0).contains(&sum), "{name}: {sum}");
            assert!(!profile.about.is_empty());
        }
        assert_eq!(preset("webserver").unwrap().weight(StressOperation::Getattr), 55.0);
        let unknown = preset("moon").unwrap_err().to_string();
        assert!(unknown.contains("moon") && unknown.contains("webserver"), "{unknown}");
    }

    #[test]
    fn every_number_can_be_set() {
        let profile = preset("webserver").unwrap();
        let set = |assignment: &str| profile.set("webserver", assignment);
        assert_eq!(set("files.count=17").unwrap().files.count, 17);
        assert_eq!(set("operations.getattr=1").unwrap().weight(StressOperation::Getattr), 1.0);
        assert_eq!(set("operations.read_random=2").unwrap().weight(StressOperation::ReadRandom), 2.0);
        assert_eq!(set("files.popularity={ zipf = 2 }").unwrap().files.popularity, Popularity::Zipf(2.0));
        assert_eq!(set("files.popularity=\"equal\"").unwrap().files.popularity, Popularity::Equal);
        assert_eq!(set("files.bytes={ fixed = 9 }").unwrap().files.bytes, SizeDistribution::Fixed(9));
        assert!(matches!(
            set("files.bytes.pareto.shape=0.5").unwrap().files.bytes,
            SizeDistribution::Pareto { shape: 0.5, .. }
        ));
        for wrong in [
            "files.cuont=1",
            "files.count=0",
            "files.count",
            "files.count=x y",
            "moon=1",
            "moon.x=1",
            "operations.moon=1",
            "operations.getattr=-1",
            "operations.readlink=1",
            "files.bytes={ fixed = 0 }",
        ] {
            assert!(set(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_broken_file_is_named_with_its_line() {
        let error = parse("mine.toml", "[a]\nabout = 1\n").unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains("line 2"), "{error}");
    }
}

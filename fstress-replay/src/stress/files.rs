//! The file set of a profile: its paths and sizes, made or found on a server.

use super::distribution::Weighted;
use super::profile::Profile;
use crate::client::Client;
use crate::client::nfs::{self, Handle, NfsError, Sizes};
use crate::content::Content;
use crate::fileset::{self, FilesetError, OnProgress, Rule};
use clockwork_traces::workload::WorkloadFile;
use clockwork_wire::nfs3::status;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use xxhash_rust::xxh3::xxh3_64;

/// What every symbolic link of the file set says.
pub(super) const LINK_TARGET: &str = "../a-file-of-this-set";
/// Bytes that appends may add to a file before they begin again behind its first end.
pub(super) const APPENDED_BYTES_MAX: u64 = 16 << 20;

/// A profile on a server: its files with their handles.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: String,
    /// Its part of all calls, by weight.
    pub(super) weight: f64,
    pub(super) profile: Profile,
    pub(super) files: Vec<TargetFile>,
    /// Files by popularity: the most popular first.
    pub(super) ranks: Vec<u32>,
    pub(super) popularity: Weighted,
    pub(super) links: Vec<Handle>,
    pub(super) root: Handle,
    /// The directory of the profile, in which lanes make directories of their own.
    pub(super) home: Handle,
    /// Files that had to be written.
    pub(super) written: usize,
    /// Calls for which there is nothing on this server, and why.
    pub(super) absent: Vec<String>,
}

#[derive(Debug)]
pub(super) struct TargetFile {
    pub(super) handle: Arc<[u8]>,
    pub(super) directory: Arc<[u8]>,
    pub(super) name: String,
    pub(super) content: Content,
    /// Bytes of the file set; an append begins behind them.
    pub(super) bytes: u64,
    /// Where the next append goes.
    pub(super) end: AtomicU64,
}

/// Directory of a profile below the export.
fn home(name: &str) -> String {
    format!("fstress/{name}")
}

/// The paths and sizes of a profile's files: the same for the same name and seed.
pub(super) fn plan(name: &str, profile: &Profile, seed: u64) -> Vec<WorkloadFile> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ xxh3_64(name.as_bytes()));
    let sizes = profile.files.bytes.sampler();
    let files = &profile.files;
    let leaves = u64::from(files.count.div_ceil(files.per_directory));
    // Directories of a directory: the least number with which `depth` levels hold all leaves.
    let mut branches = 1_u64;
    while branches.saturating_pow(files.depth) < leaves {
        branches += 1;
    }
    (0..files.count)
        .map(|number| {
            let mut path = home(name);
            let leaf = u64::from(number / files.per_directory);
            for level in (0..files.depth).rev() {
                let directory = leaf / branches.saturating_pow(level) % branches;
                path.push_str(&format!("/d{directory:03}"));
            }
            path.push_str(&format!("/f{number:06}"));
            WorkloadFile { path, bytes: sizes.draw(&mut rng), site: 0 }
        })
        .collect()
}

/// What is wanted of a profile's files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) seed: u64,
    pub(super) weight: f64,
    /// Make what is missing.
    pub(super) create: bool,
    /// Look at what is in the files.
    pub(super) verify: bool,
}

impl Target {
    pub(super) async fn prepare(
        (client, root, sizes): (&Arc<Client>, &[u8], Sizes),
        (name, profile): (&str, &Profile),
        wanted: Wanted,
        progress: OnProgress<'_>,
    ) -> Result<Self, FilesetError> {
        let plan = plan(name, profile, wanted.seed);
        let rule = Rule { longer_is_right: true, content_matters: wanted.verify && profile.has_data() };
        let written = match wanted.create {
            true => fileset::create_files(client, root, sizes, &plan, rule, progress).await?,
            false => 0,
        };
        let handles = fileset::find_files(client, root, &plan, rule, progress).await?;
        let mut home: Handle = root.into();
        for part in self::home(name).split('/') {
            home = nfs::lookup(client, &home, part).await?.0;
        }
        let files = plan.iter().enumerate().map(|(index, file)| TargetFile {
            handle: Arc::clone(&handles.files[index]),
            directory: Arc::clone(&handles.directories[index]),
            name: fileset::file_name(&file.path).to_owned(),
            content: Content::of(&file.path),
            bytes: file.bytes,
            end: AtomicU64::new(file.bytes),
        });
        let files: Vec<TargetFile> = files.collect();
        let mut ranks: Vec<u32> = (0..profile.files.count).collect();
        ranks.shuffle(&mut ChaCha8Rng::seed_from_u64(wanted.seed ^ xxh3_64(name.as_bytes()) ^ 1));
        let mut target = Self {
            name: name.to_owned(),
            weight: wanted.weight,
            profile: profile.clone(),
            popularity: Weighted::new(profile.files.popularity.weights(files.len())),
            files,
            ranks,
            links: Vec::new(),
            root: root.into(),
            home,
            written,
            absent: Vec::new(),
        };
        target.make_links(client, wanted.create).await?;
        Ok(target)
    }

    async fn make_links(&mut self, client: &Client, create: bool) -> Result<(), FilesetError> {
        for number in 0..self.profile.files.symlinks {
            let name = format!("l{number:04}");
            let found = match nfs::lookup(client, &self.home, &name).await {
                Err(error) if is(&error, status::NOENT) && create => {
                    nfs::symlink(client, &self.home, &name, LINK_TARGET).await
                }
                other => other.map(|(handle, _)| handle),
            };
            match found {
                Ok(handle) => self.links.push(handle),
                Err(error) if is(&error, status::NOTSUPP) || is(&error, status::NOENT) => {
                    self.absent.push(format!(
                        "READLINK: no symbolic links ({error}); GETATTR of a file is called instead"
                    ));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A file by popularity.
    pub(super) fn draw(&self, rng: &mut ChaCha8Rng) -> u32 {
        self.ranks.get(self.popularity.draw(rng)).copied().unwrap_or(0)
    }

    /// A link, all alike.
    pub(super) fn draw_link(&self, rng: &mut ChaCha8Rng) -> Option<u32> {
        let count = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| rng.random_range(0..count))
    }
}

fn is(error: &NfsError, wanted: u32) -> bool {
    matches!(error, NfsError::Status { status, .. } if *status == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::profile::preset;
    use std::collections::BTreeMap;

    #[test]
    fn directories_hold_as_many_files_as_they_should_at_the_depth_they_should() {
        for name in ["webserver", "specsfs97", "database"] {
            let profile = preset(name).unwrap();
            let files = plan(name, &profile, 1);
            assert_eq!(files.len(), profile.files.count as usize);
            let mut directories: BTreeMap<&str, u32> = BTreeMap::new();
            for file in &files {
                let (directory, _) = file.path.rsplit_once('/').unwrap();
                assert_eq!(directory.split('/').count(), 2 + profile.files.depth as usize);
                *directories.entry(directory).or_default() += 1;
            }
            assert!(directories.values().all(|count| *count <= profile.files.per_directory));
            assert_eq!(directories.len() as u32, profile.files.count.div_ceil(profile.files.per_directory));
        }
    }

    #[test]
    fn sizes_have_their_mean_and_the_same_seed_gives_the_same_files() {
        let profile = preset("webserver").unwrap().set("webserver", "files.count=100000").unwrap();
        let files = plan("webserver", &profile, 5);
        let mean = files.iter().map(|file| file.bytes as f64).sum::<f64>() / 100_000.0;
        assert!((mean / 10_752.0 - 1.0).abs() < 0.05, "{mean}");
        assert_eq!(files, plan("webserver", &profile, 5));
        assert_ne!(files, plan("webserver", &profile, 6));
    }
}

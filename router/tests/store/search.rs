//! Files that one process has made and another is asked for at once.

use std::fs;

use clockwork_router::store::{DeviceSpec, HandleMode, Namespace};
use nfs3_types::nfs3::*;

use crate::client::{Client, store};

const NONE: DeviceSpec = DeviceSpec::none();

/// What a client's new file comes to behind a router: CREATE goes to the store of the folder, and SETATTR at once
/// after it to the store of the file, in another process. Some clients never ask again after NFS3ERR_JUKEBOX.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_made_at_one_store_can_be_changed_at_once_at_another() {
    let directory = tempfile::tempdir().unwrap();
    // So many that a walk takes a while.
    for n in 0..300 {
        fs::create_dir(directory.path().join(format!("folder-{n}"))).unwrap();
    }
    let open = || Namespace::open(directory.path(), HandleMode::Inode).unwrap();
    let (one, two) = (open(), open());
    let (a, b) = (store("a", &one, NONE).await, store("b", &two, NONE).await);
    let mut clients = Vec::new();
    for client in 0..4 {
        let (a, b) = (Client::mount(&a).await, Client::mount(&b).await);
        clients.push(tokio::spawn(make_and_change(client, a, b)));
    }
    for client in clients {
        client.await.unwrap();
    }
    for n in 0..240 {
        let file = directory.path().join(format!("folder-{}/file-{}-{}", n % 60 % 7, n / 60, n % 60));
        assert_eq!(fs::metadata(file).unwrap().len(), 1000 + n % 60);
    }
}

async fn make_and_change(client: u64, mut a: Client, mut b: Client) {
    let root = a.root.clone();
    for n in 0..60 {
        let folder = a.lookup(&root, &format!("folder-{}", n % 7)).await.unwrap();
        let file = a.make(&folder, &format!("file-{client}-{n}")).await;
        let size = sattr3 { size: set_size3::Some(1000 + n), ..sattr3::default() };
        b.setattr(&file, size).await.unwrap();
    }
}

/// Handles that mean nothing are looked for together, and cost the other clients of a store little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_files_that_are_gone_are_stale_however_many_ask() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Namespace::open(directory.path(), HandleMode::Inode).unwrap();
    let (one, two) = (open(), open());
    let (a, b) = (store("a", &one, NONE).await, store("b", &two, NONE).await);
    let mut maker = Client::mount(&a).await;
    let root = maker.root.clone();
    let mut gone = Vec::new();
    for n in 0..80 {
        gone.push(maker.make(&root, &format!("file-{n}")).await);
    }
    for n in 0..80 {
        maker.remove(&root, &format!("file-{n}")).await.unwrap();
    }
    let mut clients = Vec::new();
    for part in gone.chunks(20).map(<[nfs_fh3]>::to_vec) {
        let mut b = Client::mount(&b).await;
        clients.push(tokio::spawn(async move {
            for file in &part {
                assert_eq!(b.getattr(file).await.unwrap_err(), nfsstat3::NFS3ERR_STALE);
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    let file = maker.make(&root, "file-0").await;
    assert!(!gone.contains(&file));
    assert!(Client::mount(&b).await.getattr(&file).await.is_ok());
}

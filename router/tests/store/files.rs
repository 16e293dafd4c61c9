//! Files through several stores over one directory.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use clockwork_router::store::{DeviceSpec, HandleMode, Namespace, NamespaceLimits};
use nfs3_types::nfs3::*;

use crate::client::{Client, by_path, some, status, store};

const NONE: DeviceSpec = DeviceSpec::none();

#[tokio::test]
async fn a_change_through_one_store_is_seen_at_the_other_under_the_same_handle() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = by_path(directory.path());
    let (a, b) = (store("a", &namespace, NONE).await, store("b", &namespace, NONE).await);
    let (mut a, mut b) = (Client::mount(&a).await, Client::mount(&b).await);
    assert_eq!(a.root, b.root);
    let root = a.root.clone();

    let folder = a.mkdir(&root, "folder", 0o2751).await.unwrap();
    assert_eq!(b.lookup(&root, "folder").await.unwrap(), folder);
    assert_eq!(b.getattr(&folder).await.unwrap().mode, 0o2751);
    let file = a.make(&folder, "file").await;
    assert_eq!(b.lookup(&folder, "file").await.unwrap(), file);
    a.write(&file, 0, b"from a", stable_how::UNSTABLE).await.unwrap();
    assert_eq!(b.read(&file, 0, 100).await.unwrap(), (b"from a".to_vec(), true));
    b.write(&file, 5, b"b too", stable_how::FILE_SYNC).await.unwrap();
    assert_eq!(a.read(&file, 0, 5).await.unwrap(), (b"from ".to_vec(), false));
    let attributes = (a.getattr(&file).await.unwrap(), b.getattr(&file).await.unwrap());
    assert_eq!(format!("{:?}", attributes.0), format!("{:?}", attributes.1));
    assert_eq!(fs::read(directory.path().join("folder/file")).unwrap(), b"from b too");

    // The directory moves, the file within keeps its handle.
    b.rename((&root, "folder"), (&root, "moved")).await.unwrap();
    assert_eq!(a.lookup(&root, "folder").await, Err(nfsstat3::NFS3ERR_NOENT));
    assert_eq!(a.read(&file, 0, 100).await.unwrap().0, b"from b too");
    let moved = a.lookup(&root, "moved").await.unwrap();
    assert_eq!(moved, folder);
    assert_eq!(a.lookup(&moved, "..").await.unwrap(), root);
    let link = b.symlink(&moved, "link", "file").await;
    let target = status(a.nfs.readlink(&READLINK3args { symlink: link }).await.unwrap()).unwrap().data;
    assert_eq!(&*target.0, b"file");

    assert_eq!(b.rmdir(&root, "moved").await, Err(nfsstat3::NFS3ERR_NOTEMPTY));
    assert_eq!(b.rmdir(&moved, "file").await, Err(nfsstat3::NFS3ERR_NOTDIR));
    assert_eq!(b.remove(&root, "moved").await, Err(nfsstat3::NFS3ERR_ISDIR));
    b.remove(&moved, "file").await.unwrap();
    b.remove(&moved, "link").await.unwrap();
    assert_eq!(a.getattr(&file).await.unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(a.read(&file, 0, 1).await, Err(nfsstat3::NFS3ERR_STALE));
    assert_eq!(a.write(&file, 0, b"x", stable_how::UNSTABLE).await.unwrap_err(), nfsstat3::NFS3ERR_STALE);
    a.rmdir(&root, "moved").await.unwrap();
    assert_eq!(b.getattr(&moved).await.unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[tokio::test]
async fn a_path_used_again_gets_another_handle_and_the_old_one_is_stale() {
    for mode in [HandleMode::Path { seed: 1 }, HandleMode::Inode] {
        let directory = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(directory.path(), mode).unwrap();
        let (a, b) = (store("a", &namespace, NONE).await, store("b", &namespace, NONE).await);
        let (mut a, mut b) = (Client::mount(&a).await, Client::mount(&b).await);
        let root = a.root.clone();
        let mut old = Vec::new();
        for turn in 0..6 {
            let file = a.make(&root, "f").await;
            assert!(!old.contains(&file), "{mode:?}, turn {turn}");
            a.write(&file, 0, b"x", stable_how::UNSTABLE).await.unwrap();
            for stale in &old {
                assert_eq!(
                    b.getattr(stale).await.unwrap_err(),
                    nfsstat3::NFS3ERR_STALE,
                    "{mode:?}, turn {turn}"
                );
                assert_eq!(b.read(stale, 0, 1).await, Err(nfsstat3::NFS3ERR_STALE), "{mode:?}, turn {turn}");
            }
            match turn % 3 {
                0 => b.remove(&root, "f").await.unwrap(),
                1 => {
                    // Replaced by the rename of another.
                    let other = b.make(&root, "other").await;
                    b.rename((&root, "other"), (&root, "f")).await.unwrap();
                    assert_eq!(a.lookup(&root, "f").await.unwrap(), other);
                    b.remove(&root, "f").await.unwrap();
                    old.push(other);
                }
                // Behind the stores' back.
                _ => fs::remove_file(directory.path().join("f")).unwrap(),
            }
            old.push(file);
        }
    }
}

#[tokio::test]
async fn a_restart_keeps_handles() {
    for mode in [HandleMode::Path { seed: 9 }, HandleMode::Inode] {
        let directory = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(directory.path(), mode).unwrap();
        let running = store("a", &namespace, NONE).await;
        let mut client = Client::mount(&running).await;
        let root = client.root.clone();
        let folder = client.mkdir(&root, "d", 0o755).await.unwrap();
        let file = client.make(&folder, "f").await;
        client.write(&file, 0, b"kept", stable_how::FILE_SYNC).await.unwrap();
        if mode == HandleMode::Inode {
            client.rename((&folder, "f"), (&root, "g")).await.unwrap();
        }
        running.stop().await;

        // Another process would open the directory afresh, as this does.
        let namespace = Namespace::open(directory.path(), mode).unwrap();
        let running = store("a", &namespace, NONE).await;
        let mut client = Client::mount(&running).await;
        assert_eq!(client.root, root);
        assert_eq!(client.read(&file, 0, 10).await.unwrap().0, b"kept", "{mode:?}: by the old handle");
        assert_eq!(client.lookup(&root, "d").await.unwrap(), folder);
    }
}

#[tokio::test]
async fn stores_of_two_processes_agree_in_inode_mode() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Namespace::open(directory.path(), HandleMode::Inode).unwrap();
    let (one, two) = (open(), open());
    let (a, b) = (store("a", &one, NONE).await, store("b", &two, NONE).await);
    let (mut a, mut b) = (Client::mount(&a).await, Client::mount(&b).await);
    let root = a.root.clone();
    assert_eq!(b.root, root);
    let folder = a.mkdir(&root, "d", 0o755).await.unwrap();
    let mut files = Vec::new();
    for n in 0..20 {
        let file = a.make(&folder, &format!("f{n}")).await;
        a.write(&file, 0, format!("data {n}").as_bytes(), stable_how::UNSTABLE).await.unwrap();
        files.push(file);
    }
    // The other process is asked for files that it has never seen.
    for (n, file) in files.iter().enumerate() {
        assert_eq!(b.read(file, 0, 100).await.unwrap().0, format!("data {n}").as_bytes());
    }
    let attributes = (a.getattr(&files[3]).await.unwrap(), b.getattr(&files[3]).await.unwrap());
    assert_eq!((attributes.0.fsid, attributes.0.fileid), (attributes.1.fsid, attributes.1.fileid));
    a.rename((&folder, "f3"), (&root, "elsewhere")).await.unwrap();
    a.remove(&folder, "f4").await.unwrap();
    a.rename((&root, "d"), (&root, "e")).await.unwrap();
    assert_eq!(b.read(&files[3], 0, 100).await.unwrap().0, b"data 3");
    assert_eq!(b.read(&files[4], 0, 100).await.unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(b.read(&files[5], 0, 100).await.unwrap().0, b"data 5");
    assert_eq!(b.lookup(&root, "elsewhere").await.unwrap(), files[3]);
    assert_eq!(b.lookup(&folder, "f6").await.unwrap(), files[6]);
}

#[tokio::test]
async fn creation_is_guarded_exclusive_or_neither() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = by_path(directory.path());
    let a = store("a", &namespace, NONE).await;
    let mut a = Client::mount(&a).await;
    let root = a.root.clone();
    let mode = |mode| sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() };
    let file = a.create(&root, "f", createhow3::GUARDED(mode(0o640))).await.unwrap();
    assert_eq!(a.getattr(&file).await.unwrap().mode, 0o640);
    let again = a.create(&root, "f", createhow3::GUARDED(mode(0o600))).await;
    assert_eq!(again, Err(nfsstat3::NFS3ERR_EXIST));
    a.write(&file, 0, b"12345", stable_how::UNSTABLE).await.unwrap();
    let truncate = sattr3 { size: Nfs3Option::Some(2), ..mode(0o600) };
    assert_eq!(a.create(&root, "f", createhow3::UNCHECKED(truncate)).await.unwrap(), file);
    let attributes = a.getattr(&file).await.unwrap();
    assert_eq!((attributes.size, attributes.mode), (2, 0o640), "the size is set, the mode of a file stays");

    let (one, two) = (createverf3([1, 2, 3, 4, 5, 6, 7, 8]), createverf3([8; 8]));
    let exclusive = a.create(&root, "x", createhow3::EXCLUSIVE(one)).await.unwrap();
    assert_eq!(a.create(&root, "x", createhow3::EXCLUSIVE(one)).await.unwrap(), exclusive, "its own retry");
    let other = a.create(&root, "x", createhow3::EXCLUSIVE(two)).await;
    assert_eq!(other, Err(nfsstat3::NFS3ERR_EXIST));
    for wrong in ["", ".", "..", "a/b"] {
        let made = a.create(&root, wrong, createhow3::UNCHECKED(sattr3::default())).await;
        assert_eq!(made, Err(nfsstat3::NFS3ERR_INVAL), "{wrong:?}");
    }
    let long = "n".repeat(256);
    assert_eq!(a.mkdir(&root, &long, 0o755).await, Err(nfsstat3::NFS3ERR_NAMETOOLONG));
}

#[tokio::test]
async fn attributes_are_set_and_the_owner_may_write_what_the_mode_forbids() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = by_path(directory.path());
    let a = store("a", &namespace, NONE).await;
    let mut a = Client::mount(&a).await;
    let root = a.root.clone();
    // Put there by somebody else, so that no descriptor is open from its creation.
    let path = directory.path().join("f");
    fs::write(&path, "0123456789").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let file = a.lookup(&root, "f").await.unwrap();
    a.write(&file, 10, b"x", stable_how::DATA_SYNC).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o400);
    let time = nfstime3 { seconds: 1_000_000_000, nseconds: 5 };
    let wanted = sattr3 {
        mode: Nfs3Option::Some(0o4711),
        size: Nfs3Option::Some(3),
        mtime: set_mtime::SET_TO_CLIENT_TIME(time),
        atime: set_atime::SET_TO_SERVER_TIME,
        ..sattr3::default()
    };
    a.setattr(&file, wanted).await.unwrap();
    let attributes = a.getattr(&file).await.unwrap();
    assert_eq!((attributes.mode, attributes.size, attributes.mtime), (0o4711, 3, time));
    assert!(attributes.atime.seconds > time.seconds);
    let size = |size| sattr3 { size: Nfs3Option::Some(size), ..sattr3::default() };
    assert_eq!(a.setattr(&root, size(0)).await, Err(nfsstat3::NFS3ERR_ISDIR));
    assert_eq!(a.setattr(&file, size(u64::MAX)).await, Err(nfsstat3::NFS3ERR_FBIG));
    let far = a.write(&file, u64::MAX - 1, b"x", stable_how::UNSTABLE).await;
    assert_eq!(far.unwrap_err(), nfsstat3::NFS3ERR_FBIG);
}

#[tokio::test]
async fn what_the_file_system_says_is_passed_on() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = by_path(directory.path());
    let a = store("a", &namespace, NONE).await;
    let mut a = Client::mount(&a).await;
    let root = a.root.clone();
    let fsstat = status(a.nfs.fsstat(&FSSTAT3args { fsroot: root.clone() }).await.unwrap()).unwrap();
    let there = rustix::fs::statvfs(directory.path()).unwrap();
    assert_eq!(fsstat.tbytes, there.f_blocks * there.f_frsize);
    assert_eq!(fsstat.tfiles, there.f_files);
    let pathconf = status(a.nfs.pathconf(&PATHCONF3args { object: root.clone() }).await.unwrap()).unwrap();
    assert_eq!((pathconf.linkmax, pathconf.name_max), (1, 255));
    assert!(pathconf.case_preserving && !pathconf.case_insensitive);
    let fsinfo = status(a.nfs.fsinfo(&FSINFO3args { fsroot: root.clone() }).await.unwrap()).unwrap();
    assert_eq!((fsinfo.rtmax, fsinfo.wtmax), (1 << 20, 1 << 20));
    let link = LINK3args {
        file: root.clone(),
        link: diropargs3 { dir: root.clone(), name: crate::client::name("l") },
    };
    assert_eq!(status(a.nfs.link(&link).await.unwrap()).unwrap_err(), nfsstat3::NFS3ERR_NOTSUPP);
}

#[tokio::test]
async fn a_listing_goes_on_while_the_directory_changes() {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..1500 {
        fs::write(directory.path().join(format!("stays{n:04}")), "").unwrap();
        fs::write(directory.path().join(format!("goes{n:04}")), "").unwrap();
    }
    let namespace = by_path(directory.path());
    let (a, b) = (store("a", &namespace, NONE).await, store("b", &namespace, NONE).await);
    let (mut a, mut b) = (Client::mount(&a).await, Client::mount(&b).await);
    let root = a.root.clone();
    let mut names: HashMap<Vec<u8>, u32> = HashMap::new();
    let (mut cookie, mut cookieverf) = (0, cookieverf3::default());
    for page in 0.. {
        // A client may turn from one to the other, and a router from one store to another, within a listing.
        let plus = page % 3 == 1;
        let client = if page % 2 == 0 { &mut a } else { &mut b };
        let eof = if plus {
            let args =
                READDIRPLUS3args { dir: root.clone(), cookie, cookieverf, dircount: 8192, maxcount: 32_768 };
            let list = status(client.nfs.readdirplus(&args).await.unwrap()).unwrap();
            cookieverf = list.cookieverf;
            for entry in list.reply.entries.0 {
                cookie = entry.cookie;
                let (name, handle) = (entry.name.0.to_vec(), some(entry.name_handle));
                if let Ok(name) = std::str::from_utf8(&name)
                    && name.starts_with("stays")
                    && page == 1
                {
                    assert_eq!(client.lookup(&root, name).await.unwrap(), handle);
                }
                *names.entry(name).or_default() += 1;
            }
            list.reply.eof
        } else {
            let args = READDIR3args { dir: root.clone(), cookie, cookieverf, count: 8192 };
            let list = status(client.nfs.readdir(&args).await.unwrap()).unwrap();
            cookieverf = list.cookieverf;
            for entry in list.reply.entries.0 {
                cookie = entry.cookie;
                *names.entry(entry.name.0.to_vec()).or_default() += 1;
            }
            list.reply.eof
        };
        if eof {
            break;
        }
        a.remove(&root, &format!("goes{page:04}")).await.unwrap();
        b.make(&root, &format!("new{page:04}")).await;
        assert!(page < 1000, "the listing does not end");
    }
    for n in 0..1500 {
        assert_eq!(names.get(format!("stays{n:04}").as_bytes()), Some(&1), "stays{n:04}");
    }
    assert!(names.values().all(|times| *times == 1));
    assert!(names.contains_key(&b"."[..]) && names.contains_key(&b".."[..]));
}

#[tokio::test]
async fn a_path_is_not_led_out_of_the_export() {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("d")).unwrap();
    fs::write(outside.path().join("d/secret"), "secret").unwrap();
    for mode in [HandleMode::Path { seed: 1 }, HandleMode::Inode] {
        let directory = tempfile::tempdir().unwrap();
        let namespace = Namespace::open(directory.path(), mode).unwrap();
        let a = store("a", &namespace, NONE).await;
        let mut a = Client::mount(&a).await;
        let root = a.root.clone();
        let parent = a.mkdir(&root, "p", 0o755).await.unwrap();
        let folder = a.mkdir(&parent, "d", 0o755).await.unwrap();
        let file = a.make(&folder, "secret").await;
        // In the place of a directory comes a link to one that has the same names in it.
        fs::rename(directory.path().join("p"), outside.path().join("was p")).unwrap();
        symlink(outside.path(), directory.path().join("p")).unwrap();
        for handle in [&parent, &folder, &file] {
            assert_eq!(
                a.read(handle, 0, 100).await.map(|(data, _)| data),
                Err(nfsstat3::NFS3ERR_STALE),
                "{mode:?}"
            );
            assert_eq!(a.getattr(handle).await.unwrap_err(), nfsstat3::NFS3ERR_STALE, "{mode:?}");
        }
        assert_eq!(a.read(&file, 0, 10).await.map(|(data, _)| data).unwrap_or_default(), b"", "{mode:?}");
        let made = a.create(&folder, "planted", createhow3::UNCHECKED(sattr3::default())).await;
        assert!(made.is_err(), "{mode:?}");
        let link = a.lookup(&root, "p").await.unwrap();
        assert_eq!(a.lookup(&link, "d").await, Err(nfsstat3::NFS3ERR_NOTDIR), "{mode:?}");
        assert_eq!(a.getattr(&link).await.unwrap().type_, ftype3::NF3LNK);
        assert!(!outside.path().join("d/planted").exists());
        fs::remove_dir_all(outside.path().join("was p")).unwrap();
    }
}

#[tokio::test]
async fn the_limit_of_files_refuses_further_ones() {
    let directory = tempfile::tempdir().unwrap();
    let limits = NamespaceLimits { files_max: 10, open_files_max: 4 };
    let namespace = Namespace::with_limits(directory.path(), HandleMode::Path { seed: 1 }, limits).unwrap();
    let a = store("a", &namespace, NONE).await;
    let mut a = Client::mount(&a).await;
    let root = a.root.clone();
    for n in 0..9 {
        let file = a.make(&root, &format!("f{n}")).await;
        a.write(&file, 0, b"data", stable_how::UNSTABLE).await.unwrap();
    }
    let refused = a.create(&root, "one more", createhow3::UNCHECKED(sattr3::default())).await;
    assert_eq!(refused, Err(nfsstat3::NFS3ERR_SERVERFAULT));
    assert!(!directory.path().join("one more").exists(), "what was refused leaves nothing behind");
    assert!(namespace.refused() > 0);
    a.remove(&root, "f0").await.unwrap();
    a.make(&root, "one more").await;
    assert_eq!(namespace.files(), 10);
}

#[tokio::test]
async fn the_write_verifier_is_another_at_every_store_and_start() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = by_path(directory.path());
    let mut verifiers = Vec::new();
    for name in ["a", "b", "a"] {
        let running = store(name, &namespace, NONE).await;
        let mut client = Client::mount(&running).await;
        let root = client.root.clone();
        let file = client.make(&root, "f").await;
        let written = client.write(&file, 0, b"x", stable_how::UNSTABLE).await.unwrap();
        assert_eq!(written.committed, stable_how::UNSTABLE);
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        let committed = status(client.nfs.commit(&args).await.unwrap()).unwrap();
        assert_eq!(committed.verf, written.verf);
        assert!(!verifiers.contains(&written.verf.0));
        verifiers.push(written.verf.0);
        running.stop().await;
    }
}

//! What an operator sees and changes.

use super::site::{Site, config, embedded, named, store, wait_for};
use clockwork_router::config::Config;
use clockwork_router::plex::Plex;
use clockwork_router::store::{HandleMode, Namespace};
use clockwork_router::web::types::{Assign, FileName, StoreState};
use clockwork_router::web::{ControlError, PlexControl as _, handle_text};
use fstress_replay::client::{Transport, nfs};

fn assign(path: &str, store: &str) -> Assign {
    Assign {
        file: FileName::Path(path.into()),
        store: store.into(),
        also: Vec::new(),
        reason: "a test".into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_assigned_by_path_and_given_back() {
    let site = Site::start(2).await;
    let tcp = site.client(Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let folder = nfs::mkdir(&tcp, &root, "dir").await.unwrap();
    let file = nfs::create(&tcp, &folder, "file").await.unwrap();
    let first = site.plex.assign(assign("/export/dir/file", "a")).await.unwrap();
    let home = first.from.clone().unwrap();
    let other = if home == "a" { "b" } else { "a" };
    let moved = site.plex.assign(assign("/export/dir//file", other)).await.unwrap();
    assert_eq!((moved.to.as_deref(), moved.waiting), (Some(other), false));
    assert_eq!(
        (moved.handle.as_str(), moved.path.as_deref()),
        (&*handle_text(&file), Some("/export/dir/file"))
    );
    assert!(moved.table_version > first.table_version);

    let before = named(&site.plex.status().await, other).requests;
    for _ in 0..5 {
        nfs::getattr(&tcp, &file, "file").await.unwrap();
    }
    assert_eq!(named(&site.plex.status().await, other).requests, before + 5);

    let page = site.plex.exceptions(None, 10).await.unwrap();
    assert_eq!((page.total, page.exceptions.len(), page.next), (1, 1, None));
    let listed = &page.exceptions[0];
    assert_eq!((listed.store.as_str(), listed.default_store.as_deref()), (other, Some(home.as_str())));
    assert_eq!((listed.path.as_deref(), listed.reason.as_str()), (Some("/export/dir/file"), "a test"));

    nfs::getattr(&tcp, &file, "file").await.unwrap();
    let back = site.plex.unassign(FileName::Path("/export/dir/file".into())).await.unwrap();
    assert_eq!(back.to, Some(home));
    let again = site.plex.unassign(FileName::Path("/export/dir/file".into())).await.unwrap_err();
    assert!(matches!(again, ControlError::NotAssigned { .. }), "{again}");
    for (path, store) in [("/export/dir/none", "a"), ("/elsewhere", "a"), ("/export/dir/../..", "a")] {
        let error = site.plex.assign(assign(path, store)).await.unwrap_err();
        assert!(matches!(error, ControlError::UnknownFile { .. }), "{path}: {error}");
    }
    let error = site.plex.assign(assign("/export/dir/file", "z")).await.unwrap_err();
    assert!(matches!(error, ControlError::UnknownStore { .. }), "{error}");
    let stale = FileName::Handle("ffff".into());
    let error = site
        .plex
        .assign(Assign { file: stale, store: "a".into(), also: Vec::new(), reason: String::new() })
        .await
        .unwrap_err();
    assert!(matches!(error, ControlError::UnknownFile { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_unstable_writes_moves_after_its_commit_and_others_stay_assigned() {
    let site = Site::start(2).await;
    let tcp = site.client(Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let (other_name, _) = site.file_of(&tcp, &root, "a").await;
    let (name, file) = site.file_of(&tcp, &root, "b").await;
    // One file that has moved already must not be forgotten while another one waits.
    site.plex.assign(assign(&format!("/export/{other_name}"), "b")).await.unwrap();
    nfs::write(&tcp, &file, &name, 0, b"unstable").await.unwrap();
    let moved = site.plex.assign(assign(&format!("/export/{name}"), "a")).await.unwrap();
    assert!(moved.waiting, "{moved:?}");
    assert_eq!((moved.from.as_deref(), moved.to.as_deref()), (Some("b"), Some("a")));
    let (_, other) = (0, nfs::lookup(&tcp, &root, &other_name).await.unwrap().0);
    let before = site.plex.status().await;
    for _ in 0..4 {
        nfs::getattr(&tcp, &file, &name).await.unwrap();
        nfs::getattr(&tcp, &other, &other_name).await.unwrap();
    }
    let after = site.plex.status().await;
    assert_eq!(named(&after, "a").requests, named(&before, "a").requests, "both files are at b");
    nfs::commit(&tcp, &file, &name).await.unwrap();
    let before = named(&after, "a").requests;
    let begin = std::time::Instant::now();
    while named(&site.plex.status().await, "a").requests == before {
        nfs::getattr(&tcp, &file, &name).await.unwrap();
        assert!(begin.elapsed() < super::site::PATIENCE, "the file has not moved");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_and_periods_outlive_a_restart() {
    let kept = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"data").unwrap();
    let namespace = Namespace::open(folder.path(), HandleMode::Path { seed: 1 }).unwrap();
    let (a, b) = (store("a", &namespace).await, store("b", &namespace).await);
    let make = || -> Config {
        let mut config = config(vec![embedded("a", a.address), embedded("b", b.address)]);
        config.history.path = Some(kept.path().join("history"));
        config
    };
    let all_up = |plex: Plex| async move {
        wait_for(&plex, "both let in", |status| status.stores.iter().all(|s| s.state != StoreState::Down))
            .await;
        plex
    };
    let plex = all_up(Plex::start(make(), false).await.unwrap()).await;
    let moved = plex.assign(assign("/export/file", "b")).await.unwrap();
    plex.drain("a".into(), false).await.unwrap();
    let tcp = super::site::client(plex.addresses()[0], Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    let (file, _) = nfs::lookup(&tcp, &root, "file").await.unwrap();
    for _ in 0..7 {
        nfs::getattr(&tcp, &file, "file").await.unwrap();
    }
    drop(tcp);
    plex.finish().await;
    drop(plex);

    let plex = all_up(Plex::start(make(), false).await.unwrap()).await;
    let status = plex.status().await;
    assert_eq!(named(&status, "a").state, StoreState::Drained);
    let page = plex.exceptions(None, 10).await.unwrap();
    assert_eq!((page.total, &page.exceptions[0].handle), (1, &moved.handle));
    let hot = plex.hot(1, 10, None).await.unwrap();
    let found = hot.files.iter().find(|hot| hot.handle == moved.handle).unwrap();
    assert_eq!((found.requests, found.path.as_deref(), found.store.as_str()), (7, Some("/export/file"), "b"));
    let periods = plex.periods(5).await.unwrap().periods;
    assert_eq!(periods.len(), 1);
    assert!(plex.periods(1).await.unwrap().periods[0].stores[1].requests >= 7);
    drop(plex);

    // A store of the assignments that is not configured any more is kept, and told.
    let mut renamed = make();
    renamed.stores[1].name = "c".into();
    let plex = Plex::start(renamed, false).await.unwrap();
    let status = plex.status().await;
    assert!(status.alarms.iter().any(|alarm| alarm.contains("store b")), "{:?}", status.alarms);
    assert_eq!(plex.exceptions(None, 10).await.unwrap().exceptions[0].store, "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exception_set_has_a_limit_and_pages() {
    let site = Site::with(2, |config| config.limits.exception_files_max = 3).await;
    let tcp = site.client(Transport::Tcp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    for number in 0..3 {
        nfs::create(&tcp, &root, &format!("f{number}")).await.unwrap();
        site.plex.assign(assign(&format!("/export/f{number}"), "b")).await.unwrap();
    }
    nfs::create(&tcp, &root, "f3").await.unwrap();
    let full = site.plex.assign(assign("/export/f3", "b")).await.unwrap_err();
    assert_eq!(full, ControlError::ExceptionsFull { max: 3 });
    site.plex.assign(assign("/export/f1", "a")).await.unwrap();
    let fill = site.plex.status().await;
    let fill = fill.limits.iter().find(|limit| limit.name == "exception_files_max").unwrap();
    assert_eq!((fill.used, fill.max, fill.reached), (3, 3, 1));
    let first = site.plex.exceptions(None, 2).await.unwrap();
    assert_eq!((first.total, first.exceptions.len()), (3, 2));
    let after = clockwork_router::web::handle_bytes(&first.next.unwrap());
    let rest = site.plex.exceptions(after, 2).await.unwrap();
    assert_eq!((rest.exceptions.len(), rest.next), (1, None));
    assert!(first.exceptions[1].handle < rest.exceptions[0].handle);
}

//! Files through a plex.

use super::raw::{Raw, getattr, marked, words};
use super::site::Site;
use fstress_replay::client::{Transport, nfs};
use tokio::io::AsyncWriteExt;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_over_one_transport_is_read_over_the_other() {
    let site = Site::start(2).await;
    let tcp = site.client(Transport::Tcp).await;
    let udp = site.client(Transport::Udp).await;
    let root = nfs::mount(&tcp, "/export").await.unwrap();
    assert_eq!(nfs::mount(&udp, "//export/").await.unwrap(), root);
    let folder = nfs::mkdir(&udp, &root, "folder").await.unwrap();
    assert_eq!(nfs::mount(&tcp, "/export/folder").await.unwrap(), folder);
    for number in 0..20_u8 {
        let name = format!("file-{number}");
        let (writer, reader) = if number % 2 == 0 { (&tcp, &udp) } else { (&udp, &tcp) };
        let data: Vec<u8> = (0..20_000_u32).map(|i| (i as u8).wrapping_mul(number)).collect();
        let file = nfs::create(writer, &folder, &name).await.unwrap();
        let (count, verifier) = nfs::write(writer, &file, &name, 0, &data).await.unwrap();
        assert_eq!(count, 20_000);
        assert_eq!(nfs::commit(writer, &file, &name).await.unwrap(), verifier);
        let (found, attributes) = nfs::lookup(reader, &folder, &name).await.unwrap();
        assert_eq!(found, file);
        assert_eq!(attributes.map(|a| a.size), Some(20_000));
        assert_eq!(nfs::read(reader, &file, &name, 0, 32_768).await.unwrap(), data);
        assert_eq!(std::fs::read(site.folder.path().join("folder").join(name)).unwrap(), data);
    }
    let record = site.plex.close_period().await;
    for store in &record.stores {
        assert!(store.counts.requests.total() > 0, "{} had nothing to do", store.name);
    }
    let paths: Vec<&str> = record.files.iter().filter_map(|file| file.path.as_deref()).collect();
    assert!(paths.contains(&"/export/folder/file-7"), "{paths:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_closed_its_sending_side_gets_its_replies() {
    let site = Site::start(2).await;
    let client = site.client(Transport::Tcp).await;
    let root = nfs::mount(&client, "/export").await.unwrap();
    let mut raw = Raw::connect(site.address()).await;
    let calls: Vec<u8> = (1..=50).flat_map(|xid| marked(&getattr(xid, &root))).collect();
    raw.send(&calls).await;
    raw.0.shutdown().await.unwrap();
    let mut xids = Vec::new();
    while let Some(reply) = raw.reply().await {
        xids.push(words(&reply)[0]);
    }
    xids.sort_unstable();
    assert_eq!(xids, (1..=50).collect::<Vec<_>>());
}

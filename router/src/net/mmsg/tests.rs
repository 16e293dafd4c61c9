use super::*;
use std::net::UdpSocket;
use std::os::fd::AsFd;

#[test]
fn datagrams_come_and_go_with_the_addresses_of_both_ends() {
    let server = UdpSocket::bind("0.0.0.0:0").unwrap();
    want_packet_info(server.as_fd(), false).unwrap();
    let port = server.local_addr().unwrap().port();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for size in [1_usize, 500, DATAGRAM_BYTES_MAX] {
        client.send_to(&vec![7; size], ("127.0.0.5", port)).unwrap();
    }
    let mut batch = ReceiveBatch::new();
    let received = batch.receive(server.as_fd()).unwrap();
    assert_eq!(received, 3);
    let mut sizes = Vec::new();
    for i in 0..received {
        let (bytes, from, to) = batch.datagram(i).unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        assert_eq!(to, Some("127.0.0.5".parse().unwrap()));
        sizes.push(bytes.len() - HEADROOM);
        let reply = Outgoing { bytes: &bytes[HEADROOM..], to: Some(from), from: to };
        assert_eq!(Sender::default().send(server.as_fd(), &[reply]).unwrap(), 1);
    }
    assert_eq!(sizes, [1, 500, DATAGRAM_BYTES_MAX]);
    let mut buffer = vec![0; 70_000];
    for size in sizes {
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((length, from.ip()), (size, "127.0.0.5".parse().unwrap()));
    }
    assert_eq!(batch.receive(server.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// Sends `sizes` from one socket to another and returns the sizes that arrive, checking every byte.
fn sizes_through(sender: &mut Sender, sizes: &[usize], from: Option<IpAddr>) -> Vec<usize> {
    let (near, far) = (UdpSocket::bind("0.0.0.0:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let payloads: Vec<Vec<u8>> =
        sizes.iter().enumerate().map(|(i, &size)| vec![u8::try_from(i).unwrap(); size]).collect();
    let to = Some(far.local_addr().unwrap());
    let datagrams: Vec<_> = payloads.iter().map(|bytes| Outgoing { bytes, to, from }).collect();
    assert_eq!(sender.send(near.as_fd(), &datagrams).unwrap(), sizes.len());
    let mut buffer = vec![0; 70_000];
    let mut arrived = Vec::new();
    for i in 0..sizes.len() {
        let (length, source) = far.recv_from(&mut buffer).unwrap();
        assert!(buffer[..length].iter().all(|&byte| usize::from(byte) == i), "datagram {i}");
        assert!(from.is_none_or(|from| source.ip() == from));
        arrived.push(length);
    }
    arrived
}

#[test]
fn equal_datagrams_go_together_and_arrive_apart() {
    let from = Some("127.0.0.9".parse().unwrap());
    let sizes = [100, 100, 100, 60, 100, 200, 200, 0, 1472, 1472, 1473, 1473, 9000, 1];
    assert_eq!(sizes_through(&mut Sender::default(), &sizes, None), sizes);
    assert_eq!(sizes_through(&mut Sender::default(), &sizes, from), sizes);
    assert_eq!(sizes_through(&mut Sender { segment_bytes_max: 0 }, &sizes, from), sizes);
    // The kernel cuts no datagram that is longer than the path's frames, and says so: it is sent without its help.
    let mut sender = Sender { segment_bytes_max: usize::MAX };
    let both = [30_000, 30_000, 30_000];
    assert_eq!(sizes_through(&mut sender, &both, None), both);
}

#[test]
fn a_run_ends_at_a_longer_datagram_another_peer_and_the_kernel_s_limits() {
    let peers = ["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
    let zeros = [0; 2000];
    let run = |lengths: &[(usize, usize)]| {
        let datagrams: Vec<_> = lengths
            .iter()
            .map(|&(length, peer)| Outgoing { bytes: &zeros[..length], to: Some(peers[peer]), from: None })
            .collect();
        run_length(&datagrams, SEGMENT_BYTES_MAX)
    };
    assert_eq!(run(&[(100, 0); 5]), 5);
    assert_eq!(run(&[(100, 0), (100, 0), (101, 0)]), 2);
    assert_eq!(run(&[(100, 0), (99, 0), (99, 0)]), 2);
    assert_eq!(run(&[(100, 0), (0, 0)]), 1);
    assert_eq!(run(&[(100, 0), (100, 1)]), 1);
    assert_eq!(run(&[(0, 0), (0, 0)]), 1);
    assert_eq!(run(&[(1473, 0), (1473, 0)]), 1);
    assert_eq!(run(&[(1400, 0); 60]), DATAGRAM_BYTES_MAX / 1400);
    assert_eq!(run(&[(8, 0); 100]), SEGMENTS_MAX);
}

#[test]
fn what_the_kernel_refuses_together_goes_one_by_one_from_then_on() {
    let datagrams = [Outgoing { bytes: &[0; 1000], to: None, from: None }; 2];
    let mut sender = Sender::default();
    assert!(!sender.refused(&io::Error::from_raw_os_error(libc::EAGAIN), &datagrams));
    assert!(sender.refused(&io::Error::from_raw_os_error(libc::EMSGSIZE), &datagrams));
    assert_eq!(sender.segment_bytes_max, 999);
    assert!(!sender.refused(&io::Error::from_raw_os_error(libc::EMSGSIZE), &datagrams));
    let small = [Outgoing { bytes: &[0; 10], to: None, from: None }; 2];
    assert!(sender.refused(&io::Error::from_raw_os_error(libc::EIO), &small));
    assert_eq!(sender.segment_bytes_max, 0);
}

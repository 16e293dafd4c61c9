//! The example file, and the messages that an operator sees when a field is wrong.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]
use std::path::Path;
use std::time::Duration;

use clockwork_router::config::{Config, ExportPath, Faults, Problem, Store, StoreAddress};

const EXAMPLE: &str = include_str!("../../docs/clockwork.example.toml");
const FILE: &str = "plex.toml";

/// The least that is complete; tests add lines behind it.
const LEAST: &str = "[[store]]\nname = \"a\"\naddress = \"10.0.0.1:2049\"\n\
                     [[export]]\npath = \"/e\"\nclients = \"10.0.0.0/8\"\n";

fn parse(text: &str) -> Result<Config, Faults> {
    Config::parse(text, Path::new(FILE))
}

fn least_and(rest: &str) -> Result<Config, Faults> {
    parse(&format!("{LEAST}{rest}"))
}

/// Everything that is said about a wrong text, without the excerpts.
fn messages(text: &str) -> Vec<String> {
    let Err(faults) = parse(text) else { panic!("accepted: {text}") };
    let lines = faults.faults.iter().map(|f| format!("{}:{} {}: {}", f.line, f.column, f.field, f.problem));
    lines.collect()
}

fn store(name: &str, address: &str) -> Store {
    Store::new(name, StoreAddress::parse(address).unwrap())
}

#[test]
fn the_example_is_the_defaults_beside_its_stores_and_exports() {
    let config = parse(EXAMPLE).unwrap_or_else(|faults| panic!("{faults}"));
    let stores = [("fast", "10.0.0.11:2049"), ("slow", "10.0.0.12:2049")].map(|(name, address)| Store {
        mount_port: 20_048,
        export: ExportPath::parse("/srv/shared"),
        ..store(name, address)
    });
    assert_eq!(config.stores, stores);
    assert_eq!(config.exports.len(), 1);
    assert!(config.exports[0].secure);
    let least = least_and("").unwrap_or_else(|faults| panic!("{faults}"));
    let defaults = Config { stores: config.stores.clone(), exports: config.exports.clone(), ..least };
    assert_eq!(config, defaults);
    assert_eq!(defaults.health.interval, Duration::from_secs(2));
}

#[test]
fn the_defaults_that_the_example_shows_are_the_defaults() {
    let shown = |line: &str| {
        line.strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
            .map(ToOwned::to_owned)
    };
    let lines: Vec<String> =
        EXAMPLE.lines().map(|line| shown(line).unwrap_or_else(|| line.to_owned())).collect();
    let uncommented = EXAMPLE.lines().filter(|line| shown(line).is_some()).count();
    assert!(uncommented > 30, "only {uncommented} defaults are shown");
    let config = parse(&lines.join("\n")).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(Ok(config), parse(EXAMPLE));
}

#[test]
fn the_example_shows_every_field() {
    let sections = [
        "[listen]",
        "[admin]",
        "[[store]]",
        "[[export]]",
        "[routing]",
        "[limits]",
        "[health]",
        "[heat]",
        "[history]",
        "[log]",
    ];
    for section in sections {
        let Err(faults) = least_and(&format!("{section}\nqqqqqqqqqqq = 1\n")) else { panic!("{section}") };
        let known = faults.faults.iter().find_map(|fault| match &fault.problem {
            Problem::Unknown { known, .. } => Some(known.clone()),
            _ => None,
        });
        let own = EXAMPLE
            .split_once(&format!("\n{section}\n"))
            .map(|(_, rest)| rest.split("\n[").next().unwrap_or(rest));
        for field in known.unwrap_or_else(|| panic!("{section} takes anything")) {
            let there = own.is_some_and(|own| own.contains(&format!("{field} = ")));
            assert!(there, "{section} {field} is not in the example");
        }
    }
}

#[test]
fn a_wrong_field_is_shown_with_file_line_column_path_and_what_is_allowed() {
    let text = "[[store]]\nname = \"slow\"\naddress = \"10.0.0.1:2049\"\nweigth = 2\nweight = 1e308\n\n\
                [[export]]\npath = \"e\"\nclients = [\"10.0.0.0/8\", \"10.0.0.1/8\"]\n";
    let Err(faults) = parse(text) else { panic!("accepted") };
    let expected = r#"plex.toml:4:1: store[slow].weigth: no such field; did you mean `weight`?
4 | weigth = 2
  | ^^^^^^
plex.toml:5:10: store[slow].weight: 1e308 is not allowed; allowed: 0 (drained: no files), or a number from 0.001 to 1000000
5 | weight = 1e308
  |          ^^^^^
plex.toml:8:8: export[e].path: "e" is not allowed; allowed: an absolute path without . and .., at most 1024 bytes, such as "/export"
8 | path = "e"
  |        ^^^
plex.toml:9:26: export[e].clients: "10.0.0.1/8" is not allowed; allowed: networks without bits beyond the prefix, or addresses, such as "10.0.0.0/8" or "::1"
9 | clients = ["10.0.0.0/8", "10.0.0.1/8"]
  |                          ^^^^^^^^^^^^"#;
    assert_eq!(faults.to_string(), expected);
}

#[test]
fn an_empty_file_says_what_is_missing() {
    let expected = [
        "1:1 store: missing; allowed: at least one [[store]] with name and address",
        "1:1 export: missing; allowed: at least one [[export]] with path and clients",
    ];
    assert_eq!(messages(""), expected);
    let bare = messages("[[store]]\n[[export]]\n");
    let expected = [
        "1:1 store[#1].name: missing; allowed: at most 63 letters, digits, dots, dashes and underscores, first a letter or digit",
        "1:1 store[#1].address: missing; allowed: \"HOST:PORT\", such as \"10.0.0.11:2049\" or \"nas1.example.org:2049\"",
        "2:1 export[#1].path: missing; allowed: an absolute path without . and .., at most 1024 bytes, such as \"/export\"",
        "2:1 export[#1].clients: missing; allowed: networks without bits beyond the prefix, or addresses, such as \"10.0.0.0/8\" or \"::1\"",
    ];
    assert_eq!(bare, expected);
}

#[test]
fn syntax_is_shown_with_its_line() {
    let Err(faults) = parse("[listen]\ntcp = yes\n") else { panic!("accepted") };
    assert_eq!((faults.faults[0].line, faults.faults[0].column), (2, 7));
    assert!(faults.to_string().starts_with("plex.toml:2:7: not TOML: "), "{faults}");
    let Err(faults) = parse("[[store]]\nname = \"a\"\nname = \"b\"\n") else { panic!("accepted") };
    assert_eq!(faults.faults[0].line, 3, "{faults}");
}

#[test]
fn types_ranges_and_choices_are_checked() {
    let wrong = [
        ("[listen]\ntcp = 1\n", "8:7 listen.tcp: a whole number is not allowed; allowed: true or false"),
        (
            "[listen]\naddress = []\n",
            "8:11 listen.address: an empty list is not allowed; allowed: \"ADDRESS:PORT\" with a numeric address, such as \"0.0.0.0:2049\" or \"[::]:2049\"",
        ),
        (
            "[limits]\nclient_calls_max = -1\n",
            "8:20 limits.client_calls_max: -1 is not allowed; allowed: a whole number from 1 to 65536",
        ),
        (
            "[limits]\nclient_calls_max = 0x10001\n",
            "8:20 limits.client_calls_max: 0x10001 is not allowed; allowed: a whole number from 1 to 65536",
        ),
        (
            "[limits]\nduplicate_age_seconds = 60\n",
            "8:25 limits.duplicate_age_seconds: 60 is not allowed; allowed: a number of seconds from 120 to 3600",
        ),
        (
            "[health]\ninterval_seconds = 0\n",
            "8:20 health.interval_seconds: 0 is not allowed; allowed: a number of seconds from 0.1 to 3600",
        ),
        (
            "[heat]\nperiod_seconds = inf\n",
            "8:18 heat.period_seconds: inf is not allowed; allowed: a number of seconds from 1 to 86400",
        ),
        (
            "[log]\nfilter = \"=x=\"\n",
            "8:10 log.filter: \"=x=\" is not allowed; allowed: a level (error, warn, info, debug, trace, off), or levels by module such as \"info,clockwork_router=debug\"",
        ),
        (
            "[log]\nfilter = \"wran\"\n",
            "8:10 log.filter: \"wran\" is not allowed; allowed: a level (error, warn, info, debug, trace, off), or levels by module such as \"info,clockwork_router=debug\"",
        ),
        (
            "[log]\nfilter = \"info,clockwork_router=debug,wran\"\n",
            "8:10 log.filter: \"info,clockwork_router=debug,wran\" is not allowed; allowed: a level (error, warn, info, debug, trace, off), or levels by module such as \"info,clockwork_router=debug\"",
        ),
        (
            "[log]\nfilter = \"wran,\"\n",
            "8:10 log.filter: \"wran,\" is not allowed; allowed: a level (error, warn, info, debug, trace, off), or levels by module such as \"info,clockwork_router=debug\"",
        ),
        (
            "[log]\nfilter = \"clock\"\n",
            "8:10 log.filter: \"clock\" is not allowed; allowed: a level (error, warn, info, debug, trace, off), or levels by module such as \"info,clockwork_router=debug\"",
        ),
        (
            "[log]\nfilter = \"info, router\"\n",
            "8:10 log.filter: \"info, router\" is not allowed; allowed: a level (error, warn, info, debug, trace, off), or levels by module such as \"info,clockwork_router=debug\"",
        ),
        (
            "[admin]\nlisten = 8049\n",
            "8:10 admin.listen: a whole number is not allowed; allowed: \"off\", or \"ADDRESS:PORT\" with a numeric address, such as \"0.0.0.0:2049\" or \"[::]:2049\"",
        ),
        ("[[admin]]\n", "7:1 admin: a list is not allowed; allowed: a table, written [admin]"),
        (
            "[cache]\n",
            "7:2 cache: no such field; allowed: listen, admin, store, export, routing, limits, health, heat, history, control, log",
        ),
        ("[limit]\n", "7:2 limit: no such field; did you mean `limits`?"),
    ];
    for (rest, expected) in wrong {
        assert_eq!(messages(&format!("{LEAST}{rest}")), [expected]);
    }
}

#[test]
fn filters_are_levels_and_modules() {
    for filter in [
        "warn",
        "OFF",
        "info,clockwork_router=debug",
        "info, clockwork_router::net",
        "clockwork_switch",
        "hyper=trace",
        "error,[span]",
        "info,",
    ] {
        let config = least_and(&format!("[log]\nfilter = \"{filter}\"\n"));
        assert_eq!(config.map(|config| config.log.filter).as_deref(), Ok(filter));
    }
}

#[test]
fn fields_that_contradict_each_other_are_named_with_their_lines() {
    let wrong = [
        (
            "[listen]\ntcp = false\nudp = false\n",
            "9:7 listen.udp: tcp and udp are both off, so no client could reach the plex; switch one of them on",
        ),
        (
            "[listen]\naddress = [\"[::]:2049\", \"0.0.0.0:2049\"]\n",
            "8:25 listen.address: 0.0.0.0:2049 is taken by [::]:2049 of listen.address in line 8; choose another port or address",
        ),
        (
            "[listen]\nportmapper = \"127.0.0.1:2049\"\n",
            "8:14 listen.portmapper: 127.0.0.1:2049 is taken by [::]:2049 of listen.address in line 7; choose another port or address",
        ),
        (
            "[admin]\nlisten = \"0.0.0.0:8049\"\n",
            "8:10 admin.listen: 0.0.0.0:8049 can be reached from other machines, and the admin interface has no passwords; use 127.0.0.1 or ::1, or set admin.allow_remote = true if something else guards it",
        ),
        (
            "[limits]\ntransfer_bytes_max = 8_388_608\n",
            "7:1 limits.record_bytes_max: a record of 1114112 bytes cannot carry a transfer of 8388608 bytes; raise it to 8392704, or lower limits.transfer_bytes_max",
        ),
        (
            "[health]\ntimeout_seconds = 2.5\n",
            "8:19 health.timeout_seconds: a probe may take 2.5 s, but the next one starts after 2 s; lower it, or raise health.interval_seconds",
        ),
        (
            "[control]\nrule = \"paper\"\nreplicas_max = 2\n",
            "9:16 control.replicas_max: rule \"paper\" does not replicate files; leave replicas_max out, or use the rule \"margin\"",
        ),
        (
            "[control]\nreplicas_max = 9\n",
            "8:16 control.replicas_max: 9 is not allowed; allowed: a whole number from 1 to 8",
        ),
        (
            "[[store]]\nname = \"a\"\naddress = \"10.0.0.2:2049\"\n",
            "8:8 store[a].name: a is already in line 2; every store needs its own name",
        ),
        (
            "[[store]]\nname = \"b\"\naddress = \"10.0.0.1:2049\"\n",
            "9:11 store[b].address: 10.0.0.1:2049 is already in line 3; one server is one store; give it a higher weight instead",
        ),
        (
            "[[export]]\npath = \"//e/\"\nclients = \"::1\"\n",
            "8:8 export[//e/].path: /e is already in line 5; list all clients in one [[export]]",
        ),
    ];
    for (rest, expected) in wrong {
        assert_eq!(messages(&format!("{LEAST}{rest}")), [expected]);
    }
    let several = "[[store]]\nname = \"b\"\naddress = \"10.0.0.2:2049\"\nexport = \"/x\"\n[[export]]\npath = \"/f\"\nclients = \"::1\"\n";
    let expected = "10:10 store[b].export: /x cannot stand for all 2 exports; leave it out; each export is then mounted at the store under its own path";
    assert_eq!(messages(&format!("{LEAST}{several}")), [expected]);
    assert!(least_and("[admin]\nlisten = \"0.0.0.0:8049\"\nallow_remote = true\n").is_ok());
    assert!(least_and("[listen]\naddress = [\"127.0.0.1:2049\", \"[::1]:2049\"]\n").is_ok());
}

#[test]
fn a13_weights_that_cannot_be_used_are_refused_at_load() {
    let with = |weights: &[&str]| {
        let store = |(n, w): (usize, &&str)| {
            format!("[[store]]\nname = \"s{n}\"\naddress = \"10.0.0.{n}:1\"\nweight = {w}\n")
        };
        let stores: String = weights.iter().enumerate().map(store).collect();
        parse(&format!("{stores}[[export]]\npath = \"/e\"\nclients = \"::1\"\n"))
    };
    for weight in
        ["nan", "-nan", "inf", "-inf", "-1", "-0.5", "1e308", "1e-308", "1e400", "99999999999999999999"]
    {
        let Err(faults) = with(&["1", weight]) else { panic!("{weight} was accepted") };
        let message = faults.faults[0].problem.to_string();
        assert_eq!(
            message,
            format!(
                "{weight} is not allowed; allowed: 0 (drained: no files), or a number from 0.001 to 1000000"
            )
        );
        assert_eq!((faults.faults[0].line, faults.faults[0].field.as_str()), (8, "store[s1].weight"));
    }
    for weights in [["1", "1"], ["0", "1"], ["1", "0.0"], ["0.001", "1000000"]] {
        assert!(with(&weights).is_ok(), "{weights:?}");
    }
    for weights in [&["0", "0"][..], &["0.0"], &["-0.0"]] {
        let Err(faults) = with(weights) else { panic!("{weights:?} were accepted") };
        assert_eq!(faults.faults.len(), 1, "{faults}");
        let message = faults.faults[0].problem.to_string();
        assert_eq!(
            message,
            "every store has weight 0, so no file would have a store; give at least one store a weight above 0"
        );
        assert_eq!((faults.faults[0].line, faults.faults[0].field.as_str()), (4, "store[s0].weight"));
    }
}

#[test]
fn a11_v4_mapped_networks_become_ipv4_and_secure_is_per_export() {
    let text =
        LEAST.replace("\"10.0.0.0/8\"", "[\"::ffff:127.0.0.1\", \"::ffff:10.0.0.0/104\"]\nsecure = false");
    let config = parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
    let clients: Vec<String> = config.exports[0].clients.iter().map(ToString::to_string).collect();
    assert_eq!(clients, ["127.0.0.1/32", "10.0.0.0/8"]);
    assert!(!config.exports[0].secure);
}

#[test]
fn relative_history_paths_count_from_the_folder_of_the_file() {
    let text = format!("{LEAST}[history]\npath = \"heat\"\n");
    let config = Config::parse(&text, Path::new("/etc/clockwork/plex.toml"))
        .unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(config.history.path.as_deref(), Some(Path::new("/etc/clockwork/heat")));
    assert_eq!(least_and("[history]\npath = \"off\"\n").map(|config| config.history.path), Ok(None));
}

#[test]
fn the_summary_says_what_would_be_served_where() {
    let config = parse(EXAMPLE).unwrap_or_else(|faults| panic!("{faults}"));
    let expected = "\
serve     NFSv3 and MOUNT on [::]:2049 over TCP and UDP
          no portmapper: clients mount with port= and mountport=
          admin interface on http://127.0.0.1:8049
export    /export for 10.0.0.0/8, ::1/128 from ports below 1024
store     fast  10.0.0.11:2049  tcp, MOUNT on 20048, 50.0 % of files, repeats keep XID and port
            /export is /srv/shared there
store     slow  10.0.0.12:2049  tcp, MOUNT on 20048, 50.0 % of files, repeats keep XID and port
            /export is /srv/shared there
history   /var/lib/clockwork/history (10000 periods of 3600 s, at most 4096 MiB)
control   observe, at most 5 ms in 66 % of the periods, rule margin, guard on
";
    assert_eq!(config.summary().to_string(), expected);
}

#[test]
fn the_summary_says_whether_weights_change() {
    for (mode, said) in
        [("control", "weights learnt day by day"), ("advise", "weights do not change in this mode")]
    {
        let config = least_and(&format!("[control]\nmode = \"{mode}\"\nweights = \"apply\"\n")).unwrap();
        let summary = config.summary().to_string();
        assert!(summary.ends_with(&format!("guard on, {said}\n")), "{summary}");
    }
}

#[test]
fn a_very_long_line_is_shown_in_part() {
    let text =
        format!("# {}\n[listen]\naddress = [{}\"here\"]\n", "x".repeat(5_000), "\"[::]:0\", ".repeat(500));
    let Err(faults) = least_and(&text) else { panic!("accepted") };
    assert_eq!(faults.faults[0].column, 12 + 500 * 10);
    let shown = faults.to_string();
    assert!(shown.lines().all(|line| line.len() < 250), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let (excerpt, mark) = (lines[1], lines[2]);
    let at = mark.find('^').map(|at| &excerpt[at..at + 6]);
    assert_eq!(at, Some("\"here\""), "{shown}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        if let Err(faults) = parse(&text) {
            let _shown = faults.to_string();
            assert!(!faults.faults.is_empty());
        }
    }

    /// Any single character of the example changed: read or refused with a place, never worse.
    #[test]
    fn no_mutation_of_the_example_panics(at in 0..EXAMPLE.len(), with in "[ -~\\n\\t\u{e9}]") {
        let mut text = EXAMPLE.to_owned();
        if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
            text.replace_range(at..=at, &with);
        }
        if let Err(faults) = parse(&text) {
            for fault in &faults.faults {
                assert!(fault.line >= 1 && fault.column >= 1 && fault.width >= 1);
                assert!(fault.line <= text.lines().count().max(1));
            }
            let _shown = faults.to_string();
        }
    }
}

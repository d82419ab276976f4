//! Tokens by the environment, and token files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use super::{HomeFile, RankAssignment, Store, StoreOptions, TokenSource};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn assignment(rank: usize, port: u16) -> RankAssignment {
    let master = format!("127.0.0.1:{port}");
    RankAssignment { rank, world: 2, local_rank: rank, master, job: "a/b".into(), one_host: true }
}

/// The source, or the message of the refusal.
fn source(variables: &[(&str, &str)]) -> Result<TokenSource, String> {
    let of = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.to_string())
    };
    TokenSource::from_variables(&assignment(0, 1), &of).map_err(|error| error.to_string())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn tokens_come_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let path = file.to_str().unwrap();
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    set_mode(&file, 0o600);
    let bytes = |source| match source {
        Ok(TokenSource::Given(token)) => token.bytes().to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(bytes(source(&[("MESHWRIGHT_TOKEN_FILE", path)])), SECRET.as_bytes());
    let both = [("MESHWRIGHT_TOKEN_FILE", path), ("MESHWRIGHT_TOKEN", "another of 24 letters ..")];
    assert_eq!(bytes(source(&both)), b"another of 24 letters ..");
    assert!(matches!(source(&[("HOME", "/home/ada")]), Ok(TokenSource::HomeFolder(_))));
    for none in [&[("HOME", "")][..], &[("HOME", "relative")], &[]] {
        assert!(matches!(source(none), Ok(TokenSource::None)));
    }

    let refused = |variables: &[(&str, &str)]| source(variables).unwrap_err();
    assert!(refused(&[("MESHWRIGHT_TOKEN", "secret")]).contains("6 characters can be guessed"));
    let by_file = || refused(&[("MESHWRIGHT_TOKEN_FILE", path)]);
    set_mode(&file, 0o640);
    assert!(by_file().contains(&format!("chmod 600 {path}")));
    set_mode(&file, 0o600);
    fs::write(&file, "").unwrap();
    assert!(by_file().contains("0 characters can be guessed"));
    fs::write(&file, "x".repeat(5000)).unwrap();
    assert!(by_file().contains("it is not a file with a token"));
    fs::remove_file(&file).unwrap();
    assert!(by_file().contains("No such file"));
    let target = folder.path().join("target");
    fs::write(&target, SECRET).unwrap();
    set_mode(&target, 0o600);
    symlink(&target, &file).unwrap();
    assert!(by_file().contains("it is a symbolic link; name the file to which it leads"));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(by_file().contains("it is not a file with a token"));
}

#[test]
fn rank_0_writes_a_token_for_the_others() {
    let home = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = HomeFile::of_job(home.path(), &assignment(0, port));
    let options = StoreOptions {
        timeout: Duration::from_secs(20),
        token: TokenSource::HomeFolder(file.clone()),
        ..StoreOptions::default()
    };
    // The file of an earlier job of the same name, which was killed.
    let stale = file.publish().unwrap();
    let stores = std::thread::scope(|scope| {
        // Rank 1 begins with the stale file.
        let second = scope.spawn(|| Store::open(&assignment(1, port), &options).unwrap());
        while !second.is_finished() && file.read() != Ok(Some(stale.clone())) {
            std::thread::yield_now();
        }
        let first = Store::open(&assignment(0, port), &options).unwrap();
        [first, second.join().unwrap()]
    });
    assert_eq!(stores[0].warnings(), &[] as &[String]);
    drop(stores);
    assert_eq!(file.read(), Ok(None));
}

/// A home folder that is a file, or that does not exist: rank 0 writes no token, and the others need none.
#[test]
fn without_a_home_folder_no_token_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for home in [file, folder.path().join("none")] {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let open = |rank| {
            let token = TokenSource::HomeFolder(HomeFile::of_job(&home, &assignment(0, port)));
            let timeout = Duration::from_secs(20);
            let options = StoreOptions { timeout, token, ..StoreOptions::default() };
            Store::open(&assignment(rank, port), &options)
        };
        let stores = [0, 1].map(|rank| open(rank).unwrap());
        assert!(stores[0].warnings()[0].contains("set MESHWRIGHT_TOKEN"), "{stores:?}");
    }
}

/// Jobs that were killed while they waited leave their files.
#[test]
fn old_token_files_are_removed() {
    let home = tempfile::tempdir().unwrap();
    let [old, new] = [7, 8].map(|port| HomeFile::of_job(home.path(), &assignment(0, port)));
    old.publish().unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(25 * 3600);
    let file = fs::File::options().write(true).open(old.path()).unwrap();
    file.set_modified(long_ago).unwrap();
    new.publish().unwrap();
    assert!(!old.path().exists() && new.path().exists());
    old.publish().unwrap();
    assert!(new.path().exists());
}

#[test]
fn token_files_are_safe_from_other_users() {
    let home = tempfile::tempdir().unwrap();
    let file = HomeFile::of_job(home.path(), &assignment(0, 7));
    let name = file.path().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("a_b@127.0.0.1_7@"), "{name}");
    let token = file.publish().unwrap();
    assert_eq!(file.read(), Ok(Some(token.clone())));
    // Only the token that was written is removed.
    let later = file.publish().unwrap();
    file.remove(&token);
    assert_eq!(file.read(), Ok(Some(later)));

    let folder = file.path().parent().unwrap().to_path_buf();
    set_mode(&folder, 0o770);
    assert!(file.read().unwrap_err().contains("chmod 700"));
    assert!(file.publish().unwrap_err().to_string().contains("chmod 700"));
    set_mode(&folder, 0o700);
    set_mode(&file.path(), 0o644);
    assert!(file.read().unwrap_err().contains("chmod 600"));
    // A link is replaced, and not followed.
    let target = home.path().join("target");
    fs::write(&target, SECRET).unwrap();
    set_mode(&target, 0o600);
    fs::remove_file(file.path()).unwrap();
    symlink(&target, file.path()).unwrap();
    file.read().unwrap_err();
    file.publish().unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

/// A home folder on a disk of one host is no place for the token of several.
#[test]
fn hosts_share_a_network_folder_only() {
    let home = tempfile::tempdir().unwrap();
    let hosts = RankAssignment { one_host: false, ..assignment(0, 7) };
    let error = HomeFile::of_job(home.path(), &hosts).publish().unwrap_err().to_string();
    assert!(error.contains("is on a disk of this host"), "{error}");
    let one_host = assignment(0, 7);
    let error = HomeFile::of_job(&home.path().join("missing"), &one_host).publish().unwrap_err();
    assert!(error.to_string().contains("missing/.meshwright"), "{error}");
}

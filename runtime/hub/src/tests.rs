//! Models of a hub on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;

/// The revision of all models.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Most requests that a hub answers.
const MAX_REQUESTS: usize = 100;

/// A hub with the model `o/n`.
struct TestHub {
    hub: Hub,
    /// Paths that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
    cache: TempDir,
}

impl TestHub {
    /// Starts a hub with these files. One whose name begins with `cut-` breaks off at its first request.
    fn start(files: &[(&str, &str)]) -> TestHub {
        let owned = |(name, content): &(&str, &str)| ((*name).to_owned(), (*content).to_owned());
        let files: BTreeMap<String, String> = files.iter().map(owned).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let paths = Arc::clone(&asked);
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().take(MAX_REQUESTS) {
                let _ = answer(&stream.unwrap(), &files, &paths);
            }
        });
        let cache = tempfile::tempdir().unwrap();
        let hub = Hub { endpoint, cache: cache.path().join("hub"), token: None, is_offline: false };
        TestHub { hub, asked, cache }
    }

    fn fetch(&self, name: &str) -> Result<PathBuf, CheckpointError> {
        fetch(&self.hub, name)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn fetch(hub: &Hub, name: &str) -> Result<PathBuf, CheckpointError> {
    Ok(hub.open(&name.parse().unwrap())?.fetch_model()?.to_owned())
}

/// Answers one request.
fn answer(
    mut stream: &TcpStream,
    files: &BTreeMap<String, String>,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut lines = BufReader::new(stream.take(1 << 16)).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let range = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        value.strip_prefix("bytes=").filter(|_| name.eq_ignore_ascii_case("range"))
    });
    let is_first = !asked.lock().unwrap().contains(&path);
    asked.lock().unwrap().push(path.clone());
    let respond = |mut stream: &TcpStream,
                   status: &str,
                   headers: &str,
                   length: usize,
                   body: &str| {
        write!(
            stream,
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
    };
    if ["/api/models/o/n/revision/main", &format!("/api/models/o/n/revision/{COMMIT}")]
        .contains(&path.as_str())
    {
        let siblings: Vec<_> = files.keys().map(|name| json!({ "rfilename": name })).collect();
        let body = json!({ "sha": COMMIT, "siblings": siblings }).to_string();
        return respond(stream, "200 OK", "", body.len(), &body);
    }
    if path.starts_with("/api/models/private/") {
        return respond(stream, "401 Unauthorized", "", 0, "");
    }
    if path.starts_with("/api/models/busy/") {
        return respond(stream, "503 Service Unavailable", "", 0, "");
    }
    let name = path.strip_prefix(&format!("/o/n/resolve/{COMMIT}/"));
    let Some((name, content)) = name.and_then(|name| files.get_key_value(name)) else {
        return respond(stream, "404 Not Found", "", 0, "");
    };
    let (first, last) = range.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    let first: usize = first.parse().unwrap();
    let end = last.parse().map_or(content.len(), |last: usize| content.len().min(last + 1));
    let headers = format!(
        "ETag: \"{name}\"\r\nX-Repo-Commit: {COMMIT}\r\nContent-Range: bytes {first}-{}/{}\r\n",
        end.saturating_sub(1),
        content.len()
    );
    let part = &content[first..end];
    let is_cut =
        name.starts_with("model-") && content.starts_with("cut") && last.is_empty() && first == 0;
    let sent = if is_cut && !is_first { &part[..part.len() / 2] } else { part };
    respond(stream, "206 Partial Content", &headers, part.len(), sent)?;
    stream.flush()
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn names_have_owners_and_revisions() {
    for (text, shown) in [
        ("hf://o/n", "hf://o/n"),
        ("hf://gpt2", "hf://gpt2"),
        ("hf://o/n-1.0_x@main", "hf://o/n-1.0_x"),
        ("hf://o/n@refs/pr/1", "hf://o/n@refs/pr/1"),
    ] {
        assert_eq!(text.parse::<HubModel>().unwrap().to_string(), shown);
    }
    for text in [
        "hf://",
        "hf://o/",
        "hf:///n",
        "hf://o/n/m",
        "hf://o/..",
        "hf://o/n@",
        "hf://o/n?x",
        "hf://o/n@a/../b",
    ] {
        let message = text.parse::<HubModel>().unwrap_err();
        assert_eq!(
            message,
            format!(
                "{text}: is not a model of the hub; write hf://OWNER/NAME, or hf://OWNER/NAME@REVISION"
            )
        );
    }
}

#[test]
fn models_are_fetched_once() {
    let files = [
        ("config.json", "{}"),
        ("tokenizer.json", "[]"),
        ("generation_config.json", "{ }"),
        ("model.safetensors", "weights"),
        ("model.safetensors.index.json", "other"),
        ("pytorch_model.bin", "pickle"),
        ("onnx/model.safetensors", "other"),
        ("../config.json", "evil"),
        ("README.md", "text"),
    ];
    let test = TestHub::start(&files);
    let folder = test.fetch("hf://o/n").unwrap();
    for (name, content) in &files[..4] {
        assert_eq!(read(&folder, name), *content);
    }
    let mut names: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
    );
    let pinned = format!("hf://o/n@{COMMIT}");
    assert_eq!(test.hub.model_at(&folder).unwrap().to_string(), pinned);
    assert_eq!(test.hub.model_at(&folder.join("tokenizer.json")).unwrap().to_string(), pinned);
    assert_eq!(test.hub.model_at(test.cache.path()), None);
    test.asked();
    assert_eq!(test.fetch("hf://o/n").unwrap(), folder);
    assert_eq!(test.asked(), ["/api/models/o/n/revision/main"]);
    // Without a connection, the cache is used, by branch and by revision.
    for hub in [
        Hub { endpoint: "http://127.0.0.1:1".to_owned(), ..test.hub.clone() },
        Hub { is_offline: true, ..test.hub.clone() },
    ] {
        assert_eq!(fetch(&hub, "hf://o/n").unwrap(), folder);
        assert_eq!(fetch(&hub, &pinned).unwrap(), folder);
    }
}

/// Also a file whose download breaks off, which is continued.
#[test]
fn files_of_an_index_are_fetched() {
    let index = json!({ "weight_map": { "a": "model-1.safetensors", "b": "model-2.safetensors" } })
        .to_string();
    let long = format!("cut{}", "x".repeat(1000));
    let test = TestHub::start(&[
        ("config.json", "{}"),
        ("model-1.safetensors", "one"),
        ("model-2.safetensors", &long),
        ("model-3.safetensors", "three"),
        ("model.safetensors.index.json", &index),
    ]);
    let folder = test.fetch(&format!("hf://o/n@{COMMIT}")).unwrap();
    assert_eq!(read(&folder, "model-1.safetensors"), "one");
    assert_eq!(read(&folder, "model-2.safetensors"), long);
    assert!(!folder.join("model-3.safetensors").exists());
}

#[test]
fn models_that_cannot_be_fetched_are_one_message() {
    let test = TestHub::start(&[("config.json", "{}"), ("pytorch_model.bin", "pickle")]);
    let endpoint = &test.hub.endpoint;
    let code = |error: &CheckpointError| meshwright_os::exit_code::code_of_error(error);
    for (name, expected, reason) in [
        (
            "hf://o/missing",
            2,
            format!("hf://o/missing: {endpoint} has no such model, revision or file"),
        ),
        (
            "hf://o/n@other",
            2,
            format!("hf://o/n@other: {endpoint} has no such model, revision or file"),
        ),
        (
            "hf://private/n",
            2,
            format!("hf://private/n: {endpoint} has no such model, or refuses it; check the name"),
        ),
        (
            "hf://busy/n",
            3,
            "cannot fetch hf://busy/n: request error: http status: 503 (".to_owned(),
        ),
        (
            "hf://o/n",
            2,
            "it has no weights in safetensors, but config.json, pytorch_model.bin; use".to_owned(),
        ),
    ] {
        let error = test.fetch(name).unwrap_err();
        assert!(error.to_string().contains(&reason), "{error}");
        assert_eq!((code(&error), error.to_string().lines().count()), (expected, 1), "{error}");
    }
    for hub in [
        Hub { endpoint: "http://127.0.0.1:1".to_owned(), ..test.hub.clone() },
        Hub { is_offline: true, ..test.hub.clone() },
    ] {
        let error = fetch(&hub, "hf://o/other").unwrap_err();
        assert!(error.to_string().contains("name a folder that was downloaded before"), "{error}");
        assert_eq!(code(&error), 3, "{error}");
    }
}

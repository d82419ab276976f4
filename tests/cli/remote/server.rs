//! A service with the API of S3, in memory, with faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::http::{Answer, Request};

/// The only bucket.
pub const BUCKET: &str = "bucket";

/// Most entries of one answer to a listing: less than most listings have.
const PAGE: usize = 3;

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ServerFault {
    /// An answer with this status, and nothing is done.
    Refuse(u16),
    /// The request is done, and its answer is lost.
    LoseAnswer,
    /// The answer ends in the middle.
    Cut,
    /// The answer is whole, but has only half of the bytes of a range.
    Short,
    /// A bit of the answer is altered.
    Alter,
    /// The answer comes late.
    Delay(Duration),
    /// This request, which is done if the value is true, and all later ones are not answered.
    Vanish(bool),
}

/// Chooses the fault of a request by its number.
pub type FaultPlan = Box<dyn FnMut(usize, &Request) -> Option<ServerFault> + Send>;

/// The content of the bucket.
#[derive(Default)]
pub struct Objects {
    pub objects: BTreeMap<String, Vec<u8>>,
    versions: BTreeMap<String, u64>,
    /// Unfinished uploads: their objects and parts.
    pub uploads: BTreeMap<String, (String, BTreeMap<usize, Vec<u8>>)>,
    last_number: u64,
    /// Requests so far, and the bytes of the answers to reads of objects that hold tensors, and of data.
    pub requests: usize,
    pub bytes_read: usize,
    pub data_read: usize,
    /// Ignores the conditions of writes.
    pub is_unconditional: bool,
    pub has_vanished: bool,
}

/// A running service.
pub struct Server {
    address: SocketAddr,
    objects: Arc<Mutex<Objects>>,
    faults: Arc<Mutex<Option<FaultPlan>>>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server { address, objects: Arc::default(), faults: Arc::default() };
        let (objects, faults) = (Arc::clone(&server.objects), Arc::clone(&server.faults));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (objects, faults) = (Arc::clone(&objects), Arc::clone(&faults));
                std::thread::spawn(move || serve(stream, &objects, &faults));
            }
        });
        server
    }

    /// Sets the environment with which a program finds the service.
    pub fn set_env(&self, command: &mut Command) {
        command
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.address))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "here");
    }

    pub fn content(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap()
    }

    /// Sets the faults of later requests.
    pub fn plan(&self, plan: impl FnMut(usize, &Request) -> Option<ServerFault> + Send + 'static) {
        *self.faults.lock().unwrap() = Some(Box::new(plan));
    }

    /// Ends all faults.
    pub fn repair(&self) {
        *self.faults.lock().unwrap() = None;
        self.content().has_vanished = false;
    }

    /// Lists the names of all objects below a path.
    pub fn names(&self, below: &str) -> Vec<String> {
        let content = self.content();
        let names = content.objects.keys().filter_map(|name| name.strip_prefix(below));
        names.map(str::to_owned).collect()
    }

    /// Copies the objects below a path to a folder, as tools for object storage do.
    pub fn copy_to(&self, below: &str, folder: &Path) {
        for name in self.names(below) {
            let path = folder.join(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &self.content().objects[&format!("{below}{name}")]).unwrap();
        }
    }
}

fn serve(stream: TcpStream, objects: &Mutex<Objects>, faults: &Mutex<Option<FaultPlan>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = Request::read(&mut reader) {
        let number = {
            let mut objects = objects.lock().unwrap();
            objects.requests += 1;
            objects.requests
        };
        let fault = faults.lock().unwrap().as_mut().and_then(|plan| plan(number, &request));
        if let Some(ServerFault::Vanish(is_done)) = fault {
            let mut objects = objects.lock().unwrap();
            if is_done {
                objects.answer(&request);
            }
            objects.has_vanished = true;
        }
        if objects.lock().unwrap().has_vanished {
            return;
        }
        if let Some(ServerFault::Delay(delay)) = fault {
            std::thread::sleep(delay);
        }
        let mut answer = match fault {
            Some(ServerFault::Refuse(status)) => Answer::error(status, "Refused"),
            _ => objects.lock().unwrap().answer(&request),
        };
        let mut sent = answer.body.len();
        match fault {
            Some(ServerFault::LoseAnswer) => return,
            Some(ServerFault::Cut) => sent /= 2,
            Some(ServerFault::Short) => {
                sent /= 2;
                answer.body.truncate(sent);
            }
            Some(ServerFault::Alter) => {
                let middle = answer.body.len() / 2;
                answer.body.get_mut(middle).into_iter().for_each(|byte| *byte ^= 0x10);
            }
            _ => {}
        }
        if request.method == "GET" && request.path.ends_with(".safetensors") {
            objects.lock().unwrap().bytes_read += sent;
        }
        if request.method == "GET" && request.path.starts_with("bucket/data/") {
            objects.lock().unwrap().data_read += sent;
        }
        let is_head = request.method == "HEAD";
        if answer.send(&mut stream, is_head, sent).is_err() || fault == Some(ServerFault::Cut) {
            return;
        }
    }
}

impl Objects {
    fn answer(&mut self, request: &Request) -> Answer {
        let (bucket, key) = request.path.split_once('/').unwrap_or((&request.path, ""));
        if bucket != BUCKET {
            return Answer::error(404, "NoSuchBucket");
        }
        let query = |name: &str| request.query.get(name).cloned();
        let key = key.to_owned();
        match (request.method.as_str(), query("uploadId")) {
            ("GET", None) if key.is_empty() => self.list(request),
            ("GET" | "HEAD", None) => match request.header("if-match") {
                Some(tag) if self.objects.contains_key(&key) && self.tag(&key) != tag => {
                    Answer::error(412, "PreconditionFailed")
                }
                _ => self.get(&key, request.header("range")),
            },
            ("PUT", None) => self.put(key, request),
            ("DELETE", None) => {
                self.objects.remove(&key);
                Answer::new(204, "")
            }
            ("POST", None) => {
                self.last_number += 1;
                let id = format!("upload-{}", self.last_number);
                let text = format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                );
                self.uploads.insert(id, (key, BTreeMap::new()));
                Answer::new(200, text)
            }
            (method, Some(id)) => {
                let Some((_, parts)) = self.uploads.get_mut(&id) else {
                    return Answer::error(404, "NoSuchUpload");
                };
                match method {
                    "PUT" => {
                        let part = query("partNumber").unwrap().parse().unwrap();
                        parts.insert(part, request.body.clone());
                        Answer::new(200, "").with("etag", format!("\"part-{part}\""))
                    }
                    "DELETE" => {
                        self.uploads.remove(&id);
                        Answer::new(204, "")
                    }
                    _ => {
                        let (key, parts) = self.uploads.remove(&id).unwrap();
                        let content = parts.into_values().flatten().collect();
                        let tag = self.set(key, content);
                        let text = format!(
                            "<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
                        );
                        Answer::new(200, text)
                    }
                }
            }
            _ => Answer::error(405, "MethodNotAllowed"),
        }
    }

    fn tag(&self, key: &str) -> String {
        format!("\"v{}\"", self.versions[key])
    }

    /// Writes an object from outside, with a new version.
    pub fn set(&mut self, key: String, content: Vec<u8>) -> String {
        self.last_number += 1;
        self.versions.insert(key.clone(), self.last_number);
        self.objects.insert(key.clone(), content);
        self.tag(&key)
    }

    fn put(&mut self, key: String, request: &Request) -> Answer {
        let is_there = self.objects.contains_key(&key);
        let is_met = match (request.header("if-none-match"), request.header("if-match")) {
            _ if self.is_unconditional => true,
            (Some(_), _) => !is_there,
            (None, Some(tag)) => is_there && self.tag(&key) == tag,
            (None, None) => true,
        };
        if !is_met {
            return Answer::error(412, "PreconditionFailed");
        }
        let tag = self.set(key, request.body.clone());
        Answer::new(200, "").with("etag", tag)
    }

    fn get(&self, key: &str, range: Option<&str>) -> Answer {
        let Some(content) = self.objects.get(key) else { return Answer::error(404, "NoSuchKey") };
        let modified = "Sun, 29 Nov 2026 20:00:00 GMT";
        let with =
            |answer: Answer| answer.with("etag", self.tag(key)).with("last-modified", modified);
        let Some((start, end)) =
            range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'))
        else {
            return with(Answer::new(200, content.clone()));
        };
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        let end = content.len().min(end + 1);
        if start >= end {
            return Answer::error(416, "InvalidRange");
        }
        let range = format!("bytes {start}-{}/{}", end - 1, content.len());
        with(Answer::new(206, &content[start..end])).with("content-range", range)
    }

    /// Lists objects and, with a delimiter, folders; in pages.
    fn list(&self, request: &Request) -> Answer {
        let query = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let (prefix, delimiter) = (query("prefix"), query("delimiter"));
        let mut entries = BTreeSet::new();
        for key in self.objects.keys().filter(|key| key.starts_with(prefix)) {
            let inner = key[prefix.len()..].find(delimiter).filter(|_| !delimiter.is_empty());
            entries.insert(match inner {
                Some(end) => (key[..=prefix.len() + end].to_owned(), true),
                None => (key.clone(), false),
            });
        }
        let after = query("continuation-token").max(query("start-after"));
        let mut entries = entries.into_iter().filter(|(key, _)| key.as_str() > after);
        let page: Vec<(String, bool)> = entries.by_ref().take(PAGE).collect();
        let mut text = "<ListBucketResult>".to_owned();
        for (key, is_folder) in &page {
            text += &if *is_folder {
                format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>")
            } else {
                format!(
                    "<Contents><Key>{key}</Key><LastModified>2026-11-29T20:00:00.000Z</LastModified><ETag>{}</ETag>\
                     <Size>{}</Size></Contents>",
                    self.tag(key),
                    self.objects[key].len()
                )
            };
        }
        let has_more = entries.next().is_some();
        if let Some((last, _)) = page.last().filter(|_| has_more) {
            text += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        Answer::new(200, format!("{text}<IsTruncated>{has_more}</IsTruncated></ListBucketResult>"))
    }
}

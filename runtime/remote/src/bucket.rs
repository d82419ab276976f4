//! Buckets, and the threads that serve their requests.

use std::collections::HashMap;
use std::env;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectStore, Result, RetryConfig};
use tokio::runtime::{Builder, Runtime};

use crate::error::{refused, to_io};

/// Tries of a request after the first one.
const RETRIES: usize = 6;

/// Longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Time after which a request is not tried again.
const RETRY_LIMIT: Duration = Duration::from_secs(90);

/// Time for one try of a request, of at most a part of an object.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Time to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Time for the service of a cloud's machines that has their credentials to answer.
const METADATA_LIMIT: Duration = Duration::from_secs(1);

/// Variables with which S3 has credentials, or needs none.
const AWS_CREDENTIALS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
];

/// A store with the operations of both traits.
pub trait BucketStore: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> BucketStore for T {}

/// An open bucket, or container.
#[derive(Debug)]
pub struct Bucket {
    pub store: Arc<dyn BucketStore>,
}

impl Bucket {
    /// Opens the bucket `name` of a service, once in a process.
    ///
    /// # Errors
    /// Settings of the environment that are wrong or missing. The bucket itself is not asked for.
    pub fn open(scheme: &str, name: &str) -> io::Result<Arc<Bucket>> {
        static OPEN: Mutex<Option<HashMap<String, Arc<Bucket>>>> = Mutex::new(None);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        let key = format!("{scheme}://{name}");
        if let Some(bucket) = open.get(&key) {
            return Ok(Arc::clone(bucket));
        }
        // Fails if the program has chosen one itself, which is used then.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = connect(scheme, name)?;
        let bucket = Arc::new(Bucket { store });
        open.insert(key, Arc::clone(&bucket));
        Ok(bucket)
    }
}

fn connect(scheme: &str, name: &str) -> io::Result<Arc<dyn BucketStore>> {
    let retry = RetryConfig {
        backoff: BackoffConfig { max_backoff: LONGEST_WAIT, ..BackoffConfig::default() },
        max_retries: RETRIES,
        retry_timeout: RETRY_LIMIT,
    };
    // The variables of S3 have it among them.
    let allows_http = |name| env::var(name).is_ok_and(|value| value == "true" || value == "1");
    let options = ClientOptions::new().with_timeout(TIME_LIMIT).with_connect_timeout(CONNECT_LIMIT);
    let failed = |error| to_io(error, name);
    Ok(match scheme {
        "s3" => {
            check_aws_credentials()?;
            let options = options.with_allow_http(allows_http("AWS_ALLOW_HTTP"));
            let builder = AmazonS3Builder::from_env().with_bucket_name(name).with_retry(retry);
            // Not all services have removals of several objects.
            let builder = builder.with_disable_bulk_delete(true);
            Arc::new(builder.with_client_options(options).build().map_err(failed)?)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(name);
            Arc::new(
                builder.with_retry(retry).with_client_options(options).build().map_err(failed)?,
            )
        }
        _ => {
            let options = options.with_allow_http(allows_http("AZURE_ALLOW_HTTP"));
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(name);
            Arc::new(
                builder.with_retry(retry).with_client_options(options).build().map_err(failed)?,
            )
        }
    })
}

/// Checks that there are credentials for S3: without any in the environment, a service of the machine is
/// asked, which takes minutes to fail if there is none.
fn check_aws_credentials() -> io::Result<()> {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if AWS_CREDENTIALS.iter().any(|name| is_set(name)) {
        return Ok(());
    }
    let endpoint = env::var("AWS_METADATA_ENDPOINT").unwrap_or_default();
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let host = if host.is_empty() { "169.254.169.254" } else { host };
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let addresses = address.to_socket_addrs().ok();
    let mut addresses = addresses.into_iter().flatten();
    if addresses.any(|address| TcpStream::connect_timeout(&address, METADATA_LIMIT).is_ok()) {
        return Ok(());
    }
    Err(refused(
        "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (`aws configure \
         export-credentials --format env` prints those of a profile), and AWS_ENDPOINT_URL for a service that is not \
         Amazon's",
    ))
}

/// Most repetitions of a request whose answer was cut.
pub const REPETITIONS: u32 = 5;

/// Makes a request that may be repeated, and again if [`is_cut`].
pub async fn repeat_if_cut<T, F>(request: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    for tries in 0..REPETITIONS {
        match request().await {
            Err(error) if is_cut(&error) => wait_for_repetition(tries).await,
            other => return other,
        }
    }
    request().await
}

/// Returns true if the answer to a request was cut, or a connection was reset before it, and the client has not
/// repeated the request: it repeats no answers, and no writes with a condition.
pub fn is_cut(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("response body") || is_interrupted(error) && !text.contains(" retries, ")
}

fn is_interrupted(error: &Error) -> bool {
    let causes =
        std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let mut http = causes.filter_map(|error| error.downcast_ref::<HttpError>());
    http.any(|error| error.kind() == HttpErrorKind::Interrupted)
}

/// Waits before a request is repeated, the longer the more often it was.
pub async fn wait_for_repetition(tries: u32) {
    tokio::time::sleep(Duration::from_millis(50 << tries)).await;
}

/// Waits for a request; returns `None` once `is_cancelled` returns true.
pub fn wait_unless<T>(
    request: impl Future<Output = T>,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<T> {
    const INTERVAL: Duration = Duration::from_millis(100);
    runtime().block_on(async {
        let mut request = pin!(request);
        loop {
            match tokio::time::timeout(INTERVAL, &mut request).await {
                Ok(answer) => return Some(answer),
                Err(_) if is_cancelled() => return None,
                Err(_) => {}
            }
        }
    })
}

/// Returns the threads that serve requests.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(2).thread_name("object storage").enable_all();
        builder.build().expect("the process can start two threads")
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Makes a request whose first answer is an error of this kind, and returns the number of requests.
    fn requests(kind: HttpErrorKind) -> u32 {
        let failed = || {
            let reset = HttpError::new(kind, io::Error::from(io::ErrorKind::ConnectionReset));
            Error::Generic { store: "S3", source: Box::new(reset) }
        };
        let requests = Cell::new(0);
        let request = || {
            requests.set(requests.get() + 1);
            std::future::ready(if requests.get() == 1 { Err(failed()) } else { Ok(()) })
        };
        let answer = runtime().block_on(repeat_if_cut(request));
        assert_eq!(answer.is_ok(), requests.get() == 2);
        requests.get()
    }

    #[test]
    fn a_request_is_repeated_if_its_connection_was_reset() {
        assert_eq!(requests(HttpErrorKind::Interrupted), 2);
        assert_eq!(requests(HttpErrorKind::Timeout), 1);
    }
}

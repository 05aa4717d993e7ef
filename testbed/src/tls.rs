use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

/// An authority of the test's own, and what it has signed: a certificate for a server on loopback,
/// and one for a client.
#[derive(Debug, Clone)]
pub struct Certificates {
    dir: Arc<TempDir>,
}

/// The names under which tests reach their servers.
const NAMES: &str = "subjectAltName=DNS:localhost,IP:127.0.0.1\n";

impl Certificates {
    /// New ones; `None` where there is no `openssl` program to make them, and the test should say
    /// so with [`skip!`](crate::skip!).
    pub fn new() -> Option<Self> {
        Self::naming(NAMES)
    }

    /// The same for a server of other names than those under which tests reach it:
    /// `subjectAltName=DNS:elsewhere`.
    pub fn naming(names: &str) -> Option<Self> {
        let dir = TempDir::with_prefix("testbed-tls-").expect("a temporary directory");
        let made = Self { dir: Arc::new(dir) };
        fs::write(made.file("names"), names).expect("a file can be written");
        (made.authority() && made.sign("server") && made.sign("client")).then_some(made)
    }

    /// The authority's certificate, which a client must trust.
    pub fn authority_file(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// A certificate that the authority has signed for a client.
    pub fn client_file(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The key to [`client_file`](Self::client_file).
    pub fn client_key_file(&self) -> PathBuf {
        self.file("client.key")
    }

    /// The certificate that servers show.
    pub fn server_file(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The key to it.
    pub fn server_key_file(&self) -> PathBuf {
        self.file("server.key")
    }

    /// A server's options; clients may come without a certificate.
    pub(crate) fn server_options(&self) -> [(&'static str, String); 4] {
        let file = |name: &str| self.file(name).display().to_string();
        [
            ("tls-cert-file", file("server.pem")),
            ("tls-key-file", file("server.key")),
            ("tls-ca-cert-file", file("ca.pem")),
            ("tls-auth-clients", "no".into()),
        ]
    }

    fn authority(&self) -> bool {
        self.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
             -subj /CN=testbed -addext basicConstraints=critical,CA:TRUE \
             -keyout ca.key -out ca.pem",
        )
    }

    fn sign(&self, name: &str) -> bool {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} \
             -keyout {name}.key -out {name}.csr"
        )) && self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile names -out {name}.pem"
        ))
    }

    fn openssl(&self, words: &str) -> bool {
        let mut command = Command::new("openssl");
        command.current_dir(self.dir.path()).args(words.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }
}

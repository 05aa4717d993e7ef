use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

/// Where a server listens, and in which network namespace it runs.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    addresses: Vec<Ipv4Addr>,
    namespace: Option<String>,
}

impl Default for Host {
    fn default() -> Self {
        Self::at(Ipv4Addr::LOCALHOST)
    }
}

impl Host {
    /// An address of the namespace of the tests.
    pub(crate) fn at(address: Ipv4Addr) -> Self {
        Self { addresses: vec![address], namespace: None }
    }

    /// A namespace of its own, with these addresses.
    pub(crate) fn inside(namespace: &str, addresses: Vec<Ipv4Addr>) -> Self {
        Self { addresses, namespace: Some(namespace.to_owned()) }
    }

    /// The address that others use.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.addresses[0]
    }

    /// All addresses, as words.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = String> + '_ {
        self.addresses.iter().map(ToString::to_string)
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.address().is_loopback()
    }

    /// Starts this program there. The process that is started is the program itself, not a parent
    /// of it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let Some(namespace) = &self.namespace else { return Command::new(program) };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program);
        command
    }
}

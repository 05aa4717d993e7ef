use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The ports that servers announce, and those of the proxies to them.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortMap(BTreeMap<u16, u16>);

impl PortMap {
    /// `7000=8000,7001=8001`, or nothing.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        let parse = |pair: &str| {
            let (announced, proxy) = pair.split_once('=').context("a pair of ports")?;
            Ok((announced.parse()?, proxy.parse()?))
        };
        pairs.map(parse).collect::<Result<_>>().map(Self)
    }

    pub(crate) fn translate(&self, port: u16) -> u16 {
        self.0.get(&port).copied().unwrap_or(port)
    }
}

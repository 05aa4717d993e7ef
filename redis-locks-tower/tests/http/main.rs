//! The layers under axum, over real HTTP.

mod client;
mod gate;
mod lock;

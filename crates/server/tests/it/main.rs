//! Drives the real program, as an operator would.

mod admission;
mod authority;
mod caller;
mod canary;
mod commands;
mod configuration;
mod documents;
mod harness;
mod mutual_tls;
mod notificaties;
mod notificaties_access;
mod notificaties_delivery;
mod notificaties_world;
mod pca_hub;
mod pca_hub_nodes;
mod postgres;
mod rotation;
mod serving;
mod tls;
mod token_canary;
mod verify;
